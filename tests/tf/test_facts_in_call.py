"""What the arguments of a call tell: shapes, numbers, and short vectors of whole numbers."""

import tensorflow as tf

from rnnmem.tf.trips import MOST_TOLD, facts_in_call


def facts(*arguments):
    @tf.function
    def step(*arguments):
        return arguments

    return facts_in_call(step, step.get_concrete_function(*arguments), arguments, {})


def test_lengths_and_labels_are_told():
    lengths, count, rows = facts(tf.constant([3, 1]), tf.constant(5), tf.ones([2, 4]))
    assert (lengths.shape, lengths.value) == ((2,), (3, 1))
    assert (count.shape, count.value) == ((), 5)
    assert (rows.shape, rows.value) == ((2, 4), None)


def test_neither_long_vectors_nor_matrices_nor_fractions_are():
    told = facts(tf.range(MOST_TOLD + 1), tf.ones([2, 2], tf.int32), tf.ones([2]))
    assert [one.value for one in told] == [None] * 3
    (longest,) = facts(tf.range(MOST_TOLD))
    assert longest.value == tuple(range(MOST_TOLD))
