"""What runs again in the bodies of training loops and in branches, drawn by hand."""

import pytest

from rnnmem.analysis.machine import CPU
from rnnmem.analysis.training_regions import nested_steps
from rnnmem.errors import CheckError
from rnnmem.ir.graph import Net
from rnnmem.passes.straight_line.apply import CLONE
from rnnmem.planning.apply import apply_plan
from rnnmem.planning.nested import decide_with_nested_steps
from rnnmem.planning.options import Options
from rnnmem.planning.plan import Plan
from rnnmem.planning.search import Search
from rnnmem.planning.setting import Setting
from rnnmem.simulate.timeline import counted_peak
from rnnmem.verify import check
from tests.drawing import below, edited, encoded, with_input, with_more, with_op
from tests.handmade import const, make_net, op, while_op
from tests.passes.straight_line.test_select import F, chain

KINDS = {"x": F, "w": F, "n": "i[]", "total": "f[]"}
PATH = ("train", "body")


def step(layers: int = 12) -> Net:
    """A chain with its gradient, which adds up what it finds in ``total``."""
    net = chain(layers, inputs={"n": "i[]", "total": "f[]"})
    first, *rest = net.outputs
    ops = [const("one", 1), op("next", "AddV2", "n one", "i[]")]
    for number, blob in enumerate(rest):
        ops.append(op(f"most{number}", "Maximum", f"{first} {blob}", "f[]"))
        first = f"most{number}"
    ops.append(op("sum", "AddV2", f"total {first}", "f[]"))

    def draw(drawing):
        for one in ops:
            drawing.add(one.op, one.blobs)

    return with_more(net, draw).replace(outputs=("x", "w", "next", "sum"))


def training(known: bool = True, read: str = "train:3", before=(), results=()) -> Net:
    """A loop over the step, whose trip count may be told by a run alone; and ops before it."""
    more = [const("end", 4), op("more", "Less", "n end", "z[]")]
    if not known:
        more = [const("end", 1.0), op("more", "Less", "total end", "z[]")]
    cond = make_net(KINDS, more, ["more"])
    loop = while_op("train", "x w start total", step(), cond, parallel_iterations=1)
    return make_net(KINDS, [*before, const("start", 0), loop], [read, *results])


def branch() -> Net:
    """A branch that is the step, and one that does nothing."""
    nets = {"then_branch": step(), "else_branch": make_net(KINDS, [], [*KINDS])}
    kinds = f"{F} {F} i[] f[]"
    taken = op("train", "If", "taken x w n total", kinds, nets=nets)
    return make_net({"taken": "z[]", **KINDS}, [taken], ["train:3"])


def decided(net: Net, **options) -> tuple[Plan, Net | None]:
    search = Search(net, Setting(CPU, encoded))
    _, plan, rewritten = decide_with_nested_steps(
        search, Options(**{"max_slowdown": 2.0, **options})
    )
    return plan, rewritten


@pytest.mark.parametrize("net", [training(), training(known=False), branch()])
def test_a_step_without_a_loop_is_rewritten_where_it_stands(net):
    (place,) = nested_steps(net)
    assert not place.has_loops and 3 in place.results
    plan, rewritten = decided(net)
    (one,) = plan.nested
    assert one.path == place.path and one.plan.of("straight_line")
    assert one.plan.predicted_peak < 0.7 * one.plan.original_peak
    check(net, rewritten)
    assert plan.slowdown <= 2.0 and not plan.changes_nothing
    assert plan.at_every_depth("straight_line") == one.plan.of("straight_line")
    again = Plan.from_json(plan.to_json())
    assert again == plan and apply_plan(net, again, encoded) == rewritten


def test_the_peak_of_the_whole_falls_where_it_is_known():
    plan, rewritten = decided(training())
    assert plan.predicted_peak == counted_peak(rewritten) < 0.7 * plan.original_peak
    assert decided(training(known=False))[0].predicted_peak is None


def test_a_larger_peak_elsewhere_leaves_the_step_as_it_was():
    large = [
        const("axes", (0, 1)),
        op("wide", "ConcatV2", " ".join(["x"] * 64 + ["axis"]), "f[32768,512]"),
        op("all", "Sum", "wide axes", "f[]"),
    ]
    plan, rewritten = decided(training(before=[const("axis", 0), *large], results=["all"]))
    (one,) = plan.nested
    assert rewritten is None and plan.changes_nothing
    assert one.plan.notes == ("the predicted peak of the whole step would not fall",)


def test_a_plan_without_the_pass_changes_nothing():
    plan, rewritten = decided(training())
    assert plan.without(["straight_line"]).changes_nothing
    narrow = Setting(CPU, encoded, frozenset({"rematerialise"}))
    _, plan, rewritten = decide_with_nested_steps(Search(training(), narrow), Options())
    assert rewritten is None and not plan.at_every_depth("straight_line")


@pytest.mark.parametrize(
    ("net", "path"), [(training(), PATH), (branch(), ("train", "then_branch"))]
)
def test_what_is_kept_alive_is_needed_by_a_result_that_is_read(net, path):
    _, rewritten = decided(net)
    inner = below(rewritten, *path)
    popped = inner.producer[inner.outputs[3]]
    assert popped.type == "TensorListPopBack" and not inner.control_outputs
    before = below(net, *path)
    assert inner.outputs[:3] == before.outputs[:3]


def test_a_training_loop_of_which_only_the_counter_is_read_passes_that():
    _, rewritten = decided(training(read="train:2"))
    inner = below(rewritten, *PATH)
    assert inner.producer[inner.outputs[2]].type == "TensorListPopBack"
    assert inner.outputs[3] == "sum"


def test_a_clone_of_another_type_is_refused():
    net = training()
    _, rewritten = decided(net)
    inner = below(rewritten, *PATH)
    clone = next(one for one in inner.ops if one.name.endswith(CLONE) and one.type == "Tanh")
    with pytest.raises(CheckError) as caught:
        check(net, edited(rewritten, PATH, lambda body: with_op(body, clone.name, type="Exp")))
    assert caught.value.reason == "value-changed"


def test_a_result_that_gives_another_value_of_the_list_is_refused():
    net = training()
    _, rewritten = decided(net)
    inner = below(rewritten, *PATH)
    push = inner.producer[inner.producer[inner.outputs[3]].inputs[0]]
    wrong = edited(rewritten, PATH, lambda body: with_input(body, push.name, 1, "loss"))
    with pytest.raises(CheckError):
        check(net, wrong)
