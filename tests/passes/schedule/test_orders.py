"""Orders in which little is alive at once, of an iteration and the next one beside it."""

import pytest

from rnnmem.passes.schedule.orders import orders
from tests.handmade import const, make_net, op

SQUARE = "f[512,512]"


def body(beside=SQUARE):
    """What the next iteration begins with, and before or behind it what only a sum needs."""
    return make_net(
        {"h": SQUARE, "total": "f[512]", "w": SQUARE, "u": SQUARE, "given": SQUARE},
        [
            const("axis", 0),
            op("with_given", "AddV2", "h given", SQUARE),  # as the gradient of a result is
            op("shared", "MatMul", "with_given w", SQUARE),
            op("next", "MatMul", "shared u", SQUARE),
            op("beside", "MatMul", "shared w", beside),
            op("row", "Sum", "beside axis", "f[512]"),
            op("added", "AddV2", "total row", "f[512]"),
        ],
        ["next", "added", "w", "u", "given"],
    )


def first_order(net, carried=True):
    found, waits = next(orders(net, net, net, frozenset(), carried))
    assert not waits
    return [one.name for one in found.ops]


def test_what_the_next_iteration_begins_with_is_made_last():
    assert first_order(body())[-1] == "next"


@pytest.mark.parametrize(("net", "carried"), [(body(), False), (body("f[8,8]"), True)])
def test_outside_of_loops_and_where_nothing_else_is_large_the_order_is_that_of_least_memory(
    net, carried
):
    found = [one.ops for one, _ in orders(net, net, net, frozenset(), carried)]
    assert len(found) == 1
