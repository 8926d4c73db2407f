import json

import numpy as np
import pytest

from models.nmt.model import ModelConfig, Translator
from models.nmt.trained import CONFIG, SOURCE, TARGET, WEIGHTS, Trained
from models.nmt.vocabulary import Vocabulary

WORDS = "a b c d e".split()


def make(tokenize=False):
    source, target = Vocabulary.of([WORDS]), Vocabulary.of([[word.upper() for word in WORDS]])
    model = Translator(ModelConfig(len(source), len(target), units=8, embedding=4))
    return Trained(model, source, target, tokenize)


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
    assert after.tokenize is False


def test_translations_keep_the_order_and_the_number_of_the_sentences():
    trained = make()
    sentences = ["c", "", "a b c d e a b c d e", "b a", "  "]
    together = trained.translate(sentences, batch=2)
    assert together == [trained.translate([sentence])[0] for sentence in sentences]
    assert together[1] == together[4] == ""
    assert trained.translate([]) == []


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
