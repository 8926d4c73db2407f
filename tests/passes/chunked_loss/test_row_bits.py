"""Op types with the word ``bits``: TensorFlow's kernels give by chunks of rows the bits of all."""

import numpy as np
import pytest
import tensorflow as tf

from rnnmem.ir.op_table import column
from rnnmem.passes.chunked_loss.exact import COLUMNS
from rnnmem.passes.chunked_loss.select import ALIGNED

raw = tf.raw_ops
OF_ONE = """Abs Ceil Cos Cosh Elu Erf Erfc Exp Expm1 Floor Log Log1p Neg OnesLike Reciprocal Relu
Relu6 Rint Round Rsqrt Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Square Tan Tanh ZerosLike
Atan LeakyRelu IsNan IsFinite Identity StopGradient PreventGradient""".split()
OF_TWO = """Add AddV2 Div DivNoNan FloorDiv Maximum Minimum Mul MulNoNan Pow RealDiv
SquaredDifference Sub Xdivy Xlogy""".split()
COMPARE = "Equal Greater GreaterEqual Less LessEqual NotEqual".split()
GRADIENTS = {
    "EluGrad": "outputs",
    "LeakyReluGrad": "features",
    "ReciprocalGrad": "y",
    "Relu6Grad": "features",
    "ReluGrad": "features",
    "RsqrtGrad": "y",
    "SeluGrad": "outputs",
    "SigmoidGrad": "y",
    "SoftplusGrad": "features",
    "SoftsignGrad": "features",
    "SqrtGrad": "y",
    "TanhGrad": "y",
}
REDUCE = "EuclideanNorm Max Mean Min Prod Sum".split()


def calls():
    """Op type -> a call of rows [n, V] of numbers, of positive ones, labels [n] and factors [n]."""
    found = {}
    for name in OF_ONE:
        found[name] = lambda x, p, y, f, name=name: one_input(name, p if positive(name) else x)
    for name in (*OF_TWO, *COMPARE):
        found[name] = lambda x, p, y, f, name=name: getattr(raw, name)(x=p, y=f[:, None])
    for name, argument in GRADIENTS.items():
        found[name] = lambda x, p, y, f, name=name, argument=argument: gradient(
            name, argument, p, x
        )
    for name in REDUCE:
        found[name] = lambda x, p, y, f, name=name: getattr(raw, name)(input=p, axis=[1])
    return found | {
        "AddN": lambda x, p, y, f: raw.AddN(inputs=[x, p]),
        "All": lambda x, p, y, f: raw.All(input=x > 0, axis=[1]),
        "Any": lambda x, p, y, f: raw.Any(input=x > 0, axis=[1]),
        "ArgMax": lambda x, p, y, f: raw.ArgMax(input=x, dimension=1),
        "ArgMin": lambda x, p, y, f: raw.ArgMin(input=x, dimension=1),
        "BiasAdd": lambda x, p, y, f: raw.BiasAdd(
            value=x, bias=tf.cast(tf.range(x.shape[1]), x.dtype)
        ),
        "Bitcast": lambda x, p, y, f: raw.Bitcast(input=tf.cast(x, tf.float32), type=tf.int32),
        **{
            name: lambda x, p, y, f, name=name: getattr(raw, name)(
                x=tf.bitcast(tf.cast(x, tf.float32), tf.int32), y=tf.constant(0x7FFF00FF)
            )
            for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")
        },
        "BroadcastTo": lambda x, p, y, f: raw.BroadcastTo(input=f[:, None], shape=tf.shape(x)),
        "Cast": lambda x, p, y, f: [raw.Cast(x=x, DstT=t) for t in (tf.bfloat16, tf.float32)],
        "ClipByValue": lambda x, p, y, f: raw.ClipByValue(
            t=x, clip_value_min=tf.cast(-1, x.dtype), clip_value_max=tf.cast(1, x.dtype)
        ),
        "ExpandDims": lambda x, p, y, f: raw.ExpandDims(input=x, axis=2),
        "Fill": lambda x, p, y, f: raw.Fill(dims=tf.shape(x), value=tf.cast(0.1, x.dtype)),
        "GatherV2": lambda x, p, y, f: raw.GatherV2(params=x, indices=y, axis=1, batch_dims=1),
        "InTopKV2": lambda x, p, y, f: raw.InTopKV2(
            predictions=tf.cast(x, tf.float32), targets=y, k=3
        ),
        "LogSoftmax": lambda x, p, y, f: raw.LogSoftmax(logits=x),
        "LogicalAnd": lambda x, p, y, f: raw.LogicalAnd(x=x > 0, y=p > 1),
        "LogicalNot": lambda x, p, y, f: raw.LogicalNot(x=x > 0),
        "LogicalOr": lambda x, p, y, f: raw.LogicalOr(x=x > 0, y=p > 1),
        "OneHot": lambda x, p, y, f: raw.OneHot(
            indices=y,
            depth=x.shape[1],
            on_value=tf.cast(0.9, x.dtype),
            off_value=tf.cast(0.1, x.dtype),
        ),
        "Reshape": lambda x, p, y, f: raw.Reshape(tensor=x, shape=[-1, 1, x.shape[1]]),
        "Select": lambda x, p, y, f: raw.Select(condition=x > 0, x=x, y=p),
        "SelectV2": lambda x, p, y, f: raw.SelectV2(condition=x > 0, t=x, e=p),
        "Slice": lambda x, p, y, f: raw.Slice(input=x, begin=[0, 3], size=[-1, 5]),
        "Softmax": lambda x, p, y, f: raw.Softmax(logits=x),
        "SoftmaxCrossEntropyWithLogits": lambda x, p, y, f: raw.SoftmaxCrossEntropyWithLogits(
            features=x, labels=p
        ),
        "SparseSoftmaxCrossEntropyWithLogits": lambda x, p, y, f: (
            raw.SparseSoftmaxCrossEntropyWithLogits(features=x, labels=y)
        ),
        "Squeeze": lambda x, p, y, f: raw.Squeeze(input=x[:, None], axis=[1]),
        "Tile": lambda x, p, y, f: raw.Tile(input=f[:, None], multiples=[1, x.shape[1]]),
        "Transpose": lambda x, p, y, f: raw.Transpose(x=x, perm=[0, 1]),
        "TruncateDiv": lambda x, p, y, f: raw.TruncateDiv(x=y + 9, y=y + 1),
        "UnsortedSegmentSum": lambda x, p, y, f: raw.UnsortedSegmentSum(
            data=f,
            segment_ids=y + tf.range(x.shape[0]) * x.shape[1],
            num_segments=x.shape[0] * x.shape[1],
        ),
    }


def positive(name):
    return name in ("Log", "Log1p", "Rsqrt", "Sqrt", "Reciprocal")


def one_input(name, x):
    argument = {"input": None, "x": None, "features": None}
    for one in argument:
        try:
            return getattr(raw, name)(**{one: x})
        except TypeError:
            continue
    raise AssertionError(name)


def gradient(name, argument, y, dy):
    given = "dy" if argument == "y" else "gradients"
    return getattr(raw, name)(**{argument: y, given: dy})


CALLS = calls()


def rows(count, columns, dtype):
    random = np.random.default_rng(count + columns)
    x = tf.constant(random.normal(size=[count, columns]) * 3, tf.float32)
    p = tf.constant(random.uniform(0.1, 2, size=[count, columns]), tf.float32)
    y = tf.constant(random.integers(0, columns, [count]), tf.int32)
    f = tf.constant(random.uniform(0.5, 2, size=[count]), tf.float32)
    return tf.cast(x, dtype), tf.cast(p, dtype), y, tf.cast(f, dtype)


def bits(results):
    return [np.asarray(one).tobytes() for one in tf.nest.flatten(results)]


def test_every_type_is_called():
    assert column("bits").keys() == CALLS.keys()


SLOW = [pytest.param(one, marks=pytest.mark.slow) for one in ("bfloat16", "float16", "float64")]


@pytest.mark.parametrize("dtype", ["float32", *SLOW])
@pytest.mark.parametrize("name", sorted(CALLS))
def test_chunks_of_rows_have_the_bits_of_all(name, dtype):
    refused = (TypeError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError, ValueError)
    how = column("bits")[name]
    for count, columns in ((203, 3 * COLUMNS), (131, 37), (64 + 5, 1003)):
        if how == "columns":
            columns -= columns % COLUMNS
        given = rows(count, columns, dtype)
        try:
            whole = bits(CALLS[name](*given))
        except refused:
            pytest.skip(f"no kernel for {dtype}")
        for length in (ALIGNED, 2 * ALIGNED):
            parts = [
                bits(CALLS[name](*(one[at : at + length] for one in given)))
                for at in range(0, count, length)
            ]
            assert whole == [b"".join(one) for one in zip(*parts, strict=True)], (count, columns)


NARROW = sorted({*OF_ONE, *OF_TWO, *GRADIENTS, "AddN", "SelectV2", "Cast", "ClipByValue"})


@pytest.mark.parametrize("name", NARROW)
def test_numbers_of_rows_have_by_chunks_the_bits_of_all(name):
    """One number a row, as narrow ops between wide ones have, in both forms."""
    for shape in ((-1,), (-1, 1)):
        x, p, y, f = (
            tf.reshape(one[:, :1] if one.shape.rank > 1 else one, [-1])
            for one in rows(1003, 5, "float32")
        )
        given = [tf.reshape(one, shape) for one in (x, p)] + [y, f]

        def call(x, p, y, f, shape=shape):
            if name in OF_TWO:
                return getattr(raw, name)(x=p, y=tf.reshape(f, shape))
            return CALLS[name](x, p, y, f)

        whole = bits(call(*given))
        for length in (ALIGNED, 3 * ALIGNED):
            parts = [
                bits(call(*(one[at : at + length] for one in given)))
                for at in range(0, 1003, length)
            ]
            assert whole == [b"".join(one) for one in zip(*parts, strict=True)], shape


TOKENS = """AddN BiasAdd LogSoftmax Softmax Max Mean Min Prod Sum ArgMax ArgMin SelectV2 Tanh Exp
Sub Mul RealDiv BroadcastTo Tile Pow""".split()


@pytest.mark.parametrize("name", TOKENS)
def test_tokens_of_a_batch_have_the_bits_that_they_have_as_rows(name):
    """What [batch, time, columns] gives, chunks of [tokens, 1, columns] give."""
    calls = {
        **CALLS,
        **{one: (lambda x, p, y, f, one=one: getattr(raw, one)(x=p, y=f)) for one in OF_TWO},
        **{
            one: (lambda x, p, y, f, one=one: getattr(raw, one)(input=p, axis=[2]))
            for one in REDUCE
        },
        "ArgMax": lambda x, p, y, f: raw.ArgMax(input=x, dimension=2),
        "ArgMin": lambda x, p, y, f: raw.ArgMin(input=x, dimension=2),
        "BroadcastTo": lambda x, p, y, f: raw.BroadcastTo(input=f, shape=tf.shape(x)),
        "BiasAdd": lambda x, p, y, f: raw.BiasAdd(value=x, bias=p[0, 0]),
        "Tile": lambda x, p, y, f: raw.Tile(input=f, multiples=[1, 1, x.shape[2]]),
    }
    random = np.random.default_rng(0)
    for columns in (16 * 5, 1003) if column("bits")[name] == "" else (16 * 5,):
        x = tf.constant(random.normal(size=[7, 29, columns]), tf.float32)
        p = tf.constant(random.uniform(0.1, 2, size=[1, 1, columns]), tf.float32)
        p = p + tf.zeros_like(x)
        f = tf.constant(random.uniform(0.5, 2, size=[7, 29, 1]), tf.float32)
        whole = bits(calls[name](x, p, None, f))
        tokens = [tf.reshape(one, [7 * 29, 1, one.shape[2]]) for one in (x, p, f)]
        parts = []
        for at in range(0, 7 * 29, ALIGNED):
            x, p, f = (one[at : at + ALIGNED] for one in tokens)
            parts.append(bits(calls[name](x, p, None, f)))
        assert whole == [b"".join(one) for one in zip(*parts, strict=True)], columns
