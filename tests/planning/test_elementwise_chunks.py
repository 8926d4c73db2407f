"""Chains by chunks are taken where they lower the predicted peak in the time that is left."""

import pytest

from rnnmem.analysis.machine import CPU
from rnnmem.passes.registry import passes_of
from rnnmem.planning.elementwise_chunks import by_chunks_where_it_pays
from rnnmem.planning.outside import outside_of_loops
from rnnmem.planning.plan import Plan
from rnnmem.planning.search import Search
from rnnmem.planning.setting import Setting
from rnnmem.simulate.timeline import counted_peak
from tests.drawing import encoded
from tests.handmade import op
from tests.passes.elementwise_chunks.test_select import gradient, layer, net_of

BOTH = net_of(*layer(), *gradient(), outputs=("out", "dx0"))


def chosen(net, passes=("default",), **fields):
    search = Search(net, Setting(CPU, encoded, passes_of(passes)))
    peak = counted_peak(net)
    return search, Plan(predicted_peak=peak, original_peak=peak, **fields), None


def test_chains_that_lower_the_peak_are_taken():
    before = chosen(BOTH)
    _, plan, rewritten = by_chunks_where_it_pays(BOTH, [before], 3.0)
    assert [one.result for one in plan.of("elementwise_chunks")] == ["y0", "dz0"]
    assert plan.predicted_peak == counted_peak(rewritten) < 0.9 * plan.original_peak
    assert 1.0 < plan.slowdown <= 3.0


def test_nothing_is_taken_that_takes_too_long():
    before = chosen(BOTH, slowdown=1.2)
    assert by_chunks_where_it_pays(BOTH, [before], 1.2) is before


def test_nothing_is_taken_where_the_peak_is_elsewhere():
    huge = [op("m0", "Einsum", "x x", "f[4096,4096]"), op("s0", "Sum", "m0 x", "f[]")]
    net = net_of(*huge, *layer(), outputs=("out", "s0"))
    before = chosen(net)
    assert by_chunks_where_it_pays(net, [before], 3.0) is before


@pytest.mark.parametrize("fewer", ["straight_line", "order"])
def test_nothing_is_taken_where_it_is_not_allowed(fewer):
    before = chosen(BOTH, passes=(fewer,))
    assert not outside_of_loops(BOTH, before, 3.0)[1].of("elementwise_chunks")


def test_chains_that_lower_no_peak_stay_whole():
    late = [
        op("z9", "Einsum", "u v", "f[64,128,128]"),
        op("a9", "Tanh", "z9", "f[64,128,128]"),
        op("b9", "Sigmoid", "z9", "f[64,128,128]"),
        op("y9", "Mul", "a9 b9", "f[64,128,128]"),
        op("out9", "Einsum", "y9 u", "f[]"),
    ]
    ops = [*layer(), *gradient(), *late]
    inputs = {"u": "f[64,128,128]", "v": "f[64,128,128]"}
    net = net_of(*ops, outputs=("out", "dx0", "out9"), inputs=inputs)
    _, plan, _ = by_chunks_where_it_pays(net, [chosen(net)], 3.0)
    assert [one.result for one in plan.of("elementwise_chunks")] == ["y0", "dz0"]
