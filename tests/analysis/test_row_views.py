"""Ops on [B, T, ...] seen as ops on [B*T, 1, ...]: held against TensorFlow's kernels."""

import numpy as np
import pytest
import tensorflow as tf

from rnnmem.analysis.row_views import as_rows
from rnnmem.tf.attributes import constant
from rnnmem.tf.functions import function_of, net_of

LEAD, WIDE = (4, 6), 48
TOKENS = LEAD[0] * LEAD[1]
raw = tf.raw_ops


def given():
    random = np.random.default_rng(0)
    x = tf.constant(random.normal(size=[*LEAD, WIDE]), tf.float32)
    narrow = tf.constant(random.uniform(0.5, 2, size=[*LEAD, 1]), tf.float32)
    row = tf.constant(random.normal(size=[WIDE]), tf.float32)
    return x, narrow, row, tf.constant(random.integers(0, WIDE, LEAD), tf.int32)


SEEN = {
    "pointwise": lambda x, n, r, y: (tf.tanh(x), x * 2.0, tf.where(x > 0, x, tf.exp(x))),
    "broadcast": lambda x, n, r, y: (x + r, x / n, x - r[None, None], tf.zeros_like(x) + n),
    "bits of numbers": lambda x, n, r, y: tf.bitwise.bitwise_and(tf.bitcast(x, tf.int32), 255),
    "bias": lambda x, n, r, y: raw.BiasAdd(value=x, bias=r),
    "softmax": lambda x, n, r, y: (tf.nn.softmax(x), tf.nn.log_softmax(x)),
    "reduce": lambda x, n, r, y: (
        tf.reduce_sum(x, -1),
        raw.Max(input=x, axis=[2], keep_dims=True),
        raw.ArgMax(input=x, dimension=2),
    ),
    "gather": lambda x, n, r, y: raw.GatherV2(params=x, indices=y, axis=-1, batch_dims=2),
    "one hot": lambda x, n, r, y: tf.one_hot(y, WIDE),
    "repeat": lambda x, n, r, y: (
        tf.tile(n, [1, 1, WIDE]),
        raw.BroadcastTo(input=n, shape=[*LEAD, 3]),
    ),
    "fill": lambda x, n, r, y: x * raw.Fill(dims=[*LEAD, WIDE], value=0.3),
    "axes": lambda x, n, r, y: (
        tf.expand_dims(x, -1),
        tf.squeeze(n, [2]),
        raw.Transpose(x=tf.expand_dims(x, 2), perm=[0, 1, 3, 2]),
    ),
    "places of labels": lambda x, n, r, y: (
        y + tf.reshape(tf.range(LEAD[1]) * 5, [1, -1]) + tf.reshape(tf.range(LEAD[0]) * 30, [-1, 1])
    ),
}
WHOLE = {
    "a row for each time": lambda x, n, r, y: x + x[:1],
    "a row for each sentence": lambda x, n, r, y: x + x[:, :1],
    "sums over time": lambda x, n, r, y: tf.reduce_sum(x, 1),
    "softmax over time": lambda x, n, r, y: tf.nn.softmax(n[:, :, 0]),
    "time first": lambda x, n, r, y: tf.transpose(x, [1, 0, 2]),
    "repeats of times": lambda x, n, r, y: tf.tile(x, [1, 2, 1]),
    "a gather in each sentence": lambda x, n, r, y: raw.GatherV2(
        params=x, indices=y % LEAD[1], axis=1, batch_dims=1
    ),
    "places that leave a gap": lambda x, n, r, y: (
        y + tf.reshape(tf.range(LEAD[1]) * 5, [1, -1]) + tf.reshape(tf.range(LEAD[0]) * 31, [-1, 1])
    ),
}


def seen(function):
    """A function, the Net of it as it is and seen by rows, and what that gives."""
    concrete = tf.function(function).get_concrete_function(*given())
    net = net_of(concrete)
    viewed = as_rows(net, LEAD, constant)
    return net, viewed, tf.nest.flatten(function_of(viewed, concrete)(*given()))


def by_rows(net, names):
    """Ops of these names that have a row for each token."""
    shapes = {name: net.blobs[net.op_by_name[name].outputs[0]].shape for name in names}
    return {name for name, shape in shapes.items() if shape and shape[0] == TOKENS}


@pytest.mark.parametrize("name", SEEN)
def test_what_works_on_tokens_gives_the_same_bits_seen_by_rows(name):
    net, viewed, found = seen(SEEN[name])
    expected = tf.nest.flatten(tf.function(SEEN[name])(*given()))
    assert [one.numpy().tobytes() for one in found] == [one.numpy().tobytes() for one in expected]
    assert [one.shape for one in found] == [one.shape for one in expected]
    made = [net.producer[blob] for blob in net.outputs]
    inner = [net.producer[op.inputs[0]].name for op in made if op.type == "Identity"]
    assert by_rows(viewed, inner) == set(inner)


@pytest.mark.parametrize("name", WHOLE)
def test_what_sees_other_tokens_stays_as_it_is(name):
    net, viewed, found = seen(WHOLE[name])
    expected = tf.function(WHOLE[name])(*given())
    np.testing.assert_array_equal(found[0], expected)
    (made,) = [net.producer[net.producer[blob].inputs[0]].name for blob in net.outputs]
    assert not by_rows(viewed, [made])


def test_reshapes_read_what_was_shaped_first():
    def function(x, n, r, y):
        return tf.reshape(tf.reshape(tf.reshape(x, [-1, WIDE]), [*LEAD, 2, 24]), [TOKENS, WIDE])

    _, viewed, found = seen(function)
    np.testing.assert_array_equal(found[0], tf.reshape(given()[0], [TOKENS, WIDE]))
    assert sum(op.type == "Reshape" for op in viewed.ops) == 1


def test_without_sizes_that_count_tokens_only_reshapes_are_seen():
    concrete = tf.function(lambda x: tf.tanh(x)).get_concrete_function(given()[0])
    net = net_of(concrete)
    assert as_rows(net, (), constant).ops == net.ops
