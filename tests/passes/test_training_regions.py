"""Training loops with the tape inside: each step of theirs is rewritten, and the bits stay."""

import pytest
import tensorflow as tf

import rnnmem
from tests.cases import Case, assert_same_bits, numbers, train, values, weights

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning")]

T, B, U = 6, 2, 4


def loss_of(kernel, bias, x):
    """The loss of a loop whose body reads the variables."""

    def body(i, h):
        return i + 1, tf.tanh(tf.sin(h @ kernel + bias) * tf.sigmoid(x[i]))

    return tf.reduce_sum(tf.while_loop(lambda i, h: i < T, body, (0, x[0]))[1] ** 2)


def batches():
    return numbers(3, T, B, U)


def training_loop():
    made = weights((U, U), (1, U))
    step = train(lambda x: loss_of(*made, x), made)

    @tf.function
    def run(data, steps):
        total = 0.0
        for i in tf.range(steps):
            loss, _ = step(data[i])
            total += loss
        return total

    return Case(run, [((batches(), tf.constant(steps)), {}) for steps in (3, 0, 1)], values(*made))


def early_stop_within_epochs():
    made = weights((U, U), (1, U))
    step = tf.function(train(lambda x: loss_of(*made, x), made, rate=0.5))

    @tf.function
    def run(data):
        loss, count = tf.constant(1e9), 0
        for _ in tf.range(2):
            i = 0
            while i < 3 and loss > 1e-3:
                loss, _ = step(data[i])
                i, count = i + 1, count + 1
        return loss, count

    return Case(run, [((batches(),), {})] * 2, values(*made))


def gradients_added_up_and_applied_at_times():
    made = weights((U, U), (1, U))
    sums = [tf.Variable(tf.zeros_like(one)) for one in made]

    @tf.function
    def run(data):
        for i in tf.range(4):
            with tf.GradientTape() as tape:
                loss = loss_of(*made, data[i % 3])
            for held, one in zip(sums, tape.gradient(loss, made), strict=True):
                held.assign_add(one)
            if i % 2 == 1:
                for variable, held in zip(made, sums, strict=True):
                    variable.assign_sub(0.05 * held)
                    held.assign(tf.zeros_like(held))

    return Case(run, [((batches(),), {})] * 2, values(*made, *sums))


def a_branch_that_trains():
    made = weights((U, U), (1, U))
    step = train(lambda x: loss_of(*made, x), made)

    @tf.function
    def run(x, training):
        if training:
            loss, _ = step(x)
        else:
            loss = loss_of(*made, x)
        return loss

    calls = [((batches()[0], tf.constant(flag)), {}) for flag in (True, False, True)]
    return Case(run, calls, values(*made))


CASES = (
    training_loop,
    early_stop_within_epochs,
    gradients_added_up_and_applied_at_times,
    a_branch_that_trains,
)


@pytest.mark.parametrize("make", CASES)
def test_every_bit_is_the_same(make):
    assert_same_bits(make, max_slowdown=float("inf"))


def test_the_reads_stand_beside_the_inner_loop_and_the_plan_is_applied_again(tmp_path):
    case = training_loop()
    args = case.calls[0][0]
    function = rnnmem.optimize(case.fn, max_slowdown=1e9, allow=("recompute",))
    plan = function.plan(*args)
    (loop,) = plan.every_loop()
    assert not loop.closed and loop.hoisted and len(loop.path) == 2
    assert "1 loop rewritten" in str(function.explain(*args))
    saved = tmp_path / "plan.json"
    saved.write_text(plan.to_json())
    again = rnnmem.optimize(case.fn, plan=saved).plan(*args)
    assert again.nested == plan.nested


def test_a_budget_is_met_by_rewriting_the_training_loop():
    case = a_branch_that_trains()
    args = case.calls[0][0]
    original = rnnmem.optimize(case.fn).plan(*args).original_peak
    plan = rnnmem.optimize(case.fn, budget=original).plan(*args)
    assert not plan.changes_nothing and plan.predicted_peak < original


def test_a_loop_over_a_dataset_is_left_alone_and_says_why():
    made = weights((U, U), (1, U))
    step = train(lambda x: loss_of(*made, x), made)

    @tf.function
    def run():
        total = 0.0
        for x in tf.data.Dataset.from_tensor_slices(batches()):
            loss, _ = step(x)
            total += loss
        return total

    function = rnnmem.optimize(run)
    assert "next(iterator)" in str(function.explain())
    assert function.plan().changes_nothing


def by_a_tape(function, wanted, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(tf.sin(function(x)))
    return tape.gradient(loss, [*wanted, x])


@pytest.mark.parametrize(
    "differentiated",
    [
        by_a_tape,
        tf.function(by_a_tape),
        tf.function(lambda function, _, x: tf.gradients(tf.reduce_sum(tf.sin(function(x))), x)),
    ],
    ids=["eager", "tape in a graph", "no tape"],
)
def test_a_step_with_a_gradient_in_it_is_differentiated_as_it_was(differentiated):
    (kernel, bias) = made = weights((U, U), (1, U))

    @tf.function
    def gradient_of(x):
        with tf.GradientTape() as tape:
            loss = loss_of(*made, x)
        return tape.gradient(loss, kernel)

    (x, *_) = batches()
    optimised = rnnmem.optimize(gradient_of, max_slowdown=1e9)
    assert not optimised.plan(x).changes_nothing
    before, after = (differentiated(one, [kernel, bias], x) for one in (gradient_of, optimised))
    for one, other in zip(before, after, strict=True):
        assert one.numpy().tobytes() == other.numpy().tobytes()
