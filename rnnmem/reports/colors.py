"""One colour for each kind and each decision, the same in the picture and on the page."""

from __future__ import annotations

from collections.abc import Mapping

from rnnmem.passes.encode.decision import SAVED_AS
from rnnmem.passes.rematerialise.decision import DEAD, HOISTED, INNER, INVARIANT
from rnnmem.passes.rematerialise.decision import RECOMPUTED as RECOMPUTED_DECISION
from rnnmem.reports.data import ALLOCATOR, GRADIENT, OUTPUT, RECOMPUTED, SAVED, TEMPORARY
from rnnmem.reports.outcomes import CHECKPOINTED, REPLAYED

OF_KIND: Mapping[str, str] = {
    OUTPUT: "#3d6f9e",
    GRADIENT: "#2a9d8f",
    SAVED: "#d1495b",
    RECOMPUTED: "#edae49",
    TEMPORARY: "#8d99ae",
    ALLOCATOR: "#dfe3e8",
}
OF_DECISION: Mapping[str, str] = {
    **dict.fromkeys(SAVED_AS.values(), OF_KIND[SAVED]),
    CHECKPOINTED: "#8c2f6b",
    REPLAYED: "#f4845f",
    RECOMPUTED_DECISION: OF_KIND[RECOMPUTED],
    INVARIANT: "#6a994e",
    HOISTED: "#6a994e",
    INNER: "#b9a0cf",
    DEAD: "#b9a0cf",
    "": "#f4f5f7",
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
