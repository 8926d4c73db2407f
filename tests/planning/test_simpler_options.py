"""Less is done outside of loops where a plan is refused: which options are tried, in order."""

import dataclasses

import pytest

from rnnmem.ir.edges import Edge
from rnnmem.passes.chunked_loss.decision import ChunkedLoss
from rnnmem.passes.elementwise_chunks.decision import ElementwiseChain
from rnnmem.passes.implicit_broadcast.decision import ImplicitBroadcast
from rnnmem.passes.late_products.decision import LateProduct
from rnnmem.passes.straight_line.decision import Region
from rnnmem.planning.options import Options, left_outside
from rnnmem.planning.plan import Plan

BROADCAST = ImplicitBroadcast("mul", 0)
REGION = Region(ops=("a",), readers=("b",), after=(), bytes=8, seconds=0.0)
CHAIN = ElementwiseChain("y", ("a", "y"), "x", 64, 8, 2**23, 1, 0.0)
LATE = LateProduct("p", 0, "d", 8)
TURN = Edge("a", 0, "b")


def loss(closed=""):
    fields = {field: () for field in ChunkedLoss.__dataclass_fields__}
    return ChunkedLoss(**{**fields, "closed": closed})


@pytest.mark.parametrize(
    "decided, expected",
    [
        ({}, []),
        ({"row_chunks": (loss("too small"),)}, []),
        ({"row_chunks": (loss(),)}, [("row_chunks",)]),
        ({"straight_line": (REGION,)}, [("straight_line",)]),
        (
            {"straight_line": (REGION,), "row_chunks": (loss("too small"), loss())},
            [("straight_line",), ("row_chunks",), ("straight_line", "row_chunks")],
        ),
        (
            {"elementwise_chunks": (CHAIN,), "straight_line": (REGION,)},
            [
                ("elementwise_chunks",),
                ("straight_line",),
                ("elementwise_chunks", "straight_line"),
            ],
        ),
        (
            {"late_products": (LATE,), "straight_line": (REGION,)},
            [("late_products",), ("straight_line",), ("late_products", "straight_line")],
        ),
        ({"broadcast_outside": (BROADCAST,)}, [("broadcast_outside",)]),
        ({"scheduling_edges": (dataclasses.replace(TURN, path=("loop", "body")),)}, []),
        (
            {"straight_line": (REGION,), "scheduling_edges": (TURN,)},
            [
                ("scheduling_edges",),
                ("straight_line",),
                ("scheduling_edges", "straight_line"),
            ],
        ),
    ],
)
def test_what_was_decided_is_left_out_one_by_one_and_then_together(decided, expected):
    options = Options()
    found = list(options.simpler(Plan().having(**decided)))
    assert [names for _, names in found] == expected
    for fewer, names in found:
        assert fewer.passes == options.passes - set(names)


def test_a_plan_that_is_given_loses_the_decisions_too():
    given = Plan().having(straight_line=(REGION,))
    fewer = Options(plan=given).without(["straight_line"])
    assert fewer.plan is not None and not fewer.plan.of("straight_line")
    assert given.of("straight_line") == (REGION,)


def test_the_note_names_the_passes_and_the_reason():
    note = left_outside(["straight_line", "row_chunks"], "why")
    assert note == "nothing is done by straight_line and row_chunks beside the loops: why"
