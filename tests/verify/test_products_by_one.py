"""A product by the number one is the other factor; by another, or by ones that widen, it is not."""

import pytest

from rnnmem.errors import CheckError
from rnnmem.verify import check
from tests.handmade import const, make_net, op

F = "f[4,2]"


def drawn(*ops):
    return make_net({"x": F, "y": "f[1,2]"}, ops, ["s"])


@pytest.mark.parametrize("inputs", ["one x", "x one"])
def test_a_product_by_one_is_the_other_factor(inputs):
    handed_on = drawn(op("s", "Identity", "x", F))
    product = drawn(const("one", 1.0), op("s", "Mul", inputs, F))
    check(product, handed_on)
    check(handed_on, product)


@pytest.mark.parametrize(("type", "number"), [("Mul", 2.0), ("Mul", 0.0), ("AddV2", 0.0)])
def test_no_other_product_and_no_sum_is(type, number):
    handed_on = drawn(op("s", "Identity", "x", F))
    made = drawn(const("number", number), op("s", type, "number x", F))
    with pytest.raises(CheckError):
        check(made, handed_on)


def test_nor_is_one_by_a_row_of_ones():
    ones = op("ones", "Fill", "sizes one", F)
    rows = drawn(const("one", 1.0), const("sizes", (4, 2)), ones, op("s", "Mul", "ones y", F))
    with pytest.raises(CheckError):
        check(rows, drawn(op("s", "Identity", "y", F)))
