"""Sums with zero and products by one, and what stands for them where something is overwritten."""

import pytest

from rnnmem.errors import CheckError
from rnnmem.grappler.neutral import as_simplified
from rnnmem.ir.order import constant_value
from rnnmem.verify import check
from tests.drawing import encoded
from tests.handmade import const, make_net, op

F = "f[4,2]"
ROW = [const("at", (0,)), op("w", "InplaceUpdate", "z at row", F)]


def drawn(*ops, overwrites=True, outputs="s"):
    """``s`` is made of x; another op may write over z."""
    more, kept = (ROW, ["w"]) if overwrites else ([], [])
    inputs = {"x": F, "y": "f[2]", "z": F, "row": "f[1,2]"}
    return make_net(inputs, [*ops, *more], [outputs, *kept])


def simplified(net):
    return as_simplified(net, encoded)


@pytest.mark.parametrize(
    "number, type, inputs",
    [
        (0.0, "AddV2", "c x"),
        (0.0, "AddV2", "x c"),
        (0.0, "Sub", "x c"),
        (1.0, "Mul", "c x"),
        (1.0, "RealDiv", "x c"),
    ],
)
def test_what_changes_nothing_is_handed_on(number, type, inputs):
    net = drawn(const("c", number), op("s", type, inputs, F))
    found = simplified(net)
    handing = found.op_by_name["s"]
    assert (handing.type, handing.inputs[0]) == ("Reshape", "x")
    assert constant_value(found, handing.inputs[1]) == (4, 2)
    check(net, found)


@pytest.mark.parametrize(
    "number, type, inputs",
    [(0.0, "Sub", "c x"), (1.0, "RealDiv", "c x"), (0.0, "Mul", "x c"), (0.5, "AddV2", "x c")],
)
def test_other_numbers_and_places_are_computed(number, type, inputs):
    net = drawn(const("c", number), op("s", type, inputs, F))
    assert simplified(net) is net
    other = [const("sizes", (4, 2)), op("s", "Reshape", "x sizes", F)]
    with pytest.raises(CheckError):
        check(net, drawn(const("c", number), *other))


@pytest.mark.parametrize(("number", "type"), [(1.0, "Mul"), (0.0, "AddV2")])
def test_of_a_shape_that_no_trace_tells_only_a_product_is_handed_on(number, type):
    open_kind = "f[?,2]"  # the rules tell that it is [4, 2]
    net = drawn(
        const("c", number), op("t", "Tanh", "x", open_kind), op("s", type, "t c", open_kind)
    )
    handing = [const("sizes", (4, 2)), op("s", "Reshape", "t sizes", F)]
    found = drawn(const("c", number), op("t", "Tanh", "x", open_kind), *handing)
    if type == "Mul":
        check(net, found)
        return
    with pytest.raises(CheckError):  # TensorFlow adds the zero, which takes the sign off another
        check(net, found)


@pytest.mark.parametrize("sizes", [(2, 4), (8, 1)])
def test_it_keeps_its_shape(sizes):
    net = drawn(const("c", 1.0), op("s", "Mul", "x c", F))
    other = [const("sizes", sizes), op("s", "Reshape", "x sizes", F)]
    with pytest.raises(CheckError):
        check(net, drawn(const("c", 1.0), *other))


@pytest.mark.parametrize(("number", "type"), [(1.0, "RealDiv"), (0.0, "AddV2")])
def test_so_is_what_was_merged_with_one_that_is(number, type):
    same = const("c", number), const("d", number)
    ops = op("s", type, "x c", F), op("t", type, "x d", F), op("u", "Mul", "s t", F)
    squared = op("u", "Mul", "s s", F)
    found = simplified(drawn(*same, ops[0], squared, outputs="u"))
    assert found.op_by_name["s"].type == "Reshape"
    check(drawn(*same, *ops, outputs="u"), found)
    other = op("t", type, "z d", F)
    with pytest.raises(CheckError):
        check(drawn(*same, ops[0], other, ops[2], outputs="u"), found)


def test_what_is_broadcast_is_computed():
    net = drawn(const("c", 0.0), op("s", "AddV2", "x c", F), op("t", "AddV2", "c s", "f[?,2]"))
    net = net.replace(outputs=("t", "w"))
    assert [op.type for op in simplified(net).ops if op.name in "st"] == ["Reshape", "AddV2"]


def test_where_nothing_is_overwritten_tensorflow_does_it_itself():
    net = drawn(const("c", 0.0), op("s", "AddV2", "x c", F), overwrites=False)
    assert simplified(net) is net
