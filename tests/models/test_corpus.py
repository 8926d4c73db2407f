import collections

import pytest

from models.nmt import corpus, lexicon
from models.nmt.grammar import Clause, NounPhrase, Predicate, Sentence

SMALL = {"train": 300, "validation": 30, "heldout": 30}


def noun(english):
    return next(n for n in lexicon.BEINGS + lexicon.THINGS if n.english == english)


def verb(english):
    verbs = lexicon.INTRANSITIVE + lexicon.TRANSITIVE + lexicon.DITRANSITIVE + lexicon.CLAUSAL
    return next(v for v in verbs if v.english_base == english)


def phrase(determiner, english, *adjectives, plural=False, relative=None):
    row = next(d for d in lexicon.DETERMINERS if d[0] == determiner)
    chosen = tuple(pair for a in adjectives for pair in lexicon.ADJECTIVES if pair[0] == a)
    return NounPhrase(row, chosen, noun(english), plural, relative)


def spoken(sentence):
    return " ".join(sentence.english()), " ".join(sentence.german())


def test_the_same_seed_gives_the_same_corpus_and_another_gives_another():
    assert corpus.generate(**SMALL) == corpus.generate(**SMALL)
    assert corpus.generate(**SMALL) != corpus.generate(**SMALL, seed=2)


def test_the_parts_have_their_sizes_and_share_no_sentence():
    parts = corpus.generate()
    assert [len(part) for part in parts] == [8000, 400, 400]
    sources = [pair.source for part in parts for pair in part]
    assert len(set(sources)) == len(sources)


def test_lengths_vary_between_their_bounds():
    lengths = collections.Counter(len(s) for pair in corpus.generate().train for s in pair)
    assert min(lengths) >= corpus.SHORTEST
    assert max(lengths) <= corpus.LONGEST
    assert len(lengths) > 35


@pytest.mark.slow
def test_an_english_sentence_has_one_translation():
    draw, seen = corpus._Draw(seed=7), {}
    for _ in range(20000):
        english, german = spoken(draw.sentence())
        assert seen.setdefault(english, german) == german


def test_every_word_of_the_held_out_part_is_learnt():
    parts = corpus.generate()
    for side in (0, 1):
        known = {word for pair in parts.train for word in pair[side]}
        assert {word for pair in parts.heldout for word in pair[side]} <= known


@pytest.mark.parametrize(
    ("determiner", "english", "plural", "nominative", "accusative", "dative"),
    [
        ("the", "man", False, "der alte Mann", "den alten Mann", "dem alten Mann"),
        ("the", "cat", False, "die alte Katze", "die alte Katze", "der alten Katze"),
        ("the", "child", False, "das alte Kind", "das alte Kind", "dem alten Kind"),
        ("the", "child", True, "die alten Kinder", "die alten Kinder", "den alten Kindern"),
        ("a", "man", False, "ein alter Mann", "einen alten Mann", "einem alten Mann"),
        ("a", "child", False, "ein altes Kind", "ein altes Kind", "einem alten Kind"),
        ("a", "man", True, "alte Männer", "alte Männer", "alten Männern"),
        ("my", "cat", False, "meine alte Katze", "meine alte Katze", "meiner alten Katze"),
        ("my", "girl", True, "meine alten Mädchen", "meine alten Mädchen", "meinen alten Mädchen"),
        ("this", "horse", False, "dieses alte Pferd", "dieses alte Pferd", "diesem alten Pferd"),
    ],
)
def test_german_words_agree_in_gender_case_and_number(
    determiner, english, plural, nominative, accusative, dative
):
    spoken_phrase = phrase(determiner, english, "old", plural=plural)
    for case, expected in (("nom", nominative), ("acc", accusative), ("dat", dative)):
        assert " ".join(spoken_phrase.german(case)) == expected


def test_the_finite_verb_is_second_and_the_dative_comes_first():
    gives = Predicate(
        verb("give"), "perfect", direct=phrase("a", "flower"), indirect=phrase("the", "woman")
    )
    main = Clause(phrase("the", "man", "old"), gives)
    assert spoken(Sentence(main, front_adverb=("today", "heute"))) == (
        "today the old man has given a flower to the woman .",
        "heute hat der alte Mann der Frau eine Blume gegeben .",
    )


def test_a_subordinate_clause_ends_in_its_finite_verb():
    sleeps = Clause(phrase("the", "dog"), Predicate(verb("sleep")))
    see = Predicate(verb("see"), lexicon.MODALS[2], direct=phrase("the", "cat"))
    want = Clause(phrase("the", "child", plural=True), see)
    because = ("because", "weil")
    assert spoken(Sentence(sleeps, None, because, want)) == (
        "the dog sleeps because the children want to see the cat .",
        "der Hund schläft , weil die Kinder die Katze sehen wollen .",
    )
    assert spoken(Sentence(sleeps, None, because, want, other_first=True)) == (
        "because the children want to see the cat , the dog sleeps .",
        "weil die Kinder die Katze sehen wollen , schläft der Hund .",
    )


def test_a_relative_clause_stands_between_two_commas_or_before_the_full_stop():
    sees = Predicate(verb("see"), direct=phrase("a", "apple"))
    woman = phrase("the", "woman", relative=sees)
    laughs = Predicate(verb("laugh"))
    assert spoken(Sentence(Clause(woman, laughs))) == (
        "the woman that sees an apple laughs .",
        "die Frau , die einen Apfel sieht , lacht .",
    )
    seeks = Predicate(verb("seek"), direct=phrase("my", "dog", relative=laughs))
    assert spoken(Sentence(Clause(phrase("the", "man"), seeks))) == (
        "the man seeks my dog that laughs .",
        "der Mann sucht meinen Hund , der lacht .",
    )


def test_written_files_hold_the_corpus(tmp_path):
    parts = corpus.generate(**SMALL)
    corpus.write(parts, tmp_path)
    lines = (tmp_path / "heldout.de").read_text(encoding="utf-8").splitlines()
    assert lines == [" ".join(pair.target) for pair in parts.heldout]
    assert len(list(tmp_path.iterdir())) == 6
