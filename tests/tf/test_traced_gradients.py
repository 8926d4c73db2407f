"""Sharing among the gradients of steps that TensorFlow traced, which never read the loss."""

import pytest
import tensorflow as tf

from rnnmem import load_net
from rnnmem.storage import gradient_blobs, same_producers, share_gradients

UNITS = 8


def dense(x, weights):
    for weight in weights:
        x = tf.tanh(x @ weight)
    return tf.reduce_mean(tf.square(x))


def step_with_update(x, weights):
    with tf.GradientTape() as tape:
        loss = dense(x, weights)
    gradients = tape.gradient(loss, weights)
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.assign_sub(0.1 * gradient)
    return loss


def step_with_gradients(x, weights):
    with tf.GradientTape() as tape:
        loss = dense(x, weights)
    return loss, tape.gradient(loss, weights)


def step_whose_gradient_reads_the_loss(x, weights):
    with tf.GradientTape() as tape:
        loss = tf.sqrt(dense(x, weights))
    return loss, tape.gradient(loss, weights)


def step_with_a_metric(x, weights):
    with tf.GradientTape() as tape:
        loss = dense(x, weights)
    return loss, tf.reduce_max(x), tape.gradient(loss, weights)


@pytest.mark.parametrize(
    "step",
    [step_with_update, step_with_gradients, step_whose_gradient_reads_the_loss, step_with_a_metric],
)
def test_a_step_that_tensorflow_traced_shares_its_gradients(step):
    weights = [tf.Variable(tf.eye(UNITS) * 0.5) for _ in range(4)]
    traced = tf.function(lambda x: step(x, weights)).get_concrete_function(tf.ones([4, UNITS]))
    net = load_net(traced)
    loss = net.outputs[0]
    found = gradient_blobs(net, [loss])
    forward = [op.outputs[0] for op in net.ops if op.type == "Tanh"]
    backward = [op.outputs[0] for op in net.ops if op.type == "TanhGrad"]
    assert len(forward) == len(backward) == 4
    assert set(backward) <= set(found) and not set(forward).intersection(found)
    shared = share_gradients(net, [loss])
    assert shared.after.blobs < shared.before.blobs
    assert shared.after.bytes < shared.before.bytes
    assert same_producers(shared.original, shared.net)
