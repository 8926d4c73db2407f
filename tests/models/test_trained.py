import json
import resource

import numpy as np
import pytest

from models.nmt.codec import Words
from models.nmt.seq2seq import Seq2Seq, Seq2SeqConfig
from models.nmt.trained import CONFIG, LONGEST_SOURCE, SOURCE, TARGET, WEIGHTS, Trained
from models.nmt.vocabulary import Vocabulary

WORDS = "a b c d e".split()


def make(tokenize=False):
    sides = Vocabulary.of([WORDS]), Vocabulary.of([[word.upper() for word in WORDS]])
    model = Seq2Seq(Seq2SeqConfig(*map(len, sides), units=8, embedding=4))
    return Trained(model, *(Words(side, tokenize) for side in sides))


@pytest.fixture
def folder(tmp_path):
    make().save(tmp_path / "model")
    return tmp_path / "model"


def test_what_was_saved_translates_alike_when_loaded(folder):
    sentences = ["a b c", "", "e d c b a e d c b a", "b"]
    before, after = make(tokenize=True), Trained.load(folder)
    for a, b in zip(before.model.variables, after.model.variables, strict=True):
        np.testing.assert_array_equal(a, b)
    assert after.translate(sentences) == before.translate(sentences)
    assert after.source.tokenize is False


def test_translations_keep_the_order_and_the_number_of_the_sentences():
    trained = make()
    sentences = ["c", "", "a b c d e a b c d e", "b a", "  "]
    together = trained.translate(sentences, batch=2)
    assert together == [trained.translate([sentence])[0] for sentence in sentences]
    assert together[1] == together[4] == ""
    assert trained.translate([]) == []


@pytest.mark.slow
def test_beam_search_gives_text_score_and_attention():
    trained = make()
    sentences = ["c", "", "a b c d e a b c d e"]
    first, empty, third = trained.search(sentences, beams=3)
    assert empty == []
    assert len(first) == len(third) == 3
    for best, words in ((first[0], 1), (third[0], 10)):
        assert best.source_pieces == [*sentences[0 if words == 1 else 2].split(), "</s>"]
        assert best.attention.shape == (len(best.pieces), words + 1)
        np.testing.assert_allclose(best.attention.sum(axis=1), 1.0, rtol=1e-4)
        assert best.text == " ".join(p for p in best.pieces if p != "</s>")
    assert [h.score for h in third] == sorted((h.score for h in third), reverse=True)
    assert [trained.search([s], beams=1)[0][0].text for s in ("c", "b a")] == trained.translate(
        ["c", "b a"]
    )


def test_of_a_sentence_of_ten_thousand_tokens_the_first_are_translated():
    trained = make()
    long = "a " * 10_000
    assert trained.translate([long])[0] == trained.translate([long[: 2 * (LONGEST_SOURCE - 1)]])[0]


def test_a_model_that_cannot_be_saved_leaves_the_one_before_whole(folder):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    trained = make()
    trained.model.projection_bias.assign_add([1.0] * 9)
    try:
        with pytest.raises(OSError, match="the model cannot be saved"):
            trained.save(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    np.testing.assert_array_equal(Trained.load(folder).model.projection_bias, [0.0] * 9)


def test_a_folder_without_a_model_says_how_to_train_one(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"config.json is missing; .*--out=.* trains one"):
        Trained.load(tmp_path)


@pytest.mark.parametrize("name", [CONFIG, SOURCE, TARGET, WEIGHTS + ".index"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        Trained.load(folder)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"model": {"units": 1}, "tokenize": false}'])
def test_a_damaged_configuration_is_named(folder, text):
    (folder / CONFIG).write_text(text)
    with pytest.raises(ValueError, match="config.json: not a model's configuration"):
        Trained.load(folder)


def test_a_vocabulary_of_another_size_is_named(folder):
    Vocabulary.of([["a"]]).save(folder / SOURCE)
    with pytest.raises(ValueError, match="source.vocabulary: 5 tokens, .* trained with 9"):
        Trained.load(folder)


def test_damaged_weights_are_named(folder):
    (folder / (WEIGHTS + ".index")).write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="weights: not the weights of this model"):
        Trained.load(folder)


def test_weights_of_another_size_are_named(folder):
    config = json.loads((folder / CONFIG).read_text())
    config["model"]["units"] = 9
    (folder / CONFIG).write_text(json.dumps(config))
    with pytest.raises(ValueError, match="weights: not the weights of this model"):
        Trained.load(folder)
