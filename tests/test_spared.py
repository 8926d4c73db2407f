"""An error of ours in planning or telling is a warning, and all else is still told."""

import re

import pytest
import tensorflow as tf

import rnnmem

UNITS, BATCH, TRIPS = 32, 64, 50


def defect(*args, **kwargs):
    raise ZeroDivisionError("a defect")


def step(x):
    weight = tf.eye(UNITS)
    with tf.GradientTape() as tape:
        tape.watch(weight)
        h = x
        for _ in tf.range(TRIPS):
            h = tf.tanh(tf.sigmoid(tf.matmul(h, weight)) * 2.0 - h)
        loss = tf.reduce_sum(h)
    return tape.gradient(loss, weight)


def forward(x):
    h = x
    for _ in tf.range(TRIPS):
        h = tf.tanh(tf.matmul(h, tf.eye(UNITS)))
    return tf.reduce_sum(h)


@pytest.fixture
def x():
    return tf.ones([BATCH, UNITS])


PLANNING = (
    *("compile.inline", "compile.without_dead_gradients", "compile.decide_with_nested_steps"),
    *("planning.search.apply_plan", "compile.check", "turns.with_edges_where_they_pay"),
)
TELLING = ("known_net", "filled", "record", "side", "graphs", "resident", "weight_kinds", "_facts")


@pytest.mark.parametrize("name", PLANNING)
@pytest.mark.parametrize("ask", ["plan", "explain", "report", "call"])
def test_an_error_in_planning_warns_and_leaves_the_function_alone(monkeypatch, x, name, ask):
    asked = {
        "plan": lambda fn: fn.plan(x),
        "explain": lambda fn: fn.explain(x).plan,
        "report": lambda fn: rnnmem.report(fn, x).plan,
        "call": lambda fn: (fn(x), fn.plan(x))[1],
    }[ask]
    monkeypatch.setattr(f"rnnmem.{name}", defect)
    function = rnnmem.optimize(tf.function(step), max_slowdown=2)
    with pytest.warns(rnnmem.RnnmemWarning, match="ZeroDivisionError: a defect"):
        plan = asked(function)
    assert plan.changes_nothing
    assert any("a defect" in note for note in plan.notes)


@pytest.mark.parametrize("name", TELLING)
def test_an_error_in_telling_warns_and_all_else_is_told(monkeypatch, x, name):
    whole = rnnmem.report(rnnmem.optimize(tf.function(step)), x, measure=False)
    monkeypatch.setattr(f"rnnmem.reports.api.{name}", defect)
    with pytest.warns(
        rnnmem.RnnmemWarning, match="could not be computed: ZeroDivisionError: a defect"
    ):
        report = rnnmem.report(rnnmem.optimize(tf.function(step)), x, measure=False)
    assert report.plan.loops == whole.plan.loops
    assert report.resident == whole.resident or name == "resident"
    assert report.before.peak_bytes in (whole.before.peak_bytes, None)
    texts = str(report), report.to_json(), report.to_html(), report.to_trace()
    assert all(texts)


def test_what_is_missing_is_among_the_notes(monkeypatch, x):
    monkeypatch.setattr("rnnmem.reports.api.record", defect)
    with pytest.warns(rnnmem.RnnmemWarning):
        report = rnnmem.report(rnnmem.optimize(tf.function(step)), x, measure=False)
    text = re.sub(r"\s+", " ", str(report))
    assert "the timeline before could not be computed: ZeroDivisionError: a defect" in text
    assert report.before.peak_bytes is None


def test_other_plans_may_be_missing(monkeypatch, x):
    monkeypatch.setattr("rnnmem.work.alternatives", defect)
    with pytest.warns(rnnmem.RnnmemWarning, match="other plans could not be computed"):
        explanation = rnnmem.optimize(tf.function(step)).explain(x)
    assert explanation.plan.loops and "a defect" in str(explanation)


def test_an_error_in_the_plan_of_a_later_gradient_warns(monkeypatch, x):
    monkeypatch.setattr("rnnmem.work.rewrite_gradient", defect)
    with pytest.warns(rnnmem.RnnmemWarning, match="a defect"):
        assert rnnmem.optimize(tf.function(forward)).plan(x).changes_nothing


@tf.custom_gradient
def one_way(value):
    def gradient(upstream):
        raise LookupError("there is no way back")

    return tf.tanh(value), gradient


def test_a_gradient_that_cannot_be_built_is_told_of(x):
    def towards(value):
        for _ in tf.range(TRIPS):
            value = one_way(value)
        return value

    function = rnnmem.optimize(tf.function(towards))
    plan = function.plan(x)
    assert plan.changes_nothing
    assert "there is no way back" in plan.notes[0]
    tf.debugging.assert_equal(function(x), towards(x))


@pytest.mark.parametrize(
    "name", ["rnnmem.limit_search.counted_peak", "rnnmem.compile.decide_with_nested_steps"]
)
def test_the_largest_size_is_found_by_running_where_predicting_fails(monkeypatch, name):
    monkeypatch.setattr(name, defect)
    function = rnnmem.optimize(tf.function(step, reduce_retracing=True))
    found = rnnmem.largest(function, lambda n: tf.ones([n, UNITS]), "1GiB", high=3)
    assert found == 3


@pytest.mark.parametrize("error", [rnnmem.BudgetError, rnnmem.OptionError, rnnmem.PlanError])
def test_what_the_caller_must_know_is_raised(monkeypatch, x, error):
    def refuse(*args, **kwargs):
        raise error("no")

    monkeypatch.setattr("rnnmem.compile.decide_with_nested_steps", refuse)
    for ask in (lambda fn: fn.plan(x), lambda fn: fn.explain(x), lambda fn: rnnmem.report(fn, x)):
        with pytest.raises(error, match="no"):
            ask(rnnmem.optimize(tf.function(step)))
