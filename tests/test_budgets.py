"""Budgets and saved plans on real functions: met, or refused by name, the function untouched."""

import dataclasses
import re
import warnings

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from rnnmem import optimized
from rnnmem.errors import BudgetError, OptionError, PlanError, RnnmemWarning
from rnnmem.planning.choice import needed_budget
from rnnmem.planning.plan import Plan
from rnnmem.sizes import KIB, MIB
from tests.alone import run_alone

STEPS = 60


def numbers(*shape, seed=1):
    return tf.constant(np.random.default_rng(seed).normal(size=shape) * 0.3, tf.float32)


X, WEIGHT = numbers(STEPS, 16, 32), numbers(64, 128, seed=2)


def train_step(x, weight):
    """An LSTM without a bias, loss on the last h."""

    def body(i, h, c):
        a, b, f, o = tf.split(tf.concat([x[i], h], 1) @ weight, 4, 1)
        c = tf.sigmoid(f) * c + tf.sigmoid(a) * tf.tanh(b)
        return i + 1, tf.sigmoid(o) * tf.tanh(c), c

    with tf.GradientTape() as tape:
        tape.watch(weight)
        start = (0, tf.zeros([16, 32]), tf.zeros([16, 32]))
        steps = x.shape[0]
        loss = tf.reduce_sum(tf.while_loop(lambda i, h, c: i < steps, body, start)[1] ** 2)
    return loss, tape.gradient(loss, weight)


def bits(results):
    return [leaf.numpy().tobytes() for leaf in tf.nest.flatten(results)]


@pytest.fixture(scope="module")
def expected():
    return bits(tf.function(train_step)(X, WEIGHT))


def hopeless():
    with pytest.raises(BudgetError) as raised:
        rnnmem.optimize(train_step, budget=1)(X, WEIGHT)
    return str(raised.value)


def measured_alone(made: str, *budgets: int) -> list[int]:
    """The peaks of this module's `made(budget)` in a process of their own."""
    return run_alone(__name__, "measured", made, budgets)


def measured(made, budgets):
    steps = map(globals()[made], budgets)
    return [rnnmem.measure(*step, repeats=2).peak_bytes for step in steps]


def budgeted(budget):
    return rnnmem.optimize(train_step, budget=budget), X, WEIGHT


@pytest.mark.slow
def test_budgets_are_met_with_the_same_bits(expected):
    least = int(re.search(r"be (\d+) bytes", hopeless()).group(1))
    budgets = [least, 2 * least, 4 * least]
    slowdowns = []
    for budget in budgets:
        step = rnnmem.optimize(train_step, budget=budget)
        assert bits(step(X, WEIGHT)) == expected
        plan = step.plan(X, WEIGHT)
        assert needed_budget(plan.predicted_peak) <= budget
        slowdowns.append(plan.slowdown)
    assert slowdowns == sorted(slowdowns, reverse=True)
    for peak, budget in zip(measured_alone("budgeted", *budgets), budgets, strict=True):
        assert peak <= budget


@pytest.mark.slow
def test_the_error_names_the_smallest_peak_and_its_cost():
    text = hopeless()
    assert re.search(
        r"budget=1 \(1 B\) cannot be met: the smallest peak above the resident state is predicted "
        r"to be \d+ bytes \([\d.]+ KiB\), at about \d\.\d\dx the step time",
        text,
    )


def growing_array(cell, loss_of):
    """A step over a TensorArray of dynamic size that keeps every h."""

    weight = tf.Variable(numbers(128, 128, seed=2))

    def step(x):
        with tf.GradientTape() as tape:
            states = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[32, 128])
            h = x[0]
            for i in tf.range(STEPS):
                h = cell(h, h @ weight + x[i])
                states = states.write(i, h)
            loss = loss_of(states)
        return loss, tape.gradient(loss, weight)

    return step


GROWING = {
    # TensorFlow orders the ops of this gradient otherwise where large buffers take turns.
    "squares": growing_array(
        lambda h, sums: tf.tanh(sums), lambda a: tf.reduce_mean(a.stack() ** 2)
    ),
    # What is known of elements that are joined is known of the whole.
    "joined": growing_array(
        lambda h, sums: tf.tanh(sums) * tf.sigmoid(h), lambda a: tf.nn.l2_loss(tf.tanh(a.concat()))
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("step", GROWING.values(), ids=GROWING)
def test_the_smallest_budget_that_the_error_names_is_met_when_it_is_asked_for(step):
    x = numbers(STEPS, 32, 128)
    with pytest.raises(BudgetError, match=r"budget=1 \(1 B\) cannot be met") as raised:
        rnnmem.optimize(step, budget=1)(x)
    assert raised.value.smallest > 1
    optimised = rnnmem.optimize(step, budget=raised.value.smallest)
    assert bits(optimised(x)) == bits(tf.function(step)(x))
    plan = optimised.plan(x)
    assert needed_budget(plan.predicted_peak) <= raised.value.smallest


@pytest.mark.slow
def test_after_an_error_the_function_runs_as_it_did(expected):
    plain = tf.function(train_step)
    with pytest.raises(BudgetError):
        rnnmem.optimize(plain, budget=1)(X, WEIGHT)
    assert bits(plain(X, WEIGHT)) == expected


@pytest.mark.parametrize("budget", [0, "0", -5, "12 parsecs", "", 1.5, float("nan"), True, "-1MiB"])
def test_a_budget_that_is_none_is_refused_at_once(budget):
    with pytest.raises(OptionError, match="budget="):
        rnnmem.optimize(train_step, budget=budget)


@pytest.mark.parametrize("slowdown", [0.99, 0, -1, float("nan"), "1.1", None, True])
def test_a_slowdown_that_is_none_is_refused_at_once(slowdown):
    with pytest.raises(OptionError, match="max_slowdown="):
        rnnmem.optimize(train_step, max_slowdown=slowdown)


@pytest.mark.parametrize("allow", [("telepathy",), "recomputing", (3,), 3])
def test_unknown_techniques_are_refused_at_once(allow):
    with pytest.raises(OptionError, match="allow="):
        rnnmem.optimize(train_step, allow=allow)


def test_a_budget_above_the_device_is_refused(expected):
    step = rnnmem.optimize(train_step, budget="900TiB")
    with pytest.raises(OptionError, match=r"budget=\d+ .* is more than the device has"):
        step(X, WEIGHT)
    assert bits(tf.function(train_step)(X, WEIGHT)) == expected


def test_a_budget_that_the_original_meets_leaves_it(expected):
    step = rnnmem.optimize(train_step, budget="1GiB")
    assert bits(step(X, WEIGHT)) == expected
    assert step.plan(X, WEIGHT).changes_nothing
    assert "the original stays within the budget" in str(step.explain(X, WEIGHT))


def test_a_function_without_a_loop_has_a_budget_too():
    def wide(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.tanh(tf.sin(x)))
        return tape.gradient(loss, x)

    big = tf.ones([256, 1024])
    assert bits(rnnmem.optimize(wide, budget="64MiB")(big)) == bits(tf.function(wide)(big))
    with pytest.raises(BudgetError, match="nothing can be recomputed"):
        rnnmem.optimize(wide, budget="1MiB")(big)


@pytest.mark.slow
def test_a_budget_reaches_a_function_that_is_differentiated_later():
    def forward(x, weight):
        def body(i, h):
            return i + 1, tf.tanh(tf.sin(h @ weight) * x[i])

        return tf.reduce_sum(tf.while_loop(lambda i, h: i < STEPS, body, (0, x[0]))[1])

    weight = numbers(32, 32)
    with pytest.raises(BudgetError, match="cannot be met"):
        with tf.GradientTape() as tape:
            tape.watch(weight)
            loss = rnnmem.optimize(forward, budget=100)(X, weight)
        tape.gradient(loss, weight)


def gathering(index, **options):
    """A train step whose states are written to a TensorArray of dynamic size, and stacked."""
    weight = tf.Variable(numbers(64, 64, seed=3))

    @rnnmem.optimize(**options)
    def step(x, start):
        def body(i, h, states):
            h = tf.tanh(h @ weight) * tf.sigmoid(h + x[i])
            return i + 1, h, states.write(index(i, start), h)

        with tf.GradientTape() as tape:
            states = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[64, 64])
            first = (0, x[0], states)
            states = tf.while_loop(lambda i, h, states: i < STEPS, body, first)[2]
            loss = tf.reduce_sum(states.stack() ** 2)
        return loss, tape.gradient(loss, weight)

    return step, (numbers(STEPS, 64, 64), tf.constant(0))


def gathered(budget):
    step, args = gathering(lambda i, start: i, budget=budget)
    return step, *args


def gathered_as_it_was(_):
    step, args = gathering(lambda i, start: i)
    return step.__wrapped__, *args


@pytest.mark.slow
def test_a_list_that_writes_lengthen_is_within_the_budget_or_the_budget_is_refused():
    step, args = gathering(lambda i, start: i)
    plan = step.plan(*args)
    (peak,) = measured_alone("gathered_as_it_was", 0)
    assert abs(plan.original_peak - peak) <= 0.25 * peak
    assert all("scheduling edge" in note for note in plan.notes)
    step, _ = gathering(lambda i, start: i, budget=1)
    with pytest.raises(BudgetError) as raised:
        step(*args)
    budgets = raised.value.smallest, plan.original_peak
    for peak, budget in zip(measured_alone("gathered", *budgets), budgets, strict=True):
        assert peak <= budget


@pytest.mark.slow
def test_a_number_of_the_call_tells_the_length_of_a_list():
    step, args = gathering(lambda i, start: start + i, budget="1MiB")
    with pytest.raises(BudgetError, match="cannot be met"):
        step.plan(*args)


@pytest.mark.slow
def test_a_list_whose_length_only_a_run_can_tell_is_told():
    def behind(i, start):
        return i + tf.cast(tf.sqrt(tf.cast(start, tf.float32)), tf.int32)

    step, args = gathering(behind, budget="1MiB")
    plan = step.plan(*args)
    assert (plan.original_peak, plan.predicted_peak) == (None, None)
    assert any("not held against a prediction" in note for note in plan.notes)


@pytest.mark.slow
def test_a_budget_says_that_it_knows_nothing_of_python_functions():
    def printing(x, weight):
        tf.py_function(lambda: None, [], [])
        return train_step(x, weight)

    for options, told in (({"budget": "1MiB"}, True), ({}, False)):
        notes = rnnmem.optimize(printing, **options).plan(X, WEIGHT).notes
        assert any("what Python functions take" in note for note in notes) == told


@pytest.mark.parametrize("options", [{}, {"max_slowdown": 2.0}, {"budget": "1KiB"}])
def test_under_xla_no_peak_is_told_and_no_budget_promised(options):
    def compiled(x, weight):
        def body(i, h):
            return i + 1, tf.tanh(tf.sin(h @ weight) * x[i])

        with tf.GradientTape() as tape:
            tape.watch(weight)
            loop = tf.while_loop(lambda i, h: i < STEPS, body, (0, x[0]), maximum_iterations=STEPS)
            loss = tf.reduce_sum(loop[1])
        return loss, tape.gradient(loss, weight)

    args = X, numbers(32, 32)
    step = rnnmem.optimize(tf.function(compiled, jit_compile=True), **options)
    plan = step.plan(*args)
    assert not plan.changes_nothing
    assert (plan.original_peak, plan.predicted_peak) == (None, None)
    assert Plan.from_json(plan.to_json()) == plan
    told = "not held against a prediction" if "budget" in options else "no peak is predicted"
    assert any(told in note and "XLA" in note for note in plan.notes)
    assert "predicted peak above" not in str(step.explain(*args))
    told = rnnmem.report(step, *args, measure=False)
    assert (told.before.peak_bytes, told.after.peak_bytes) == (None, None)
    assert "?" in told.summary()
    assert not told.before.areas


def branches(x):
    wide = [tf.tanh(tf.matmul(x, tf.ones([64, 2048]) * (0.1 + k))) for k in range(8)]
    return tf.add_n([tf.reduce_sum(one * tf.sin(one), 1) for one in wide])


def branches_in_turn(budget):
    return rnnmem.optimize(branches, budget=budget), numbers(256, 64)


@pytest.mark.slow
def test_buffers_that_take_turns_meet_a_budget_that_nothing_else_meets():
    args = (numbers(256, 64),)
    with pytest.raises(BudgetError) as alone:
        rnnmem.optimize(branches, budget=1, allow=("recompute",))(*args)
    with pytest.raises(BudgetError) as serialised:
        rnnmem.optimize(branches, budget=1)(*args)
    least = serialised.value.smallest
    assert least < 0.8 * alone.value.smallest
    assert rnnmem.optimize(branches, budget=least).plan(*args).scheduling_edges
    (peak,) = measured_alone("branches_in_turn", least)
    assert peak <= least


@pytest.mark.slow
def test_a_measured_peak_above_the_budget_takes_a_smaller_plan(monkeypatch, expected):
    step = rnnmem.optimize(train_step, budget="1MiB", verify=True)
    first = step.plan(X, WEIGHT)
    monkeypatch.setattr(optimized, "run_measured", lambda call: (call(), 2 * MIB))
    assert bits(step(X, WEIGHT)) == expected
    second = step.plan(X, WEIGHT)
    assert second.predicted_peak < first.predicted_peak
    monkeypatch.setattr(optimized, "run_measured", lambda call: (call(), 100 * KIB))
    assert bits(step(X, WEIGHT)) == expected
    assert step.plan(X, WEIGHT) == second


@pytest.mark.slow
def test_a_first_call_above_every_plan_is_refused_and_leaves_the_variables(monkeypatch):
    count = tf.Variable(0.0)

    def counting(x, weight):
        count.assign_add(1.0)
        return train_step(x, weight)

    step = rnnmem.optimize(counting, budget="1MiB", verify=True)
    monkeypatch.setattr(optimized, "run_measured", lambda call: (call(), 900 * MIB))
    for _ in range(2):
        with pytest.raises(BudgetError, match=r"budget=1048576 .*measured peak is 943718400 bytes"):
            step(X, WEIGHT)
        assert count.numpy() == 0.0


@pytest.mark.slow
def test_a_training_that_is_under_way_is_warned_of_the_user_s_own_budget(monkeypatch, expected):
    step = rnnmem.optimize(train_step, budget="1MiB", verify=True)
    monkeypatch.setattr(optimized, "run_measured", lambda call: (call(), 2 * MIB))
    assert bits(step(X, WEIGHT)) == expected
    monkeypatch.setattr(optimized, "run_measured", lambda call: (call(), 900 * MIB))
    with pytest.warns(RnnmemWarning, match=r"budget=1048576 .*no smaller plan.*continues"):
        assert bits(step(X, WEIGHT)) == expected
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bits(step(X, WEIGHT)) == expected


# Saved plans.


@pytest.mark.slow
def test_a_plan_is_saved_and_applied_again(tmp_path, expected):
    plan = rnnmem.optimize(train_step, max_slowdown=1.3).plan(X, WEIGHT)
    assert not plan.changes_nothing
    path = tmp_path / "plan.json"
    path.write_text(plan.to_json())
    for saved in (plan, plan.to_json(), path):
        step = rnnmem.optimize(train_step, plan=saved)
        assert bits(step(X, WEIGHT)) == expected
        assert step.plan(X, WEIGHT) == plan


@pytest.mark.slow
def test_a_plan_from_another_function_is_refused_by_name(expected):
    def other(x, weight):
        with tf.GradientTape() as tape:
            tape.watch(weight)
            body = lambda i, h: (i + 1, tf.tanh(h @ weight))  # noqa: E731
            with tf.name_scope("other"):
                last = tf.while_loop(lambda i, h: i < STEPS, body, (0, x[0]))[1]
            loss = tf.reduce_sum(last)
        return tape.gradient(loss, weight)

    plan = rnnmem.optimize(other, max_slowdown=9.0).plan(X, numbers(32, 32))
    plain = tf.function(train_step)
    with pytest.raises(PlanError, match="the plan is for another function: .*'"):
        rnnmem.optimize(plain, plan=plan)(X, WEIGHT)
    assert bits(plain(X, WEIGHT)) == expected


def test_a_plan_that_saves_too_little_is_refused():
    plan = rnnmem.optimize(train_step, max_slowdown=1.3).plan(X, WEIGHT)
    (loop,) = plan.loops
    broken = dataclasses.replace(loop, saved=(), segments=None)
    with pytest.raises(PlanError, match="for another function"):
        rnnmem.optimize(train_step, plan=dataclasses.replace(plan, loops=(broken,)))(X, WEIGHT)


def test_a_plan_of_no_loop_is_refused_where_there_is_one():
    with pytest.raises(PlanError, match="does not decide on loop"):
        rnnmem.optimize(train_step, plan=Plan())(X, WEIGHT)


@pytest.mark.slow
def test_a_saved_plan_serves_a_function_that_is_differentiated_later():
    def forward(x, weight):
        def body(i, h):
            return i + 1, tf.tanh(tf.sin(h @ weight) * x[i])

        return tf.reduce_sum(tf.while_loop(lambda i, h: i < STEPS, body, (0, x[0]))[1])

    def gradient(fn):
        with tf.GradientTape() as tape:
            tape.watch(weight)
            loss = fn(X, weight)
        return tape.gradient(loss, weight).numpy().tobytes()

    weight = numbers(32, 32)
    first = rnnmem.optimize(forward, max_slowdown=9.0)
    plan = first.plan(X, weight)
    assert not plan.changes_nothing
    again = rnnmem.optimize(forward, plan=plan.to_json())
    assert gradient(again) == gradient(tf.function(forward))
    assert again.plan(X, weight) == plan


# The frontier in the report.


def test_the_report_shows_five_plans_and_marks_the_chosen_one():
    step = rnnmem.optimize(train_step, max_slowdown=1.2)
    text = str(step.explain(X, WEIGHT))
    lines = text[text.index("predicted peak  ") :].splitlines()
    table = [line for line in lines if re.match(r"\d", line)]
    assert len(table) == 5
    assert sum("<- chosen" in line for line in table) == 1
    assert "nothing, the original" in table[0]
    times = [float(re.search(r"(\d+\.\d+)x", line).group(1)) for line in table]
    assert times[1:] == sorted(times[1:])
