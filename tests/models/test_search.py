import itertools

import numpy as np
import pytest
import tensorflow as tf

from models.nmt.search import beam, greedy
from models.nmt.seq2seq import Seq2Seq, Seq2SeqConfig
from models.nmt.vocabulary import END, PAD, START

WORDS = 7  # 4 control tokens and 3 words
SOURCE = tf.constant([[4, 5, 6, END], [5, END, PAD, PAD]])


@pytest.fixture(scope="module", params=[{}, {"input_feeding": True, "cell": "lstm"}], ids=str)
def model(request):
    model = Seq2Seq(Seq2SeqConfig(WORDS, WORDS, embedding=8, units=8, seed=5, **request.param))
    model.projection_bias.assign(tf.random.stateless_normal([WORDS], [1, 2]) * 0.5)
    return model


def log_probability(model, source, tokens):
    """Of a translation that ends, with padding and <s> never chosen."""
    memory = model.encode(source)
    carried, token, total = model.start(memory), START, 0.0
    for wanted in tokens:
        logits, carried, _ = model.advance(tf.constant([token]), carried, memory)
        logits = logits.numpy()[0].astype(np.float64)
        logits[[PAD, START]] = -np.inf
        total += logits[wanted] - np.log(np.sum(np.exp(logits)))
        token = wanted
    return total


@pytest.mark.slow
def test_a_beam_as_wide_as_all_finds_the_best_of_all(model):
    source, longest = SOURCE[:1], 3
    words = [i for i in range(WORDS) if i not in (PAD, START, END)]
    ended = [[*body, END] for n in range(longest) for body in itertools.product(words, repeat=n)]
    cut = [list(body) for body in itertools.product(words, repeat=longest)]
    scores = {
        tuple(t): log_probability(model, source, t) / ((5 + len(t)) / 6) ** 0.7 for t in ended + cut
    }
    best = sorted(scores, key=scores.get, reverse=True)
    # Wide enough that nothing is dropped on the way.
    found = beam(model, source, tf.constant(longest), 7, 0.7)
    tokens = [tuple(t for t in row if t != PAD) for row in found.tokens.numpy()[0].tolist()]
    assert tokens[0] == best[0]
    for row, score in zip(tokens, found.scores.numpy()[0], strict=True):
        np.testing.assert_allclose(score, scores[row], rtol=1e-4)
    assert list(found.scores.numpy()[0]) == sorted(found.scores.numpy()[0], reverse=True)
    assert len(set(tokens)) == 7


def test_one_beam_is_greedy(model):
    expected = greedy(model, SOURCE, tf.constant(9)).numpy()
    found = beam(model, SOURCE, tf.constant(9), 1).tokens.numpy()[:, 0]
    np.testing.assert_array_equal(found, expected)


def test_a_sentence_is_translated_alike_alone_and_in_a_batch(model):
    together = beam(model, SOURCE, tf.constant(6), 3)
    for row, source in enumerate((SOURCE[:1], SOURCE[1:, :2])):
        alone = beam(model, source, tf.constant(6), 3)
        length, words = alone.tokens.shape[2], source.shape[1]
        np.testing.assert_array_equal(alone.tokens[0], together.tokens[row, :, :length])
        np.testing.assert_allclose(alone.scores[0], together.scores[row], rtol=1e-4)
        np.testing.assert_allclose(
            alone.attention[0], together.attention[row, :, :length, :words], atol=1e-5
        )


def test_attention_goes_with_its_tokens(model):
    found = beam(model, SOURCE[:1], tf.constant(5), 4)
    for beams in range(4):
        tokens = [t for t in found.tokens.numpy()[0, beams].tolist() if t != PAD]
        memory = model.encode(SOURCE[:1])
        carried, token = model.start(memory), START
        for t, wanted in enumerate(tokens):
            _, carried, weights = model.advance(tf.constant([token]), carried, memory)
            np.testing.assert_allclose(found.attention[0, beams, t], weights[0], atol=1e-5)
            token = wanted


def test_a_greater_length_penalty_likes_longer_translations(model):
    lengths = [
        np.count_nonzero(beam(model, SOURCE, tf.constant(12), 5, alpha).tokens[:, 0])
        for alpha in (0.0, 3.0)
    ]
    assert lengths[0] < lengths[1]


@pytest.mark.slow
def test_it_runs_in_a_function_for_any_shape(model):
    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def search(source):
        return beam(model, source, 2 * tf.shape(source)[1], 3)

    np.testing.assert_array_equal(search(SOURCE).tokens, beam(model, SOURCE, 8, 3).tokens)


def test_a_row_of_padding_needs_no_step(model):
    found = greedy(model, tf.zeros([2, 3], tf.int32), tf.constant(9))
    assert found.shape == (2, 0) or not np.any(found.numpy())
