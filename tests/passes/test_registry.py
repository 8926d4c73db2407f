"""From a line of the registry come a pass's name in `allow`, its JSON, its sentence, its docs."""

import dataclasses
import json
import typing

import pytest

import rnnmem
from rnnmem.analysis.machine import CPU
from rnnmem.passes.registry import BEFORE_LOOPS, DEFAULT, DEFAULTS, GROUPS, PASSES, Kind, passes_of
from rnnmem.passes.rematerialise.decision import LoopPlan
from rnnmem.planning.as_json import from_data, to_data
from rnnmem.planning.options import Options
from rnnmem.planning.plan import NestedPlan, Plan
from rnnmem.planning.search import Search
from rnnmem.planning.setting import Setting
from rnnmem.planning.telling import changes
from rnnmem.reports.explain import explain
from tests.handmade import encoded, rnn

OF_A_NET = [one for one in PASSES if one.kind is not Kind.LOOP]
EVERY = pytest.mark.parametrize("one", PASSES, ids=lambda one: one.name)
SAMPLES = {str: "name", int: 3, float: 0.5, bool: True}


def sample(kind):
    """A value of a field's type, nothing of it left out."""
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        fields = {field.name: sample(hints[field.name]) for field in dataclasses.fields(kind)}
        return kind(**{**fields, **({"techniques": ("bits",)} if "techniques" in fields else {})})
    choices = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        return (sample(choices[0]),)
    return sample(choices[0]) if choices else SAMPLES[kind]


def of_a_net():
    """A plan with a decision of each pass that decides on more than a loop."""
    return Plan().having(**{one.name: (sample(one.decides),) for one in OF_A_NET})


@EVERY
def test_a_decision_goes_to_json_and_back(one):
    if one.decides is LoopPlan:  # it holds itself
        return
    made = sample(one.decides)
    assert from_data(one.decides, json.loads(json.dumps(to_data(made)))) == made


@EVERY
def test_each_is_allowed_by_its_name_and_brings_no_other(one):
    allowed = Options.of(None, 1.1, (one.name,), False).passes
    assert allowed == {one.name, "dead_code"}
    assert one.exact or not one.default, "what changes bits is used only where it is named"


def test_a_plan_holds_the_decisions_of_all():
    plan = of_a_net()
    plan = dataclasses.replace(plan, nested=(NestedPlan(("train", "body"), ("train",), plan),))
    assert [name for name, _ in plan.decisions] == [one.name for one in OF_A_NET]
    assert Plan.from_json(plan.to_json()) == plan
    assert json.loads(plan.to_json())["format"] == 2
    assert plan.having(scheduling_edges=()).of("scheduling_edges") == ()


def rows_of(explanation):
    """The lines of a text, whatever stands between the columns of its tables."""
    return [" ".join(line.split()) for line in explanation.text(200).splitlines()]


def test_every_decision_of_every_pass_has_its_sentence():
    plan = of_a_net()
    nested = dataclasses.replace(plan, nested=(NestedPlan(("train", "body"), ("train",), plan),))
    rows = rows_of(explain(nested, name="step"))
    for one in OF_A_NET:
        (decided,) = plan.of(one.name)
        assert f"{one.name} the function {decided.sentence}" in rows
        assert f"{one.name} train {decided.sentence}" in rows


@pytest.mark.parametrize("one", BEFORE_LOOPS, ids=lambda one: one.name)
def test_what_is_decided_before_loops_is_decided_applied_and_counted_by_the_pass(one):
    assert one.decide is not None and one.apply is not None
    alone = Plan().having(**{one.name: (sample(one.decides),)})
    assert not alone.changes_nothing
    assert changes(alone) == f"1 {one.decides.COUNTED[0]}"
    assert changes(Plan().having(**{one.name: alone.of(one.name) * 3})).endswith(
        f"3 {one.decides.COUNTED[1]}"
    )


def test_many_decisions_of_one_pass_are_counted():
    edge = sample(next(one for one in PASSES if one.name == "scheduling_edges").decides)
    plan = Plan().having(
        scheduling_edges=tuple(dataclasses.replace(edge, op=f"op{i}") for i in range(99))
    )
    rows = rows_of(explain(plan, name="step"))
    assert sum(row.startswith("scheduling_edges ") for row in rows) == 6
    assert "scheduling_edges the function 94 more" in rows


def test_without_allow_all_that_keep_the_bits_and_cost_nothing_else_are_used():
    assert Options().passes == Options.of(None, 1.1, None, False).passes == set(DEFAULTS)
    assert passes_of([DEFAULT, "bits"]) == {*DEFAULTS, "bits"}
    assert passes_of([]) == frozenset()


def test_names_of_before_stand_for_what_they_did():
    before = ("recompute", "segments", "order")
    assert passes_of(before) == set(DEFAULTS)
    assert passes_of(["vocabulary"]) == {"chunked_loss", "dead_code"}
    assert {name for names in GROUPS.values() for name in names} <= {one.name for one in PASSES}


@pytest.mark.parametrize("passes", [{"rematerialise"}, {"rematerialise", "checkpoint"}])
def test_nothing_is_done_that_is_not_allowed(passes):
    search = Search(rnn(limit=400, units=256), Setting(CPU, encoded, frozenset(passes)))
    plan, rewritten = search.least_memory(1.5)
    assert rewritten is not None
    assert plan.decisions == ()
    assert all(loop.segments is None or "checkpoint" in passes for loop in plan.loops)
    everything = Search(search.net, Setting(CPU, encoded)).least_memory(1.5)[0]
    assert everything.of("gradient_start")


FIRST_FORMAT = """{
 "loops": [{"path": ["while"], "gradients": ["gradient"], "closed": "", "trips": 5, "saved": ["h"],
   "recomputed": ["t"], "hoisted": [], "demands": [], "in_flight": 2, "bytes": 64, "seconds": 0.1,
   "fates": [{"blob": "h", "op_type": "state", "dtype": "float32", "shape": [null, 4],
     "bytes": null, "fate": "saved", "was_saved": true, "reason": "so", "source": ""}],
   "inner": [], "source": "", "segments": null,
   "encodings": [{"blob": "h", "means": ["bits"], "bytes": 8, "seconds": 0.0}]}],
 "losses": [{"projection": "p", "closed": "", "blob": "p:0", "dtype": "float32", "shape": [8, 9],
   "bytes": 288, "source": "x", "length": 4, "rows": 8, "loops": 1, "seconds": 0.0, "line": ""}],
 "waits": [["gradient", "ones"]],
 "gates": [{"op": "a", "slot": 1, "after": "b", "path": [], "witnessed": false}],
 "folds": [{"op": "m", "slot": 0, "path": ["gradient", "body"]}],
 "empty_starts": [{"zeros": "z", "loop": "gradient", "items": ["put"]}],
 "made_again": [{"blob": "l", "ops": ["o"], "gradients": ["gradient"], "bytes": 9, "seconds": 0.0,
   "zeros": [], "table": [3, 4]}],
 "turns": [{"op": "c", "slot": null, "after": "d", "path": ["while", "body"], "witnessed": true}],
 "notes": ["a note"], "slowdown": 1.5, "original_peak": 9, "predicted_peak": null,
 "nested": [{"path": ["train", "body"], "loops": ["train"], "plan": {
   "loops": [], "waits": [["x", "y"]], "turns": [], "notes": []}}]
}"""


def test_files_of_the_first_format_are_read():
    plan = rnnmem.Plan.from_json(FIRST_FORMAT)
    assert plan.start_edges == (("gradient", "ones"),)
    assert (plan.delayed_inputs[0].slot, plan.scheduling_edges[0].path) == (1, ("while", "body"))
    assert plan.implicit_broadcasts[0].path == ("gradient", "body")
    assert plan.lazy_gradient_lists[0].items == ("put",)
    assert plan.rebuilt_lists[0].table == (3, 4)
    assert plan.losses[0].shape == (8, 9)
    assert plan.loops[0].residuals[0].shape == (None, 4)
    assert plan.loops[0].encodings[0].techniques == ("bits",)
    assert plan.of("zero_lists"), "such lists went from every function"
    assert plan.nested[0].plan.start_edges == (("x", "y"),)
    assert (plan.notes, plan.slowdown, plan.original_peak) == (("a note",), 1.5, 9)
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('"format": 2', '"format": 3', "format is 3"),
        ('"scheduling_edges"', '"twists"', "twists"),
        ('"after"', '"before"', "Edge has no field 'before'"),
        ('"product": "name"', '"product": 7', "AccumulatedProduct.product cannot be 7"),
    ],
)
def test_what_no_pass_decided_is_refused_by_name(old, new, named):
    text = of_a_net().to_json()
    assert old in text
    with pytest.raises(ValueError, match=f"not a plan that to_json wrote.*{named}"):
        Plan.from_json(text.replace(old, new))
