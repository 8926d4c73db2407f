"""What TensorFlow prunes of a training loop's body stays away when the body is rewritten."""

import pytest
import tensorflow as tf

import rnnmem
from rnnmem.planning.assumed_sizes import are_larger
from rnnmem.simulate.timeline import simulate
from tests.cases import numbers, weights

pytestmark = pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning")

B, U = 64, 64


def training(asked):
    """Two loops of unknown length, one with a loop inside; the loss may depend on ``w``."""
    (w,) = weights((U, U))

    def forward(x, h, n):
        i = 0
        while i < n and tf.reduce_sum(tf.abs(h)) < 1e9:
            product = tf.ensure_shape(tf.cumsum(h @ w, axis=1), [B, U])
            h = tf.tanh(h * 0.9 + (product if asked else x))
            i += 1
        for i in tf.range(n):
            for _ in tf.range(i % 3):
                best = tf.math.top_k(h, 2).values
                h = tf.tanh(tf.ensure_shape(tf.concat([best, h[:, 2:]], 1), [B, U]))
            h = tf.tanh(h * 0.9) + x
        return tf.reduce_sum(h * h)

    def step(x, h, n):
        loss = tf.constant(0.0)
        for _ in tf.range(2):
            with tf.GradientTape() as tape:
                loss = forward(x, h, n)
            w.assign_sub(0.1 * tape.gradient(loss, w))
        return loss

    return step, (numbers(B, U), numbers(B, U, seed=2), tf.constant(4))


def popped(net):
    """Pops of lists that a forward loop filled, at any depth."""
    ops = [op for _, inner in net.walk() for op in inner.ops if op.type == "TensorListPopBack"]
    return [op.name for op in ops if "rnnmem/keepalive" not in op.name]


@pytest.mark.parametrize("slowdown", [1.1, 2.0])
@pytest.mark.parametrize("asked", [True, False])
def test_what_nobody_asks_for_is_not_brought_to_life(asked, slowdown):
    step, args = training(asked)
    found = rnnmem.optimize(step, max_slowdown=slowdown).inspect(*args)
    rewritten = found.net if found.rewritten is None else found.rewritten
    assert bool(popped(rewritten)) == asked
    for trips in (3, 20):
        before, after = (
            simulate(net, unknown_dimension=trips).peak_bytes for net in (found.net, rewritten)
        )
        assert not are_larger([after], [before])
