"""Between a loop and its gradient loop less is held, and every bit is the same."""

import pytest
import tensorflow as tf

import rnnmem
from rnnmem.passes.registry import DEFAULTS
from rnnmem.planning.plan import Plan
from tests.cases import Case, assert_same_bits, numbers, train, values, weights

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning")]


def mean_of_squares(batch=32, time=64, units=48):
    """A Keras-like layer: [batch, time, features] in, sequences out, the mean of their squares."""
    made = weights((units, units), (units, units))

    def loss(x):
        serialised = tf.TensorArray(tf.float32, time).unstack(tf.transpose(x, [1, 0, 2]))
        start = (0, tf.zeros([batch, units]), tf.TensorArray(tf.float32, time))

        def body(i, h, out):
            h = tf.tanh(serialised.read(i) @ made[0] + h @ made[1])
            return i + 1, h, out.write(i, h)

        _, _, out = tf.while_loop(lambda i, *_: i < time, body, start)
        return tf.reduce_mean(tf.square(3.0 * tf.transpose(out.stack(), [1, 0, 2])))

    return Case(train(loss, made), [((numbers(batch, time, units),), {})] * 2, values(*made))


@pytest.mark.parametrize("left", ["unstacked_lists", "rebuild_lists"])
def test_the_list_is_rebuilt_or_not_made_and_the_gradient_waits_for_the_loss(left, grappler):
    # What waits is a gradient that is repeated; broadcast_outside leaves none.
    allow = [one for one in DEFAULTS if one not in (left, "broadcast_outside")]
    options = {"max_slowdown": float("inf"), "allow": allow}
    assert_same_bits(mean_of_squares, **options)
    made = mean_of_squares()
    step = rnnmem.optimize(made.fn, **options)
    args, _ = made.calls[0]
    plan = step.plan(*args)
    assert plan.delayed_inputs
    found = {"unstacked_lists": plan.rebuilt_lists, "rebuild_lists": plan.of("unstacked_lists")}
    assert len(found[left]) == 1
    assert Plan.from_json(plan.to_json()) == plan


def translated(batch=32, time=64, units=48):
    """An embedding below two layers, and an update of all variables in the step."""
    made = weights((100, units), (units, units), (units, units))

    def step(tokens):
        with tf.GradientTape() as tape:
            serialised = tf.gather(made[0], tf.transpose(tokens))
            for kernel in made[1:]:
                serialised = _layer(serialised, kernel, batch, time, units)
            loss = tf.reduce_mean(tf.square(serialised))
        gradients = tape.gradient(loss, made)
        made[0].scatter_sub(gradients[0])
        for variable, gradient in zip(made[1:], gradients[1:], strict=True):
            variable.assign_sub(0.1 * gradient)
        return loss

    tokens = tf.constant([[(3 * b + 7 * t) % 100 for t in range(time)] for b in range(batch)])
    return Case(tf.function(step), [((tokens,), {})] * 3, values(*made))


def _layer(sequence, kernel, batch, time, units):
    serialised = tf.TensorArray(tf.float32, time).unstack(sequence)
    start = (0, tf.zeros([batch, units]), tf.TensorArray(tf.float32, time))

    def body(i, h, out):
        h = tf.tanh(serialised.read(i) + h @ kernel)
        return i + 1, h, out.write(i, h * h)

    return tf.while_loop(lambda i, *_: i < time, body, start)[2].stack()


@pytest.mark.usefixtures("kernels_alone")  # more of a loop runs again, the sequence is at the peak
@pytest.mark.parametrize("allow", [("recompute", "segments"), ("recompute",)])
def test_rows_of_an_embedding_are_looked_up_again(allow, grappler):
    options = {"max_slowdown": float("inf"), "allow": allow}
    assert_same_bits(translated, **options)
    made = translated()
    found = rnnmem.optimize(made.fn, **options).inspect(*made.calls[0][0])
    plan = found.plan
    (rebuilt_lists,) = (one for one in plan.rebuilt_lists if "Gather" in one.ops[0])
    assert rebuilt_lists.table == (100, 48)  # less than the sequence's 2048 rows
    (gradient,) = (found.rewritten.op_by_name[name] for name in rebuilt_lists.gradients)
    one_by_one = any(one.type == "GatherV2" for one in gradient.nets["body"].ops)
    assert one_by_one == ("segments" not in allow)  # a segment that runs again reads the list
