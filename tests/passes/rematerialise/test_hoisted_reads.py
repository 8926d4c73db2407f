"""Variables read in a loop, in TensorFlow: the bits, the turn among writes, and the memory."""

import numpy as np
import pytest

import rnnmem
from rnnmem.passes.rematerialise.decision import HOISTED
from rnnmem.tf.functions import net_of

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.slow


def bits(values) -> list[bytes]:
    return [value.numpy().tobytes() for value in tf.nest.flatten(values)]


def residuals(optimized, *args) -> set[str]:
    loops = [loop for top in optimized.plan(*args).loops for loop in top.flat()]
    return {
        decision.decision
        for loop in loops
        for decision in loop.residuals
        if decision.op_type == "ReadVariableOp"
    }


def states(x, w):
    h = tf.zeros_like(x[0])
    for i in tf.range(tf.shape(x)[0]):
        h = tf.tanh(tf.sigmoid(x[i] + h @ w) * h + x[i])
    return h


def inputs(steps: int = 6, units: int = 4) -> tuple:
    values = tf.random.stateless_normal([steps, 2, units], [1, 2])
    return values, tf.Variable(tf.random.stateless_normal([units, units], [3, 4]))


def both(step, x, w, *, runs: int = 2, **options):
    """What the step gives, run after run, and the variable: plain, and optimised."""
    found, start = [], w.numpy()
    optimized = rnnmem.optimize(tf.function(step, **options), max_slowdown=100.0)
    for function in (tf.function(step, **options), optimized):
        w.assign(start)
        found.append([bits([function(x) for _ in range(runs)]), bits([w])])
    return found[0], found[1], optimized


@pytest.mark.parametrize("compiled", [False, True], ids=["executor", "xla"])
def test_a_train_step_that_updates_what_it_reads(compiled):
    x, w = inputs()

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(states(x, w) ** 2)
        gradient = tape.gradient(loss, w)
        w.assign_sub(0.1 * gradient)
        return loss, gradient

    plain, optimized, function = both(step, x, w, runs=3, jit_compile=compiled)
    if compiled:  # XLA gives no bits, only what is close
        for one, other in zip(sum(plain, []), sum(optimized, []), strict=True):
            np.testing.assert_allclose(
                *(np.frombuffer(held, np.float32) for held in (one, other)), rtol=1e-4, atol=1e-6
            )
    else:
        assert optimized == plain
    assert residuals(function, x) == {HOISTED}


def test_no_reader_stands_for_the_list_of_a_read():
    x, w = inputs()

    def step(x):
        with tf.GradientTape() as tape:
            h = tf.zeros_like(x[0])
            for i in tf.range(tf.shape(x)[0]):
                h = tf.sin(tf.tanh(h @ w) * x[i]) + 1.0
            loss = tf.reduce_sum(h**2)
        return tape.gradient(loss, w)

    function = rnnmem.optimize(tf.function(step), max_slowdown=100.0)
    net = net_of(function.get_concrete_function(x))
    pushed = {
        inner.producer[op.inputs[1]].type
        for _, inner in net.walk()
        for op in inner.ops
        if op.name.startswith("rnnmem/keepalive_push") and op.inputs[1] in inner.producer
    }
    assert pushed
    assert "ReadVariableOp" not in pushed


def test_writes_before_and_after_the_loop_keep_their_turn():
    x, w = inputs()

    def step(x):
        w.assign(w * 0.5)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(states(x, w) ** 2)
        w.assign(tf.zeros_like(w))
        gradient = tape.gradient(loss, w)
        w.assign_sub(gradient)
        return loss, gradient

    plain, optimized, function = both(step, x, w)
    assert optimized == plain
    assert residuals(function, x) == {HOISTED}


def test_a_variable_that_the_loop_writes_is_saved():
    x, w = inputs()

    def step(x):
        with tf.GradientTape() as tape:
            h = tf.zeros_like(x[0])
            for i in tf.range(tf.shape(x)[0]):
                h = tf.tanh(tf.sigmoid(x[i] + h @ w) * h + x[i])
                w.assign(w * 0.9)
            loss = tf.reduce_sum(h**2)
        return loss, tape.gradient(loss, w)

    plain, optimized, function = both(step, x, w)
    assert optimized == plain
    assert HOISTED not in residuals(function, x)


def in_a_loop_in_a_loop(x, w):
    def step(x):
        with tf.GradientTape() as tape:
            h = tf.zeros_like(x[0])
            for i in tf.range(tf.shape(x)[0]):
                for _ in tf.range(3):
                    h = tf.tanh(tf.sigmoid(x[i] + h @ w) * h + x[i])
            loss = tf.reduce_sum(h**2)
        gradient = tape.gradient(loss, w)
        w.assign_sub(gradient)
        return loss, gradient

    plain, optimized, function = both(step, x, w)
    assert optimized == plain
    return function


def test_a_read_in_a_loop_in_a_loop():
    x, w = inputs(units=128)  # whole, the inner loop would hold all of its weight gradients at once
    function = in_a_loop_in_a_loop(x, w)
    assert HOISTED in residuals(function, x)
    plan = function.plan(x)
    assert plan.predicted_peak < plan.original_peak / 2.5


def test_a_small_loop_in_a_loop_runs_again_as_a_whole():
    x, w = inputs()
    (loop,) = in_a_loop_in_a_loop(x, w).plan(x).loops
    assert not loop.inner


def test_a_cast_of_a_weight_is_rebuilt_in_each_iteration():
    x, w = inputs()

    def step(x):
        with tf.GradientTape() as tape:
            h = tf.zeros([2, 4], tf.bfloat16)
            for i in tf.range(tf.shape(x)[0]):
                h = tf.tanh(tf.cast(x[i], tf.bfloat16) + h @ tf.cast(w, tf.bfloat16))
            loss = tf.reduce_sum(tf.cast(h, tf.float32) ** 2)
        return loss, tape.gradient(loss, w)

    plain, optimized, function = both(step, x, w)
    assert optimized == plain
    (loop,) = function.plan(x).loops
    assert loop.hoisted
    body = function.get_concrete_function(x).graph.as_graph_def().library.function
    casts = [[node.op for node in one.node_def].count("Cast") for one in body]
    assert sum(count > 0 for count in casts) >= 2  # in the forward body and in the gradient's


def test_a_weight_that_is_assigned_between_forward_and_backward():
    x, w = inputs()
    start = w.numpy()
    found = []
    plain = tf.function(lambda x: states(x, w))
    for function in (plain, rnnmem.optimize(plain, max_slowdown=100.0)):
        w.assign(start)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(function(x) ** 2)
        w.assign(tf.zeros_like(w))
        found.append(bits([loss, tape.gradient(loss, w)]))
    assert found[0] == found[1]


def current() -> int:
    return tf.config.experimental.get_memory_info("CPU:0")["current"]


def test_what_an_eager_call_under_a_tape_keeps_holds_the_weight_once():
    steps, units = 50, 64
    x, w = inputs(steps, units)
    function = rnnmem.optimize(lambda x: states(x, w), max_slowdown=100.0)
    for _ in range(2):
        before = current()
        with tf.GradientTape() as tape:
            h = function(x)
        kept = current() - before
        del h, tape
    assert 0 < kept < 5 * units * units * 4


def test_xla_does_not_keep_the_weight_in_every_iteration():
    def peak(steps: int) -> int:
        x, w = inputs(steps, 128)

        @rnnmem.optimize(max_slowdown=100.0)
        @tf.function(jit_compile=True)
        def step(x):
            with tf.GradientTape() as tape:
                h = tf.zeros([2, 128])
                for i in tf.range(steps):
                    h = tf.tanh(x[i] + h @ w)
                loss = tf.reduce_sum(h**2)
            return tape.gradient(loss, w)

        return rnnmem.measure(step, x, repeats=1).peak_bytes

    weight = 128 * 128 * 4
    assert peak(60) - peak(20) < 40 * weight / 10
