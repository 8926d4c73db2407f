"""In which order kernels add up items of a batched product, and that an item's bits are its own."""

import numpy as np
import pytest
import tensorflow as tf

from rnnmem.grappler.item_sums import keeps_bits, lanes_of

RANDOM = np.random.default_rng(0)
COUNTS = (2, 3, 7, 15, 16, 17, 19, 31, 32, 64, 101)


def numbers(*shape, dtype="float32"):
    return tf.constant(RANDOM.normal(size=shape), dtype)


def added_up(item, count):
    """The sum of what ``item(index)`` gives, as loops over the items add up."""
    held = None
    for first, end, step in lanes_of(count):
        sums = held if step == 1 and held is not None else tf.zeros_like(item(0))
        for index in range(first, end, step):
            sums = sums + item(index)
        held = sums if held is None or step == 1 else held + sums
    return held


def same(one, other):
    return one.numpy().tobytes() == other.numpy().tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", COUNTS)
def test_items_are_added_up_in_the_order_of_the_kernel(count, dtype):
    for size in (16, 64, 400, 4096):
        items = numbers(count, size, dtype=dtype)
        assert same(
            added_up(lambda index, items=items: items[index], count), tf.reduce_sum(items, 0)
        )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [2, 5, 16, 19])
@pytest.mark.parametrize(
    "rows, inner, columns",
    [(64, 20, 512), (32, 33, 96), (257, 7, 144), (16, 2, 1024), (128, 64, 64), (8, 40, 3000)],
)
@pytest.mark.parametrize("adjoint", [(True, False), (False, False), (True, True)])
def test_an_item_alone_has_the_bits_that_it_has_in_the_batch(
    rows, inner, columns, count, dtype, adjoint
):
    assert keeps_bits(dtype, count, rows, inner, columns)
    x = numbers(count, *((inner, rows) if adjoint[0] else (rows, inner)), dtype=dtype)
    y = numbers(count, *((columns, inner) if adjoint[1] else (inner, columns)), dtype=dtype)

    def product(first, end):
        return tf.matmul(x[first:end], y[first:end], adjoint_a=adjoint[0], adjoint_b=adjoint[1])

    found = added_up(lambda index: product(index, index + 1)[0], count)
    assert same(found, tf.reduce_sum(product(0, count), 0))


@pytest.mark.parametrize(
    "sizes",
    [(16, 3, 5, 7), (8, 64, 9, 1), (8, 1, 64, 512), (4, 8, 4096, 8), (16, 33, 20, 513)],
    ids=["small", "one column", "one row", "narrow", "odd"],
)
def test_items_that_may_have_other_bits_alone_stay_in_their_batch(sizes):
    assert not keeps_bits("float32", *sizes)


def test_halves_stay_in_their_batch():
    assert keeps_bits("float32", 16, 256, 32, 512)
    assert not keeps_bits("bfloat16", 16, 256, 32, 512)
