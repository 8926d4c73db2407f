"""What iterations lose one at a time: what is off the chain of the states, and is not long."""

import pytest

from rnnmem.analysis.machine import CPU, WIDE_SECONDS
from rnnmem.analysis.shapes import known_net
from rnnmem.planning.overlap import factor_one_by_one
from rnnmem.simulate.program import Place, compile_net
from tests.handmade import make_net, op

SHORT = WIDE_SECONDS / 2
LONG = 2 * WIDE_SECONDS


def lost(ops, outputs, seconds, threads=2, cheap=False):
    """The factor of a loop over a state h, with as many seconds for each op, by its name."""
    body = make_net({"h": "f[4]", "x": "f[4]"}, [op(*one) for one in ops], outputs)
    program = compile_net(known_net(body), CPU, place=Place(variables=frozenset({0, 1})))
    taken = [seconds[step.op.name] for step in program.steps]
    return factor_one_by_one(program, taken, [cheap] * len(taken), threads)


CHAIN = [("a", "Tanh", "h", "f[4]"), ("b", "Sin", "a", "f[4]")]


def test_a_chain_loses_nothing():
    assert lost(CHAIN, ["b", "x"], {"a": SHORT, "b": SHORT}) == 1.0


@pytest.mark.parametrize(("seconds", "factor"), [(SHORT, 1.5), (LONG, 1.0)])
def test_what_is_recomputed_ahead_of_the_state_is_lost_unless_it_keeps_all_threads_busy(
    seconds, factor
):
    # again ─► again2 ─┐         the next iteration's would run beside this one's chain: three ops
    #       h ─► a ────┴─► b     behind each other, where two last as long
    ops = [
        ("again", "Exp", "x", "f[4]"),
        ("again2", "Cos", "again", "f[4]"),
        ("a", "Tanh", "h", "f[4]"),
        ("b", "Mul", "a again2", "f[4]"),
    ]
    taken = dict.fromkeys(("again", "again2", "a", "b"), seconds)
    assert lost(ops, ["b", "x"], taken) == pytest.approx(factor, rel=0.01)


def test_cheap_ops_lose_less_as_half_of_them_wait_for_one_thread():
    ops = [("again", "Exp", "x", "f[4]"), *CHAIN[:1], ("b", "Mul", "a again", "f[4]")]
    taken = dict.fromkeys(("again", "a", "b"), SHORT)
    taken["again"] = 2 * SHORT
    whole, less = (lost(ops, ["b", "x"], taken, cheap=cheap) for cheap in (False, True))
    assert 1.0 < less < whole


def test_one_thread_loses_nothing():
    ops = [*CHAIN, ("again", "Exp", "x", "f[4]"), ("c", "Mul", "b again", "f[4]")]
    taken = dict.fromkeys(("a", "b", "again", "c"), SHORT)
    assert lost(ops, ["c", "x"], taken, threads=1) == pytest.approx(1.0)
    assert lost(ops, ["c", "x"], taken) == 1.0  # beside the chain in any case


def test_a_loop_that_does_nothing_loses_nothing():
    assert lost([("a", "Identity", "h", "f[4]")], ["a", "x"], {"a": 0.0}) == 1.0
