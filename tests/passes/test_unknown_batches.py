"""Sums of three states, products and the like where the batch size is unknown: bits and a saving.

Their gradient asks for shapes, which may be taken before such a sum begins or behind it.
"""

from unittest import mock

import pytest
import tensorflow as tf

import rnnmem
from rnnmem import work
from rnnmem.grappler.listing import Listing
from rnnmem.grappler.summation_races import sums_beside_shapes
from rnnmem.tf import private
from rnnmem.tf.functions import net_of
from tests.cases import numbers, outcome, weights

pytestmark = pytest.mark.usefixtures("deterministic")

UNITS, BATCH, STEPS = 16, 8, 12
LEFT = "begins with one addend or another"
CELLS = {
    "products": lambda x, h, c, w: x @ w[0] + h @ w[1] + c @ w[2],
    "residual": lambda x, h, c, w: h + tf.tanh(x @ w[0]) + 0.1 * c,
    "four": lambda x, h, c, w: x @ w[0] + h @ w[1] + c @ w[2] + h * c,
}


def multiples(x, h, c, w):
    return (h + h * 0.1 + h * 0.8) @ w[0]


def step_of(cell):
    kernels = weights(*[(UNITS, UNITS)] * 3)

    def body(i, h, c, x):
        n = tf.tanh(cell(x[i], h, c, kernels))
        return i + 1, n, c * 0.9 + n * tf.sigmoid(n), x

    def step(x, h):
        with tf.GradientTape() as tape:
            _, h, c, _ = tf.while_loop(lambda i, *_: i < STEPS, body, (0, h, h * 0.5, x))
            loss = tf.reduce_sum(h**2) + tf.reduce_sum(c)
        return loss, h, tape.gradient(loss, kernels, unconnected_gradients="zero")

    signature = [tf.TensorSpec([STEPS, None, UNITS]), tf.TensorSpec([None, UNITS])]
    return tf.function(step, input_signature=signature)


def arguments():
    return numbers(STEPS, BATCH, UNITS), numbers(BATCH, UNITS, seed=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_their_loops_are_rewritten_and_keep_their_bits(name):
    step = step_of(CELLS[name])
    concrete = step.get_concrete_function()
    assert list(sums_beside_shapes(net_of(concrete)))  # so TensorFlow is asked
    optimised = rnnmem.optimize(step, max_slowdown=2.0)
    plan = optimised.plan(*arguments())
    assert not any(LEFT in note for note in plan.notes)
    assert any(loop.recomputed for loop in plan.loops)
    assert outcome(optimised(*arguments())) == outcome(step(*arguments()))


@pytest.mark.parametrize(
    "ask, left",
    [
        (lambda graph, first: private.optimized_nodes(first)[:: 1 if graph is first else -1], True),
        (lambda graph, first: private.optimized_nodes(first), False),  # as if nothing were moved
        (lambda graph, first: None, True),
    ],
)
def test_a_function_is_left_alone_where_tensorflow_lists_what_one_sum_adds_up_otherwise(
    monkeypatch, ask, left
):
    asked = []

    def nodes(graph):
        asked.append(graph)
        return ask(graph, asked[0])

    monkeypatch.setattr(work, "private", mock.Mock(wraps=private, optimized_nodes=nodes))
    plan = rnnmem.optimize(step_of(multiples)).plan(*arguments())
    assert any(LEFT in note for note in plan.notes) is left
    assert plan.changes_nothing is left


def test_tensorflow_makes_one_sum_only_where_it_takes_the_shapes_for_equal():
    def sums(cell):
        concrete = step_of(cell).get_concrete_function()
        listing = Listing(private.optimized_nodes(concrete.graph))
        return [
            one for found in sums_beside_shapes(net_of(concrete)) for one in listing.sums(found)
        ]

    assert sums(multiples) and not sums(CELLS["products"])


def test_a_function_does_not_run_to_be_optimized():
    count = tf.Variable(0.0)

    @tf.function
    def counted(x):
        count.assign_add(1.0)
        return x + count

    concrete = counted.get_concrete_function(tf.TensorSpec([None]))
    nodes = private.optimized_nodes(concrete.graph)
    assert {"_Arg", "AssignAddVariableOp"} <= {one.op for one in nodes}
    assert count.numpy() == 0.0
    assert counted(tf.ones(2)).numpy().tolist() == [2.0, 2.0]


def test_nothing_is_known_beforehand_of_what_only_a_call_gives():
    def given(spec):
        return tf.function(lambda x: tf.identity(x)).get_concrete_function(spec).graph

    assert private.optimized_nodes(given(tf.TensorSpec([], tf.variant))) is None
    with tf.Graph().as_default():
        assert private.optimized_nodes(given(tf.TensorSpec([]))) is None
