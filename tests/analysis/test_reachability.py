"""Happens-before by bits, by clocks and by walking back say the same of random graphs."""

import random

import pytest

from rnnmem.analysis.reachability import (
    HappensBefore,
    HappensBeforeSoFar,
    all_come_before,
    bits_of_all,
)
from rnnmem.ir.order import reached


def graph(seed, count=30):
    """Op -> ops that it waits for, all of smaller numbers."""
    dice = random.Random(seed)
    return [
        tuple(sorted(dice.sample(range(op), min(op, dice.randrange(4))))) for op in range(count)
    ]


@pytest.mark.parametrize("seed", range(10))
def test_bits_clocks_and_a_walk_agree(seed):
    before = graph(seed)
    order, reach = HappensBefore(), HappensBeforeSoFar(before, set(range(len(before))))
    bits = bits_of_all(before, range(len(before)))
    for op, others in enumerate(before):
        order.begin(others)
        reach.advance()
        walked = set(reached(others, before.__getitem__))
        assert {one for one in range(op) if order.comes_before(one)} == walked
        assert {one for one in range(op) if reach.comes_before(one)} == walked
        assert {one for one in range(op) if bits[op] >> one & 1} == walked
        order.end()
        assert bits[op] >> op & 1 and order.comes_before(op, op)
    pairs = [
        (one, op) for op in range(len(before)) for one in reached(before[op], before.__getitem__)
    ]
    assert all_come_before(before, pairs) is None


def test_the_other_way_round_the_bits_tell_what_runs_after():
    # 0 ─► 1 ─► 3, 2
    after = [(1,), (3,), (), ()]
    bits = bits_of_all(after, reversed(range(4)))
    assert bits == [0b1011, 0b1010, 0b0100, 0b1000]


def test_an_edge_that_is_added_brings_all_that_ran_before_it():
    # 0 ─► 1, 2 - - ► 3
    order = HappensBefore()
    for others in ((), (0,), ()):
        order.begin(others)
        order.end()
    order.begin((2,))
    assert order.comes_before(2) and not order.comes_before(0)
    order.wait_for(1)
    assert order.comes_before(1) and order.comes_before(0)
    order.end()
    assert order.comes_before(0, 3) and not order.comes_before(0, 2)
