"""Softmax losses by chunks of tokens, held against the function as TensorFlow runs it."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorflow.python.framework import config

import rnnmem
import rnnmem.keras
from rnnmem.errors import OptionError, PlanError
from rnnmem.ir.marks import CHUNKS
from rnnmem.passes.chunked_loss import loop as writer
from rnnmem.passes.chunked_loss import select as planning

BATCH, TIME, UNITS, WORDS = 6, 7, 8, 40
ALLOW = ("recompute", "segments", "vocabulary")


@pytest.fixture(autouse=True)
def _short_chunks(monkeypatch):
    """Chunks of a few tokens, so that small examples have several; the last one is shorter."""
    monkeypatch.setattr(planning, "FEWEST", 9)
    monkeypatch.setattr(planning, "MOST", 9)
    monkeypatch.setattr(planning, "MOST_EXACT", 9)


class Model:
    """Weights, and losses as people write them."""

    def __init__(self, dtype="float32", seed=0, words=WORDS):
        random = np.random.default_rng(seed)

        def new(*shape):
            return tf.Variable(random.normal(size=shape) * 0.5, dtype=dtype)

        self.kernel, self.projection, self.bias = new(UNITS, UNITS), new(UNITS, words), new(words)
        self.words = words
        self.variables = [self.kernel, self.projection, self.bias]

    def hidden(self, x):
        return tf.tanh(tf.tensordot(x, self.kernel, 1))

    def masked(self, x, y):
        """Logits of [B, T, V], losses with a mask."""
        logits = tf.tensordot(self.hidden(x), self.projection, 1) + self.bias
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
        mask = tf.cast(y > 3, losses.dtype)
        return tf.reduce_sum(losses * mask) / tf.maximum(tf.reduce_sum(mask), 1.0)

    def flat(self, x, y):
        """Logits of [tokens, V], a plain mean."""
        hidden = tf.reshape(self.hidden(x), [-1, UNITS])
        logits = tf.nn.bias_add(tf.matmul(hidden, self.projection), self.bias)
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(tf.reshape(y, [-1]), logits)
        )

    def smooth(self, x, y):
        """Label smoothing: labels as wide as the logits."""
        logits = tf.tensordot(self.hidden(x), self.projection, 1) + self.bias
        labels = tf.one_hot(y, self.words, dtype=logits.dtype) * 0.9 + 0.1 / self.words
        return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels, logits))

    def tied(self, x, y):
        """The projection is a table of embeddings, transposed."""
        hidden = tf.reshape(self.hidden(x), [-1, UNITS])
        table = tf.transpose(self.projection)
        logits = tf.matmul(hidden, table, transpose_b=True) + self.bias
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(tf.reshape(y, [-1]), logits)
        )

    def dense(self, x, y):
        """A batched product, as a Keras layer makes it."""
        logits = tf.matmul(self.hidden(x), self.projection) + self.bias
        return tf.reduce_mean(
            tf.keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True)
        )

    def by_hand(self, x, y):
        """A log-softmax and one-hot labels."""
        logits = tf.tensordot(self.hidden(x), self.projection, 1) + self.bias
        picked = tf.nn.log_softmax(logits) * tf.one_hot(y, self.words, dtype=logits.dtype)
        return -tf.reduce_mean(tf.reduce_sum(picked, -1))

    def perplexity(self, x, y):
        """The gradient depends on the losses: logits are computed twice."""
        return tf.exp(self.masked(x, y))

    def mixed(self, x, y):
        """Logits of half precision, a loss of single precision."""
        half = tf.bfloat16
        hidden = tf.cast(self.hidden(x), half)
        logits = tf.tensordot(hidden, tf.cast(self.projection, half), 1)
        logits = tf.cast(logits + tf.cast(self.bias, half), tf.float32)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))


LOSSES = ("masked", "flat", "smooth", "tied", "dense", "by_hand", "perplexity")


def step_of(model, name):
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = getattr(model, name)(x, y)
        return loss, tape.gradient(loss, model.variables)

    return step


def data(batch=BATCH, time=TIME, dtype="float32", seed=1, words=WORDS):
    random = np.random.default_rng(seed)
    x = tf.constant(random.normal(size=[batch, time, UNITS]), dtype)
    return x, tf.constant(random.integers(0, words, [batch, time]), tf.int32)


def flat(results):
    return [np.asarray(one).astype(np.float64) for one in tf.nest.flatten(results)]


def assert_close(found, expected, tolerance=1e-5):
    for one, other in zip(flat(found), flat(expected), strict=True):
        scale = max(1e-30, np.max(np.abs(other), initial=0.0))
        assert one.shape == other.shape
        np.testing.assert_allclose(one / scale, other / scale, rtol=0, atol=tolerance)


def opened(optimized, *args):
    plan = optimized.plan(*args)
    assert plan.losses and not plan.losses[0].closed, (plan.losses, plan.notes)
    return plan


@pytest.fixture
def deterministic():
    """Op determinism, under which TensorFlow makes a loss of other ops."""
    tf.config.experimental.enable_op_determinism()
    yield
    config.disable_op_determinism()


def recurrent_step(model):
    """A train step with a loop: how many rows there are, the trace has forgotten."""

    def step(x, y):
        with tf.GradientTape() as tape:
            state = tf.zeros([12, UNITS])
            outputs = tf.TensorArray(tf.float32, TIME)
            for t in tf.range(TIME):
                state = tf.tanh(tf.matmul(state + x[:, t], model.kernel))
                outputs = outputs.write(t, state)
            logits = tf.tensordot(outputs.stack(), model.projection, 1) + model.bias
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.transpose(y), logits)
            loss = tf.reduce_mean(losses)
        return loss, tape.gradient(loss, model.variables)

    return step


@pytest.mark.parametrize("name", ["masked", "flat", "smooth", "recurrent"])
def test_what_determinism_makes_of_a_loss_is_cut_as_well(name, deterministic):
    model, (x, y) = Model(), data(batch=12)
    step = recurrent_step(model) if name == "recurrent" else step_of(model, name)
    optimized = rnnmem.optimize(step, allow=ALLOW, max_slowdown=100)
    plan = opened(optimized, x, y)
    assert plan.losses[0].loops == 1
    assert_close(optimized(x, y), tf.function(step)(x, y), 2e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_gradients_are_the_same(name):
    model, (x, y) = Model(), data()
    step = step_of(model, name)
    optimized = rnnmem.optimize(step, allow=ALLOW, max_slowdown=100)
    plan = opened(optimized, x, y)
    expected, found = tf.function(step)(x, y), optimized(x, y)
    assert_close(found, expected, 2e-6)
    assert plan.losses[0].loops == (2 if name == "perplexity" else 1)


@pytest.mark.parametrize("name", ["masked", "flat", "dense"])
def test_one_plan_serves_every_number_of_sentences(name):
    model = Model()
    signature = [
        tf.TensorSpec([None, TIME, UNITS]),
        tf.TensorSpec([None, TIME], tf.int32),
    ]
    step = tf.function(step_of(model, name), input_signature=signature)
    optimized = rnnmem.optimize(step, allow=ALLOW, max_slowdown=100)
    opened(optimized, *data())
    for batch in (1, 2, 5, 0):
        given = data(batch)
        expected, found = step(*given), optimized(*given)
        if batch:
            assert_close(found, expected, 2e-6)
        else:  # a mean over nothing is not a number, in both
            assert np.isnan(flat(found)[0]) == np.isnan(flat(expected)[0])


def test_the_loss_of_every_token_keeps_its_bits():
    model, (x, y) = Model(), data()

    def losses(x, y):
        hidden = tf.reshape(model.hidden(x), [-1, UNITS])
        logits = tf.matmul(hidden, model.projection) + model.bias
        every = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.reshape(y, [-1]), logits)
        return every, tf.argmax(logits, -1)

    optimized = rnnmem.optimize(losses, allow=("vocabulary",), max_slowdown=100)
    opened(optimized, x, y)
    for one, other in zip(optimized(x, y), tf.function(losses)(x, y), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(optimized(x, y)[1], losses(x, y)[1])


def test_double_precision_is_as_exact_as_its_own():
    model, (x, y) = Model("float64"), data(dtype="float64")
    step = step_of(model, "masked")
    optimized = rnnmem.optimize(step, allow=ALLOW, max_slowdown=100)
    opened(optimized, x, y)
    assert_close(optimized(x, y), tf.function(step)(x, y), 1e-14)


def test_half_precision_is_added_up_in_single_precision():
    single, double = Model(), Model("float64")
    x, y = data()
    step = step_of(single, "mixed")
    optimized = rnnmem.optimize(step, allow=ALLOW, max_slowdown=100)
    opened(optimized, x, y)
    exact = flat(step_of(double, "masked")(tf.cast(x, tf.float64), y))
    del exact
    found, expected = flat(optimized(x, y)), flat(tf.function(step)(x, y))
    assert_close(found, expected, 2e-2)


def test_gradients_are_as_near_to_double_precision_as_the_originals():
    single, double = Model(), Model("float64")
    x, y = data(batch=20)
    exact = flat(step_of(double, "masked")(tf.cast(x, tf.float64), y))
    step = step_of(single, "masked")
    optimized = rnnmem.optimize(step, allow=ALLOW, max_slowdown=100)
    opened(optimized, x, y)
    assert_close(optimized(x, y), exact, 2e-6)


def test_it_is_off_unless_it_is_named():
    model, (x, y) = Model(), data()
    optimized = rnnmem.optimize(step_of(model, "masked"))
    assert optimized.plan(x, y).losses == ()
    with pytest.raises(OptionError, match="vocabulary"):
        rnnmem.optimize(step_of(model, "masked"), allow=("vocabularies",))


def test_a_report_tells_of_the_logits():
    model, (x, y) = Model(), data()
    optimized = rnnmem.optimize(step_of(model, "masked"), allow=ALLOW, max_slowdown=100)
    text = optimized.explain(x, y).text(200)
    assert "never exist whole" in text and "added up in another order" in text
    assert "1 softmax loss by chunks of tokens" in text


def test_a_plan_is_saved_and_applied_again():
    model, (x, y) = Model(), data()
    step = step_of(model, "masked")
    plan = opened(rnnmem.optimize(step, allow=ALLOW, max_slowdown=100), x, y)
    again = rnnmem.optimize(step, plan=plan.to_json())
    assert again.plan(x, y).losses == plan.losses
    assert_close(again(x, y), tf.function(step)(x, y))

    def other(x, y):
        return tf.reduce_sum(x) + tf.reduce_sum(tf.cast(y, tf.float32))

    with pytest.raises(PlanError, match="another function"):
        rnnmem.optimize(other, plan=plan)(x, y)


def test_verification_allows_another_order_and_nothing_else(monkeypatch):
    model, (x, y) = Model(), data()
    step = step_of(model, "masked")
    optimized = rnnmem.optimize(step, allow=ALLOW, max_slowdown=100, verify=True)
    opened(optimized, x, y)
    assert_close(optimized(x, y), tf.function(step)(x, y))


def test_a_tape_sees_the_original():
    model, (x, y) = Model(), data()
    optimized = rnnmem.optimize(model.masked, allow=ALLOW, max_slowdown=100)
    opened(optimized, x, y)
    with tf.GradientTape() as tape:
        loss = optimized(x, y)
    found = tape.gradient(loss, model.variables)
    expected = step_of(model, "masked")(x, y)
    assert_close((loss, found), expected)
    assert_close(optimized(x, y), expected[0])


def test_a_train_step_with_a_loop_keeps_both_techniques():
    model, (x, y) = Model(), data(batch=12)

    step = recurrent_step(model)
    optimized = rnnmem.optimize(step, allow=ALLOW, max_slowdown=100)
    plan = opened(optimized, x, y)
    assert plan.loops
    assert_close(optimized(x, y), tf.function(step)(x, y))


def test_the_peak_falls(monkeypatch):
    monkeypatch.setattr(planning, "FEWEST", 64)
    monkeypatch.setattr(planning, "MOST", 64)
    model, (x, y) = Model(words=3000), data(16, 50, words=3000)
    step = tf.function(step_of(model, "masked"))
    optimized = rnnmem.optimize(step, allow=ALLOW, max_slowdown=100)
    plan = opened(optimized, x, y)
    pair = rnnmem.measure_pair(step, optimized, x, y, repeats=1)
    assert pair.second.peak_bytes < pair.first.peak_bytes / 3
    assert plan.predicted_peak < plan.original_peak / 3


def test_a_budget_is_met_by_chunks(monkeypatch):
    monkeypatch.setattr(planning, "FEWEST", 64)
    monkeypatch.setattr(planning, "MOST", 64)
    model, (x, y) = Model(words=3000), data(16, 50, words=3000)
    optimized = rnnmem.optimize(step_of(model, "masked"), allow=ALLOW, budget="6MiB")
    plan = opened(optimized, x, y)
    assert plan.predicted_peak * 1.1 <= 6 * 2**20


@pytest.mark.slow
def test_a_keras_model_is_trained_and_evaluated_with_its_accuracy():
    def make():
        tf.keras.utils.set_random_seed(1)
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Input([TIME]),
                tf.keras.layers.Embedding(WORDS, UNITS),
                tf.keras.layers.Dense(WORDS),
            ]
        )
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss, metrics=["accuracy"])
        return model

    random = np.random.default_rng(0)
    x, y = (random.integers(0, WORDS, [24, TIME]) for _ in range(2))
    plain = make()
    chunked = rnnmem.keras.optimize(make(), allow=ALLOW, max_slowdown=100)
    expected = plain.fit(x, y, batch_size=12, verbose=0).history
    found = chunked.fit(x, y, batch_size=12, verbose=0).history
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-5)
    np.testing.assert_allclose(
        chunked.evaluate(x, y, verbose=0), plain.evaluate(x, y, verbose=0), rtol=1e-5
    )


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from(LOSSES),
    batch=st.integers(2, 9),
    time=st.integers(1, 9),
    length=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_any_shape_and_any_chunk(name, batch, time, length, seed):
    model, (x, y) = Model(seed=seed), data(batch, time, seed=seed)
    step = step_of(model, name)
    chosen = planning._opened

    def shorter(loss, known, region, machine):
        import dataclasses

        found = chosen(loss, known, region, machine)
        if found.closed:
            return found
        return dataclasses.replace(found, length=length)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "FEWEST", 1)
        patch.setattr(planning, "MOST", 1)
        patch.setattr(planning, "_opened", shorter)
        patch.setattr("rnnmem.planning.losses.NEGLIGIBLE", 2**40)
        optimized = rnnmem.optimize(step, allow=ALLOW, max_slowdown=1e6)
        found, plan = optimized(x, y), optimized.plan(x, y)
    assert not plan.losses[0].closed or plan.losses[0].closed == "all tokens fit in one chunk"
    assert_close(found, tf.function(step)(x, y), 5e-6)


def test_marks_are_the_writers_own():
    assert CHUNKS.startswith("_rnnmem") and writer.CHUNKS == CHUNKS
