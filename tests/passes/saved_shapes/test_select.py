"""Which shapes are saved: in a pair drawn by hand, whose gradient takes slices backwards."""

import pytest

from rnnmem.analysis.facts import Fact
from rnnmem.analysis.shapes import known_net
from rnnmem.passes.saved_shapes.decision import SavedShape
from rnnmem.passes.saved_shapes.select import saved_shapes
from tests.handmade import const, empty_list, make_net, op, pop, push, while_op

TRIPS = 8
COLUMNS = 512
SHAPES = op("shapes", "ShapeN", "pop_a:1 pop_b:1", "i[2] i[2]")


def pair(*others, asks=SHAPES, kind=f"f[?,{COLUMNS}]"):
    """The forward loop pushes ``a`` and ``b``; the gradient loop asks for their shapes."""
    body = make_net(
        {"i": "i[]", "h": kind, "acc_a": "v[]", "acc_b": "v[]"},
        [
            const("one", 1),
            op("next", "AddV2", "i one", "i[]"),
            op("a", "Tanh", "h", kind),
            op("b", "Sin", "a", kind),
            push("push_a", "acc_a", "a"),
            push("push_b", "acc_b", "b"),
        ],
        ["next", "b", "push_a", "push_b"],
    )
    gradient = make_net(
        {"i": "i[]", "g": kind, "acc_a": "v[]", "acc_b": "v[]", "at": "i[2]"},
        [
            const("one", 1),
            const("any", (-1, -1)),
            op("next", "AddV2", "i one", "i[]"),
            pop("pop_a", "acc_a", kind),
            pop("pop_b", "acc_b", kind),
            asks,
            *others,
            op("d", "Slice", f"g at {asks.op.outputs[0]}", kind),
        ],
        ["next", others[-1].op.outputs[0] if others else "d", "pop_a:0", "pop_b:0", "at"],
    )
    loops = [
        const("zero", 0),
        const("any", (-1, -1)),
        empty_list("list_a"),
        empty_list("list_b"),
        while_op("loop", "zero x list_a list_b", body, limit=TRIPS),
        op("ones", "OnesLike", "loop:1", kind),
        while_op("gradient", "zero ones loop:2 loop:3 at", gradient, limit=TRIPS),
    ]
    return make_net({"x": kind, "at": "i[2]"}, loops, ["loop:1", "gradient:1"])


def found(net, rows=64):
    """What is decided where there are so many rows in the call; None: where nobody knows."""
    facts = None if rows is None else [Fact((rows, COLUMNS)), Fact((2,))]
    return saved_shapes(net, known_net(net, facts, most=rows is not None))


def test_shapes_are_saved_of_what_nothing_else_is_read_of():
    size = 2 * TRIPS * 64 * COLUMNS * 4
    assert found(pair()) == (SavedShape((), "gradient", "shapes", size),)
    assert found(pair(), rows=None) == (SavedShape((), "gradient", "shapes", None),)


def test_what_is_read_besides_does_not_count():
    (one,) = found(pair(op("e", "Mul", "g pop_a:1", "f[?,512]")))
    assert one.bytes == TRIPS * 64 * COLUMNS * 4
    both = op("d2", "Mul", "g pop_a:1", "f[?,512]"), op("e", "Mul", "d2 pop_b:1", "f[?,512]")
    assert not found(pair(*both))


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "f[64,512]"},
        {"asks": op("shapes", "ShapeN", "pop_a:1 g", "i[2] i[2]")},
        {"asks": op("shapes", "ShapeN", "pop_a:1 pop_b:1", "i[2] i[2]", controls=("next",))},
        {"asks": op("shapes", "Size2", "pop_a:1 pop_b:1", "i[2] i[2]")},
    ],
    ids=["sizes are known", "of the gradient", "waits", "asks for more"],
)
def test_other_ops_stay_in_the_gradient_loop(changed):
    assert not found(pair(**changed))


def test_few_bytes_are_not_worth_a_list():
    assert not found(pair(), rows=0)
