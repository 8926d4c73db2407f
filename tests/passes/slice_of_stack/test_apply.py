"""A row that is read from its list has the bits of the stack's, and so has its gradient."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.passes.registry import DEFAULTS
from tests.cases import Case, assert_same_bits, numbers, thrice, train, values, weights

pytestmark = pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning")
T, B, U = 24, 32, 128


def rows(use):
    """A step whose loss is of ``use(stack, list)`` of what a loop wrote."""
    kernel, recurrent = made = weights((U, U), (U, U))

    def loss(x):
        states = tf.TensorArray(tf.float32, T)
        h = tf.zeros([B, U])
        for i in tf.range(T):
            h = tf.tanh(x[i] @ kernel + h @ recurrent)
            states = states.write(i, h)
        return tf.reduce_sum(use(states.stack()))

    return Case(train(loss, made), thrice(numbers(T, B, U)), values(*made))


def scanned(use):
    """The same with ``tf.scan``."""
    (kernel,) = made = weights((U, U))

    def loss(x):
        states = tf.scan(lambda h, row: tf.tanh(h @ kernel + row), x, tf.zeros([B, U]))
        return tf.reduce_sum(use(states))

    return Case(train(loss, made), thrice(numbers(T, B, U)), values(*made))


USES = {
    "last": lambda hs: tf.square(hs[-1]),
    "a row in the middle": lambda hs: tf.sin(hs[5]),
    "negative zeros": lambda hs: tf.nn.relu(hs[-1]) * -0.0,
    "two rows": lambda hs: hs[-1] * tf.square(hs[0]),
}
MADE = {"last": 2, "a row in the middle": 2, "negative zeros": 2, "two rows": 2}
"""Rows that are read from the list, and gradients that are put into one."""


@pytest.mark.slow
@pytest.mark.parametrize("program", [rows, scanned])
@pytest.mark.parametrize("name", USES)
def test_rows_keep_their_bits(program, name, grappler, deterministic):
    make = functools.partial(program, USES[name])
    case = make()
    plan = rnnmem.optimize(case.fn, max_slowdown=1e9).plan(*case.calls[0][0])
    assert len(plan.of("slice_of_stack")) == MADE[name]
    assert_same_bits(make, max_slowdown=1e9)


def test_the_predicted_peak_falls_by_half_the_rows_at_least():
    case = scanned(USES["last"])
    peaks = []
    for allow in (("default",), [name for name in DEFAULTS if name != "slice_of_stack"]):
        found = rnnmem.optimize(case.fn, max_slowdown=1.5, allow=allow)
        peaks.append(found.plan(*case.calls[0][0]).predicted_peak)
    assert peaks[0] <= peaks[1] - T * B * U * 4 // 2


def test_an_element_that_is_missing_is_a_zero():
    kinds = {"element_dtype": tf.float32}
    row = tf.constant([-0.0, 0.0, 1.5, np.nan])
    new = tf.raw_ops.TensorListReserve(element_shape=[4], num_elements=3, **kinds)
    held = tf.raw_ops.TensorListSetItem(input_handle=new, index=1, item=row)
    whole = tf.raw_ops.StridedSliceGrad(
        shape=[3, 4], begin=[1], end=[2], strides=[1], dy=row, shrink_axis_mask=1
    )
    cut = tf.raw_ops.TensorListFromTensor(tensor=whole, element_shape=[4])
    for index in range(3):
        items = [
            tf.raw_ops.TensorListGetItem(input_handle=one, index=index, element_shape=[4], **kinds)
            for one in (held, cut)
        ]
        assert items[0].numpy().tobytes() == items[1].numpy().tobytes()
