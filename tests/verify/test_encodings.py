"""The checker lets pass what keeps saved blobs in another form, and nothing that is nearly that."""

import pytest

from rnnmem.analysis.machine import CPU
from rnnmem.errors import CheckError
from rnnmem.ir.graph import DType
from rnnmem.planning.apply import apply_plan
from rnnmem.planning.pareto import plan_net
from rnnmem.verify import check
from tests.drawing import encoded
from tests.handmade import rnn
from tests.masked_nets import masked

NET = masked(shape="63,65")
UNEVEN = masked(shape="?,65")


def rewritten(net, *techniques, segments=False):
    plan = plan_net(net, CPU, 1e9, segments=segments, techniques=frozenset(techniques))
    assert plan.loops[0].encodings
    return apply_plan(net, plan, encoded)


def edited(net, change):
    """The Net with each op of its step nets as ``change`` makes it."""
    return net.replace(
        ops=tuple(
            change(
                op.replace(nets={key: edited(inner, change) for key, inner in op.nets.items()}), net
            )
            for op in net.ops
        )
    )


def constants(old, new):
    """Puts a constant in the place of another."""

    def change(op, net):
        held = op.attributes.get("value")
        if op.type != "Const" or held.value != old or not op.name.startswith("rnnmem/kept"):
            return op
        return op.replace(attributes={**op.attributes, "value": encoded(new, held.dtype)})

    return change


def types(old, new):
    """Runs another op in the place of those that a rewrite added."""

    def change(op, net):
        mine = op.name.startswith("rnnmem/kept")
        return op.replace(type=new) if op.type == old and mine else op

    return change


def refusal(original, net, **options):
    with pytest.raises(CheckError) as caught:
        check(original, net, **options)
    return caught.value.reason


@pytest.mark.parametrize("net", [NET, UNEVEN, masked(shape="8,64")])
def test_bits_pass(net):
    check(net, rewritten(net, "bits"))


@pytest.mark.parametrize(
    "change",
    [
        constants(0x0102040810204080, 0x0102040810204081),
        constants(0x8040201008040201, 0x8040201008040202),
        constants(0x0101010101010101, 0x0101010101010100),
        constants(56, 55),
        constants(0.0, 1.0),
        constants((63, 65), (65, 63)),
        constants((63 * 65,), (63 * 65 - 1,)),
        types("Greater", "GreaterEqual"),
        types("RightShift", "LeftShift"),
        types("BitwiseAnd", "BitwiseOr"),
    ],
)
def test_bits_that_are_moved_otherwise_do_not(change):
    net = rewritten(NET, "bits")
    found = edited(net, change)
    assert found != net
    assert refusal(NET, found) in ("encoding-not-understood", "value-changed")


@pytest.mark.parametrize(
    "change", [constants((8,), (4,)), constants((2, 4), (4, 2)), types("Prod", "Sum")]
)
def test_dimensions_that_are_read_otherwise_do_not(change):
    net = rewritten(UNEVEN, "bits")
    found = edited(net, change)
    assert found != net
    assert refusal(UNEVEN, found) == "encoding-not-understood"


def test_a_sign_for_a_reader_that_asks_for_more_does_not():
    def change(op, net):
        return op.replace(type="TanhGrad") if op.name == "d" else op

    original = edited(NET, change)
    found = edited(rewritten(NET, "bits"), change)
    assert refusal(original, found) == "encoding-not-understood"


def test_the_bits_of_another_blob_do_not():
    def change(op, net):
        congruent = {"push_t": "r"}  # t is pushed as it is; r stands there now
        if op.name in congruent:
            return op.replace(inputs=(op.inputs[0], congruent[op.name]))
        return op

    assert refusal(NET, edited(rewritten(NET, "bits"), change)) == "value-changed"


def test_rounded_copies_pass_only_where_they_are_allowed():
    net = rewritten(NET, "bfloat16")
    check(NET, net, roundings=True)
    assert refusal(NET, net) == "encoding-not-understood"


def test_rounded_copies_are_read_by_nothing_but_their_list():
    def change(op, net):
        rounded = [
            one.outputs[0]
            for one in net.ops
            if one.attributes.get("_rnnmem_encodes") == b"bfloat16"
        ]
        if op.name == "keep" and rounded:
            return op.replace(inputs=(rounded[0], "half"))
        return op

    found = edited(rewritten(NET, "bfloat16"), change)
    assert refusal(NET, found, roundings=True) in ("encoding-not-understood", "dtype-mismatch")


def test_a_cast_to_less_than_bfloat16_does_not_pass():
    def change(op, net):
        dtype = {"SrcT": DType("int32"), "DstT": DType("float32")}
        if "_rnnmem_decodes" in op.attributes:
            return op.replace(attributes={**op.attributes, **dtype})
        return op

    found = edited(rewritten(NET, "bfloat16"), change)
    assert refusal(NET, found, roundings=True) == "encoding-not-understood"


def test_segments_of_rounded_copies_pass():
    net = rnn(limit=400)
    found = rewritten(net, "rematerialise", "bfloat16", segments=True)
    assert any(op.name == "rnnmem/segment" for _, inner in found.walk() for op in inner.ops)
    check(net, found, roundings=True)
    assert refusal(net, found) == "encoding-not-understood"
