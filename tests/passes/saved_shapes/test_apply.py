"""Loops that concatenate: their gradient asks for shapes, and what it asks of is not saved."""

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.analysis.loops import own_loop_pairs
from rnnmem.errors import NetError
from rnnmem.ir.inline import inline
from rnnmem.ir.order import without_dead_ops
from rnnmem.passes.registry import DEFAULTS
from rnnmem.passes.saved_shapes.apply import apply
from rnnmem.passes.saved_shapes.decision import SavedShape
from rnnmem.planning.plan import Plan
from rnnmem.tf.functions import net_of
from tests.alone import run_alone
from tests.cases import Case, assert_same_bits, numbers, values, weights
from tests.handmade import CONTEXT

UNITS = 16


def decoder(losses=1):
    """Outputs are concatenated one by one, as nobody should and many do."""
    made = weights((8, UNITS), (UNITS, UNITS), (UNITS, 8))

    def run(x):
        w, u, o = made
        h, seen = tf.zeros([tf.shape(x)[0], UNITS]), tf.zeros([tf.shape(x)[0], 0, UNITS])

        def body(t, h, seen):
            h = tf.tanh(x[:, t] @ w + h @ u)
            return t + 1, h, tf.concat([seen, h[:, None]], 1)

        length, start = tf.shape(x)[1], (0, h, seen)
        shapes = [], [None, UNITS], [None, None, UNITS]
        _, _, seen = tf.while_loop(
            lambda t, *_: t < length,
            body,
            start,
            shape_invariants=tuple(map(tf.TensorShape, shapes)),
        )
        return seen @ o

    @tf.function(input_signature=[tf.TensorSpec([None, None, 8])])
    def step(x):
        with tf.GradientTape(persistent=losses > 1) as tape:
            out = run(x)
            errors = [tf.reduce_mean((out - x) ** 2), tf.reduce_sum(tf.sin(out))][:losses]
        return errors, [tape.gradient(one, made) for one in errors]

    return step, made


def concatenating_cell():
    """One matrix for the input, what attention reads, and the state."""
    made = weights((8, UNITS), (3 * UNITS, UNITS), (UNITS, UNITS))

    @tf.function(input_signature=[tf.TensorSpec([None, None, 8])])
    def step(x):
        w, u, q = made
        with tf.GradientTape() as tape:
            memory = tf.tanh(x @ w)
            h, loss = tf.zeros([tf.shape(x)[0], UNITS]), 0.0
            for t in tf.range(tf.shape(x)[1]):
                scores = tf.nn.softmax(tf.einsum("bu,btu->bt", h @ q, memory))
                context = tf.einsum("bt,btu->bu", scores, memory)
                h = tf.tanh(tf.concat([memory[:, t], context, h], -1) @ u)
                loss += tf.reduce_mean(h**2)
        return loss, tape.gradient(loss, made)

    return step, made


def training_loop():
    """A loop of train steps, each of which runs the decoder's loop."""
    step, made = decoder()

    @tf.function(input_signature=[tf.TensorSpec([None, None, 8])])
    def train(x):
        total = 0.0
        for _ in tf.range(3):
            (loss,), (gradients,) = step(x)
            for variable, gradient in zip(made, gradients, strict=True):
                variable.assign_sub(0.1 * gradient)
            total += loss
        return total

    return train, made


def batch(rows=6, length=24):
    return tf.reshape(numbers(rows * length * 8), [rows, length, 8])


PROGRAMS = {
    "decoder": decoder,
    "two losses": lambda: decoder(losses=2),
    "cell": concatenating_cell,
    "training loop": training_loop,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_bits_stay_at_several_sizes(name):
    def case():
        step, made = PROGRAMS[name]()
        return Case(step, [((batch(),), {}), ((batch(3, 40),), {})], values(*made))

    assert_same_bits(case, max_slowdown=2.0)
    if name == "two losses":
        return  # to what a second gradient adds zeros in the shape of it, it is popped for them
    step, _ = PROGRAMS[name]()
    assert rnnmem.optimize(step, max_slowdown=2.0).plan(batch()).at_every_depth("saved_shapes")


def test_each_pass_can_be_left_out_and_its_decisions_be_read():
    step, _ = decoder()
    optimised = rnnmem.optimize(step)
    plan = optimised.plan(batch())
    assert Plan.from_json(plan.to_json()) == plan
    assert "shapes are saved" in str(optimised.explain(batch()))
    without = [name for name in DEFAULTS if name != "saved_shapes"]
    assert not rnnmem.optimize(step, allow=without).plan(batch()).of("saved_shapes")


def test_a_plan_of_another_function_is_refused():
    step, _ = decoder()
    net = without_dead_ops(inline(net_of(step.get_concrete_function())))
    (pair,) = own_loop_pairs(net)
    gradient = pair.gradients[0].loop.op.name
    for one in (SavedShape((), "none", "op", 1), SavedShape((), gradient, "none", 1)):
        with pytest.raises(NetError, match="another function"):
            apply(net, [one], CONTEXT)
    other = next(op.name for op in pair.gradients[0].loop.body.ops if op.type == "TanhGrad")
    with pytest.raises(NetError, match="reads no shapes"):
        apply(net, [SavedShape((), gradient, other, 1)], CONTEXT)


def peaks():
    """Of the decoder as TensorFlow runs it, and optimised, with their intervals."""
    step, _ = decoder()
    optimised = rnnmem.optimize(step)
    x = tf.constant(np.zeros([32, 120, 8], np.float32))
    plan = optimised.plan(x)
    measured = [rnnmem.measure(one, x, repeats=3).peak_bytes for one in (step, optimised)]
    return measured, [plan.original_interval, plan.predicted_interval]


def test_memory_no_longer_grows_with_the_square_of_the_length():
    (before, after), intervals = run_alone(__name__, "peaks")
    assert after < before / 4
    for peak, (low, high) in zip((before, after), intervals, strict=True):
        assert low <= peak <= high
