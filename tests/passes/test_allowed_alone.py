"""Each pass alone: a step with a loop and code beside it is planned, told, and serves again."""

import pytest
import tensorflow as tf

import rnnmem
from rnnmem.passes.registry import BY_NAME
from tests.cases import Case, assert_same_bits, numbers, train, values, weights

pytestmark = pytest.mark.usefixtures("deterministic")


def dense_and_recurrent():
    """Dense layers over all frames, a recurrent loop, and logits of every frame."""
    layers = 3
    made = weights(*[(64, 64)] * layers, (64, 64), (64, 200))

    def loss(frames, labels):
        for kernel in made[:layers]:
            frames = tf.nn.gelu(frames @ kernel)

        def body(t, h, states):
            h = tf.tanh(frames[t] + tf.sigmoid(h) @ made[layers])
            return t + 1, h, states.write(t, h)

        time, batch = frames.shape[:2]
        states = tf.TensorArray(tf.float32, time, element_shape=[batch, 64])
        start = (0, tf.zeros([batch, 64]), states)
        states = tf.while_loop(lambda t, *_: t < time, body, start)[2].stack()
        logits = states @ made[layers + 1]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        return tf.reduce_mean(losses)

    labels = tf.reshape(tf.range(40 * 16), [40, 16]) % 200
    calls = [((numbers(40, 16, 64), labels), {})] * 2
    return Case(train(loss, made), calls, values(*made))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(BY_NAME) - {"offload"}))
def test_a_pass_alone_is_planned_and_explained_and_its_plan_serves_again(name):
    made = dense_and_recurrent()
    arguments, _ = made.calls[0]
    optimised = rnnmem.optimize(tf.function(made.fn), allow=[name], max_slowdown=2.0)
    plan = optimised.plan(*arguments)
    assert str(optimised.explain(*arguments))
    again = rnnmem.optimize(tf.function(made.fn), plan=plan)
    served = again.plan(*arguments)
    assert (served.loops, served.changes_nothing) == (plan.loops, plan.changes_nothing)
    if BY_NAME[name].exact:
        assert_same_bits(dense_and_recurrent, plan=plan)
