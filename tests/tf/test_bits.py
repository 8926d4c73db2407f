"""Results of two runs compared: equal in every bit, or named."""

import re

import numpy as np
import pytest
import tensorflow as tf

from rnnmem.tf.bits import differences, leaves, unread

NAN, INF = float("nan"), float("inf")


def compared(one, other, tolerance=None):
    wrong = differences(leaves(one), leaves(other), tolerance)
    return next((f"{name} {told}" for name, told in wrong.items()), None)


def array_list(*values, dtype=tf.float32):
    """What a function gives for a tf.TensorArray that it returns."""
    made = tf.raw_ops.TensorListReserve(
        element_shape=-1, num_elements=len(values), element_dtype=dtype
    )
    for i, value in enumerate(values):
        if value is not None:
            made = tf.raw_ops.TensorListSetItem(
                input_handle=made, index=i, item=tf.constant(value, dtype)
            )
    return made


SAME = {
    "strings": lambda: tf.constant(["a", "a\0", ""]),
    "no strings": lambda: tf.zeros([0, 2], tf.string),
    "a string": lambda: tf.constant(b"x\0"),
    "not a number": lambda: tf.constant([NAN, -0.0, 0.0, INF]),
    "bfloat16": lambda: tf.cast([1.5, NAN], tf.bfloat16),
    "float8": lambda: tf.cast([1.5, NAN], tf.dtypes.experimental.float8_e5m2),
    "complex": lambda: tf.complex([1.0, NAN], [2.0, 3.0]),
    "bool": lambda: tf.constant([True, False]),
    "nothing": lambda: [tf.zeros([0, 3]), None],
    "ragged": lambda: tf.ragged.constant([[1], [2, 3], []]),
    "ragged strings": lambda: tf.ragged.constant([["a"], [], ["b", "c"]]),
    "sparse": lambda: tf.sparse.from_dense([[0.0, 1.0], [2.0, 0.0]]),
    "a list": lambda: array_list([1.0], [2.0, 3.0]),
    "a list with a gap": lambda: array_list(1, None, 3, dtype=tf.int64),
    "a list of strings": lambda: array_list("a", "b", dtype=tf.string),
    "an optional": lambda: tf.experimental.Optional.from_value(tf.constant(["a"])),
    "no optional": lambda: tf.experimental.Optional.empty(tf.TensorSpec([])),
    "quantized": lambda: tf.quantization.quantize([1.0, 2.0], 0.0, 2.0, tf.quint8),
}


@pytest.mark.parametrize("make", SAME.values(), ids=SAME)
def test_what_is_made_twice_is_the_same(make):
    assert compared(make(), make()) is None
    assert unread(make()) == []


DIFFERENT = {
    "strings": (["a", "b"], ["a", "c"], "output 0 has other values"),
    "strings that end in nothing": (["a\0"], ["a"], "output 0 has other values"),
    "numbers": ([1.0, 2.0], [1.0, 2.5], r"output 0 is off by up to 0.5 \(1 of 2 elements\)"),
    "the sign of zero": ([0.0], [-0.0], "output 0 has zeros of another sign"),
    "a number that is none": ([NAN, 1.0], [2.0, 1.0], "output 0 is NaN where it was not"),
    "an infinite number": ([INF], [-INF], "output 0 is off by up to inf"),
    "an imaginary part": ([1 + 2j], [1 + 3j], "output 0 is off by up to 1"),
    "bits": ([True], [False], "output 0 has other values"),
    "whole numbers": ([1], [2], "output 0 has other values"),
    "dtypes": ([1.0], [1], "output 0 is of int32, not float32"),
    "shapes": ([1.0], [[1.0]], r"output 0 has the shape \(1, 1\), not \(1,\)"),
    "empty shapes": (np.zeros([0, 2]), np.zeros([0, 3]), "output 0 has the shape"),
}


@pytest.mark.parametrize("one, other, told", DIFFERENT.values(), ids=DIFFERENT)
def test_what_differs_is_named(one, other, told):
    found = compared(tf.constant(one), tf.constant(other))
    assert found is not None
    assert re.match(told, found), found


def test_lists_optionals_and_parts_of_composites_are_compared():
    assert "has other values" in compared(array_list([1.0]), array_list([1.0], [2.0]))
    assert "is off by" in compared(array_list([1.0]), array_list([2.0]))
    assert compared(array_list(1.0, None), array_list(1.0, 2.0)) is not None
    full = tf.experimental.Optional.from_value(tf.constant(1.0))
    assert compared(full, tf.experimental.Optional.empty(tf.TensorSpec([]))) is not None
    assert compared(tf.ragged.constant([[1], [2]]), tf.ragged.constant([[1, 2], []])) is not None


def test_a_handle_is_the_variable_behind_it():
    first, second = tf.Variable(1.0), tf.Variable(1.0)
    assert compared(first.handle, first.handle) is None
    assert compared(first.handle, second.handle) == "output 0 has other values"


def test_the_output_that_differs_is_counted_from_zero():
    same = tf.constant(1.0)
    told = compared(
        {"a": same, "b": [same, tf.constant(1)]}, {"a": same, "b": [same, tf.constant(2)]}
    )
    assert told == "output 2 has other values"


def test_a_missing_output_is_a_difference():
    assert compared([tf.constant(1.0)], []) == "nothing stands where output 0 was"


def test_what_nobody_can_look_into_is_named():
    variant = tf.data.Dataset.range(3)._variant_tensor  # noqa: SLF001
    assert unread([tf.constant(1.0), variant]) == ["output 1"]
    assert compared(variant, variant) is None


def test_a_tolerance_is_a_part_of_the_largest_and_knows_of_nan():
    tolerance = {"float32": 0.1}
    whole = tf.constant([NAN, INF, 100.0, 1.0])
    assert compared(whole, tf.constant([NAN, INF, 100.0, 9.0]), tolerance) is None
    assert compared(whole, tf.constant([NAN, INF, 100.0, 12.0]), tolerance) is not None
    assert compared(whole, tf.constant([1.0, INF, 100.0, 1.0]), tolerance) is not None
    assert compared(tf.constant([10]), tf.constant([11]), tolerance) is not None
