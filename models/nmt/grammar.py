"""A small grammar: one abstract syntax, spoken once as English and once as German.

The two ways to speak a tree are "linearizations" in the words of Grammatical Framework (Ranta,
2011). German agrees where English does not (gender, case and number on determiners, adjectives and
relative pronouns) and orders words otherwise, so that a translator has to look around:

    today the old man has given a flower to the woman .
    heute hat der alte Mann der Frau eine Blume gegeben .

    the dog sleeps because the children want to see the cat .
    der Hund schläft , weil die Kinder die Katze sehen wollen .

Both linearizations return lists of words; a comma and the full stop are words of their own.
"""

from __future__ import annotations

import dataclasses

from models.nmt import lexicon
from models.nmt.lexicon import Noun, Verb


@dataclasses.dataclass(frozen=True)
class NounPhrase:
    """A determiner, adjectives, a noun, and perhaps a relative clause whose subject it is."""

    determiner: tuple[str, str, str]  # of lexicon.DETERMINERS
    adjectives: tuple[tuple[str, str], ...]  # of lexicon.ADJECTIVES
    noun: Noun
    plural: bool
    relative: Predicate | None = None

    @property
    def agreement(self) -> str:
        """What German words agree with: the gender, or p for every plural."""
        return "p" if self.plural else self.noun.gender

    def english(self) -> list[str]:
        """In English: the old dogs that sleep."""
        words = [self.determiner[self.plural], *(english for english, _ in self.adjectives)]
        words.append(self.noun.english_plural if self.plural else self.noun.english)
        if words[0] == "a" and words[1][0] in "aeiou":
            words[0] = "an"
        if self.relative:
            words += ["that", *self.relative.english(self.plural)]
        return [word for word in words if word]

    def german(self, case: str) -> list[str]:
        """In German: die alten Hunde , die schlafen ,."""
        stem = self.determiner[2]
        words = [lexicon.determiner(stem, case, self.agreement)]
        for _, adjective in self.adjectives:
            words.append(lexicon.adjective(adjective, stem, case, self.agreement))
        words.append(lexicon.german_noun(self.noun, self.plural, case))
        if self.relative:
            pronoun = lexicon.relative_pronoun("nom", self.agreement)
            words += [",", pronoun, *self.relative.german_verb_final(self.plural), ","]
        return [word for word in words if word]


@dataclasses.dataclass(frozen=True)
class Predicate:
    """A verb with all that belongs to it but the subject."""

    verb: Verb
    tense: str | tuple[str, str, str, str] = "present"  # or "perfect", or one of lexicon.MODALS
    direct: NounPhrase | None = None  # accusative
    indirect: NounPhrase | None = None  # dative
    company: NounPhrase | None = None  # with ...
    place: NounPhrase | None = None  # in ...
    adverb: tuple[str, str] | None = None  # of lexicon.ADVERBS
    that: Clause | None = None

    def english(self, plural: bool) -> list[str]:
        """In English, of a singular or plural subject."""
        verb = self.verb
        if self.tense == "present":
            words = [verb.english_base if plural else verb.english_singular]
        elif self.tense == "perfect":
            words = ["have" if plural else "has", verb.english_participle]
        else:
            words = [*self.tense[plural].split(), verb.english_base]
        for preposition, phrase in (
            ("", self.direct),
            ("to", self.indirect),
            ("with", self.company),
            ("in", self.place),
        ):
            if phrase:
                words += [*preposition.split(), *phrase.english()]
        if self.adverb:
            words.append(self.adverb[0])
        if self.that:
            words += ["that", *self.that.english()]
        return words

    def german_verbs(self, plural: bool) -> tuple[str, list[str]]:
        """The finite verb, and what of the verb stands at the end of a main clause."""
        verb = self.verb
        if self.tense == "present":
            return verb.german_infinitive if plural else verb.german_singular, []
        if self.tense == "perfect":
            return "haben" if plural else "hat", [verb.german_participle]
        return self.tense[2 + plural], [verb.german_infinitive]

    def german_middle(self) -> list[str]:
        """All but the verb: adverb, dative, accusative, then the rest."""
        words = [self.adverb[1]] if self.adverb else []
        for preposition, phrase, case in (
            ("", self.indirect, "dat"),
            ("", self.direct, "acc"),
            ("mit", self.company, "dat"),
            ("in", self.place, "dat"),
        ):
            if phrase:
                words += [*preposition.split(), *phrase.german(case)]
        return words

    def german_tail(self) -> list[str]:
        """The clause with "that", which comes behind all verbs."""
        return [",", "dass", *self.that.german_verb_final(), ","] if self.that else []

    def german_verb_final(self, plural: bool) -> list[str]:
        """In the order of subordinate clauses: der Frau eine Blume gegeben hat."""
        finite, infinite = self.german_verbs(plural)
        return [*self.german_middle(), *infinite, finite, *self.german_tail()]


@dataclasses.dataclass(frozen=True)
class Clause:
    """A subject and its predicate."""

    subject: NounPhrase
    predicate: Predicate

    def english(self) -> list[str]:
        """In English; the order never changes."""
        return [*self.subject.english(), *self.predicate.english(self.subject.plural)]

    def german_main(self, first: list[str] | None = None) -> list[str]:
        """In German, the finite verb second: behind the subject, or behind `first`."""
        finite, infinite = self.predicate.german_verbs(self.subject.plural)
        subject = self.subject.german("nom")
        front = [*first, finite, *subject] if first else [*subject, finite]
        return [
            *front,
            *self.predicate.german_middle(),
            *infinite,
            *self.predicate.german_tail(),
        ]

    def german_verb_final(self) -> list[str]:
        """In German, the finite verb last."""
        return [
            *self.subject.german("nom"),
            *self.predicate.german_verb_final(self.subject.plural),
        ]


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A main clause, perhaps with an adverb in front and a second clause before or behind it."""

    main: Clause
    front_adverb: tuple[str, str] | None = None  # of lexicon.ADVERBS
    conjunction: tuple[str, str] | None = None  # of SUBORDINATORS or COORDINATORS
    other: Clause | None = None
    other_first: bool = False  # only of a subordinate clause

    def english(self) -> list[str]:
        """In English."""
        adverb = [self.front_adverb[0]] if self.front_adverb else []
        words = [*adverb, *self.main.english()]
        if self.other:
            other = [self.conjunction[0], *self.other.english()]
            words = [*other, ",", *words] if self.other_first else [*words, *other]
        return [*words, "."]

    def german(self) -> list[str]:
        """In German."""
        front = [self.front_adverb[1]] if self.front_adverb else None
        if not self.other:
            words = self.main.german_main(front)
        elif self.conjunction in lexicon.COORDINATORS:
            conjunction = self.conjunction[1]
            words = [*self.main.german_main(front), ",", conjunction, *self.other.german_main()]
        else:
            other = [self.conjunction[1], *self.other.german_verb_final()]
            if self.other_first:
                words = self.main.german_main([*other, ","])
            else:
                words = [*self.main.german_main(front), ",", *other]
        return _tidy_commas([*words, "."])


def _tidy_commas(words):
    """Leaves one comma of two, and none before the full stop."""
    following = [*words[1:], ""]
    return [w for w, after in zip(words, following, strict=True) if w != "," or after not in ",."]
