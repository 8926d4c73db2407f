"""The generated parallel corpus: random trees of a grammar, in three parts.

    python -m models.nmt.corpus --out=runs/corpus

writes train.en, train.de, validation.en, validation.de, test.en and test.de.
"""

from __future__ import annotations

import pathlib
import random
from typing import NamedTuple

from absl import app, flags

from models.nmt import lexicon
from models.nmt.flag_groups import one_group
from models.nmt.grammar import Clause, NounPhrase, Predicate, Sentence

SHORTEST, LONGEST = 4, 46  # words of a sentence, of either language


class Pair(NamedTuple):
    """A sentence as words, and its translation."""

    source: tuple[str, ...]
    target: tuple[str, ...]


class Corpus(NamedTuple):
    """Pairs to learn from, to watch the learning, and to judge it; no sentence is in two."""

    train: tuple[Pair, ...]
    validation: tuple[Pair, ...]
    heldout: tuple[Pair, ...]


def generate(train: int = 8000, validation: int = 400, heldout: int = 400, seed: int = 1) -> Corpus:
    """Draws the corpus; the same arguments give the same corpus, everywhere and always.

    Args:
        train: pairs to learn from.
        validation: pairs to watch the learning.
        heldout: pairs to judge what was learnt.
        seed: of the random draw.

    Returns:
        The three parts, all pairs of which are distinct.
    """
    draw = _Draw(seed)
    targets = {}  # a dict keeps the order in which the sentences came
    while len(targets) < train + validation + heldout:
        sentence = draw.sentence()
        source, target = tuple(sentence.english()), tuple(sentence.german())
        if SHORTEST <= min(len(source), len(target)) and max(len(source), len(target)) <= LONGEST:
            targets[source] = target
    pairs = tuple(Pair(source, target) for source, target in targets.items())
    return Corpus(pairs[:train], pairs[train:-heldout], pairs[-heldout:])


class _Draw:
    """Draws trees of the grammar."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def chance(self, probability):
        return self.random.random() < probability

    def sentence(self):
        kind = self.random.choices(
            ("simple", "subordinate", "coordinate", "that"), weights=(4, 4, 1, 2)
        )[0]
        front = self.random.choice(lexicon.ADVERBS) if self.chance(0.2) else None
        if kind == "that":
            that = Predicate(self.random.choice(lexicon.CLAUSAL), that=self.clause())
            return Sentence(Clause(self.phrase(lexicon.BEINGS), that), front)
        main = self.clause(adverb=front is None)
        if kind == "simple":
            return Sentence(main, front)
        if kind == "coordinate":
            conjunction = self.random.choice(lexicon.COORDINATORS)
            return Sentence(main, front, conjunction, self.clause())
        conjunction = self.random.choice(lexicon.SUBORDINATORS)
        if front is None and self.chance(0.4):
            return Sentence(main, None, conjunction, self.clause(), other_first=True)
        return Sentence(main, front, conjunction, self.clause())

    def clause(self, adverb=True):
        return Clause(self.phrase(lexicon.BEINGS, relative=0.15), self.predicate(adverb))

    def predicate(self, adverb=True, relative=0.1):
        tense = self.random.choice(("present", "present", "perfect", "modal"))
        parts = {"tense": self.random.choice(lexicon.MODALS) if tense == "modal" else tense}
        valency = self.random.choice((1, 2, 2, 3))
        if valency == 1:
            verb = self.random.choice(lexicon.INTRANSITIVE)
            if self.chance(0.3):
                parts["company"] = self.phrase(lexicon.BEINGS)
        elif valency == 2:
            verb = self.random.choice(lexicon.TRANSITIVE)
            parts["direct"] = self.phrase(lexicon.BEINGS + lexicon.THINGS, relative)
            if parts["direct"].relative:  # whatever followed might belong to either clause
                return Predicate(verb, **parts)
        else:
            verb = self.random.choice(lexicon.DITRANSITIVE)
            parts["direct"] = self.phrase(lexicon.THINGS)
            parts["indirect"] = self.phrase(lexicon.BEINGS)
        if self.chance(0.2):
            parts["place"] = self.phrase(lexicon.PLACES)
        if adverb and self.chance(0.2):
            parts["adverb"] = self.random.choice(lexicon.ADVERBS)
        return Predicate(verb, **parts)

    def phrase(self, nouns, relative=0.0):
        """A noun phrase; `relative` is the chance that a being gets a relative clause."""
        noun = self.random.choice(nouns)
        with_relative = noun in lexicon.BEINGS and self.chance(relative)
        return NounPhrase(
            determiner=self.random.choice(lexicon.DETERMINERS),
            adjectives=tuple(
                self.random.sample(lexicon.ADJECTIVES, self.random.choices((0, 1, 2), (5, 3, 1))[0])
            ),
            noun=noun,
            plural=self.chance(0.4),
            relative=self.predicate(adverb=False, relative=0.0) if with_relative else None,
        )


def write(corpus: Corpus, folder: str) -> None:
    """Writes each part as two text files, a sentence a line: train.en, train.de and so on."""
    path = pathlib.Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    for part, pairs in corpus._asdict().items():
        for suffix, side in (("en", 0), ("de", 1)):
            text = "".join(" ".join(pair[side]) + "\n" for pair in pairs)
            (path / f"{part}.{suffix}").write_text(text, encoding="utf-8")


def _main(argv):
    write(generate(), flags.FLAGS.out)


if __name__ == "__main__":
    with one_group("What is written, and where to"):
        flags.DEFINE_string("out", "runs/corpus", "the folder to write to")
    app.run(_main)
