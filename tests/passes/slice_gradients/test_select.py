"""Which sums of slices' gradients are joined, and into what, on Nets made by hand.

d0, d1, ... ─► StridedSliceGrad of columns ─► AddN = total ─► Tanh = y
"""

import dataclasses

import pytest

from rnnmem.analysis.shapes import known_net
from rnnmem.errors import CheckError, NetError
from rnnmem.ir.graph import Blob, DType
from rnnmem.ir.order import without_dead_ops
from rnnmem.passes.slice_gradients.apply import apply
from rnnmem.passes.slice_gradients.decision import Part
from rnnmem.passes.slice_gradients.select import slice_gradients
from rnnmem.verify import check
from tests.handmade import CONTEXT, const, encoded, make_net, op, while_op

KIND = "f[?,4096]"
MASKS = dict.fromkeys(("shrink_axis_mask", "new_axis_mask", "ellipsis_mask"), 0)
MASKS |= {"T": DType("float32"), "Index": DType("int32")}
SUMMED = {"T": DType("float32")}
HALVES = ((0, 2048), (2048, 4096))


def part(at, start, end, given="", end_mask=1, **masks):
    """The ops that put ``d<at>`` into columns."""
    masks = {**MASKS, "begin_mask": 1, "end_mask": end_mask, **masks}
    return [
        const(f"b{at}", (0, start)),
        const(f"e{at}", (0, end)),
        op(
            f"p{at}",
            "StridedSliceGrad",
            f"s b{at} e{at} ones {given or f'd{at}'}",
            KIND,
            attributes=masks,
        ),
    ]


def net_of(*windows, more=(), beside="", last="Tanh", outputs=("y",), parts=None):
    parts = [part(at, *one) for at, one in enumerate(windows)] if parts is None else parts
    addends = " ".join(f"p{at}" for at in range(len(windows)))
    ops = [
        op("s", "Shape", "x", "i[2]"),
        const("ones", (1, 1)),
        *(one for some in parts for one in some),
        *more,
        op("total", "AddN", f"{addends} {beside}", KIND, attributes=SUMMED),
        op("y", last, "total" if last == "Tanh" else "total x", KIND, attributes=SUMMED),
    ]
    inputs = {f"d{at}": f"f[?,{end - start}]" for at, (start, end) in enumerate(windows)}
    return make_net({"x": KIND, "z": KIND, **inputs}, ops, list(outputs))


def decided(net):
    return slice_gradients(known_net(net))


def joined(net):
    """The Net as it becomes, verified."""
    made = without_dead_ops(apply(net, decided(net), CONTEXT))
    check(net, made)
    return made


def types(net):
    return sorted(one.type for one in net.ops if one.type not in ("Const", "Shape"))


BARRIER = ["OptionalFromValue", "OptionalGetValue"]
HIDDEN = sorted(2 * BARRIER)  # the zero, and the axis where a size is unknown


def test_halves_stand_side_by_side_and_no_part_is_made_whole():
    net = net_of(*HALVES)
    (found,) = decided(net)
    assert found.layers == ((Part("p0"), Part("p1")),)
    assert found.sentence == "total: gradients of 2 slices are joined, none is made whole"
    made = joined(net)
    assert types(made) == ["AddV2", "ConcatV2", *HIDDEN, "Tanh"]
    assert made.op_by_name["total"].type == "AddV2", "it keeps its name"


def test_where_all_sizes_are_known_the_axis_may_be_seen():
    net = net_of(*HALVES)
    net = net.replace(blobs=net.blobs | {"total": Blob("total", "float32", (8, 4096))})
    assert types(joined(net)) == ["AddV2", "ConcatV2", *BARRIER, "Tanh"]


def test_holes_are_filled_with_zeros():
    net = net_of((8, 16), (16, 64), (100, 1000))
    assert decided(net)[0].layers == ((Part("p0", 8, 0), Part("p1", 0, 36), Part("p2", 0, 3096)),)
    assert types(joined(net)) == ["AddV2", "ConcatV2", *HIDDEN, *["Pad"] * 3, "Tanh"]


def test_another_addend_is_added_behind():
    assert types(joined(net_of(*HALVES, beside="z"))) == [
        "AddN",
        "AddV2",
        "ConcatV2",
        *HIDDEN,
        "Tanh",
    ]


def test_a_part_that_is_alone_in_its_layer_is_an_addend_like_any():
    net = net_of((0, 2048), (1000, 3000), (2048, 4096))
    assert decided(net)[0].layers == ((Part("p0"), Part("p2")),)
    assert types(joined(net)) == sorted(
        ["AddN", "AddV2", "ConcatV2", *HIDDEN, "StridedSliceGrad", "Tanh"]
    )
    assert decided(net_of((0, 2048), (1000, 3000), (2048, 4096), beside="z")) == ()


def test_sums_of_one_net_share_their_zero_and_their_axis():
    of_others = [*part(2, 0, 64, given="d0"), *part(3, 64, 4096, given="d1")]
    other = op("other", "AddN", "p2 p3", KIND, attributes=SUMMED)
    more = [*of_others, other, op("z2", "Tanh", "other", KIND)]
    made = joined(net_of((0, 64), (64, 4096), more=more, outputs=("y", "z2")))
    assert types(made) == sorted(["AddV2", "ConcatV2", "Tanh"] * 2 + HIDDEN)


def test_two_layers_are_added_up():
    net = net_of(*HALVES, (0, 4), (4, 4096))
    assert [len(some) for some in decided(net)[0].layers] == [2, 2]
    assert types(joined(net)).count("ConcatV2") == 2


@pytest.mark.parametrize(
    "net",
    [
        net_of(*HALVES, *HALVES, *HALVES),
        net_of(*HALVES, *HALVES, beside="z"),
        net_of(*HALVES, beside="z x"),
        net_of((0, 2048)),
        net_of((0, 2048), (1000, 4096)),
        net_of(*HALVES, outputs=("y", "p0")),
        net_of(*HALVES, more=[op("t", "Tanh", "p0", KIND)], outputs=("y", "t")),
        net_of(*HALVES, last="AddV2"),
        net_of(*HALVES, more=[op("w", "AddV2", "x z", KIND)], beside="w"),
    ],
    ids=[
        "three layers",
        "two layers and another",
        "two others",
        "one part",
        "one element twice",
        "a part is a result",
        "a part is read",
        "its reader is a sum",
        "an addend is a sum",
    ],
)
def test_a_sum_whose_order_may_show_is_left(net):
    assert decided(net) == ()


def test_what_tensorflow_would_compute_behind_the_join_is_left():
    parts = [part(at, *one, given=f"n{at}") for at, one in enumerate(HALVES)]
    more = [op(f"n{at}", "Neg", f"d{at}", "f[?,2048]") for at in range(2)]
    assert decided(net_of(*HALVES, parts=[more, *parts])) == ()


def test_constants_between_zeros_are_constants():
    parts = [part(at, *one, given=f"n{at}") for at, one in enumerate(HALVES)]
    fill = [const("sizes", (2, 2048)), const("number", 0.5)]
    fill += [op("n0", "Fill", "sizes number", "f[2,2048]"), op("n1", "Tanh", "d1", "f[?,2048]")]
    assert decided(net_of(*HALVES, parts=[fill, *parts])) == ()


def test_small_parts_with_holes_are_left():
    net = net_of((1, 4), (6, 8))
    small = {
        name: dataclasses.replace(one, shape=(2, 64))
        for name, one in net.blobs.items()
        if one.shape == (None, 4096)
    }
    assert decided(net)
    assert decided(net.replace(blobs={**net.blobs, **small})) == ()


def in_loop():
    """The sum in the body of a loop, whose state is sliced."""
    body = make_net(
        {"i": "i[]", "x": KIND, "d0": "f[?,2048]", "d1": "f[?,2048]"},
        [
            const("one", 1),
            op("next", "AddV2", "i one", "i[]"),
            op("s", "Shape", "x", "i[2]"),
            const("ones", (1, 1)),
            *part(0, 0, 2048),
            *part(1, 2048, 4096),
            op("total", "AddN", "p0 p1", KIND, attributes=SUMMED),
            op("y", "Tanh", "total", KIND),
        ],
        ["next", "y", "d0", "d1"],
    )
    ops = [const("zero", 0), while_op("loop", "zero x d0 d1", body)]
    inputs = {"x": KIND, "d0": "f[?,2048]", "d1": "f[?,2048]"}
    return make_net(inputs, ops, ["loop:1"])


def test_a_sum_in_a_step_net_is_joined_there():
    net = in_loop()
    (found,) = decided(net)
    assert found.path == ("loop", "body") and " in loop/body: " in found.sentence
    made = joined(net)
    assert "ConcatV2" in types(made.op_by_name["loop"].nets["body"])


def test_xla_joins_nothing():
    net = net_of(*HALVES)
    context = type(CONTEXT)(CONTEXT.of, CONTEXT.constant, keeps_alive=False)
    assert apply(net, decided(net), context) is net


@pytest.mark.parametrize("other", [net_of((0, 2048)), net_of(*HALVES, beside="z x"), in_loop()])
def test_a_plan_for_another_net_is_refused(other):
    with pytest.raises(NetError, match="the plan is for another function"):
        apply(other, decided(net_of(*HALVES)), CONTEXT)


def refusal(net, name, **fields):
    made = apply(net, decided(net), CONTEXT)
    ops = tuple(one.replace(**fields) if one.name == name else one for one in made.ops)
    with pytest.raises(CheckError) as caught:
        check(net, without_dead_ops(made.replace(ops=ops)))
    return caught.value.reason


def test_the_verifier_refuses_parts_in_another_order():
    net = net_of(*HALVES)
    made = apply(net, decided(net), CONTEXT)
    one, other, axis = made.op_by_name["total/rnnmem/joined"].inputs
    assert refusal(net, "total/rnnmem/joined", inputs=(other, one, axis)) == "value-changed"


def test_the_verifier_refuses_a_sum_without_the_zero_that_takes_a_sign():
    net = net_of(*HALVES)
    made = apply(net, decided(net), CONTEXT)
    (side, _) = made.op_by_name["total"].inputs
    assert refusal(net, "total", type="Identity", inputs=(side,)) == "value-changed"


def test_the_verifier_refuses_zeros_elsewhere():
    net = net_of((8, 16), (16, 4096))
    made = apply(net, decided(net), CONTEXT)
    (pad,) = (one for one in made.ops if one.type == "Pad")
    paddings = made.producer[pad.inputs[1]]
    other = {**paddings.attributes, "value": encoded(((0, 0), (0, 8)), "int32")}
    assert refusal(net, paddings.name, attributes=other) == "value-changed"


def test_the_verifier_refuses_another_layer_left_out():
    net = net_of(*HALVES, (0, 4), (4, 4096))
    made = apply(net, decided(net), CONTEXT)
    one, other = made.op_by_name["total/rnnmem/all"].inputs
    assert one != other
    assert refusal(net, "total/rnnmem/all", inputs=(one, one)) == "value-changed"
