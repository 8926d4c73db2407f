"""What a user asks to keep or to recompute bounds every plan; what cannot be had is told."""

import dataclasses
import itertools

import pytest

from rnnmem.analysis.machine import CPU
from rnnmem.errors import OptionError
from rnnmem.ir.graph import Net, Path
from rnnmem.ir.requests import KEEP, RECOMPUTE, REQUESTS, requests_of, with_requests
from rnnmem.notes import with_notes
from rnnmem.passes.encode.decision import SAVED
from rnnmem.passes.rematerialise.reasons import ASKED
from rnnmem.passes.rematerialise.requests import READ_ELSEWHERE, STATE
from rnnmem.planning.apply import apply_plan
from rnnmem.planning.decide import decide
from rnnmem.planning.options import Options
from rnnmem.planning.pareto import candidates_of, plan_net
from rnnmem.planning.plan import Plan
from rnnmem.planning.requests import request_notes
from rnnmem.planning.search import Search
from rnnmem.planning.setting import Setting
from rnnmem.verify import check
from tests.analysis.test_loops import nested
from tests.handmade import encoded, rnn
from tests.planning.test_search import chain

BOUNDS = (1.0, 1.05, 1.3, float("inf"))


def asking(net: Net, **requests: str) -> Net:
    """The Net where this is asked of blobs of the step net of its loop ``loop``."""
    loop = net.op_by_name["loop"]
    body = loop.nets["body"]
    body = body.replace(attributes={**body.attributes, REQUESTS: requests})
    changed = loop.replace(nets={**loop.nets, "body": body})
    return net.replace(ops=tuple(changed if one is loop else one for one in net.ops))


def reasons(loop):
    return {one.blob: one.reason for one in loop.residuals}


@pytest.mark.parametrize("bound", BOUNDS)
def test_what_is_to_be_kept_is_saved_at_any_bound_on_time(bound):
    net = asking(rnn(), t=KEEP)
    plan = plan_net(net, CPU, bound)
    (loop,) = plan.loops
    assert "t" in loop.saved
    assert "t" not in loop.recomputed
    assert reasons(loop)["t"] == ASKED
    check(net, apply_plan(net, plan, encoded))


@pytest.mark.parametrize("bound", BOUNDS)
def test_what_is_to_be_recomputed_is_not_saved_at_any_bound_on_time(bound):
    net = asking(rnn(), t=RECOMPUTE)
    plan = plan_net(net, CPU, bound)
    (loop,) = plan.loops
    assert loop.saved == ("h",)
    assert loop.recomputed == ("m", "t")
    assert reasons(loop)["t"] == ASKED
    assert plan.must_recompute
    check(net, apply_plan(net, plan, encoded))


def test_a_state_cannot_be_recomputed():
    (loop,) = plan_net(asking(rnn(), h=RECOMPUTE), CPU, 1.3).loops
    (asked,) = loop.requests
    assert (asked.blob, asked.request, asked.refused) == ("h", RECOMPUTE, STATE)
    assert reasons(loop)["h"] == f"you asked to recompute it, but: {STATE}"
    assert "h" in loop.saved


def test_a_draw_cannot_be_recomputed_and_what_is_made_of_it_can_from_it():
    net = rnn()
    loop = net.op_by_name["loop"]
    body = loop.nets["body"]
    drawn = body.op_by_name["t"].replace(type="RandomStandardNormal", stateful=True, inputs=("m",))
    body = body.replace(ops=tuple(drawn if one.name == "t" else one for one in body.ops))
    changed = loop.replace(nets={**loop.nets, "body": body})
    net = net.replace(ops=tuple(changed if one is loop else one for one in net.ops))
    (planned,) = plan_net(asking(net, t=RECOMPUTE), CPU, float("inf")).loops
    (asked,) = planned.requests
    assert "draw a new value" in asked.refused
    assert {one.blob: one.decision for one in planned.residuals}["t"] == SAVED


def test_what_others_read_the_list_of_stays_saved():
    net = asking(rnn(), t=RECOMPUTE)
    net = net.replace(outputs=(*net.outputs, "loop:4"))
    (loop,) = plan_net(net, CPU, float("inf")).loops
    assert [one.refused for one in loop.requests] == [READ_ELSEWHERE]


@pytest.mark.parametrize(
    "options", [{"max_slowdown": 1.0}, {"max_slowdown": 2.0}, {"budget": 2**40}]
)
def test_no_bound_makes_the_original_a_choice_where_something_is_to_be_recomputed(options):
    search = Search(asking(chain(), t1=RECOMPUTE, t4=RECOMPUTE), Setting(CPU, encoded))
    plan, rewritten = decide(search, Options(**options))
    (loop,) = plan.loops
    assert rewritten is not None
    assert not {"t1", "t4"} & set(loop.saved)
    assert Plan.from_json(plan.to_json()) == plan


def test_where_the_original_fits_only_what_was_asked_for_runs_again():
    search = Search(asking(chain(), t1=RECOMPUTE), Setting(CPU, encoded))
    plan, _ = decide(search, Options(budget=2**40))
    assert {"t1"} <= set(plan.loops[0].recomputed) <= {"m1", "t1"}


@pytest.mark.parametrize("pattern", [*itertools.product([None, KEEP, RECOMPUTE], repeat=3)])
def test_every_candidate_is_as_it_was_asked(pattern):
    blobs = ("t1", "t2", "t4")
    asked = {blob: one for blob, one in zip(blobs, pattern, strict=True) if one}
    net = asking(chain(), **asked)
    for plan in candidates_of(net, CPU).choices[0]:
        for blob, request in asked.items():
            if request == KEEP:
                assert plan.closed or blob in plan.saved
                assert blob not in plan.recomputed
                assert plan.segments is None or blob not in plan.segments.wanted
            else:
                assert not plan.closed and blob not in plan.saved


def test_notes_tell_what_no_table_does():
    net = asking(rnn(), h=RECOMPUTE, next=KEEP, t=KEEP)
    plan = plan_net(net, CPU, 1.3)
    assert request_notes(net, plan, {"rematerialise"}) == (
        f"not recomputed, though you asked for it: {STATE}: h",
        "nothing to keep or to recompute, as no gradient reads it: next",
    )


def test_notes_tell_where_nothing_may_be_recomputed():
    net = asking(rnn(), t=RECOMPUTE)
    notes = request_notes(net, Plan(), {"checkpoint"})
    assert notes == (
        "not recomputed, though you asked for it: rematerialise is not among the passes allowed: t",
    )


@pytest.mark.parametrize(("slowdown", "told"), [(1.304, None), (1.306, "1.31x"), (1.2, None)])
def test_a_time_is_not_called_more_than_a_bound_that_it_is_printed_as(slowdown, told):
    net = asking(rnn(), t=RECOMPUTE)
    options = Options.of(None, 1.3, None, False)
    plan = dataclasses.replace(plan_net(net, CPU, 1.3), slowdown=slowdown)
    notes = [one for one in with_notes(plan, net, options, "", False).notes if "more than" in one]
    assert notes == (
        [f"what you asked to recompute takes {told} the step time, more than max_slowdown=1.3"]
        if told
        else []
    )


def test_patterns_ask_like_marks():
    named = with_requests(rnn(), {RECOMPUTE: ("*/t",)})
    assert plan_net(named, CPU, 1.0).loops[0].saved == ("h",)


@pytest.mark.parametrize("request_", [KEEP, RECOMPUTE])
@pytest.mark.parametrize("net", [rnn(), nested()], ids=["alone", "nested"])
def test_a_pattern_of_a_whole_loop_names_its_condition_too(net, request_):
    named = with_requests(net, {request_: ("loop",)})
    assert requests_of(named.op_by_name["loop"].nets["cond"])["more"] == request_
    plan = plan_net(named, CPU, 1.3)
    check(named, apply_plan(named, plan, encoded))
    (note,) = [one for one in request_notes(named, plan, {"rematerialise"}) if "more" in one]
    assert note.startswith("nothing to keep or to recompute, as no gradient reads it: ")


@pytest.mark.parametrize("given", ["", ["a", ""], 3, b"a", {"a": 1}, [None], [b"x"]])
@pytest.mark.parametrize("name", ["keep", "recompute"])
def test_patterns_are_texts(name, given):
    with pytest.raises(OptionError, match=f"{name}=.* must be a pattern of names"):
        Options.of(None, 1.1, None, False, **{name: given})


def test_a_pattern_may_stand_alone():
    options = Options.of(None, 1.1, None, False, keep="*/gates", recompute=["a", "b"])
    assert (options.keep, options.recompute) == (("*/gates",), ("a", "b"))


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("request_", [KEEP, RECOMPUTE])
def test_in_an_inner_loop_a_value_is_as_it_was_asked(request_, bound):
    net = with_requests(nested(), {request_: ("loop/inner/t",)})
    plan = plan_net(net, CPU, bound)
    (outer,) = plan.loops
    again = {name for loop in outer.flat() for name in loop.recomputed}
    assert bool(again & {"inner", "t"}) == (request_ == RECOMPUTE)
    assert plan.must_recompute == (request_ == RECOMPUTE)
    if request_ == RECOMPUTE and "inner" in again:
        assert "inner:2" not in outer.saved
    check(net, apply_plan(net, plan, encoded))
    assert not request_notes(net, plan, {"rematerialise"})


def test_an_inner_loop_with_an_effect_cannot_run_again_to_recompute_what_is_in_it():
    net = nested()
    loop = net.op_by_name["loop"]
    inner = loop.nets["body"].op_by_name["inner"].nets["body"]
    drawn = inner.op_by_name["t"].replace(type="RandomStandardNormal", stateful=True)
    inner = inner.replace(ops=tuple(drawn if one.name == "t" else one for one in inner.ops))
    net = Path.of("loop", "body", "inner", "body").put(net, inner)
    net = with_requests(net, {RECOMPUTE: ("loop/inner/t",)})
    plan = plan_net(net, CPU, float("inf"))
    again = {name for loop in plan.every_loop() for name in loop.recomputed}
    assert not again & {"inner", "t"}
    (note,) = request_notes(net, plan, {"rematerialise"})
    assert note.startswith("not recomputed, though you asked for it: ")
