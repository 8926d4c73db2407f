"""A sum may begin with another addend where TensorFlow lists its addends otherwise."""

import dataclasses

import pytest

from rnnmem.grappler.listing import Listing, reordered
from rnnmem.grappler.summation_races import BesideShapes
from tests.handmade import make_net, op


def beside(loop, name):
    drawn = make_net({"a": "f[4]"}, [op(name, "Tanh", "a", "f[4]")], [name])
    return BesideShapes(loop, drawn.ops)


SUM = beside("loop", "in/add_1")
BODY = "x/loop/body/_{}/in/"
ADDN = "ArithmeticOptimizer/AddOpsRewrite_add_1"


@dataclasses.dataclass
class Node:
    name: str
    op: str
    input: list


NODES = {
    "a": Node("a", "Identity", []),
    "mul": Node("mul", "Mul", ["a", "c"]),
    "mul_1": Node("mul_1", "Mul", ["a:0", "c"]),
    "Shape": Node("Shape", "Shape", ["mul"]),
    "add": Node("add", "AddV2", ["a", "mul"]),
    "push": Node("push", "TensorListPushBack", ["list", "mul"]),
    ADDN: Node(ADDN, "AddN", ["a", "mul", "mul_1", "^c"]),
}


def listing(order, number=7, **changed):
    """The ops of a loop's body, in an order, as they are called in a function."""

    def called(name):
        mark = "^" * name.startswith("^")
        return mark + BODY.format(number) + name.removeprefix("^")

    nodes = {**NODES, **changed}
    return Listing(
        Node(called(one.name), one.op, [called(blob) for blob in one.input])
        for one in (nodes[ADDN if name == "sum" else name] for name in order.split())
    )


BEFORE = "a mul mul_1 Shape add push sum"


@pytest.mark.parametrize(
    "after",
    [
        BEFORE,
        "a push mul mul_1 Shape add sum",  # what is pushed is held anyway
        "a mul mul_1 Shape add sum",  # a push that is gone is looked at elsewhere
    ],
)
def test_a_sum_keeps_its_order_where_all_that_reads_its_addends_is_listed_as_before(after):
    assert reordered([SUM], listing(BEFORE), listing(after, number=12)) is None


@pytest.mark.parametrize(
    "after",
    [
        "a mul_1 mul Shape add push sum",  # another addend is the last
        "a mul mul_1 Shape push sum add",  # the sum begins before another reader
        "a mul mul_1 Shape add push",  # no sum is made any more
        "a mul mul mul_1 Shape add push sum",  # which is which is not known
    ],
)
def test_it_may_lose_it_where_that_is_listed_otherwise(after):
    assert reordered([SUM], listing(BEFORE), listing(after)) is SUM.ops[0]


def test_it_loses_it_where_it_is_written_in_another_order():
    serialised = {ADDN: Node(ADDN, "AddN", ["mul_1", "mul", "a"])}
    assert reordered([SUM], listing(BEFORE), listing(BEFORE, **serialised)) is SUM.ops[0]


@pytest.mark.parametrize("loop, name", [("loop", "in/other"), ("another", "in/add_1")])
def test_other_sums_are_of_no_account(loop, name):
    assert reordered([beside(loop, name)], listing(BEFORE), listing("a mul_1 mul sum")) is None


def test_where_no_sum_of_three_is_made_there_is_no_race():
    two = {ADDN: Node(ADDN, "AddN", ["a", "mul"])}
    assert reordered([SUM], listing(BEFORE, **two), listing("a mul_1 mul sum", **two)) is None
