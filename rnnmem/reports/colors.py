"""One colour for each kind and each decision, the same in the picture and on the page.

A colour is never the only cue: kinds have a hatch as well, and what is decided stands on the node.
Any two of one list are told apart with any of the three kinds of colour blindness; a test measures.
"""

from __future__ import annotations

from collections.abc import Mapping

from rnnmem.passes.encode.decision import SAVED_AS
from rnnmem.passes.rematerialise.decision import DEAD, HOISTED, INNER, INVARIANT
from rnnmem.passes.rematerialise.decision import RECOMPUTED as RECOMPUTED_DECISION
from rnnmem.planning.outcomes import CHECKPOINTED, REPLAYED
from rnnmem.reports.data import ALLOCATOR, GRADIENT, OUTPUT, RECOMPUTED, SAVED, TEMPORARY

OF_KIND: Mapping[str, str] = {
    OUTPUT: "#1d5a9c",
    GRADIENT: "#1fc493",
    SAVED: "#c93a22",
    RECOMPUTED: "#f6c84e",
    TEMPORARY: "#929eaf",
    ALLOCATOR: "#dfe3e8",
}
HATCHES: Mapping[str, str] = {
    OUTPUT: "|",
    GRADIENT: ".",
    SAVED: "",
    RECOMPUTED: "/",
    TEMPORARY: "-",
    ALLOCATOR: "\\",
}
"""Kind -> what is drawn over its colour, in the words of matplotlib."""
OF_DECISION: Mapping[str, str] = {
    **dict.fromkeys(SAVED_AS.values(), OF_KIND[SAVED]),
    CHECKPOINTED: "#731e57",
    REPLAYED: "#ee72d6",
    RECOMPUTED_DECISION: OF_KIND[RECOMPUTED],
    INVARIANT: "#1d5ab8",
    HOISTED: "#70db8d",
    INNER: "#8c8888",
    DEAD: "#8c8888",
    "": "#f1f3f5",
}

OF_LEGEND: Mapping[str, str] = {
    **{decision: f"{decision} for every iteration" for decision in SAVED_AS.values()},
    CHECKPOINTED: "kept at the start of a segment",
    REPLAYED: "run again with its segment, kept for that segment alone",
    RECOMPUTED_DECISION: "recomputed in the gradient",
    INVARIANT: "invariant, read again",
    HOISTED: "a variable, read once beside the loop",
    INNER: "no longer kept",
    DEAD: "no longer kept",
    "": "temporary",
}
"""Decision -> what the page's legend says of its colour."""

_DARK, _LIGHT = "#14181d", "#ffffff"


def ink(color: str) -> str:
    """The colour of text on a colour: dark or light, whichever has more contrast (WCAG 2.2)."""
    return max(_DARK, _LIGHT, key=lambda text: contrast(text, color))


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours, by WCAG 2.2: 1 to 21."""
    low, high = sorted(map(_luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(color: str) -> float:
    shares = (int(color[place : place + 2], 16) / 255 for place in (1, 3, 5))
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
