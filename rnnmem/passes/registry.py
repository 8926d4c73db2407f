"""All passes, a line each; whatever lists passes is made from these lines.

From a line come the name that ``allow`` takes, a plan's decisions and their JSON, their sentences
in ``explain`` and ``report``, and the table in docs/passes.md.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from rnnmem.ir.editor import NetEditor
from rnnmem.passes.decision import Context, Offer, Site


class Kind(enum.Enum):
    """What a pass decides on, and so where its decisions are made and applied."""

    NORMALISE = "the Net, before anything is planned"
    LOOP = "a loop pair"
    BESIDE = "what a loop that is rewritten brings along, by ``offer`` and ``apply``"
    TRIED = "the same, with it and without, because it takes time"
    WHOLE = "the Net, whether or not a loop is rewritten"


NORMALISE, LOOP, BESIDE, TRIED, WHOLE = Kind


@dataclasses.dataclass(frozen=True)
class Pass:
    """One technique.

    Attributes:
      name: in ``allow`` and in a plan.
      decision: ``folder:class`` of its decisions, in ``decision.py`` of that folder.
      kind: what it decides on.
      what: what it does, for the docs.
      exact: whether it changes no bit of any result.
      default: whether it may be used unless the user names others.
      module: holds ``offer`` and ``apply``, where not ``select.py`` and ``apply.py`` do.
    """

    name: str
    decision: str
    kind: Kind
    what: str
    exact: bool = True
    default: bool = True
    module: str = ""

    @functools.cached_property
    def decides(self) -> Any:
        """The class of its decisions."""
        folder, _, name = self.decision.partition(":")
        return getattr(importlib.import_module(f"rnnmem.passes.{folder}.decision"), name)

    @functools.cached_property
    def offer(self) -> Callable[[Site], Offer]:
        """What it would decide beside loops that are rewritten."""
        return self._part("select").offer

    @functools.cached_property
    def apply(self) -> Callable[[NetEditor, tuple[Any, ...], Context], None]:
        """Applies its decisions to the Net around the loops, in place."""
        return self._part("apply").apply

    def _part(self, name: str) -> Any:
        module = self.module or f"{self.decision.partition(':')[0]}.{name}"
        return importlib.import_module(f"rnnmem.passes.{module}")


PASSES = (  # in the order of application
    Pass(
        "dead_code",
        "normalise:DeadCode",
        NORMALISE,
        "takes out of gradient loops what nobody reads",
    ),
    Pass(
        "zero_lists",
        "normalise:ZeroList",
        NORMALISE,
        "makes the zeros of second gradients one by one, not in lists",
    ),
    Pass(
        "chunked_loss",
        "chunked_loss:ChunkedLoss",
        WHOLE,
        "runs a projection with its softmax loss by chunks of tokens",
        exact=False,
        default=False,
    ),
    Pass(
        "rematerialise",
        "rematerialise:LoopPlan",
        LOOP,
        "computes again in the gradient loop what would be saved",
    ),
    Pass("bits", "encode:Encoding", LOOP, "saves booleans and signs as bits", default=False),
    Pass(
        "bfloat16",
        "encode:Encoding",
        LOOP,
        "saves numbers rounded to bfloat16",
        exact=False,
        default=False,
    ),
    Pass(
        "offload",
        "encode:Encoding",
        LOOP,
        "keeps what is saved in host memory, on a GPU",
        default=False,
    ),
    Pass(
        "checkpoint",
        "checkpoint:Segments",
        LOOP,
        "saves the states of some iterations and replays the others",
    ),
    Pass(
        "rebuild_lists",
        "rebuild_lists:MadeAgain",
        TRIED,
        "makes the lists that a loop reads again for its gradient loop",
    ),
    Pass(
        "gradient_start",
        "schedule:Edge",
        BESIDE,
        "starts a gradient loop once all that it needs is there",
        module="schedule.gradient_start",
    ),
    Pass(
        "lazy_gradient_lists",
        "lazy_gradient_lists:EmptyStart",
        BESIDE,
        "begins lists of gradients without elements",
    ),
    Pass(
        "after_loss",
        "schedule:Edge",
        BESIDE,
        "starts the gradient once the loss is made",
        module="schedule.after_loss",
    ),
    Pass(
        "implicit_broadcast",
        "implicit_broadcast:Fold",
        BESIDE,
        "lets products broadcast an operand that would be repeated",
    ),
    Pass("turns", "schedule:Edge", WHOLE, "lets large buffers take turns"),
)

BY_NAME: Mapping[str, Pass] = MappingProxyType({one.name: one for one in PASSES})
AROUND_LOOPS = tuple(one for one in PASSES if one.kind in (BESIDE, TRIED))
"""What loops that are rewritten bring along."""
DEFAULTS = tuple(one.name for one in PASSES if one.default)
"""What may be used unless the user names passes."""

DEFAULT = "default"
_WITH_LOOPS = ("rematerialise", "zero_lists", *(one.name for one in AROUND_LOOPS))
GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        DEFAULT: DEFAULTS,
        "recompute": _WITH_LOOPS,
        "segments": ("checkpoint",),
        "order": ("turns",),
        "vocabulary": ("chunked_loss",),
    }
)
"""Names that stand for several passes, and those that passes had before."""


def passes_of(names: Iterable[str]) -> frozenset[str]:
    """The passes that names of passes and groups allow; dead code goes with any of them.

    Raises:
      KeyError: there is no such name.
    """
    found = {one for name in names for one in GROUPS.get(name) or (BY_NAME[name].name,)}
    return frozenset(found | {"dead_code"} if found else ())
