"""Readers of logits [B, T, V] that read [B*T, V]: held against TensorFlow's kernels."""

import numpy as np
import pytest
import tensorflow as tf

from rnnmem.analysis.flat_tokens import flat_view, with_flat_tokens
from rnnmem.analysis.shapes import known_net
from rnnmem.ir.order import without_dead_ops
from rnnmem.tf.attributes import constant
from rnnmem.tf.functions import function_of
from tests.cases import numbers
from tests.verify.test_traced import imported

WIDE = 48
SIGNATURE = [tf.TensorSpec([None, None, WIDE]), tf.TensorSpec([None, None], tf.int32)]
raw = tf.raw_ops


def accuracy(x, y):
    """As Keras 3 has it, which makes negative zeros the least of numbers."""
    sign = tf.bitwise.bitwise_and(tf.bitcast(x, tf.int32), tf.constant(-(2**31))) < 0
    held = tf.where(tf.logical_and(tf.equal(x, 0.0), sign), -1e-38, x)
    return tf.cast(tf.argmax(held, -1, tf.int32) == y, tf.float32)


FLAT = {
    "largest": lambda x, y: tf.argmax(x, -1),
    "largest of what is computed": lambda x, y: tf.argmax(tf.tanh(x) * 2.0 - x, axis=-1),
    "accuracy": accuracy,
    "probabilities": lambda x, y: tf.argmax(tf.nn.softmax(x), -1),
    "sums": lambda x, y: (tf.reduce_sum(x, -1), tf.reduce_max(x, [-1])),
}


def beside(result, made):
    """A result, and the largest of what is made of it and of others."""
    return result, tf.argmax(made(result), -1)


WHOLE = {
    "of all": lambda x, y: tf.reduce_mean(x),
    "a result": lambda x, y: tf.tanh(x),
    "another axis": lambda x, y: tf.argmax(x, 1),
    "another operand": lambda x, y: tf.argmax(x * tf.reduce_max(x, 1, keepdims=True), -1),
    "axes that stay": lambda x, y: tf.reduce_max(x, -1, keepdims=True),
    "a softmax over time": lambda x, y: tf.argmax(tf.nn.softmax(x, 1), -1),
    "one of two operands": lambda x, y: beside(tf.tanh(x), lambda t: tf.sin(x) * t),
    "the other operand": lambda x, y: beside(tf.tanh(x), lambda t: t * tf.sin(x)),
    "a part of it": lambda x, y: tf.argmax(tf.concat([tf.tanh(x), x], -1), -1),
}


def seen(fn):
    """A function's Net, and the same with readers of its logits that read them flat."""

    @tf.function(input_signature=SIGNATURE)
    def whole(x, y):
        logits = tf.identity(x)
        losses = tf.reduce_sum(tf.nn.log_softmax(tf.reshape(logits, [-1, WIDE])), -1)
        return losses, fn(logits, y)

    concrete = whole.get_concrete_function()
    net = imported(concrete)
    known = known_net(net)
    views = [found for blob in net.blobs if (found := flat_view(known, blob))]
    (view,) = views
    return net, with_flat_tokens(net, view, constant), concrete


@pytest.mark.parametrize("sizes", [(4, 6), (1, 1), (3, 0), (0, 2), (1, 5)])
@pytest.mark.parametrize("fn", FLAT.values(), ids=FLAT)
def test_what_reads_tokens_flat_gives_every_bit(fn, sizes):
    net, made, concrete = seen(fn)
    x = np.random.default_rng(1).normal(size=(*sizes, WIDE)).astype(np.float32)
    x[..., ::7] = -0.0
    y = np.random.default_rng(2).integers(0, WIDE, sizes).astype(np.int32)
    given = tf.constant(x), tf.constant(y)
    expected, found = (function_of(one, concrete)(*given) for one in (net, made))
    for one, other in zip(tf.nest.flatten(expected), tf.nest.flatten(found), strict=True):
        assert one.shape == other.shape and one.numpy().tobytes() == other.numpy().tobytes()
    wide = [one for one in made.ops if any(len(made.blobs[b].shape or ()) == 3 for b in one.inputs)]
    assert {one.type for one in wide} <= {"Identity", "Reshape", "Shape"}


@pytest.mark.parametrize("fn", WHOLE.values(), ids=WHOLE)
def test_what_needs_the_axes_reads_what_it_read(fn):
    net, made, _ = seen(fn)
    assert str(without_dead_ops(made)) == str(net)
    assert made is net


def test_only_a_view_of_rows_is_one():
    net, _, _ = seen(FLAT["largest"])
    assert not any(flat_view(known_net(net), blob) for blob in net.outputs)
    assert with_flat_tokens(net, net.outputs[0], constant) is net


def labelled(fn):
    """A function whose labels [B, T, V] only a flat view is read of, and the same made flat."""

    @tf.function(input_signature=SIGNATURE)
    def whole(x, y):
        logits = tf.identity(x)
        labels, more = fn(logits, y)
        columns = tf.concat([[-1], tf.shape(labels)[-1:]], 0)
        view = tf.reshape(logits, [-1, WIDE])
        losses = tf.nn.log_softmax(view) * tf.reshape(labels, columns)
        return tf.reduce_sum(losses, -1), more

    concrete = whole.get_concrete_function()
    net = imported(concrete)
    known = known_net(net)
    (logits,) = (
        one for one in net.ops if one.type == "Identity" and one.inputs[0] == net.inputs[0]
    )
    view = flat_view(known, logits.outputs[0])
    return net, with_flat_tokens(net, view, constant), concrete


MADE_FLAT = {
    "smoothed words": lambda x, y: (tf.one_hot(y, WIDE) * 0.9 + 0.1 / WIDE, ()),
    "smoothed probabilities": lambda x, y: (tf.sin(x) * 0.9 + 0.1, ()),
    "words": lambda x, y: (tf.one_hot(y, WIDE), ()),
}


@pytest.mark.parametrize("sizes", [(4, 6), (1, 1), (0, 2)])
@pytest.mark.parametrize("fn", MADE_FLAT.values(), ids=MADE_FLAT)
def test_what_only_a_flat_view_is_read_of_is_made_flat(fn, sizes):
    net, made, concrete = labelled(fn)
    given = numbers(*sizes, WIDE), tf.constant(np.arange(np.prod(sizes)).reshape(sizes), tf.int32)
    expected, found = (function_of(one, concrete)(*given) for one in (net, made))
    for one, other in zip(tf.nest.flatten(expected), tf.nest.flatten(found), strict=True):
        assert one.numpy().tobytes() == other.numpy().tobytes()
    wide = [
        one for one in made.ops if any(len(made.blobs[b].shape or ()) == 3 for b in one.outputs)
    ]
    assert {one.type for one in wide} <= {"Identity"}
    assert any(one.type in ("OneHot", "Sin", "Mul") for one in made.ops)


def test_labels_that_others_read_stay_as_they_are():
    def read_twice(x, y):
        labels = tf.one_hot(y, WIDE) * 0.9
        return labels, tf.reduce_sum(labels, 1)

    net, made, _ = labelled(read_twice)
    assert made is net
    net, made, _ = labelled(lambda x, y: (tf.one_hot(y, WIDE) + tf.reduce_max(x, 1)[:, None], ()))
    assert made is net
