import itertools

import numpy as np
import pytest
import tensorflow as tf

from models.nmt.model import ModelConfig, Translator
from models.nmt.vocabulary import END, PAD, START

CONFIG = ModelConfig(source_vocabulary=11, target_vocabulary=13, units=6, embedding=5)
SOURCE = [[5, 6, 7, END], [8, 9, END, PAD]]
TARGET = [[START, 4, 5, 6, END], [START, 7, END, PAD, PAD]]


@pytest.fixture(scope="module")
def model():
    return Translator(CONFIG)


@tf.function(reduce_retracing=True)
def _step(model, source, target):
    with tf.GradientTape() as tape:
        loss = model.loss(source, target)
    gradients = tape.gradient(loss, model.trainable_variables)
    return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]


def loss_and_gradients(model, source, target):
    return _step(model, tf.constant(source, tf.int32), tf.constant(target, tf.int32))


def padded(rows, more):
    return [row + [PAD] * more for row in rows]


def test_shapes(model):
    source, target = tf.constant(SOURCE), tf.constant(TARGET)
    memory, h, c = model.encode(source)
    assert (memory.shape, h.shape, c.shape) == ((2, 4, 6), (2, 6), (2, 6))
    assert model.decode(target[:, :-1], source).shape == (4, 2, 6)
    assert model.loss(source, target).shape == ()


def test_a_fresh_model_guesses_about_evenly(model):
    loss, _ = loss_and_gradients(model, SOURCE, TARGET)
    assert abs(loss.numpy() - np.log(CONFIG.target_vocabulary)) < 0.5


@pytest.mark.parametrize(("more_source", "more_target"), [(3, 0), (0, 3), (2, 5)])
def test_padding_changes_neither_loss_nor_gradient(model, more_source, more_target):
    expected = loss_and_gradients(model, SOURCE, TARGET)
    actual = loss_and_gradients(model, padded(SOURCE, more_source), padded(TARGET, more_target))
    tf.nest.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), expected, actual
    )


def test_the_loss_of_a_batch_is_the_mean_over_its_real_tokens(model):
    alone = [loss_and_gradients(model, [s], [t])[0] for s, t in zip(SOURCE, TARGET, strict=True)]
    tokens = [4, 2]
    expected = np.average(alone, weights=tokens)
    np.testing.assert_allclose(loss_and_gradients(model, SOURCE, TARGET)[0], expected, rtol=1e-5)


def test_the_encoder_stops_at_the_end_of_each_sentence(model):
    _, h, _ = model.encode(tf.constant([[8, 9, END, PAD]]))
    _, h_alone, _ = model.encode(tf.constant([[8, 9, END]]))
    np.testing.assert_array_equal(h, h_alone)


def test_every_variable_has_a_gradient_that_does_not_vanish(model):
    _, gradients = loss_and_gradients(model, SOURCE, TARGET)
    assert len(gradients) == 11
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        assert np.any(gradient.numpy() != 0), variable.name


def test_gradients_agree_with_differences(model):
    source, target = tf.constant(SOURCE), tf.constant(TARGET)
    _, gradients = loss_and_gradients(model, SOURCE, TARGET)
    random = np.random.default_rng(0)
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        direction = random.normal(size=variable.shape).astype(np.float32)
        before, losses = variable.numpy(), []
        for side in (1e-2, -1e-2):
            variable.assign(before + side * direction)
            losses.append(model.loss(source, target).numpy())
        variable.assign(before)
        difference = (losses[0] - losses[1]) / 2e-2
        np.testing.assert_allclose(
            np.sum(gradient * direction), difference, rtol=0.05, atol=2e-3, err_msg=variable.name
        )


def test_a_seed_fixes_the_weights_and_another_changes_them():
    first, again = Translator(CONFIG), Translator(CONFIG)
    other = Translator(ModelConfig(11, 13, 6, 5, seed=2))
    np.testing.assert_array_equal(first.encoder_kernel, again.encoder_kernel)
    assert np.any(first.encoder_kernel.numpy() != other.encoder_kernel.numpy())


def test_translation_is_the_greedy_choice_of_the_teacher_forced_decoder(model):
    source = tf.constant(SOURCE[:1])
    found = model.translate(source, 6).numpy()[0].tolist()
    forced = model.decode(tf.constant([[START, *found[:-1]]]), source)
    assert np.argmax(model._logits(forced).numpy()[:, 0], axis=-1).tolist() == found


def test_translation_ends_at_its_most_tokens():
    model = Translator(CONFIG)
    model.projection_bias.assign(tf.one_hot(9, 13) * 99.0)
    assert model.translate(tf.constant(SOURCE), 7).numpy().tolist() == [[9] * 7] * 2


def test_translation_ends_when_every_sentence_has():
    model = Translator(CONFIG)
    model.projection_bias.assign(tf.one_hot(END, 13) * 99.0)
    assert model.translate(tf.constant(SOURCE), 7).numpy().tolist() == [[END]] * 2


def test_after_the_end_comes_padding():
    ends = itertools.chain.from_iterable(
        Translator(ModelConfig(11, 13, 6, 5, seed=seed))
        .translate(tf.random.stateless_uniform([16, 4], [seed, 0], 4, 11, tf.int32), 12)
        .numpy()
        .tolist()
        for seed in range(4)
    )
    ended = [row for row in ends if END in row[:-1]]
    assert ended, "no translation ended early, the test saw nothing"
    for row in ended:
        assert set(row[row.index(END) + 1 :]) == {PAD}


@pytest.mark.parametrize("name", ["source_vocabulary", "target_vocabulary", "units", "embedding"])
def test_a_size_below_one_is_refused(name):
    sizes = {"source_vocabulary": 5, "target_vocabulary": 5, name: 0}
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        ModelConfig(**sizes)


@pytest.mark.slow
def test_the_loss_falls_on_a_batch_that_is_learnt_by_heart():
    model = Translator(ModelConfig(11, 13, units=16, embedding=8))
    optimizer = tf.keras.optimizers.Adam(0.02)
    optimizer.build(model.trainable_variables)
    losses = []
    for _ in range(40):
        loss, gradients = loss_and_gradients(model, SOURCE, TARGET)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        losses.append(float(loss))
    assert losses[-1] < losses[0] / 10
    found = model.translate(tf.constant(SOURCE), 10).numpy().tolist()
    assert [row[: row.index(END) + 1] for row in found] == [[4, 5, 6, END], [7, END]]
