"""Where the signature leaves sizes open, those of the first call choose what runs again."""

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
import rnnmem.keras
from rnnmem.planning.intervals import SEEN
from tests.cases import Case, assert_same_bits, numbers, train, values, weights

keras = tf.keras
pytestmark = [
    pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning"),
    pytest.mark.usefixtures("deterministic"),
]
LONG, SHORT = 1024, 8


def two_towers(first=LONG, second=SHORT):
    """Two stacks of layers, each on rows of its own number."""
    left, right = weights(*[(128, 128)] * 6), weights(*[(128, 128)] * 6)

    def loss(x, y):
        for kernel in left:
            x = tf.nn.gelu(x @ kernel)
        for kernel in right:
            y = tf.sin(tf.nn.gelu(y @ kernel))
        return tf.reduce_mean(tf.square(x)) + tf.reduce_mean(tf.square(y))

    signature = [tf.TensorSpec([None, 128])] * 2
    made = [*left, *right]
    step = tf.function(train(loss, made), input_signature=signature)
    rows = (first, second), (second, first)
    calls = [((numbers(a, 128), numbers(b, 128)), {}) for a, b in (*rows, *rows)]
    return Case(step, calls, values(*made))


def saved(case, **options):
    """The plan of the first call, and names of the ops that run again."""
    step = rnnmem.optimize(case.fn, **options)
    plan = step.plan(*case.calls[0][0])
    return plan, {name for region in plan.of("straight_line") for name in region.ops}


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [(LONG, SHORT), (SHORT, LONG)])
def test_what_is_large_in_the_first_call_runs_again(first, second):
    plan, ops = saved(two_towers(first, second), max_slowdown=1.5)
    sines = any(name.lower().startswith("sin") for name in ops)
    assert ops and sines == (second > first)
    assert SEEN in plan.notes and plan.predicted_peak < 0.7 * plan.original_peak


@pytest.mark.slow
def test_every_bit_is_the_same_at_other_sizes():
    assert_same_bits(two_towers, max_slowdown=1.5)


@pytest.mark.slow
def test_a_first_call_that_is_small_does_not_choose():
    small = two_towers(SHORT, SHORT)
    open_ended = rnnmem.optimize(small.fn, max_slowdown=1.5)
    specs = [tf.TensorSpec([None, 128])] * 2
    plan, _ = saved(small, max_slowdown=1.5)
    assert plan.of("straight_line") == open_ended.plan(*specs).of("straight_line") != ()


@pytest.mark.slow
def test_a_budget_is_met_by_the_fastest_plan_that_fits_the_call():
    plans = {}
    for part in (0.9, 0.6):
        case = two_towers()
        peak = rnnmem.optimize(case.fn, max_slowdown=1.5).plan(*case.calls[0][0]).original_peak
        plans[part], _ = saved(case, budget=int(part * peak))
        assert plans[part].predicted_peak <= part * peak
    assert 1.0 < plans[0.9].slowdown < plans[0.6].slowdown


@pytest.mark.slow
def test_an_argument_tells_how_often_a_loop_runs():
    def solver():
        kernels = weights((128, 128), (128, 128))

        def loss(x, count):
            for _ in tf.range(count):
                x = x + tf.tanh(tf.tanh(x @ kernels[0]) @ kernels[1])
            return tf.reduce_mean(tf.square(x))

        signature = [tf.TensorSpec([None, 128]), tf.TensorSpec([], tf.int32)]
        step = tf.function(train(loss, kernels), input_signature=signature)
        calls = [((numbers(64, 128), tf.constant(count)), {}) for count in (80, 3, 80, 1)]
        return Case(step, calls, values(*kernels))

    case = solver()
    plan = rnnmem.optimize(case.fn, max_slowdown=1.5).plan(*case.calls[0][0])
    assert SEEN in plan.notes and plan.predicted_peak < 0.5 * plan.original_peak
    assert_same_bits(solver, max_slowdown=1.5)


def of_two_losses(error=lambda first, x: (first - x) ** 2):
    """Two stacks of layers, each with a loss whose gradient is there before the other's stack."""
    left, right = weights(*[(64, 64)] * 6), weights(*[(64, 64)] * 6)

    def tower(x, kernels):
        for kernel in kernels:
            x = tf.nn.gelu(x @ kernel)
        return x

    def loss(x, y):
        first, second = tower(x, left), tower(y, right)
        return tf.reduce_mean(error(first, x)) + tf.reduce_mean(tf.abs(second - y))

    signature = [tf.TensorSpec([None, 64])] * 2
    step = tf.function(train(loss, [*left, *right]), input_signature=signature)
    calls = [((numbers(rows, 64), numbers(rows, 64, seed=1)), {}) for rows in (LONG, SHORT)]
    return Case(step, calls, values(*left, *right))


@pytest.mark.slow
@pytest.mark.parametrize(
    "error", [lambda first, x: (first - x) ** 2, lambda first, x: first[:, :32]]
)
def test_the_gradient_of_a_loss_is_not_taken_for_the_forward_part_of_the_next(error):
    case = of_two_losses(error)
    arguments, _ = case.calls[0]
    plan = rnnmem.optimize(case.fn, max_slowdown=1.5).plan(*arguments)
    clones = {name for region in plan.of("straight_line") for name in region.ops}
    assert clones and not any("gradient_tape" in name for name in clones)
    assert plan.predicted_peak < 0.6 * plan.original_peak
    assert_same_bits(lambda: of_two_losses(error), max_slowdown=1.5)


@pytest.mark.slow
def test_the_first_batch_of_fit_chooses():
    def fitted(optimised):
        keras.utils.set_random_seed(3)
        layers = [keras.layers.Dense(256, activation="gelu") for _ in range(8)]
        model = keras.Sequential([keras.Input((64,)), *layers, keras.layers.Dense(1)])
        model.compile("adam", "mse", jit_compile=False)
        if optimised:
            rnnmem.keras.optimize(model, max_slowdown=1.35)
        x = numbers(1280, 64)
        history = model.fit(x, x[:, :1], batch_size=512, epochs=2, shuffle=False, verbose=0)
        return model, history.history["loss"], [one.numpy().tobytes() for one in model.variables]

    _, *expected = fitted(optimised=False)
    model, *found = fitted(optimised=True)
    assert found == expected
    step = rnnmem.tf.private.keras_step_cell(model.train_function).cell_contents
    (inspection,) = step.inspect_all()
    plan = inspection.plan
    assert SEEN in plan.notes and plan.of("straight_line")
    assert plan.predicted_peak < 0.8 * plan.original_peak


def of_graphs():
    """Layers over the edges of some graphs, whose nodes are summed up graph by graph."""
    kernels = weights(*[(64, 64)] * 6)

    def loss(nodes, edges, graphs, targets):
        made = nodes
        for kernel in kernels:
            given = tf.gather(made, edges[0]) @ kernel
            heard = tf.math.unsorted_segment_sum(given, edges[1], tf.shape(made)[0])
            made = made + tf.tanh(heard)
        return tf.reduce_mean((tf.math.segment_sum(made, graphs) - targets) ** 2)

    signature = [
        tf.TensorSpec([None, 64]),
        tf.TensorSpec([2, None], tf.int32),
        tf.TensorSpec([None], tf.int32),
        tf.TensorSpec([None, 64]),
    ]
    step = tf.function(train(loss, kernels), input_signature=signature)

    def call(nodes, edges, graphs):
        ends = np.random.default_rng(0).integers(0, nodes, (2, edges))
        of_graph = np.sort(np.arange(nodes) % graphs)
        whole = tf.constant(ends, tf.int32), tf.constant(of_graph, tf.int32)
        return (numbers(nodes, 64), *whole, numbers(graphs, 64, seed=2)), {}

    return Case(step, [call(1024, 4096, 16), call(10, 20, 3)], values(*kernels))


@pytest.mark.slow
def test_labels_of_the_first_call_tell_how_many_segments_there_are():
    case = of_graphs()
    arguments, _ = case.calls[0]
    plan = rnnmem.optimize(case.fn).plan(*arguments)
    assert SEEN in plan.notes and plan.predicted_peak < 0.7 * plan.original_peak
    assert_same_bits(of_graphs, max_slowdown=1.5)
