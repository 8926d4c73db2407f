"""In a function with loops large buffers take turns where that lowers the predicted peak."""

import pytest

from rnnmem.analysis.machine import CPU
from rnnmem.passes.schedule.serialise import edges_of
from rnnmem.planning import scheduling_edges as decide
from rnnmem.planning.plan import Plan
from rnnmem.planning.scheduling_edges import with_edges_where_they_pay
from rnnmem.planning.setting import Setting
from rnnmem.simulate.timeline import counted_peak
from tests.handmade import const, encoded, make_net, op, while_op

SETTING = Setting(CPU, encoded)
WIDE, ROWS = "f[512,2048]", "f[512]"


def branches_and_a_loop(count):
    """Branches of one product each, and a loop that has nothing to do with them."""
    ops = [const("axis", 1), const("zero", 0)]
    for n in range(count):
        ops += [
            op(f"m{n}", "MatMul", f"x w{n}", WIDE),
            op(f"t{n}", "Tanh", f"m{n}", WIDE),
            op(f"r{n}", "Sum", f"t{n} axis", ROWS),
        ]
    body = make_net(
        {"i": "i[]", "h": "f[4]"},
        [
            const("one", 1),
            op("next", "AddV2", "i one", "i[]"),
            op("t", "Tanh", "h", "f[4]"),
        ],
        ["next", "t"],
    )
    ops.append(while_op("loop", "zero start", body))
    inputs = {"x": "f[512,256]", "start": "f[4]"} | {f"w{n}": "f[256,2048]" for n in range(count)}
    return make_net(inputs, ops, [*(f"r{n}" for n in range(count)), "loop:1"])


def decided(net, max_slowdown=2.0):
    return with_edges_where_they_pay(net, Plan(), SETTING, max_slowdown)


def test_branches_take_turns():
    net = branches_and_a_loop(4)
    plan, ordered = decided(net)
    assert len(plan.scheduling_edges) == 3
    assert plan.notes[0].startswith("3 scheduling edges serialise large buffers")
    assert plan.original_peak == counted_peak(net)
    assert plan.predicted_peak == counted_peak(ordered) < 0.7 * plan.original_peak


def test_what_would_run_side_by_side_takes_no_turns_where_there_is_no_time():
    assert decided(branches_and_a_loop(4), max_slowdown=1.1) == (Plan(), None)


def test_one_edge_is_told_as_one():
    plan, _ = decided(branches_and_a_loop(2))
    assert len(plan.scheduling_edges) == 1
    assert plan.notes[0].startswith("1 scheduling edge serialises large buffers")


@pytest.mark.parametrize("count", [1, 4])
def test_a_function_is_left_alone_where_nothing_is_gained_or_too_much_would_be_looked_at(
    count, monkeypatch
):
    if count > 1:
        monkeypatch.setattr(decide, "MOST_OPS", 10)
    assert decided(branches_and_a_loop(count)) == (Plan(), None)


def test_those_that_are_worth_most_stand_where_all_take_too_long():
    products = 4
    ops = [const("axis", 1)]
    for n in range(4):
        ops += [op(f"m{n}", "MatMul", f"x w{n}", WIDE), op(f"t{n}", "Tanh", f"m{n}", WIDE)]
        ops.append(op(f"r{n}", "Sum", f"t{n} axis", ROWS))
    for n in range(products):  # meanwhile, one after the other
        ops.append(op(f"c{n}", "MatMul", f"{f'c{n - 1}' if n else 'wide'} square", WIDE))
    inputs = {"x": "f[512,256]", "wide": WIDE, "square": "f[2048,2048]"}
    inputs |= {f"w{n}": "f[256,2048]" for n in range(4)}
    net = make_net(inputs, ops, [*(f"r{n}" for n in range(4)), f"c{products - 1}"])
    every, some = (edges_of(net, CPU, bound) for bound in (2.0, 1.0))
    assert every.slowdown > some.slowdown == 1.0
    assert set(some.edges) == {edge for edge in every.edges if edge.op != "c0"}
    assert every.bytes < some.bytes < some.bytes_before
