"""What a sum must not overwrite is put into a list: that this cannot fail is proven of the list."""

import pytest

from rnnmem.ir.graph import DType
from rnnmem.verify.lowering.patterns import extends_lifetime
from tests.handmade import const, make_net, op, while_op


def put(name, list, place, blob, dtype="float32"):
    held = {"element_dtype": DType(dtype), "resize_if_index_out_of_bounds": False}
    return op(name, "TensorListSetItem", f"{list} {place} {blob}", "v[]", attributes=held)


def answers(places=2, shape=-1, dtype="float32", start="held", following="t", at="zero one"):
    """Of each put of a loop that puts two elements in a list: whether it has a place for it."""
    first, second = at.split()
    body = make_net(
        {"i": "i[]", "h": "f[4]", "s": "v[]"},
        [
            *(const(name, value) for name, value in (("zero", 0), ("one", 1), ("five", 5))),
            op("n", "AddV2", "i one", "i[]"),
            put("r", "s", first, "h", dtype),
            put("t", "r", second, "h", dtype),
            op("e", "EmptyTensorList", "zero zero", "v[]"),
        ],
        ["n", "h", following],
    )
    held = {"element_dtype": DType("float32")}
    around = [
        *(const(name, value) for name, value in (("z", 0), ("k", shape), ("c", places))),
        op("held", "TensorListReserve", "k c", "v[]", attributes=held),
        op("empty", "EmptyTensorList", "k c", "v[]", attributes=held),
        while_op("loop", f"z a {start}", body),
    ]
    net = make_net({"a": "f[4]", "given": "v[]"}, around, ["loop:1"])
    loop = net.op_by_name["loop"]
    return [extends_lifetime(net, loop, loop.nets["body"].op_by_name[name]) for name in "rt"]


def test_a_list_that_begins_with_its_places_has_them_in_every_iteration():
    assert answers() == [True, True]
    assert answers(following="s") == [True, True]


@pytest.mark.parametrize(
    "otherwise",
    [
        {"places": 1, "at": "one one"},
        {"at": "i i"},
        {"at": "five five"},
        {"shape": 4},
        {"dtype": "float64"},
        {"start": "empty"},
        {"start": "given"},
        {"following": "e"},
    ],
    ids=str,
)
def test_a_list_that_may_lack_the_place_or_take_other_elements_does_not_count(otherwise):
    assert answers(**otherwise) == [False, False]


def test_what_puts_nothing_does_not_count():
    body = make_net({"i": "i[]"}, [const("one", 1), op("n", "AddV2", "i one", "i[]")], ["n"])
    net = make_net({}, [const("z", 0), while_op("loop", "z", body)], ["loop"])
    assert not extends_lifetime(net, net.op_by_name["loop"], body.op_by_name["n"])
