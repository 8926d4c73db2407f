"""Lists of gradients that begin without elements end with the same bits, signs of zeros too."""

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from tests.cases import Case, assert_same_bits, numbers, thrice, values, weights

pytestmark = pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning")
T, B, U = 12, 32, 256


def gradients_of_rows(read, runs=T):
    """The gradient of what ``read(rows, i)`` of a list of rows goes through a recurrence."""
    kernel, recurrent = made = weights((U, U), (U, U))

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            rows = tf.TensorArray(tf.float32, size=T).unstack(x)

            def body(i, h):
                return i + 1, tf.tanh(read(rows, i) @ kernel + tf.sin(h @ recurrent))

            h = tf.zeros([B, U])
            _, h = tf.while_loop(lambda i, h: i < runs, body, (0, h), maximum_iterations=runs)
            loss = tf.reduce_sum(h * h)
        return loss, tape.gradient(loss, [x, *made])

    return Case(step, thrice(numbers(T, B, U)), values(*made))


def every_row():
    return gradients_of_rows(lambda rows, i: rows.read(i))


def some_rows():
    return gradients_of_rows(lambda rows, i: rows.read(i), runs=T - 4)


def rows_again_and_again():
    return gradients_of_rows(lambda rows, i: rows.read(i % 5))


def two_rows_at_once():
    return gradients_of_rows(lambda rows, i: rows.read(i) * rows.read(T - 1 - i))


def negative_zeros():
    return gradients_of_rows(lambda rows, i: tf.nn.relu(rows.read(i)) * -0.0)


CASES = [every_row, some_rows, rows_again_and_again, two_rows_at_once, negative_zeros]


@pytest.mark.slow
@pytest.mark.parametrize("make", CASES)
def test_the_gradient_of_rows_keeps_its_bits(make, grappler, deterministic):
    case = make()
    plan = rnnmem.optimize(case.fn, max_slowdown=1e9).plan(*case.calls[0][0])
    assert len(plan.lazy_gradient_lists) == 1
    assert_same_bits(make, max_slowdown=1e9)


def raw_sum(gradients, empty):
    """Adds gradients at places to a list, as a gradient loop does it, with zeros or without."""
    kinds = {"element_dtype": tf.float32}
    new = tf.raw_ops.TensorListReserve(element_shape=[4], num_elements=3, **kinds)
    zeros = tf.raw_ops.TensorListFromTensor(tensor=tf.zeros([3, 4]), element_shape=[4])
    held = new if empty else zeros
    for place, one in gradients:
        one = tf.constant(0.0) + one if empty else one
        put = tf.raw_ops.TensorListSetItem(input_handle=new, index=place, item=one)
        held = tf.raw_ops.AddN(inputs=[held, put])
    item = tf.raw_ops.TensorListGetItem(input_handle=held, index=2, element_shape=[4], **kinds)
    stack = tf.raw_ops.TensorListStack(input_handle=held, element_shape=[4], **kinds)
    return [np.asarray(one).tobytes() for one in (item, stack)]


@pytest.mark.parametrize("places", [(0, 1, 2), (2, 0), (1, 1, 1), ()])
def test_what_a_list_lacks_is_added_and_read_as_zeros(places):
    rows = [tf.constant([-0.0, 0.0, 1.5, np.nan]), -numbers(4), numbers(4, seed=3)]
    given = list(zip(places, rows, strict=False))
    assert raw_sum(given, empty=True) == raw_sum(given, empty=False)
