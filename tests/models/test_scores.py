import logging

import pytest

from models.nmt.codec import Subwords, Words
from models.nmt.scores import are_tokens, bleu
from models.nmt.vocabulary import Vocabulary

TOKENS = [f"der Hund {i} sieht eine Katze ." for i in range(120)]
TEXT = [line.replace(" .", ".") for line in TOKENS]


@pytest.mark.parametrize(("lines", "tokenizer"), [(TOKENS, "none"), (TEXT, "13a")])
def test_text_is_scored_by_its_tokens_without_a_warning(lines, tokenizer, caplog):
    with caplog.at_level(logging.WARNING, "sacrebleu"):
        score = bleu(lines, lines)
    assert not caplog.records
    assert score.score == pytest.approx(100)
    assert f"|tok:{tokenizer}|" in score.signature


def test_tokens_are_told_from_text():
    assert are_tokens(["a b .", "and c", "why ?"])
    assert not are_tokens(["a b .", "and c."])
    assert not are_tokens(["a b", ""])
    assert not are_tokens(["."])


def test_references_are_written_as_the_codec_writes():
    words = Words(Vocabulary.of([["a", "."]]), tokenize=True)
    assert words.written("a b.") == "a b ."
    assert Words(words.vocabulary).written("a  b.") == "a b."
    assert Subwords.written(None, "a  b.") == "a  b."


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(ValueError, match="1 translations cannot be scored by 2 others"):
        bleu(["a"], ["a", "b"])
