import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from models.nmt.seq2seq import Seq2Seq, Seq2SeqConfig
from models.nmt.vocabulary import END, PAD, START

BASE = Seq2SeqConfig(13, 13, embedding=6, units=5)
SHAPES = {
    "plain": {},
    "one way": {"bidirectional_layers": 0},
    "deep": {"encoder_layers": 2, "decoder_layers": 2, "cell": "lstm"},
    "residual": {"encoder_layers": 4, "decoder_layers": 3, "residual": True},
    "both ways twice": {"encoder_layers": 2, "bidirectional_layers": 2},
    "fed": {"input_feeding": True, "decoder_layers": 2},
    "covered": {"coverage": 1.0},
    "bahdanau": {"attention": "bahdanau", "cell": "lstm"},
    "bahdanau, fed, covered": {"attention": "bahdanau", "input_feeding": True, "coverage": 0.5},
    "tied": {"tied": "target"},
    "all tied": {"tied": "all", "label_smoothing": 0.1},
}
SOURCE = [[5, 6, 7, END], [8, 9, END, PAD]]
TARGET = [[START, 4, 5, 6, END], [START, 7, END, PAD, PAD]]
SEED = [3, 4]


def make(**changes):
    return Seq2Seq(dataclasses.replace(BASE, **changes))


def step_of(model):
    def step(source, target, seed):
        with tf.GradientTape() as tape:
            total, tokens = model.loss(source, target, seed)
        gradients = tape.gradient(total, model.trainable_variables)
        return total, tokens, [tf.convert_to_tensor(g) for g in gradients]

    return step


def run(step, source=SOURCE, target=TARGET, seed=SEED):
    return step(tf.constant(source), tf.constant(target), tf.constant(seed))


def padded(rows, more):
    return [row + [PAD] * more for row in rows]


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
class TestEveryShape:
    def test_each_step_of_inference_is_that_of_the_training(self, changes):
        model = make(**changes)
        source, target = tf.constant(SOURCE), tf.constant(TARGET)
        memory = model.encode(source)
        carried, total = model.start(memory), 0.0
        for t in range(4):
            logits, carried, weights = model.advance(target[:, t], carried, memory)
            np.testing.assert_allclose(tf.reduce_sum(weights, axis=1), 1.0, rtol=1e-5)
            assert weights.numpy()[1, 3] == 0  # padding is not looked at
            gains = tf.gather(tf.nn.log_softmax(logits), target[:, t + 1], batch_dims=1)
            total -= np.sum(gains.numpy() * (TARGET_ARRAY[:, t + 1] != PAD))
        expected, tokens = model.loss(source, target)
        assert tokens.numpy() == 6
        np.testing.assert_allclose(total, expected, rtol=1e-5)

    def test_padding_changes_neither_loss_nor_gradients(self, changes):
        step = step_of(make(**changes))
        expected = run(step)
        actual = run(step, padded(SOURCE, 2) + [[PAD] * 6], padded(TARGET, 3) + [[PAD] * 8])
        tf.nest.map_structure(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), expected, actual
        )

    def test_every_variable_learns(self, changes):
        model = make(**changes)
        _, _, gradients = run(step_of(model))
        for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
            assert np.any(gradient.numpy() != 0), variable.shape


TARGET_ARRAY = np.array(TARGET)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", "residual", "bahdanau, fed, covered"])
def test_rnnmem_keeps_every_bit_with_dropout(name):
    changes = {**SHAPES[name], "dropout": 0.3, "recurrent_dropout": 0.2}
    step = step_of(make(**changes, label_smoothing=0.1))
    plain, optimized = run(tf.function(step)), run(rnnmem.optimize(step))
    for a, b in zip(tf.nest.flatten(plain), tf.nest.flatten(optimized), strict=True):
        assert a.numpy().tobytes() == b.numpy().tobytes()


@pytest.mark.parametrize("changes", [{}, {"input_feeding": True, "decoder_layers": 2}])
@pytest.mark.parametrize(
    "rates", [{"dropout": 0.5}, {"recurrent_dropout": 0.5}, {"dropout": 0.5, "variational": True}]
)
def test_dropout_depends_on_its_seed_alone(changes, rates):
    model = make(**changes, **rates)
    first, again, other = (
        run(lambda *args: float(model.loss(*args)[0]), seed=[3, n]) for n in (4, 4, 5)
    )
    assert first == again
    assert first != other
    assert float(model.loss(tf.constant(SOURCE), tf.constant(TARGET))[0]) not in (first, other)


def test_a_variational_mask_is_the_same_at_every_position():
    model = make(dropout=0.5, variational=True)
    ones = tf.ones([7, 2, 6])
    from models.nmt.seq2seq import _Dropout

    seed = tf.constant(SEED)
    dropped = _Dropout(model.config, seed)(ones, 1).numpy()
    assert set(np.unique(dropped)) == {0.0, 2.0}
    assert np.all(dropped == dropped[:1])
    varying = dataclasses.replace(model.config, variational=False)
    assert np.any(np.ptp(_Dropout(varying, seed)(ones, 1).numpy(), axis=0) > 0)


def test_label_smoothing_mixes_in_the_even_distribution():
    model = make(label_smoothing=0.2)
    memory = model.encode(tf.constant(SOURCE))
    carried, expected = model.start(memory), 0.0
    for t in range(4):
        logits, carried, _ = model.advance(tf.constant(TARGET_ARRAY[:, t]), carried, memory)
        wanted = 0.8 * tf.one_hot(TARGET_ARRAY[:, t + 1], 13) + 0.2 / 13
        losses = tf.nn.softmax_cross_entropy_with_logits(wanted, logits).numpy()
        expected += np.sum(losses * (TARGET_ARRAY[:, t + 1] != PAD))
    total, _ = model.loss(tf.constant(SOURCE), tf.constant(TARGET), tf.constant(SEED))
    np.testing.assert_allclose(total, expected, rtol=1e-5)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision_keeps_weights_and_losses_in_float32(precision):
    model, exact = make(precision=precision), make()
    total, _, gradients = run(step_of(model))
    assert total.dtype == tf.float32
    assert {g.dtype for g in gradients} == {tf.float32}
    np.testing.assert_allclose(total, run(step_of(exact))[0], rtol=0.02)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"units": 0}, "units must be at least 1, got 0"),
        ({"cell": "rnn"}, "cell must be one of gru, lstm, got 'rnn'"),
        ({"dropout": 1.0}, "dropout must be from 0 to below 1, got 1.0"),
        ({"bidirectional_layers": 2}, "bidirectional_layers must be from 0 to encoder_layers=1"),
        ({"coverage": -1.0}, "coverage must be at least 0"),
        ({"tied": "all", "source_vocabulary": 12}, "needs one vocabulary .* 12 and 13 tokens"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(changes, complaint):
    with pytest.raises(ValueError, match=complaint):
        dataclasses.replace(BASE, **changes)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", "bahdanau, fed, covered"])
def test_the_loss_falls_on_a_batch_that_is_learnt_by_heart(name):
    from models.nmt.adam import Adam
    from models.nmt.search import greedy

    model = make(**{**SHAPES[name], "units": 16})
    optimizer, step = Adam(model.trainable_variables), tf.function(step_of(model))
    for number in range(1, 61):
        total, _, gradients = run(step)
        optimizer.apply(gradients, tf.constant(0.02), tf.constant(float(number)))
    assert total / 6 < 0.2
    found = greedy(model, tf.constant(SOURCE), tf.constant(10)).numpy().tolist()
    assert [row[: row.index(END) + 1] for row in found] == [[4, 5, 6, END], [7, END]]
