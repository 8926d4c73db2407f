"""The rename map of a loop pair: what stands for each residual, as the rewriter hands it on.

It stands on the forward loop op and on each gradient op. The verifier reads it as a certificate:
what the rewrite claims, to be proven of the ops themselves or refused.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable

from rnnmem.ir.graph import Op
from rnnmem.ir.marks import RENAME_MAP

COUNTED = "counted"
"""A whole number that the gradient loop counts itself, or knows."""
COUNTER = "iterations left"
"""The gradient loop counts the forward loop's iterations down."""
START = "start of the segment"
"""The gradient loop carries the iteration that its segment begins at."""
CHECKPOINTED = "checkpointed"
"""A state that is kept at the start of segments."""
REPLAYED = "saved in a replay"
"""A residual that is saved for one segment at a time."""


@dataclasses.dataclass(frozen=True)
class Residual:
    """What stands for one blob of a forward step net in a loop and its gradient.

    Attributes:
      blob: its name there.
      becomes: ``saved``, in whatever form, ``recomputed``, ``hoisted``, ``inner``, ``unread``, or
        one of the roles that segments have, which are named in this module.
      pushed: the argument of the forward step net, its list; empty where it has none.
      popped: the argument of the gradient step net that gives it back; empty where none does.
    """

    blob: str
    becomes: str
    pushed: str = ""
    popped: str = ""


def rename_map(residuals: Iterable[Residual]) -> dict[str, bytes]:
    """The attribute that holds what stands for each residual."""
    rows = sorted((one.blob, one.becomes, one.pushed, one.popped) for one in residuals)
    return {RENAME_MAP: json.dumps(rows).encode()}


def residuals_of(loop: Op) -> tuple[Residual, ...]:
    """What the rename map on a loop op says; nothing where there is none.

    Raises:
      ValueError: what stands there is no rename map.
    """
    rows = json.loads(loop.attributes.get(RENAME_MAP, b"[]"))
    try:
        found = tuple(Residual(*row) for row in rows)
    except TypeError as error:
        raise ValueError(f"no rename map: {error}") from None
    if not all(isinstance(part, str) for row in rows for part in row):
        raise ValueError("no rename map: it names something that is no text")
    return found
