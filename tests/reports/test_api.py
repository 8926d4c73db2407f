"""Reports on real functions: predicted beside measured, and nothing of the user's is changed."""

import json

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.reports.data import ARGUMENTS, GRADIENT, OUTPUT, SAVED, SLOTS, WEIGHTS

TRIPS, UNITS, BATCH = 100, 32, 64


def numbers(*shape, seed=1):
    return tf.constant(np.random.default_rng(seed).normal(size=shape) * 0.2, tf.float32)


class Trained:
    """Weights, and a step of gradient descent with momentum over a loop."""

    def __init__(self):
        self.weight = tf.Variable(numbers(UNITS, UNITS), name="kernel")
        self.slot = tf.Variable(tf.zeros([UNITS, UNITS]), trainable=False, name="momentum")
        self.calls = tf.Variable(0, trainable=False, name="calls")

    def loss(self, x, trips=TRIPS):
        def body(i, h):
            return i + 1, tf.tanh(tf.sigmoid(h @ self.weight) * 2.0 - h)

        return tf.reduce_mean(tf.while_loop(lambda i, _: i < trips, body, (0, x))[1] ** 2)

    def step(self, x):
        with tf.GradientTape() as tape:
            loss = self.loss(x)
        self.slot.assign(0.9 * self.slot + tape.gradient(loss, self.weight))
        self.weight.assign_sub(0.1 * self.slot)
        self.calls.assign_add(1)
        return loss


@pytest.fixture(scope="module")
def trained():
    return Trained()


@pytest.fixture(scope="module")
def told(trained):
    trained.before = trained.weight.numpy()
    return rnnmem.report(rnnmem.optimize(trained.step, budget="1.25MiB"), numbers(BATCH, UNITS))


def told_in_segments(step):
    """What is saved of the step does not go below twice the states: iterations run again."""
    optimised = rnnmem.optimize(step, max_slowdown=2.5)
    x = numbers(BATCH, UNITS)
    return rnnmem.report(optimised, x, measure=False), optimised.explain(x)


@pytest.fixture(scope="module")
def in_segments():
    """Two loops under a plan with segments, the second begun with what the first computed."""
    kernel = tf.Variable(numbers(UNITS, 4 * UNITS))

    def body(i, h, c):
        gates = tf.split(h @ kernel, 4, axis=1)
        c = tf.sigmoid(gates[0]) * c + tf.sigmoid(gates[1]) * tf.tanh(gates[2])
        return i + 1, tf.sigmoid(gates[3]) * tf.tanh(c), c

    def step(x):
        with tf.GradientTape() as tape:
            state = (x, tf.tanh(x))
            for _ in range(2):
                _, *state = tf.while_loop(lambda i, *_: i < TRIPS, body, (0, *state))
            loss = tf.reduce_mean(state[0] ** 2)
        return loss, tape.gradient(loss, kernel)

    return told_in_segments(step)


@pytest.mark.slow
def test_under_segments_states_are_saved_and_the_rest_is_not(in_segments):
    told, _ = in_segments
    assert all(loop.segments for loop in told.plan.loops)
    assert told.after.by_kind()[SAVED] > 0
    residuals = {part.decision for part in told.after.parts if part.kind == SAVED and part.shape}
    assert residuals == {"checkpointed"}
    assert sum(part.bytes for part in told.after.parts) == told.after.peak_bytes
    assert told.after.peak_bytes == told.plan.predicted_peak


def test_under_segments_the_page_draws_no_pop_as_saved_for_every_iteration(in_segments):
    told, _ = in_segments
    saved = {side: 0 for side in ("before", "after")}
    for graph in told.graphs:
        saved[graph.side] += sum(node.type == "saved blob" for node in graph.nodes)
        assert not [node for node in graph.nodes if "keepalive" in node.name]
    assert saved["before"] > 0 == saved["after"]


def test_under_segments_explain_says_of_nothing_that_it_is_kept(in_segments):
    _, explanation = in_segments
    text = str(explanation)
    assert "not worth the time" not in text
    assert " replayed " in text or " recomputed " in text
    assert " checkpointed " in text


@pytest.fixture(scope="module")
def nested_in_segments():
    """A loop in a loop whose iterations run again, the inner one's too."""
    kernel = tf.Variable(numbers(UNITS, UNITS))

    def inner(j, g):
        return j + 1, tf.tanh(g @ kernel) * tf.sigmoid(g)

    def outer(i, h):
        with tf.name_scope("inner"):
            g = tf.while_loop(lambda j, g: j < 4, inner, (0, h))[1]
        return i + 1, tf.tanh(g) + h

    def step(x):
        with tf.GradientTape() as tape:
            h = tf.while_loop(lambda i, h: i < 30, outer, (0, x), name="sweep")[1]
            loss = tf.reduce_mean(h**2)
        return loss, tape.gradient(loss, kernel)

    return told_in_segments(step)


@pytest.mark.slow
def test_in_nested_segments_report_and_explain_tell_the_same_of_states(nested_in_segments):
    told, explained = nested_in_segments
    (sweep,) = told.plan.loops
    assert sweep.segments
    rows = [line for line in str(explained).splitlines() if " checkpointed " in line]
    states = [part for part in told.after.parts if part.kind == SAVED and part.loops == sweep.path]
    assert len(rows) >= 1 and len(states) >= 2
    assert {part.decision for part in states} == {"checkpointed"}
    assert {part.label for part in states} > {f"sweep: {blob}" for blob in sweep.segments.states}
    assert all(part.decision and part.reason for part in told.before.parts if part.kind == SAVED)


def test_what_rnnmem_counts_by_is_told_in_words_with_the_user_s_line(nested_in_segments):
    told, explained = nested_in_segments
    (counter,) = [part for part in told.after.parts if part.op_type == "iteration counter"]
    assert (counter.loops, counter.decision) == (("sweep",), "checkpointed")
    assert counter.source.startswith("test_api.py:")
    assert not any(part.source.startswith("rnnmem") for part in told.after.parts)
    assert "rnnmem/" not in str(told) + str(explained)


def near(side):
    return abs(side.peak_bytes / side.measured_bytes - 1) < 0.15


@pytest.mark.slow
def test_what_is_predicted_stands_beside_what_was_measured(told):
    assert near(told.before) and near(told.after)
    assert told.after.peak_bytes < told.before.peak_bytes
    assert told.plan.predicted_peak == told.after.peak_bytes
    assert told.plan.original_peak == told.before.peak_bytes
    assert told.budget == 5 << 18


def test_variables_are_as_they_were(told, trained):
    assert trained.calls.numpy() == 0
    np.testing.assert_array_equal(trained.weight.numpy(), trained.before)
    assert not trained.slot.numpy().any()


def test_what_is_resident_is_sorted_by_what_it_is(told):
    kinds = {part.label: part.kind for part in told.resident}
    assert (kinds["kernel"], kinds["momentum"]) == (WEIGHTS, SLOTS)
    assert kinds["calls"] == "other variables"
    assert ARGUMENTS in kinds.values()
    assert {part.label: part.bytes for part in told.resident}["kernel"] == UNITS * UNITS * 4


def test_saved_blobs_have_the_lines_of_this_file(told):
    saved = [part for part in told.before.parts if part.kind == SAVED]
    assert saved and all(part.source.startswith("test_api.py:") for part in saved)
    assert any(part.kind == GRADIENT for area in told.before.areas for part in [area.part])


def test_a_function_that_was_not_optimised_is_told_of_as_it_would_be(trained):
    told = rnnmem.report(trained.step, numbers(BATCH, UNITS), measure=False)
    assert told.before.measured_bytes is None
    would_be = rnnmem.optimize(trained.step).plan(numbers(BATCH, UNITS))
    assert told.after.peak_bytes == would_be.predicted_peak
    assert trained.calls.numpy() == 0


def test_specs_will_do_where_nothing_is_run(trained):
    spec = tf.TensorSpec([BATCH, UNITS])
    assert rnnmem.report(trained.step, spec).before.peak_bytes > 0


@pytest.mark.slow
def test_an_open_dimension_is_that_of_the_arguments(trained):
    signature = [tf.TensorSpec([None, UNITS])]
    step = tf.function(trained.step, input_signature=signature)
    open_ended = rnnmem.report(step, *signature)
    assert open_ended.before.peak_bytes is None
    assert "?" in str(open_ended)
    told = rnnmem.report(step, numbers(BATCH, UNITS))
    assert near(told.before)


def test_a_loop_of_unknown_length_is_run_to_count(trained):
    def step(x):
        def body(h):
            return tf.tanh(h @ trained.weight) * 0.5

        with tf.GradientTape() as tape:
            h = tf.while_loop(lambda h: tf.reduce_max(tf.abs(h)) > 1e-9, body, (x,))[0]
            loss = tf.reduce_sum(h * h)
        return loss, tape.gradient(loss, trained.weight)

    told = rnnmem.report(step, numbers(BATCH, UNITS))
    trips = told.before.spans[0].iterations
    assert trips > 5
    assert any(f"ran {trips} iterations" in note for note in told.notes)
    assert sum(part.bytes for part in told.before.parts) == told.before.peak_bytes


def test_a_loop_that_takes_too_long_stays_unknown(trained, monkeypatch):
    monkeypatch.setattr("rnnmem.tf.trips.MOST_RUNS", 50)

    def step(x):
        halved = tf.while_loop(lambda h: tf.reduce_max(h) > 1e-30, lambda h: (h * 0.5,), (x,))[0]
        return tf.reduce_sum(halved)

    told = rnnmem.report(step, tf.ones([BATCH, UNITS]), measure=False)
    assert told.before.peak_bytes is None
    assert any("trip count" in name for name in told.before.unknown)


def test_a_builder_that_is_differentiated_later_is_told_of_with_its_gradient(trained):
    told = rnnmem.report(rnnmem.optimize(trained.loss), numbers(BATCH, UNITS))
    assert told.before.measured_bytes is None
    assert any("together with its gradient" in note for note in told.notes)
    assert any(part.kind == SAVED for part in told.before.parts)


@pytest.mark.slow
def test_a_run_that_would_be_seen_needs_a_word(trained, capfd):
    def step(x):
        tf.print("seen", output_stream="file:///dev/null")
        return trained.step(x)

    told = rnnmem.report(step, numbers(BATCH, UNITS))
    assert told.before.measured_bytes is None
    assert any("measure=True" in note for note in told.notes)
    assert rnnmem.report(step, numbers(BATCH, UNITS), measure=True).before.measured_bytes > 0


def test_a_function_without_loops_has_a_timeline_too():
    told = rnnmem.report(lambda x: tf.tanh(x @ x) @ x, numbers(256, 256))
    assert told.before.measured_bytes > 0
    assert {part.kind for part in told.before.parts} >= {OUTPUT}
    assert len(told.graphs[0].nodes) == 3


@pytest.mark.parametrize("wrong", ["yes", 2.5])
def test_a_wrong_measure_is_named(trained, wrong):
    with pytest.raises(rnnmem.OptionError, match="measure="):
        rnnmem.report(trained.step, numbers(2, UNITS), measure=wrong)


def test_what_cannot_be_called_is_named():
    with pytest.raises(rnnmem.OptionError, match="fn=3"):
        rnnmem.report(3)


def test_the_line_of_a_closure_that_autograph_converts_is_the_users():
    weight = tf.Variable(numbers(UNITS, UNITS))

    def cell_of(scale):
        def cell(h):
            return tf.tanh(h @ weight) * scale

        return cell

    @tf.function
    def step(x):
        cell = cell_of(tf.constant(0.5))
        with tf.GradientTape() as tape:
            h = x
            for _ in tf.range(10):
                h = cell(h)
            loss = tf.reduce_sum(h)
        return tape.gradient(loss, weight)

    told = rnnmem.report(step, numbers(BATCH, UNITS), measure=False)
    sources = {area.part.source for area in told.before.areas if area.part.op_type}
    assert not [source for source in sources if "autograph" in source]


def test_json_of_a_real_report_goes_there_and_back(told):
    assert json.loads(told.to_json())["after"]["measured_bytes"] == told.after.measured_bytes
