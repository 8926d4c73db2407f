"""Random slices of one blob, read in random ways: their gradients have the bits of the original."""

import random

import pytest
import tensorflow as tf

import rnnmem
from tests.cases import numbers, outcome

READ = (
    lambda z: tf.reduce_sum(z**2),
    lambda z: tf.reduce_sum(tf.sin(z)),
    lambda z: tf.reduce_sum(z * -0.0),
    lambda z: -tf.reduce_mean(z),
    lambda z: tf.reduce_sum(tf.nn.relu(z)),
)


def slices_of(chosen: random.Random, axis: int, size: int) -> list:
    """Functions that each take a part of a blob; parts that follow each other, and some others."""
    points = sorted(chosen.sample(range(size + 1), min(size + 1, chosen.randint(3, 7))))
    parts = list(zip(points, points[1:], strict=False))
    more = chosen.randrange(size)
    parts += [(more, more + 1)] * (chosen.random() < 0.4)
    parts += [(0, chosen.randint(1, size))] * (chosen.random() < 0.3)
    chosen.shuffle(parts)
    return [_part(chosen, axis, *one) for one in parts]


def _part(chosen: random.Random, axis: int, start: int, end: int):
    begin, sizes = [0, 0, 0], [-1, -1, -1]
    begin[axis], sizes[axis] = start, end - start
    row, cut = (
        (lambda h: h[:, start], lambda h: h[:, start:end])
        if axis == 1
        else (lambda h: h[..., start], lambda h: h[..., start:end])
    )
    ways = [cut, lambda h: tf.slice(h, begin, sizes)]
    return chosen.choice([row, *ways] if end - start == 1 else ways)


def check_bits(seed: int) -> None:
    chosen = random.Random(seed)
    length, width = chosen.choice([5, 8, 12]), chosen.choice([6, 48, 512])
    axis, batch = chosen.choice([1, 1, 2]), chosen.choice([1, 3, 40])
    taken = slices_of(chosen, axis, (length, width)[axis - 1])
    uses = [chosen.choice(READ) for _ in taken]
    beside, loops, known = (chosen.random() < share for share in (0.4, 0.3, 0.4))
    w = tf.Variable(numbers(width, width, seed=seed) * 0.1)

    def loss_of(h):
        loss = tf.add_n([use(take(h)) for take, use in zip(taken, uses, strict=True)])
        return loss + tf.reduce_mean(h**2) if beside else loss

    @tf.function(input_signature=[tf.TensorSpec([batch if known else None, length, width])])
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            h = tf.tanh(x @ w)
            loss = 0.0
            if loops:
                for t in tf.range(3):
                    loss += loss_of(h * tf.cast(t, tf.float32))
                    h = tf.tanh(h)
            else:
                loss = loss_of(h)
        return loss, tape.gradient(loss, [x, w])

    optimized = rnnmem.optimize(step, max_slowdown=chosen.choice([1.0, 1.1, 1.5]))
    for size in [batch] if known else [batch, 2]:
        x = numbers(size, length, width, seed=size)
        assert outcome(optimized(x)) == outcome(step(x))


@pytest.mark.parametrize("seed", range(6))
def test_random_slices_keep_their_bits(seed):
    check_bits(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 60, 6))
def test_more_random_slices_keep_their_bits(seed):
    for one in range(seed, seed + 6):
        check_bits(one)
