"""Operands that ops broadcast themselves change no bit."""

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.ir.graph import REAL_DTYPES
from rnnmem.passes.implicit_broadcast.select import POINTWISE
from tests.cases import Case, assert_same_bits, numbers, thrice, train, values, weights

pytestmark = pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning")


@pytest.mark.parametrize("dtype", sorted(REAL_DTYPES))
@pytest.mark.parametrize("type", sorted(POINTWISE))
def test_a_broadcast_operand_gives_the_bits_of_a_repeated_one(type, dtype):
    kernel = getattr(tf.raw_ops, type)
    full = [5, 33, 17]
    for shape in ([5, 33, 1], [5, 1, 17], [1, 1, 17], [5, 1, 1], [17], []):
        small, large = (tf.cast(numbers(*one) * 3, dtype) for one in (shape, full))
        other = tf.cast(numbers(33, 1, seed=2), dtype)
        repeated = tf.broadcast_to(small, full)
        for x, y in ((small, large), (large, small)):
            wide = [repeated if one is small else one for one in (x, y)]
            assert_bits(kernel(x=x, y=y), kernel(x=wide[0], y=wide[1]))
        if len(shape) and shape[-1] == 17:
            result = kernel(x=small, y=other)
            assert_bits(result, kernel(x=tf.broadcast_to(small, result.shape), y=other))


def assert_bits(one, other):
    assert one.shape == other.shape
    assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def attention(steps=5, batch=4, length=64, units=256):
    """Additive attention over ``length`` words in every iteration."""
    query, kernel, vector = made = weights((units, units), (2 * units, units), (1, units))

    def loss(memory, keys):
        def body(i, h):
            scores = tf.reduce_sum(vector * tf.tanh(keys + tf.matmul(h, query)[:, None, :]), -1)
            context = tf.reduce_sum(tf.nn.softmax(scores)[:, :, None] * memory, axis=1)
            return i + 1, tf.tanh(tf.matmul(tf.concat([h, context], 1), kernel))

        start = tf.zeros([batch, units])
        _, h = tf.while_loop(lambda i, h: i < steps, body, (0, start))
        return tf.reduce_sum(h * h)

    calls = thrice(numbers(batch, length, units), numbers(batch, length, units, seed=2))
    return Case(train(loss, made), calls, values(*made))


@pytest.mark.slow
def test_the_gradient_of_attention_keeps_its_bits(grappler, deterministic):
    case = attention()
    plan = rnnmem.optimize(case.fn, max_slowdown=1.5).plan(*case.calls[0][0])
    assert len(plan.implicit_broadcasts) == 3  # nobody asks for the gradient of the memory
    assert {loop.parallel_iterations for loop in plan.loops} == {1}
    assert_same_bits(attention, max_slowdown=1.5)
