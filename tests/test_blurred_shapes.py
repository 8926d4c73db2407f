"""Planning goes on where shapes are unknown, half known or mistaken: nothing raises."""

import random
import warnings

import pytest
import tensorflow as tf

import rnnmem
from rnnmem import compile as compiling
from rnnmem.ir.graph import Blob
from rnnmem.simulate.timeline import simulate

UNITS = 16
MISTAKES = (None, (), (1,), (None,), (3, 5), (2, None, 7), (0,))


def step(x, flag):
    weight = tf.eye(UNITS)
    with tf.GradientTape() as tape:
        tape.watch(weight)
        h, seen = x[0], tf.TensorArray(tf.float32, tf.shape(x)[0])
        for i in tf.range(tf.shape(x)[0]):
            h = tf.tanh(tf.matmul(h, weight) + x[i])
            if flag:
                h = tf.concat([h[:, : UNITS // 2], tf.sigmoid(h)[:, UNITS // 2 :]], 1)
            seen = seen.write(i, h)
        loss = tf.reduce_mean(tf.reduce_sum(seen.stack(), axis=[0, 2]))
    return tape.gradient(loss, weight)


def unknown(shape, draw):
    return None


def partly_known(shape, draw):
    return shape and tuple(None if draw.random() < 0.6 else size for size in shape)


def mistaken(shape, draw):
    return draw.choice(MISTAKES)


def blurred(net, blur, draw):
    """The Net with a third of its shapes blurred, here and in all step nets."""
    blobs = {
        name: Blob(name, one.dtype, blur(one.shape, draw))
        if one.dtype not in ("variant", "resource") and draw.random() < 0.3
        else one
        for name, one in net.blobs.items()
    }
    ops = [
        op.replace(nets={key: blurred(inner, blur, draw) for key, inner in op.nets.items()})
        if op.nets
        else op
        for op in net.ops
    ]
    return net.replace(ops=tuple(ops), blobs=blobs)


@pytest.fixture(scope="module")
def traced():
    sequence, flag = tf.TensorSpec([None, 4, UNITS], tf.float32), tf.TensorSpec([], tf.bool)
    return tf.function(step).get_concrete_function(sequence, flag)


@pytest.mark.parametrize("blur", [unknown, partly_known, mistaken])
@pytest.mark.parametrize("seed", range(3))
def test_nothing_raises(monkeypatch, traced, blur, seed):
    draw, read = random.Random(seed), compiling.net_of
    monkeypatch.setattr(compiling, "net_of", lambda concrete: blurred(read(concrete), blur, draw))
    with warnings.catch_warnings():
        warnings.simplefilter("error", rnnmem.RnnmemWarning)
        found = rnnmem.optimize(traced, max_slowdown=2).inspect()
    for net in (found.net, found.rewritten):
        if net is not None:
            simulate(net)
