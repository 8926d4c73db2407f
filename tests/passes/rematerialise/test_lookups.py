"""Rows that a loop looks up are looked up again, where they take more than the whole variable."""

import pytest
import tensorflow as tf

import rnnmem
from tests.cases import Case, assert_same_bits, numbers, thrice, train, values, weights

T, B, U, EXPERTS = 60, 16, 16, 3
INFINITE = float("inf")


def routed(x, table, gate, after=lambda t: None):
    """A recurrence whose weights are rows of a variable, which the state itself chooses."""

    def body(t, h):
        chosen = tf.argmax(h @ gate, 1)
        rows = tf.gather(table, chosen)
        after(t)
        return t + 1, tf.tanh(tf.einsum("bi,bij->bj", tf.sin(h), rows) + x[t])

    return tf.while_loop(lambda t, h: t < T, body, (0, tf.ones([B, U])))[1]


def made():
    return weights((EXPERTS, U, U), (U, EXPERTS))


def experts():
    table, gate = made()
    step = train(lambda x: tf.reduce_sum(routed(x, table, gate) ** 2), [table])
    return Case(step, thrice(numbers(T, B, U)), values(table))


def read_whole_and_by_rows():
    table, gate = made()

    def loss(x):
        return tf.reduce_sum(routed(x, table, gate) ** 2) + tf.reduce_sum(table**2)

    return Case(train(loss, [table]), thrice(numbers(T, B, U)), values(table))


def written_before_the_gradient():
    """What the forward loop looked up is no longer there when the gradient loop runs."""
    table, gate = made()

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(routed(x, table, gate) ** 2)
            table.assign(table * tf.cos(loss))
        gradient = tape.gradient(loss, table)
        table.scatter_sub(tf.IndexedSlices(gradient[:1] * 0.01, [0]))
        return loss, gradient

    return Case(tf.function(step), thrice(numbers(T, B, U)), values(table))


def written_in_the_loop():
    table, gate = made()

    def loss(x):
        return tf.reduce_sum(routed(x, table, gate, lambda t: table.assign_add(0.01 * table)) ** 2)

    return Case(train(loss, [table]), thrice(numbers(T, B, U)), values(table))


def looked_up_in_an_inner_loop():
    table, gate = made()

    def loss(x):
        def outer(i, s):
            return i + 1, s + tf.reduce_mean(routed(x * s, table, gate))

        return tf.while_loop(lambda i, s: i < 3, outer, (0, 1.0))[1]

    return Case(train(loss, [table]), thrice(numbers(T, B, U)), values(table))


CASES = (
    experts,
    read_whole_and_by_rows,
    written_before_the_gradient,
    written_in_the_loop,
    looked_up_in_an_inner_loop,
)


@pytest.mark.slow
@pytest.mark.parametrize("bound", [1.1, INFINITE])
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_every_bit_stays(make, bound, grappler, deterministic):
    assert_same_bits(make, max_slowdown=bound)


def decision_of(plan):
    (loop,) = plan.loops
    (found,) = [one for one in loop.residuals if one.op_type == "ResourceGather"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("bound", [1.1, INFINITE], ids=["saved sets", "segments"])
def test_rows_are_taken_of_one_read_beside_the_loop(bound, deterministic):
    case = experts()
    after = rnnmem.optimize(tf.function(case.fn), max_slowdown=bound)
    (args, _), *_ = case.calls
    plan = after.plan(*args)
    assert decision_of(plan).decision == "recomputed"
    assert (plan.loops[0].segments is None) is (bound == 1.1)
    saved = 4 * T * B * U * U
    before, now = plan.original_interval[0], plan.predicted_interval[1]
    assert before > saved and now < saved / 2
    graph = after.get_concrete_function(*args).graph.as_graph_def()
    types = [
        node.op
        for nodes in (graph.node, *(one.node_def for one in graph.library.function))
        for node in nodes
    ]
    assert "Gather" in types and "ResourceGather" in types


def test_a_large_table_is_not_copied_for_a_few_rows(deterministic):
    table, gate = weights((500, U, U), (U, 500))
    step = train(lambda x: tf.reduce_sum(routed(x, table, gate) ** 2), [table])
    plan = rnnmem.optimize(tf.function(step), max_slowdown=INFINITE).plan(numbers(T, B, U))
    found = decision_of(plan)
    assert found.decision == "saved"
    assert "would take a copy of the whole variable" in found.reason
