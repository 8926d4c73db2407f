"""Softmax losses by chunks of rows, held bit for bit against the function as TensorFlow runs it."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import config

import rnnmem
import rnnmem.keras
from rnnmem.errors import NetError
from tests.passes.chunked_loss.test_apply import (
    LOSSES,
    UNITS,
    WORDS,
    Model,
    data,
    recurrent_step,
    step_of,
)

pytestmark = pytest.mark.usefixtures("small_chunks")

BATCH, TIME = 32, 9


def assert_same(found, expected):
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def time_major(model, name):
    """The step with tokens of one time beside each other, so that chunks have 64 of them."""
    step = step_of(model, name)
    return lambda x, y: step(tf.transpose(x, [1, 0, 2]), tf.transpose(y))


def held(step, *args, signature=None, opened=True):
    """The plan of a step whose results were compared; ``opened``: whether its loss must be cut."""
    optimized = rnnmem.optimize(max_slowdown=100.0)(tf.function(step, input_signature=signature))
    plan = optimized.plan(*args)
    cut = [loss for loss in plan.losses if not loss.closed]
    assert not opened or cut, (plan.losses, plan.notes)
    assert not plan.sums_by_chunks
    assert_same(optimized(*args), tf.function(step, input_signature=signature)(*args))
    return plan


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_every_form_of_the_loss_keeps_its_bits(name):
    model = Model(words=48)
    held(time_major(model, name), *data(BATCH, TIME, words=48), opened=name != "perplexity")


@pytest.mark.parametrize("words", [41, pytest.param(WORDS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["flat", "masked", "smooth"])
def test_words_that_are_no_multiple_of_what_kernels_take_at_once(name, words):
    held(time_major(Model(words=words), name), *data(BATCH, TIME, words=words))


def test_an_unknown_number_of_tokens():
    signature = [tf.TensorSpec([None, UNITS]), tf.TensorSpec([None], tf.int32)]
    model = Model(words=48)

    def step(x, y):
        with tf.GradientTape() as tape:
            logits = tf.matmul(model.hidden(x[None])[0], model.projection) + model.bias
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
        return loss, tape.gradient(loss, model.variables)

    optimized = rnnmem.optimize(max_slowdown=100.0)(tf.function(step, input_signature=signature))
    plain = tf.function(step, input_signature=signature)
    for tokens in (0, 1, 63, 64, 130, 257):
        x, y = data(1, tokens, words=48)
        assert_same(optimized(x[0], y[0]), plain(x[0], y[0]))


@pytest.mark.parametrize("time", [None, pytest.param(TIME, marks=pytest.mark.slow)])
def test_ignored_words_of_an_unknown_number_of_sentences(time):
    signature = [tf.TensorSpec([None, time, UNITS]), tf.TensorSpec([None, time], tf.int32)]
    model = Model(words=48)
    ignoring = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)

    def step(x, y):
        with tf.GradientTape() as tape:
            logits = tf.tensordot(model.hidden(x), model.projection, 1) + model.bias
            loss = ignoring(y, logits)
        return loss, tape.gradient(loss, model.variables)

    optimized = rnnmem.optimize(max_slowdown=100.0)(tf.function(step, input_signature=signature))
    plain = tf.function(step, input_signature=signature)
    for batch in (32, 1, 7, 64):
        args = data(batch, TIME, words=48)
        assert_same(optimized(*args), plain(*args))
    (loss,) = (one for one in optimized.plan(*args).losses if not one.closed)
    assert loss.loops == 1 and loss.early


@pytest.mark.parametrize("words", [48, 41])
def test_an_accuracy_of_an_unknown_number_of_sentences(words):
    signature = [tf.TensorSpec([None, None, UNITS]), tf.TensorSpec([None, None], tf.int32)]
    model = Model(words=words)

    def step(x, y):
        with tf.GradientTape() as tape:
            logits = tf.tensordot(model.hidden(x), model.projection, 1) + model.bias
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
            loss = tf.reduce_mean(losses)
        right = keras.ops.equal(keras.ops.argmax(logits, -1), y)
        return (
            loss,
            tf.reduce_mean(tf.cast(right, tf.float32)),
            tape.gradient(loss, model.variables),
        )

    optimized = rnnmem.optimize(max_slowdown=100.0)(tf.function(step, input_signature=signature))
    plain = tf.function(step, input_signature=signature)
    for batch, time in ((32, TIME), (1, 5), (64, TIME), (7, 1)):
        args = [one[:, :time] for one in data(batch, TIME, words=words)]
        assert_same(optimized(*args), plain(*args))
    (loss,) = (one for one in optimized.plan(*args).losses if not one.closed)
    assert loss.flat and loss.loops == 1


def test_smoothed_words_of_an_unknown_number_of_sentences_are_never_whole():
    config.disable_op_determinism()  # by which TensorFlow writes such a loss in smaller ops
    signature = [tf.TensorSpec([None, None, UNITS]), tf.TensorSpec([None, None], tf.int32)]
    model = Model(words=48)

    def step(x, y):
        with tf.GradientTape() as tape:
            logits = tf.tensordot(model.hidden(x), model.projection, 1) + model.bias
            labels = tf.one_hot(y, 48) * 0.9 + 0.1 / 48
            losses = tf.nn.softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        return loss, tape.gradient(loss, model.variables)

    optimized = rnnmem.optimize(max_slowdown=100.0)(tf.function(step, input_signature=signature))
    plain = tf.function(step, input_signature=signature)
    (loss,) = optimized.plan(*data(32, TIME, words=48)).losses
    assert loss.flat and not loss.closed
    for batch, time in ((32, TIME), (1, 5), (7, 1)):
        args = [one[:, :time] for one in data(batch, TIME, words=48)]
        assert_same(optimized(*args), plain(*args))


@pytest.mark.parametrize("shift", [0, 5])
def test_each_row_of_a_batch_is_a_class_of_its_own(shift):
    rows, units = 256, 24
    random = np.random.default_rng(3)
    weights = [tf.Variable(random.normal(size=[units, units]), dtype=tf.float32) for _ in range(2)]
    x, y = (tf.constant(random.normal(size=[rows, units]), tf.float32) for _ in range(2))

    def step(x, y):
        with tf.GradientTape() as tape:
            one, other = tf.tanh(x @ weights[0]), tf.tanh(y @ weights[1])
            logits = tf.matmul(one, other, transpose_b=True) / 0.3
            labels = tf.roll(tf.range(rows), shift, 0) if shift else tf.range(rows)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        return loss, tape.gradient(loss, weights)

    held(step, x, y)


@pytest.mark.parametrize("time_first", [False, True])
@pytest.mark.parametrize("smooth", [False, True])
def test_logits_of_all_words_but_the_last(time_first, smooth):
    model, (x, y) = Model(words=512), data(BATCH, TIME, words=512)
    if time_first:  # then the slice may be a part of the logits' own buffer
        x, y = tf.transpose(x, [1, 0, 2]), tf.transpose(y)

    def step(x, y):
        with tf.GradientTape() as tape:
            logits = tf.tensordot(model.hidden(x), model.projection, 1) + model.bias
            logits, labels = (logits[:-1], y[1:]) if time_first else (logits[:, :-1], y[:, 1:])
            if smooth:
                classes = 0.9 * tf.one_hot(labels, 512) + 0.1 / 512
                losses = tf.nn.softmax_cross_entropy_with_logits(classes, logits)
            else:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        return loss, tape.gradient(loss, model.variables)

    held(step, x, y)


@pytest.mark.slow
def test_a_total_that_begins_with_zero_adds_up_in_the_same_order():
    """What writes over logits makes TensorFlow name ``0 + loss`` otherwise, and sums go by name."""
    model, (x, y) = Model(words=48), data(4 * BATCH, TIME, words=48)

    def step(x, y):
        total, gradients = 0.0, []
        for part, labels in zip(tf.split(x, 4), tf.split(y, 4), strict=True):
            with tf.GradientTape() as tape:
                loss = model.flat(part, labels)
            gradients.append(tape.gradient(loss, model.variables))
            total += loss
        return total, gradients

    held(step, x, y)


def test_a_loss_that_is_not_proven_leaves_its_ops_to_others():
    """The teacher's softmax of 40 words keeps no bits by rows; the student's loss reads it."""
    teacher, student = Model(words=WORDS), Model(words=48, seed=1)
    x, y = data(BATCH, TIME, words=48)

    def step(x, y):
        with tf.GradientTape() as tape:
            wise = tf.nn.softmax(tf.tensordot(teacher.hidden(x), teacher.projection, 1))
            said = tf.reduce_sum(tf.stop_gradient(wise) ** 2, -1)
            logits = tf.tensordot(student.hidden(x), student.projection, 1) + student.bias
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
            loss = tf.reduce_mean(losses * said)
        return loss, tape.gradient(loss, student.variables)

    held(step, x, y)


def test_a_loss_that_is_never_proven_is_told_as_left(monkeypatch):
    def refuse(*args, **kwargs):
        raise NetError("not this one")

    monkeypatch.setattr("rnnmem.cut_losses.check", refuse)
    plan = held(time_major(Model(words=48), "flat"), *data(BATCH, TIME, words=48), opened=False)
    assert plan.losses and all("not this one" in loss.closed for loss in plan.losses)


@pytest.mark.slow
def test_half_precision():
    held(time_major(Model(words=48), "mixed"), *data(BATCH, TIME, words=48), opened=False)


@pytest.mark.slow
def test_two_losses_and_an_accuracy():
    model = Model(words=512)

    def step(x, y):
        with tf.GradientTape() as tape:
            hidden = tf.reshape(model.hidden(x), [-1, UNITS])
            labels = tf.reshape(y, [-1])
            first = tf.matmul(hidden, model.projection) + model.bias
            second = tf.matmul(hidden * 0.5, model.projection)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, first))
            loss += tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, second))
        hits = tf.reduce_sum(tf.cast(tf.argmax(first, -1, tf.int32) == labels, tf.int32))
        return loss, hits, tape.gradient(loss, model.variables)

    held(step, *data(BATCH, TIME, words=512))


@pytest.mark.parametrize("words", [41, pytest.param(48, marks=pytest.mark.slow)])
def test_a_softmax_of_another_models_logits_beside_the_loss(words):
    model = Model(words=words)
    random = np.random.default_rng(3)
    teacher = tf.constant(random.normal(size=(UNITS, words)), tf.float32)

    def step(x, y):
        hidden, labels = tf.reshape(x, [-1, UNITS]), tf.reshape(y, [-1])
        wanted = tf.matmul(hidden, teacher) / 2.0
        with tf.GradientTape() as tape:
            logits = tf.matmul(model.hidden(hidden), model.projection) + model.bias
            gap = tf.nn.log_softmax(wanted) - tf.nn.log_softmax(logits / 2.0)
            loss = tf.reduce_mean(tf.reduce_sum(tf.nn.softmax(wanted) * gap, -1))
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss += tf.reduce_mean(losses)
        return loss, tape.gradient(loss, model.variables)

    plan = held(step, *data(BATCH, TIME, words=words))
    cut = [one.closed == "" for one in plan.losses]
    assert cut == [words == 48, words == 41], plan.losses


@pytest.mark.slow
def test_the_same_product_twice_is_not_written_over_for_the_other():
    model = Model(words=48)

    def step(x, y):
        with tf.GradientTape() as tape:
            hidden = tf.reshape(model.hidden(x), [-1, UNITS])
            logits = tf.matmul(hidden, model.projection) + model.bias
            again = tf.matmul(hidden, model.projection) + model.bias
            labels = tf.reshape(y, [-1])
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        return loss, tf.reduce_max(again, 0), tape.gradient(loss, model.variables)

    held(step, *data(BATCH, TIME, words=48), opened=False)


@pytest.mark.slow
def test_a_step_with_a_loop():
    model = Model(words=48)
    random = np.random.default_rng(0)
    x = tf.constant(random.normal(size=[12, 7, UNITS]), tf.float32)
    y = tf.constant(random.integers(0, 48, [12, 7]), tf.int32)
    held(recurrent_step(model), x, y, opened=False)


@pytest.mark.slow
def test_a_keras_model_keeps_its_weights():
    def trained(optimize):
        tf.keras.utils.set_random_seed(3)
        layers = [
            tf.keras.layers.Embedding(48, 8),
            tf.keras.layers.GRU(8, return_sequences=True),
            tf.keras.layers.Dense(48),
        ]
        model = tf.keras.Sequential(layers)
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"])
        if optimize:
            rnnmem.keras.optimize(model)
        words = np.random.default_rng(0).integers(0, 48, [64, 16])
        model.fit(words, words, batch_size=32, epochs=2, verbose=0)
        return model.get_weights()

    assert_same(trained(True), trained(False))


@pytest.mark.parametrize("words, opened", [(48, True), (41, False)])
def test_labels_that_are_distributions_need_rows_that_kernels_finish_one_by_one(words, opened):
    config.disable_op_determinism()  # which takes other ops for this loss
    model = Model(words=words)

    def step(x, y):
        with tf.GradientTape() as tape:
            logits = tf.tensordot(model.hidden(x), model.projection, 1)
            losses = tf.nn.softmax_cross_entropy_with_logits(tf.one_hot(y, words), logits)
            loss = tf.reduce_mean(losses)
        return loss, tape.gradient(loss, [model.kernel, model.projection])

    x, y = data(BATCH, TIME, words=words)
    plan = held(step, tf.reshape(x, [-1, UNITS]), tf.reshape(y, [-1]), opened=opened)
    assert opened or "a row has 41 columns" in plan.losses[0].closed
