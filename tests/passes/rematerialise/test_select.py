"""The plan of a whole Net: what each loop gives up, within the time that may be spent."""

import dataclasses
import json

import pytest

from rnnmem.analysis.machine import CPU, GPU, Machine
from rnnmem.analysis.shapes import with_known_shapes
from rnnmem.analysis.times import again_seconds, op_seconds, step_seconds
from rnnmem.ir.marks import TRIPS
from rnnmem.passes.encode.decision import SAVED
from rnnmem.passes.rematerialise.decision import DEAD, INVARIANT, RECOMPUTED
from rnnmem.planning.apply import apply_plan
from rnnmem.planning.pareto import plan_net
from rnnmem.planning.plan import Plan
from rnnmem.verify import check
from tests import loop_drawings
from tests.analysis.test_loops import gradient_loop, nested
from tests.handmade import edited, encoded, make_net, op, rnn
from tests.verify.test_loops_again import ponder

EVEN = Machine(1e9, 1e9, 1e9, float("inf"), 1e-6)  # keeping costs no time


def residuals(loop):
    return {decision.blob: decision.decision for decision in loop.residuals}


def test_the_weight_is_read_again_and_the_cheap_blob_recomputed():
    # of h, tanh(h w) and w only h is kept
    (loop,) = plan_net(rnn(), CPU, float("inf")).loops
    assert not loop.closed
    assert residuals(loop) == {"h": SAVED, "t": RECOMPUTED, "w": INVARIANT}
    assert loop.saved == ("h",)
    assert loop.recomputed == ("m", "t")
    assert loop.live_ins == ("w",)
    assert loop.trips == 5
    assert loop.bytes == 64 * 64 * 4


@pytest.mark.parametrize("bound", [1.0, float("inf")])
def test_what_the_gradient_pops_and_never_reads_is_not_saved(bound):
    net = edited(rnn(), "e", inputs=("d", "d"))
    plan = plan_net(net, CPU, bound)
    (loop,) = plan.loops
    assert residuals(loop) == {"h": DEAD, "t": SAVED, "w": INVARIANT}
    check(net, apply_plan(net, plan, encoded))


def test_without_time_to_spend_only_what_costs_none_is_dropped():
    plan = plan_net(rnn(), CPU, 1.0)
    assert plan.loops[0].saved == ("h", "t")
    assert plan.loops[0].recomputed == ()
    assert 0.5 <= plan.slowdown <= 1.0
    assert not plan.changes_nothing


@pytest.mark.parametrize("bound", [1.0, 1.01, 1.1, 1.3, 2.0, 100.0])
@pytest.mark.parametrize("machine", [CPU, GPU, EVEN])
def test_the_estimate_keeps_the_bound_on_time(bound, machine):
    plan = plan_net(rnn(), machine, bound)
    # Below 1 where keeping less takes more time off than recomputing adds.
    assert 0.5 <= plan.slowdown <= bound * (1 + 1e-9)


def test_more_time_never_keeps_more():
    kept = [
        plan_net(nested_and_flat, EVEN, bound).loops[0].total()[0]
        for nested_and_flat in (rnn(), nested())
        for bound in (1.0, 1.1, 1.5, 10.0)
    ]
    assert kept[:4] == sorted(kept[:4], reverse=True)
    assert kept[4:] == sorted(kept[4:], reverse=True)


def test_nothing_to_gain_is_said_and_the_loop_left():
    net = rnn()
    # Without the lists of t and w the loop keeps its state alone, and that is the least.
    gradient = net.op_by_name["gradient"]
    body = gradient.nets["body"]
    kept = [one for one in body.ops if one.name not in ("pop_t", "pop_w", "d", "back", "e")]
    kept += [
        op("d", "TanhGrad", "pop_h:1 g", "f[64,64]").op,
        op("back", "MatMul", "d d", "f[64,64]").op,
        op("e", "MatMul", "d d", "f[64,64]").op,
    ]
    slots = (0, 1, 2, 3)
    body = body.replace(
        inputs=tuple(body.inputs[i] for i in slots),
        outputs=tuple(body.outputs[i] for i in slots),
        ops=tuple(kept),
    )
    cond = gradient.nets["cond"]
    cond = cond.replace(inputs=tuple(cond.inputs[i] for i in slots))
    gradient = gradient.replace(
        inputs=tuple(gradient.inputs[i] for i in slots),
        outputs=tuple(gradient.outputs[i] for i in slots),
        nets={"body": body, "cond": cond},
    )
    ops = tuple(gradient if one.name == "gradient" else one for one in net.ops)
    plan = plan_net(net.replace(ops=ops), CPU, float("inf"))
    assert plan.changes_nothing
    assert plan.loops[0].closed == "nothing that is saved could be had for less"


def test_no_loop_no_plan():
    net = make_net({"x": "f[4]"}, [op("y", "Tanh", "x", "f[4]")], ["y"])
    assert plan_net(net, CPU, 1.1) == Plan()
    assert plan_net(make_net({"x": "f[4]"}, [], ["x"]), CPU, float("inf")).changes_nothing


def test_a_list_that_someone_else_reads_is_kept():
    net = rnn()
    net = net.replace(outputs=(*net.outputs, "loop:4"))
    (loop,) = plan_net(net, CPU, float("inf")).loops
    assert "t" in loop.saved
    assert "read elsewhere" in next(
        decision.reason for decision in loop.residuals if decision.blob == "t"
    )


def test_two_gradients_of_one_loop_recompute_each_for_itself():
    one = plan_net(rnn(), CPU, float("inf"))
    (loop,) = plan_net(gradient_loop(rnn(), "second"), CPU, float("inf")).loops
    assert loop.gradients == ("gradient", "second")
    assert loop.saved == ("h",)
    assert loop.total()[1] == pytest.approx(2 * one.loops[0].total()[1])


def test_an_inner_loop_is_planned_with_its_outer_loop():
    (outer,) = plan_net(nested(), CPU, float("inf")).loops
    assert [loop.path for loop in outer.flat()][0] == ("loop",)
    for loop in outer.flat():
        assert loop.closed or set(loop.saved) | set(loop.recomputed)


@pytest.mark.parametrize("read_elsewhere", [False, True])
def test_a_list_of_an_inner_loop_stays_where_others_read_it_too(read_elsewhere):
    net = loop_drawings.nested(read_elsewhere=read_elsewhere)
    plan = plan_net(net, CPU, 1.1)
    given_up = {blob for loop in plan.every_loop() for blob in loop.recomputed}
    assert ("s" in given_up) != read_elsewhere
    check(net, apply_plan(net, plan, encoded))


@pytest.mark.parametrize("read_elsewhere", [False, True])
def test_an_inner_loop_runs_again_whole_where_the_time_allows(read_elsewhere):
    net = loop_drawings.nested(read_elsewhere=read_elsewhere)
    plan = plan_net(net, CPU, float("inf"))
    assert "inner" in plan.loops[0].recomputed
    check(net, apply_plan(net, plan, encoded))


def test_a_plan_is_the_same_every_time():
    assert plan_net(rnn(), CPU, 1.1) == plan_net(rnn(), CPU, 1.1)


def test_reasons_say_what_was_weighed():
    (loop,) = plan_net(rnn(), CPU, float("inf")).loops
    reasons = {decision.blob: decision.reason for decision in loop.residuals}
    assert reasons == {
        "h": "state at the start of the iteration",
        "t": "from what is saved, at less than it would take to keep",
        "w": "the same in every iteration, read again",
    }


@pytest.mark.parametrize(
    ("units", "why"),
    [
        (64, "saving 16.0 KiB is not worth the time"),
        (1, "saving 256 B, which the allocator rounds it to, is not worth the time"),
    ],
)
def test_a_reason_tells_the_bytes_that_the_table_tells_or_why_others(units, why):
    (loop,) = plan_net(rnn(units), CPU, 1.0).loops
    (told,) = (one for one in loop.residuals if one.blob == "t")
    assert (told.decision, told.reason) == (SAVED, why)


def test_a_loop_costs_its_trips():
    net = rnn(limit=5)
    loop = net.op_by_name["loop"]
    once = step_seconds(loop.nets["body"], EVEN) + step_seconds(loop.nets["cond"], EVEN)
    assert op_seconds(loop, net, EVEN) == pytest.approx(5 * once)
    longer = rnn(limit=10)
    assert op_seconds(longer.op_by_name["loop"], longer, EVEN) == pytest.approx(10 * once)


def test_a_loop_that_runs_again_pushes_what_the_first_run_does_not():
    net = rnn(limit=5)
    loop = net.op_by_name["loop"]
    pushes = [one for one in loop.nets["body"].ops if one.type == "TensorListPushBack"]
    saved = 5 * sum(op_seconds(one, loop.nets["body"], CPU) for one in pushes)
    again = op_seconds(loop, net, CPU) - saved
    assert saved and again_seconds(loop, net, CPU) == pytest.approx(again)


def test_a_gradient_loop_in_a_loop_runs_as_often_as_the_loop_in_it():
    net = with_known_shapes(ponder())
    (forward,), (gradient,) = (
        [one for one in net.op_by_name[name].nets["body"].ops if one.nets]
        for name in ("forward", "gradient")
    )
    assert forward.attributes[TRIPS] == gradient.attributes[TRIPS] == 4


def test_plans_are_data_that_goes_to_json_and_back():
    for net in (rnn(), nested(), gradient_loop(rnn(), "second")):
        plan = plan_net(net, CPU, 1.5)
        plan = dataclasses.replace(plan, notes=("a note",), original_peak=5)
        assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"loops": [{}], "notes": []}', '{"loops": 3}'])
def test_what_is_no_plan_is_refused(text):
    with pytest.raises(ValueError, match="not a plan that to_json wrote"):
        Plan.from_json(text)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("path", [3]),
        ("path", [None]),
        ("saved", [["h"]]),
        ("trips", "many"),
        ("parallel_iterations", True),
        ("bytes", float("nan")),
        ("seconds", float("nan")),
        ("source", 7),
    ],
)
def test_a_field_of_another_kind_is_named(field, value):
    held = json.loads(plan_net(rnn(limit=50), CPU, 1e9).to_json())
    held["loops"][0][field] = value
    with pytest.raises(ValueError, match=f"LoopPlan.{field} cannot be"):
        Plan.from_json(json.dumps(held))


def test_a_plan_with_a_field_too_many_names_it():
    text = Plan().to_json().replace('"slowdown"', '"speedup": 1, "slowdown"')
    with pytest.raises(ValueError, match="speedup"):
        Plan.from_json(text)
