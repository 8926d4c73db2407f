"""The exact choice of a step's saved set, and budgets of functions without a loop."""

import itertools

import hypothesis
import pytest
from hypothesis import strategies as st

from rnnmem.analysis.machine import GRANULE
from rnnmem.errors import BudgetError, NetError, OptionError
from rnnmem.passes.rematerialise import milp as exact
from rnnmem.passes.rematerialise.milp import as_it_was, fastest_within, smallest_within
from rnnmem.passes.rematerialise.min_cut import Step, choose_saved_set, may_be_saved
from tests.handmade import const, make_net, op
from tests.passes.rematerialise.straight_line import forward_step, select

MIB = 2**20


def units(op, net):
    """A product of 512 x 512 matrices is one unit; all else is free."""
    if op.type != "MatMul":
        return 0.0
    rows, inner = net.blobs[op.inputs[0]].shape
    columns = net.blobs[op.inputs[1]].shape[1]
    return rows * inner * columns / 512**3


def square(rows=1, columns=1):
    return f"f[{512 * rows},{512 * columns}]"


def chosen(net, budget):
    """``(MiB kept, units run again)``."""
    found = select(forward_step(net, ("loss",), units), budget)
    return found.bytes / MIB, found.extra_seconds


def cos_then_product():
    """x ─► cos = c ─► MatMul(c, w) ─► sum;   the gradient reads c for w's, w and x are given."""
    ops = [
        op("c", "Cos", "x", square()),
        op("m", "MatMul", "c w", square()),
        op("loss", "Sum", "m axes", "f[]"),
        op("ones", "Fill", "shape loss", square()),
        op("dw", "MatMul", "c ones", square()),
        op("dc", "MatMul", "ones w", square()),
        op("s", "Sin", "x", square()),
        op("dx", "Mul", "dc s", square()),
    ]
    inputs = {"x": square(), "w": square(), "axes": "i[2]", "shape": "i[2]"}
    return make_net(inputs, ops, ["loss", "dw", "dx"])


def products(count=5):
    """c0 = cos(x), then m_i = c_(i-1) w_i, c_i = cos(m_i); the gradient reads c0..c4, m1..m5."""
    f = square()
    ops = [op("c0", "Cos", "x", f)]
    for i in range(1, count + 1):
        ops += [op(f"m{i}", "MatMul", f"c{i - 1} w{i}", f), op(f"c{i}", "Cos", f"m{i}", f)]
    ops += [op("loss", "Sum", f"c{count} axes", "f[]"), op(f"g{count}", "Fill", "shape loss", f)]
    for i in range(count, 0, -1):
        ops += [
            op(f"s{i}", "Sin", f"m{i}", f),
            op(f"d{i}", "Mul", f"g{i} s{i}", f),
            op(f"dw{i}", "MatMul", f"c{i - 1} d{i}", f),
            op(f"g{i - 1}", "MatMul", f"d{i} w{i}", f),
        ]
    inputs = {"x": f, "axes": "i[2]", "shape": "i[2]"}
    inputs |= {f"w{i}": f for i in range(1, count + 1)}
    return make_net(inputs, ops, ["loss", *(f"dw{i}" for i in range(1, count + 1))])


def branches(*pairs):
    """m_i = x_i w_i of ``rows x columns``; the gradient reads each m_i for its cosine."""
    inputs, ops = {"axes": "i[2]"}, []
    for i, (rows, columns) in enumerate(pairs):
        inputs |= {f"x{i}": square(rows, rows), f"w{i}": square(rows, columns)}
        f = square(rows, columns)
        ops += [
            op(f"m{i}", "MatMul", f"x{i} w{i}", f),
            op(f"c{i}", "Cos", f"m{i}", f),
            op(f"t{i}", "Sum", f"c{i} axes", "f[]"),
        ]
    ops.append(op("loss", "AddN", " ".join(f"t{i}" for i in range(len(pairs))), "f[]"))
    for i, pair in enumerate(pairs):
        ops += [
            op(f"s{i}", "Sin", f"m{i}", square(*pair)),
            op(f"d{i}", "Mul", f"s{i} loss", square(*pair)),
            op(f"dw{i}", "MatMul", f"x{i} d{i}", square(*pair)),
        ]
    return make_net(inputs, ops, ["loss", *(f"dw{i}" for i in range(len(pairs)))])


def test_cos_then_product():
    assert chosen(cos_then_product(), 1.0) == (1, 0)
    assert chosen(cos_then_product(), 0.5) == (0, 0)


@pytest.mark.parametrize("tenths", range(11))
def test_five_products_in_a_row(tenths):
    kept = tenths if tenths <= 5 or tenths == 10 else 5
    assert chosen(products(), tenths / 10) == (kept, max(0, 5 - tenths))


@pytest.mark.parametrize("budget", [18, 17, 16, 15, 14, 13, 11, 7, 6, 5])
def test_uneven_branches_are_met_exactly(budget):
    kept, rematerialised = chosen(branches(*((1, width) for width in (11, 3, 4, 2))), budget * MIB)
    assert kept == budget
    assert rematerialised == 20 - budget


def test_the_branch_that_is_cheap_to_run_again_is_dropped():
    net = branches((1, 4), (2, 2))
    step = forward_step(net, ("loss",), units)
    assert as_it_was(step).bytes == 8 * MIB
    assert sum(units(op, net) for op in net.ops) == 24
    assert chosen(net, 0.5) == (4, 4)


def test_a_budget_that_cannot_be_met_says_what_can():
    # A random mask is read by the gradient and must be kept.
    ops = [
        op("mask", "RandomUniform", "", square()),
        op("y", "Mul", "x mask", square()),
        op("loss", "Sum", "y axes", "f[]"),
        op("dx", "Mul", "loss mask", square()),
    ]
    net = make_net({"x": square(), "axes": "i[2]"}, ops, ["loss", "dx"])
    with pytest.raises(BudgetError, match=r"budget='1KiB'.*1048576 bytes \(1.0 MiB\), which runs"):
        select(forward_step(net, ("loss",), units), "1KiB")


@pytest.mark.parametrize("budget", [0, -1, 1.5, -0.1, float("nan"), "much", True, None])
def test_a_budget_that_makes_no_sense_is_named(budget):
    with pytest.raises(OptionError, match="budget="):
        select(forward_step(cos_then_product(), ("loss",), units), budget)


def test_a_loss_that_is_not_there_is_named():
    with pytest.raises(NetError, match="'lost'"):
        forward_step(cos_then_product(), ("lost",))


# --- against all choices


@st.composite
def steps(draw):
    """A small step net: a random graph of ops that may, or may not, run twice."""
    count = draw(st.integers(1, 7))
    names, drawn, costs = ["h"], [], {}
    for i in range(count):
        kind = draw(st.sampled_from(["Tanh", "MatMul", "Sin", "RandomUniform", "Const"]))
        width = draw(st.integers(1, 6)) * 64
        inputs = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2))
        written = op(f"b{i}", kind, " ".join(inputs), f"f[{width}]")
        drawn.append(const(f"b{i}", 2.0) if kind == "Const" else written)
        costs[f"b{i}"] = float(draw(st.integers(0, 9)))
        names.append(f"b{i}")
    live_in = draw(st.lists(st.sampled_from(names), min_size=1, max_size=4, unique=True))
    pushed = set(live_in) | set(draw(st.lists(st.sampled_from(names), max_size=3)))
    return Step(
        body=make_net({"h": "f[128]"}, drawn, []),
        invariants=frozenset(),
        live_in=frozenset(live_in),
        pushed=frozenset(pushed),
        seconds=lambda op, net: costs[op.name],
        seconds_to_keep=lambda size: size / 512,
    )


def every_choice(step):
    """``(bytes, seconds)`` of every set of ops that may run again, where all can be had."""
    names = [one.name for one in step.body.ops if step.may_run_twice(one)]
    for count in range(len(names) + 1):
        for rematerialised in itertools.combinations(names, count):
            found = exact.collect(step, rematerialised)
            if all(may_be_saved(step, blob) for blob in found.saved):
                yield found.bytes, found.seconds


@pytest.mark.fuzz
@hypothesis.given(steps(), st.integers(0, 12))
def test_no_other_choice_is_better(step, share):
    every = list(every_choice(step))
    original = as_it_was(step)
    limit = original.bytes * share // 10
    found = fastest_within(step, limit)
    within = [one for one in every if one[0] <= limit]
    if found is None:
        assert not within
    elif limit < original.bytes:
        assert found.bytes <= limit
        fastest = min(time for _, time in within)
        assert found.seconds == pytest.approx(fastest)
        assert found.bytes == min(size for size, time in within if time <= fastest + 1e-9)
    bound = original.seconds * share / 10
    found = smallest_within(step, bound)
    within = [one for one in every if one[1] <= bound + 1e-9]
    if found is None:
        assert not within
    else:
        assert found.seconds <= bound + 1e-6
        assert found.bytes <= min(one[0] for one in within)


@pytest.mark.fuzz
@hypothesis.given(steps(), st.floats(0, 1e5))
def test_no_corner_is_better(step, price):
    corner = choose_saved_set(step, price)
    found = fastest_within(step, corner.bytes)
    assert found.bytes <= corner.bytes
    assert found.seconds <= corner.seconds + 1e-6 or found == as_it_was(step)


def test_more_budget_never_costs_more_time():
    step = forward_step(products(7), ("loss",), units)
    times = [fastest_within(step, size * MIB).seconds for size in range(15)]
    assert times == sorted(times, reverse=True)


def test_a_large_step_net_falls_back_to_corners(monkeypatch):
    step = forward_step(products(), ("loss",), units)
    monkeypatch.setattr(exact, "LARGEST", 3)
    found = fastest_within(step, 3 * MIB)
    assert found.bytes <= 3 * MIB
    assert smallest_within(step, 2.5).seconds <= 2.5


def test_constants_and_handles_are_never_kept():
    ops = [const("k", 2.0), op("a", "Mul", "h k", "f[64]"), op("b", "Sin", "a", "f[64]")]
    step = Step(
        body=make_net({"h": "f[64]"}, ops, []),
        invariants=frozenset(),
        live_in=frozenset({"b", "k"}),
        pushed=frozenset({"b", "k", "h"}),
        seconds=lambda op, net: 1.0,
    )
    found = smallest_within(step, 5.0)
    assert found.bytes == GRANULE
    assert "k" not in found.saved
