"""The rules of rows against TensorFlow's kernels: what they say of a part is so."""

import numpy as np
import pytest
import tensorflow as tf

from rnnmem.analysis.row_rules import (
    ONE,
    ROW,
    RULES,
    Dim,
    Given,
    Partial,
    Rows,
    Sizes,
    apply,
    rows_of,
)
from rnnmem.analysis.shape_rules import Fact
from rnnmem.ir.graph import DType
from tests.handmade import op

N = 12
random = np.random.default_rng(0)


def floats(*shape):
    return random.normal(size=shape).astype(np.float32)


def ints(high, *shape):
    return random.integers(0, high, shape).astype(np.int32)


# op type, attributes, inputs: ("rows", whole blob) is cut, ("given", blob) is not.
CASES = [
    ("Tanh", {}, [("rows", floats(N, 3))]),
    ("AddV2", {}, [("rows", floats(N, 3)), ("given", floats(3))]),
    ("Mul", {}, [("rows", floats(N, 3)), ("rows", floats(N, 1))]),
    ("Mul", {}, [("given", floats(1, 3)), ("rows", floats(N, 3))]),
    ("SelectV2", {}, [("rows", ints(2, N, 1) > 0), ("rows", floats(N, 3)), ("given", floats())]),
    ("Softmax", {}, [("rows", floats(N, 5))]),
    ("LogSoftmax", {}, [("rows", floats(N, 2, 5))]),
    ("BiasAdd", {}, [("rows", floats(N, 5)), ("given", floats(5))]),
    ("BiasAddGrad", {}, [("rows", floats(N, 2, 5))]),
    ("MatMul", {}, [("rows", floats(N, 3)), ("given", floats(3, 5))]),
    ("MatMul", {"transpose_b": True}, [("rows", floats(N, 3)), ("given", floats(5, 3))]),
    ("MatMul", {"transpose_a": True}, [("rows", floats(N, 3)), ("rows", floats(N, 5))]),
    ("BatchMatMulV2", {}, [("rows", floats(N, 2, 3)), ("given", floats(3, 5))]),
    ("BatchMatMulV2", {"adj_x": True}, [("rows", floats(N, 2, 3)), ("rows", floats(N, 2, 5))]),
    ("BatchMatMulV2", {"adj_y": True}, [("rows", floats(N, 2, 3)), ("given", floats(1, 5, 3))]),
    ("Sum", {}, [("rows", floats(N, 2, 3)), ("given", np.int32([2]))]),
    ("Sum", {"keep_dims": True}, [("rows", floats(N, 2, 3)), ("given", np.int32([-1]))]),
    ("Sum", {}, [("rows", floats(N, 2, 3)), ("given", np.int32([0, 1]))]),
    ("Sum", {"keep_dims": True}, [("rows", floats(N, 2, 3)), ("given", np.int32([0]))]),
    ("Max", {}, [("rows", floats(N, 3)), ("given", np.int32([1]))]),
    ("Mean", {}, [("rows", floats(N, 3)), ("given", np.int32([-1]))]),
    ("Bitcast", {"type": DType("int32"), "T": DType("float32")}, [("rows", floats(N, 3))]),
    ("ArgMax", {}, [("rows", floats(N, 3)), ("given", np.int32(-1))]),
    ("InTopKV2", {}, [("rows", floats(N, 5)), ("rows", ints(5, N)), ("given", np.int32(2))]),
    (
        "SparseSoftmaxCrossEntropyWithLogits",
        {},
        [("rows", floats(N, 5)), ("rows", ints(5, N))],
    ),
    ("SoftmaxCrossEntropyWithLogits", {}, [("rows", floats(N, 5)), ("rows", floats(N, 5))]),
    ("SoftmaxCrossEntropyWithLogits", {}, [("rows", floats(N, 5)), ("given", floats(1, 5))]),
    (
        "GatherV2",
        {"batch_dims": 1},
        [("rows", floats(N, 5)), ("rows", ints(5, N)), ("given", np.int32(1))],
    ),
    (
        "OneHot",
        {"axis": -1},
        [("rows", ints(5, N, 2)), *[("given", one) for one in (np.int32(5), floats(), floats())]],
    ),
    ("Reshape", {}, [("rows", floats(N, 2, 3)), ("given", np.int32([-1, 3]))]),
    ("Reshape", {}, [("rows", floats(N, 6)), ("given", np.int32([-1, 2, 3]))]),
    ("Reshape", {}, [("rows", floats(N, 6)), ("given", np.int32([-1]))]),
    ("ExpandDims", {}, [("rows", floats(N, 3)), ("given", np.int32(-1))]),
    ("Squeeze", {"squeeze_dims": (1,)}, [("rows", floats(N, 1, 3))]),
    ("Transpose", {}, [("rows", floats(N, 2, 3)), ("given", np.int32([0, 2, 1]))]),
    ("Tile", {}, [("rows", floats(N, 2)), ("given", np.int32([1, 3]))]),
    ("Slice", {}, [("rows", floats(N, 5)), *[("given", np.int32(x)) for x in ([0, 1], [-1, 3])]]),
    ("AddN", {"N": 2}, [("rows", floats(N, 3)), ("rows", floats(N, 3))]),
    ("ZerosLike", {}, [("rows", floats(N, 3))]),
]


def run(type, attributes, inputs):
    """What the kernel makes of the inputs, as arrays."""
    function = getattr(tf.raw_ops, type)
    names = [one for one in function.__signature__.parameters if one != "name"]
    given = [tf.constant(one) for one in inputs]
    if type == "AddN":
        return [tf.raw_ops.AddN(inputs=given).numpy()]
    if type == "Bitcast":
        attributes = {"type": tf.int32}
    if type == "Squeeze":
        attributes = {"axis": attributes["squeeze_dims"]}
    attributes = {k: list(v) if isinstance(v, tuple) else v for k, v in attributes.items()}
    results = function(**dict(zip(names, given, strict=False)), **attributes)
    flat = list(results) if isinstance(results, tuple) else [results]
    return [one.numpy() for one in flat]


def value_of(kind, blob):
    if kind == "rows":
        return rows_of("x", blob.shape, ROW)
    held = None
    if blob.dtype == np.int32:
        held = int(blob) if blob.ndim == 0 else tuple(map(int, blob))
    return Given(Fact(blob.shape, held))


@pytest.mark.parametrize(("type", "attributes", "inputs"), CASES, ids=[case[0] for case in CASES])
def test_parts_are_what_the_rules_say(type, attributes, inputs):
    names = [f"i{place}" for place in range(len(inputs))]
    made = op("o", type, " ".join(names), attributes=attributes).op
    whole = run(type, attributes, [blob for _, blob in inputs])
    made = made.replace(outputs=tuple(f"o:{place}" for place in range(len(whole))))
    claims = apply(made, [value_of(kind, blob) for kind, blob in inputs])
    assert claims is not None
    for cuts in ((0, 5, 10, N), (0, 1, N), (0, N)):
        parts = [
            run(
                type,
                attributes,
                [blob[first:last] if kind == "rows" else blob for kind, blob in inputs],
            )
            for first, last in zip(cuts, cuts[1:], strict=False)
        ]
        for place, claim in enumerate(claims):
            some = [part[place] for part in parts]
            if isinstance(claim, Rows):
                together = np.concatenate(some)
                sizes = [dim.at(N) for dim in claim.shape]
            else:
                assert isinstance(claim, Partial)
                together, sizes = sum(some), [dim.number for dim in claim.shape]
            assert list(whole[place].shape) == sizes
            np.testing.assert_allclose(together, whole[place], rtol=1e-5, atol=1e-5)


REFUSED = [
    ("Softmax", {}, [rows_of("x", (None,), ROW)]),
    ("Cumsum", {}, [rows_of("x", (None, 3), ROW), Given(Fact((), 0))]),
    ("Max", {}, [rows_of("x", (None, 3), ROW), Given(Fact((1,), (0,)))]),
    ("Mean", {}, [rows_of("x", (None, 3), ROW), Given(Fact((1,), (0,)))]),
    ("AddV2", {}, [rows_of("x", (None, 3), ROW), Given(Fact((None, 3)))]),
    ("AddV2", {}, [rows_of("x", (None, 3), ROW), Given(Fact((5, 3)))]),
    ("AddV2", {}, [rows_of("x", (None,), ROW), rows_of("y", (None, 3), ROW)]),
    ("MatMul", {"transpose_a": True}, [rows_of("x", (None, 3), ROW), Given(Fact((3, 5)))]),
    ("MatMul", {}, [Given(Fact((3, 5))), rows_of("x", (None, 3), ROW)]),
    ("Transpose", {}, [rows_of("x", (None, 3), ROW), Given(Fact((2,), (1, 0)))]),
    ("Reshape", {}, [rows_of("x", (None, 3), ROW), Given(Fact((2,), (-1, 4)))]),
    ("Reshape", {}, [rows_of("x", (None, 3), ROW), Given(Fact((2,), (3, -1)))]),
    ("ExpandDims", {}, [rows_of("x", (None, 3), ROW), Given(Fact((), 0))]),
    ("BiasAdd", {"data_format": b"NCHW"}, [rows_of("x", (None, 3), ROW), Given(Fact((3,)))]),
    ("RandomUniform", {}, [Sizes((ROW,))]),
    ("Cast", {}, [Sizes(ROW)]),
]


@pytest.mark.parametrize(
    ("type", "attributes", "values"), REFUSED, ids=[case[0] for case in REFUSED]
)
def test_what_must_see_all_rows_says_so(type, attributes, values):
    names = " ".join(f"i{place}" for place in range(len(values)))
    assert apply(op("o", type, names, "f*", attributes=attributes).op, values) is None


def test_sizes_are_followed():
    def give(type, *values, **attributes):
        names = " ".join(f"i{place}" for place in range(len(values)))
        (found,) = apply(op("o", type, names, "i*", attributes=attributes).op, values)
        return found

    rows = Rows((Dim(32) * ROW, Dim(5)))
    shape = give("Shape", rows)
    assert shape == Sizes((Dim(32) * ROW, Dim(5)))
    assert give("Prod", shape, Given(Fact((1,), (0,)))) == Sizes(Dim(160) * ROW)
    assert give("GatherV2", shape, Given(Fact((1,), (1,))), Given(Fact((), 0))) == Given(
        Fact((1,), (5,))
    )
    assert give("Maximum", Sizes(ROW), Given(Fact((), 1))) == Sizes(ROW)
    assert give("FloorDiv", Sizes(Dim(160) * ROW), Sizes(ROW)) == Given(Fact((), 160))
    ramp = give("Range", Given(Fact((), 0)), Sizes(ROW), Given(Fact((), 1)))
    assert ramp == Rows((ROW,), ONE)
    assert give("Mul", ramp, Given(Fact((), 7))) == Rows((ROW,), Dim(7))


def test_sizes_are_followed_by_the_rules_of_facts():
    def give(type, *values, outputs="i*", **attributes):
        names = " ".join(f"i{place}" for place in range(len(values)))
        return apply(op("o", type, names, outputs, attributes=attributes).op, values)

    def numbers(*held):
        return Given(Fact((len(held),), held))

    vector, axis = Sizes((ROW, Dim(3))), Given(Fact((), 0))
    # a vector of one number is repeated, as the kernel does
    assert give("Mul", vector, numbers(2)) == [Sizes((Dim(2) * ROW, Dim(6)))]
    assert give("AddV2", vector, vector) == [Sizes((Dim(2) * ROW, Dim(6)))]
    assert give("Sub", vector, vector) is None  # no rule says what is left of n
    assert give("FloorDiv", vector, numbers(3)) is None  # n / 3 may be no whole number
    assert give("Prod", vector, numbers(0), keep_dims=True) == [Sizes((Dim(3) * ROW,))]
    assert give("ConcatV2", numbers(7), vector, axis) == [Sizes((Dim(7), ROW, Dim(3)))]
    assert give("Pack", Sizes(ROW), Given(Fact((), 4))) == [Sizes((ROW, Dim(4)))]
    assert give("Pack", Sizes(ROW), numbers(5, 1)) is None
    assert give("Reshape", Sizes((ROW,)), numbers()) == [Sizes(ROW)]
    assert give("DynamicStitch", numbers(1), numbers(0), Sizes((ROW,)), numbers(9)) == [
        Sizes((Dim(9), ROW))
    ]
    assert give("BroadcastGradientArgs", vector, numbers(1, 3), outputs="i* i*") == [
        Given(Fact((0,), ())),
        numbers(0),
    ]
    # n may be 5, and then nothing is summed over
    assert give("BroadcastGradientArgs", vector, numbers(5, 3), outputs="i* i*") is None


def test_every_rule_is_for_a_registered_type_without_state():
    from rnnmem.tf import private

    found = [private.op_def(type) for type in RULES]
    assert all(one is not None and not one.is_stateful for one in found)
