"""Weight gradients that are added up item by item have the bits of those of the whole batch."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.errors import PlanError
from rnnmem.passes.accumulated_products.decision import AccumulatedProduct
from rnnmem.planning.plan import Plan
from rnnmem.tf.functions import net_of
from tests.alone import run_alone
from tests.cases import Case, assert_same_bits, numbers, thrice, train, values, weights

MIB = 2**20


def head(batch=19, length=32, units=384, words=1024):
    """A projection of a sequence, as ``x @ w``: its weight has a gradient for each item first."""
    w, b = weights((units, words), (words,))
    x = numbers(batch, length, units)

    def loss(x):
        return tf.reduce_mean(tf.square(tf.tanh(x @ w + b)))

    return Case(train(loss, [w, b]), thrice(x), values(w, b))


def tied():
    """A table that is read with its axes swapped, and looked up: three gradients are added up."""
    (table,) = weights((1024, 384))
    tokens = tf.constant(np.random.default_rng(0).integers(0, 1024, [16, 32]), tf.int32)

    def loss(tokens):
        x = tf.nn.embedding_lookup(table, tokens)
        logits = tf.matmul(x, table, transpose_b=True)
        more = tf.matmul(tf.tanh(x), table, transpose_b=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tokens, logits - more)
        return tf.reduce_mean(losses) + tf.reduce_sum(tf.square(table)) * 1e-3

    def step(tokens):
        with tf.GradientTape() as tape:
            found = loss(tokens)
        return found, tf.convert_to_tensor(tape.gradient(found, table))

    return Case(step, thrice(tokens), values(table))


def recurrent():
    """A loop in front of the projection; its gradient reads what the products read."""
    kernel, w = weights((416, 384), (384, 1024))
    x = numbers(16, 32, 32)

    def loss(x):
        def body(t, h, states):
            h = tf.tanh(tf.concat([x[:, t], h], 1) @ kernel)
            return t + 1, h, states.write(t, h)

        start = 0, tf.zeros([16, 384]), tf.TensorArray(tf.float32, 32, element_shape=[16, 384])
        _, _, states = tf.while_loop(lambda t, *_: t < 32, body, start)
        return tf.reduce_mean(tf.square(tf.transpose(states.stack(), [1, 0, 2]) @ w))

    return Case(train(loss, [kernel, w]), thrice(x), values(kernel, w))


def doubled():
    """float64, whose gradient of the second factor is summed, and of the first."""
    w = tf.Variable(tf.cast(numbers(1024, 384), tf.float64))
    x = tf.cast(numbers(12, 384, 32), tf.float64)

    def loss(x):
        return tf.reduce_sum(tf.square(tf.matmul(w, x)))

    def step(x):
        with tf.GradientTape() as tape:
            found = loss(x)
        return found, tape.gradient(found, w)

    return Case(step, thrice(x), values(w))


def opened(batch=19, length=32, units=384, words=1024, leading=()):
    """The head, of which each call has its own batch and length; some keep their bits, some not."""
    w, b = weights((units, words), (words,))

    def loss(x):
        return tf.reduce_mean(tf.square(tf.tanh(x @ w + b)))

    unknown = [None] * (len(leading) + 2)
    signature = [tf.TensorSpec([*unknown, units])]
    step = tf.function(train(loss, [w, b]), input_signature=signature)
    sizes = [(batch, length), (3, length), (16, 1), (1, length), (17, 2), (0, 4), (16, 0)]
    sizes += [(16, 7 * units * words // 64 // words), (4 * batch, length)]
    calls = [((numbers(*leading, *one, units),), {}) for one in sizes]
    return Case(step, calls, values(w, b))


def residual(batch=8, length=128, units=256):
    """A residual layer: of what arrives a product is made, and four gradients are added up."""
    grow, shrink, w = weights((units, 4 * units), (4 * units, units), (units, units))

    def norm(x):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-6)

    def loss(x):
        x = x @ w
        return tf.reduce_mean(tf.square(x + tf.nn.gelu(norm(x) @ grow) @ shrink))

    return Case(train(loss, [grow, shrink, w]), thrice(numbers(batch, length, units)), values(w))


PROGRAMS = {
    "few": (lambda: head(batch=7), 7),
    "four sums": (lambda: head(batch=16), 16),
    "and some left": (lambda: head(batch=19), 19),
    "tied": (tied, 16),
    "behind a loop": (recurrent, 16),
    "float64": (doubled, 12),
    "four at once": (lambda: head(batch=35), 35),
    "beside a residual": (residual, 8),
    "of a call": (opened, 19),
    "of a call, four at once": (lambda: opened(batch=34), 34),
    "two axes": (lambda: opened(batch=11, leading=(3,)), 33),
    "small, and most of the peak": (lambda: head(320, 32, 64, 64), 320),
}
"""Name -> program, and how many items are added up."""


def decided(fn, case):
    args, kwargs = case.calls[0]
    return fn.plan(*args, **kwargs).of("accumulated_products")


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_weight_gradients_have_the_same_bits(name):
    make, items = PROGRAMS[name]
    case = make()
    found = decided(rnnmem.optimize(case.fn), case)
    assert found and {one.items for one in found} == {items}
    assert_same_bits(make, max_slowdown=1.35)


def peaks(name):
    """Measured and predicted peaks: as it was, and as it is."""
    case = PROGRAMS[name][0]()
    fn = rnnmem.optimize(case.fn)
    args, kwargs = case.calls[0]
    plan = fn.plan(*args, **kwargs)
    measured = [rnnmem.measure(one, *args, **kwargs) for one in (tf.function(case.fn), fn)]
    return [*(one.peak_bytes for one in measured), plan.original_peak, plan.predicted_peak]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["few", "and some left", "four at once", "two axes"])
def test_a_few_items_exist_at_once(name):
    before, after, predicted_before, predicted = run_alone(__name__, "peaks", name)
    assert after < before - 5 * MIB and predicted < predicted_before - 5 * MIB


@pytest.mark.slow
def test_it_is_a_change_where_nothing_else_is():
    case = head()
    fn = rnnmem.optimize(case.fn, allow=("accumulated_products",))
    args, kwargs = case.calls[0]
    fn(*args, **kwargs)
    plan = fn.plan(*args, **kwargs)
    assert not plan.changes_nothing
    assert plan.predicted_interval[1] < plan.original_interval[1]


def products(w, x, y):
    with tf.GradientTape() as tape:
        found = tf.reduce_sum(tf.matmul(x, y, transpose_a=True), [0, 1]) * w
    return found, tape.gradient(found, w)


@pytest.mark.slow
def test_factors_of_other_sizes_are_broadcast_as_they_were():
    def make():
        (w,) = weights((384, 384))
        unknown = tf.TensorSpec([None, None, None, 384])
        step = tf.function(functools.partial(products, w), input_signature=[unknown, unknown])
        sizes = [((4, 8), (4, 8)), ((1, 32), (32, 1)), ((4, 8), (1, 8)), ((8, 4), (8, 4))]
        calls = [((numbers(*a, 24, 384), numbers(*b, 24, 384)), {}) for a, b in sizes]
        return Case(step, calls, values(w))

    assert decided(rnnmem.optimize(make().fn), make())
    assert_same_bits(make)


def gated():
    """A loop of little work behind a projection whose weight has a gradient for each item."""
    (w,) = weights((128, 256))

    def swapped(x):
        return tf.transpose(x, [1, 0, 2])

    def cell(c, given):
        u, f = given
        f = tf.sigmoid(f + c)
        return tf.tanh(f * c + (1 - f) * u)

    def loss(x):
        u, f = tf.split(x @ w, 2, 2)
        return tf.reduce_mean(tf.scan(cell, (swapped(u), swapped(f)), tf.zeros_like(x[:, 0])) ** 2)

    step = tf.function(train(loss, [w]), input_signature=[tf.TensorSpec([None, None, 128])])
    return Case(step, [((numbers(*sizes, 128),), {}) for sizes in ((16, 160), (3, 2))], values(w))


@pytest.mark.slow
def test_what_products_take_of_a_few_items_is_not_held_against_a_plan_of_the_loops():
    case = gated()
    (args, _), _ = case.calls
    plan = rnnmem.optimize(case.fn, max_slowdown=1.5).plan(*args)
    assert plan.of("accumulated_products")
    assert [loop.closed for loop in plan.loops] == [""]
    assert plan.predicted_peak < 0.8 * plan.original_peak
    assert_same_bits(gated, max_slowdown=1.5)


def test_sums_that_a_product_comes_before_wait_for_its_loops():
    case = residual()
    fn = rnnmem.optimize(case.fn, allow=("accumulated_products",))
    awaiting = {one.product: one.awaiting for one in decided(fn, case)}
    (added,) = {name for names in awaiting.values() for name in names}
    assert awaiting["gradient_tape/matmul_2/MatMul_1"] == (added,)
    args, kwargs = case.calls[0]
    net = net_of(fn.get_concrete_function(*args, **kwargs))
    assert [op.type for op in net.ops if op.name == added] == ["AddN"]
    assert any("matmul_2" in name for name in net.op_by_name[added].controls)


def test_what_is_small_or_not_allowed_stays():
    assert not decided(rnnmem.optimize(head(words=32).fn), case := head(words=32))
    fn = rnnmem.optimize((case := head()).fn, allow=("rematerialise", "checkpoint"))
    assert not decided(fn, case)


def test_a_saved_plan_does_the_same():
    case = head()
    args, kwargs = case.calls[0]
    plan = Plan.from_json(rnnmem.optimize(case.fn).plan(*args, **kwargs).to_json())
    (one,) = plan.of("accumulated_products")
    assert isinstance(one, AccumulatedProduct)
    again = rnnmem.optimize(case.fn, plan=plan)
    assert decided(again, case) == (one,)
    other = plan.having(accumulated_products=(dataclasses.replace(one, product="nowhere"),))
    with pytest.raises(PlanError, match="nowhere"):
        rnnmem.optimize(case.fn, plan=other)(*args, **kwargs)
