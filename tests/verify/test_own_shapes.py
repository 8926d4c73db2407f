"""What is broadcast to the shape that it has is what it was; anything else is refused."""

import pytest

from rnnmem.errors import CheckError
from rnnmem.ir.graph import DType
from rnnmem.ir.marks import OWN_SHAPE
from rnnmem.verify import check
from tests.handmade import make_net, op

F = "f[?,2]"
OPTIONAL = {"output_types": (DType("float32"),), "output_shapes": ()}


def drawn(*ops):
    return make_net({"x": F, "y": F}, [op("b", "Tanh", "x", F), *ops], ["s"])


def broadcast(value, shape_of, **marks):
    kinds = {"T": DType("float32"), "Tidx": DType("int32"), **marks}
    return [
        op("sizes", "Shape", shape_of, "i[2]", attributes={"out_type": DType("int32")}),
        op("large", "BroadcastTo", f"{value} sizes", F, attributes=kinds),
        op("s", "Sin", "large", F),
    ]


PLAIN = drawn(op("s", "Sin", "b", F))
OWN = {OWN_SHAPE: True}
HIDDEN = [
    op("held", "OptionalFromValue", "b", "v[]"),
    op("behind", "OptionalGetValue", "held", F, attributes=OPTIONAL),
]


def test_what_is_hidden_and_has_its_own_shape_is_what_it_was():
    check(PLAIN, drawn(*HIDDEN, *broadcast("behind", "b", **OWN)))


def test_so_is_what_is_computed_again():
    again = op("again", "Tanh", "x", F)
    check(PLAIN, drawn(again, *broadcast("again", "b", **OWN)))


@pytest.mark.parametrize(("value", "shape_of"), [("behind", "y"), ("behind", "x"), ("y", "b")])
def test_what_has_the_shape_of_another_is_refused(value, shape_of):
    with pytest.raises(CheckError):
        check(PLAIN, drawn(*HIDDEN, *broadcast(value, shape_of, **OWN)))


def test_nobody_is_believed_without_a_mark():
    with pytest.raises(CheckError):
        check(PLAIN, drawn(*HIDDEN, *broadcast("behind", "b")))
