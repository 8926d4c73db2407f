"""The words of the generated corpus, English and German, and how German words agree."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Noun:
    """A noun; `gender` is m, f or n."""

    english: str
    english_plural: str
    german: str
    german_plural: str
    gender: str


@dataclasses.dataclass(frozen=True)
class Verb:
    """A verb, third person: English sees, see, seen; German sieht, sehen, gesehen."""

    english_singular: str
    english_base: str
    english_participle: str
    german_singular: str
    german_infinitive: str  # the plural, too
    german_participle: str


def _nouns(lines):
    return tuple(Noun(*line.split()) for line in lines.strip().splitlines())


def _verbs(lines):
    return tuple(Verb(*line.split()) for line in lines.strip().splitlines())


BEINGS = _nouns("""
    man men Mann Männer m
    woman women Frau Frauen f
    child children Kind Kinder n
    girl girls Mädchen Mädchen n
    teacher teachers Lehrer Lehrer m
    aunt aunts Tante Tanten f
    dog dogs Hund Hunde m
    cat cats Katze Katzen f
    horse horses Pferd Pferde n
    bird birds Vogel Vögel m
""")

THINGS = _nouns("""
    book books Buch Bücher n
    flower flowers Blume Blumen f
    letter letters Brief Briefe m
    picture pictures Bild Bilder n
    lamp lamps Lampe Lampen f
    table tables Tisch Tische m
    apple apples Apfel Äpfel m
    bottle bottles Flasche Flaschen f
""")

PLACES = _nouns("""
    garden gardens Garten Gärten m
    house houses Haus Häuser n
    city cities Stadt Städte f
    school schools Schule Schulen f
    forest forests Wald Wälder m
""")

INTRANSITIVE = _verbs("""
    sleeps sleep slept schläft schlafen geschlafen
    laughs laugh laughed lacht lachen gelacht
    works work worked arbeitet arbeiten gearbeitet
    sings sing sung singt singen gesungen
    dances dance danced tanzt tanzen getanzt
    waits wait waited wartet warten gewartet
""")

TRANSITIVE = _verbs("""
    sees see seen sieht sehen gesehen
    seeks seek sought sucht suchen gesucht
    finds find found findet finden gefunden
    paints paint painted malt malen gemalt
    buys buy bought kauft kaufen gekauft
    holds hold held hält halten gehalten
""")

DITRANSITIVE = _verbs("""
    gives give given gibt geben gegeben
    shows show shown zeigt zeigen gezeigt
    brings bring brought bringt bringen gebracht
    sends send sent schickt schicken geschickt
""")

CLAUSAL = _verbs("""
    knows know known weiß wissen gewusst
    says say said sagt sagen gesagt
    believes believe believed glaubt glauben geglaubt
""")

# English, singular and plural; German, singular and plural.
MODALS = (
    ("can", "can", "kann", "können"),
    ("must", "must", "muss", "müssen"),
    ("wants to", "want to", "will", "wollen"),
)

# English and German stem; the stem takes an ending that agrees with the noun.
ADJECTIVES = (
    ("old", "alt"),
    ("young", "jung"),
    ("small", "klein"),
    ("big", "groß"),
    ("red", "rot"),
    ("clever", "klug"),
    ("quiet", "still"),
    ("beautiful", "schön"),
)

ADVERBS = (("today", "heute"), ("often", "oft"), ("now", "jetzt"), ("here", "hier"))
SUBORDINATORS = (("because", "weil"), ("when", "wenn"), ("although", "obwohl"))
COORDINATORS = (("and", "und"), ("but", "aber"))

# English, singular and plural; German stem; "der" is irregular, "ein" has no plural.
DETERMINERS = (
    ("the", "the", "d"),
    ("this", "these", "dies"),
    ("a", "", "ein"),
    ("my", "my", "mein"),
)

# What agrees with what, a row per case, a column per gender and for the plural (p).
_STRONG = {"nom": "er e es e", "acc": "en e es e", "dat": "em er em en"}
_MIXED = {"nom": "- e - e", "acc": "en e - e", "dat": "em er em en"}
_DEFINITE = {"nom": "der die das die", "acc": "den die das die", "dat": "dem der dem den"}
_ADJECTIVE_WEAK = {"nom": "e e e en", "acc": "en e e en", "dat": "en en en en"}
_ADJECTIVE_MIXED = {"nom": "er e es en", "acc": "en e es en", "dat": "en en en en"}
_RELATIVE = {**_DEFINITE, "dat": "dem der dem denen"}


def _look_up(table, case, agreement):
    return table[case].split()["mfnp".index(agreement)].replace("-", "")


def determiner(stem: str, case: str, agreement: str) -> str:
    """The German determiner, "" where there is none (the plural of "ein").

    Args:
        stem: of `DETERMINERS`.
        case: nom, acc or dat.
        agreement: m, f, n, or p for the plural.
    """
    if stem == "d":
        return _look_up(_DEFINITE, case, agreement)
    if stem == "ein" and agreement == "p":
        return ""
    return stem + _look_up(_STRONG if stem == "dies" else _MIXED, case, agreement)


def adjective(stem: str, after: str, case: str, agreement: str) -> str:
    """The German adjective behind the determiner with the stem `after`."""
    if after == "ein" and agreement == "p":
        table = _STRONG
    else:
        table = _ADJECTIVE_MIXED if after in ("ein", "mein") else _ADJECTIVE_WEAK
    return stem + _look_up(table, case, agreement)


def relative_pronoun(case: str, agreement: str) -> str:
    """The German relative pronoun."""
    return _look_up(_RELATIVE, case, agreement)


def german_noun(noun: Noun, plural: bool, case: str) -> str:
    """The German noun; the dative plural ends in n wherever it can."""
    if not plural:
        return noun.german
    add_n = case == "dat" and noun.german_plural[-1] not in "ns"
    return noun.german_plural + "n" * add_n
