import io

import pytest
import sentencepiece

from models.nmt import codec
from models.nmt.vocabulary import CONTROL, END, UNKNOWN, Vocabulary

LINES = [f"der Hund Nummer {i} läuft über die Straße, schnell!" for i in range(40)]


@pytest.fixture(scope="module")
def subwords():
    return codec.Subwords.of(LINES, 60)


def test_subwords_give_the_line_back(subwords):
    for line in LINES:
        ids = subwords.encode(line)
        assert ids[-1] == END
        assert subwords.decode([*ids, 7, 8]) == line
    assert len(subwords) == 60
    assert subwords.encode("") == [END]
    assert UNKNOWN in subwords.encode("Ω")


def test_words_are_split_at_punctuation_where_asked():
    words = codec.Words.of(["a, b"], None, tokenize=True)
    assert words.decode(words.encode("b, a")) == "b , a"
    assert words.pieces([0, 4, END]) == ["<pad>", ",", "</s>"]


@pytest.mark.parametrize("kind", codec.KINDS)
def test_a_codec_is_saved_and_loaded(tmp_path, kind):
    source, target = codec.learn(kind, LINES, LINES[:9], 60)
    assert source is not target
    source.save(tmp_path / "file")
    loaded = codec.load(tmp_path / "file", kind)
    assert [loaded.encode(line) for line in LINES] == [source.encode(line) for line in LINES]
    ids = source.encode(LINES[0])
    assert loaded.pieces(ids) == source.pieces(ids)


@pytest.mark.parametrize("kind", codec.KINDS)
def test_a_joint_codec_is_of_both_texts(kind):
    source, target = codec.learn(kind, ["abab"] * 9, ["cdcd"] * 9, 12, joint=True)
    assert source is target
    assert UNKNOWN not in source.encode("abab") + source.encode("cdcd")


def test_the_same_text_gives_the_same_subwords():
    assert codec.Subwords.of(LINES, 60)._model == codec.Subwords.of(LINES, 60)._model


def test_a_size_that_the_text_cannot_give_is_named():
    with pytest.raises(ValueError, match="--vocabulary=5000: SentencePiece cannot learn so many"):
        codec.Subwords.of(LINES, 5000)


def test_a_model_without_the_control_tokens_is_refused(tmp_path):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(LINES), model_writer=out, vocab_size=40, minloglevel=2
    )
    path = tmp_path / "foreign.model"
    path.write_bytes(out.getvalue())
    with pytest.raises(ValueError, match=r"foreign.model: the control tokens .* <pad> is missing"):
        codec.load(path, "subwords")


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "damaged"
    path.write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="damaged: not a SentencePiece model"):
        codec.load(path, "subwords")
    with pytest.raises(ValueError, match="damaged: a vocabulary begins with the control tokens"):
        codec.load(path, "words")


def test_both_codecs_number_the_control_tokens_alike(subwords):
    words = codec.Words(Vocabulary.of([["a"]]))
    assert words.pieces(range(4)) == list(CONTROL)
    assert subwords.pieces([1, 2]) == ["<s>", "</s>"]
