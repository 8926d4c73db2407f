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

from rnnmem.ir.graph import Net
from rnnmem.passes.decision import Context, Offer, Site, Step


class Kind(enum.Enum):
    """What a pass decides on, and so where its decisions are made and applied."""

    NORMALISE = "the Net, before anything is planned"
    BEFORE = "the Net, before its loops are planned, by ``decide`` and ``apply``"
    LOOP = "a loop pair"
    BESIDE = "what a loop that is rewritten brings along, by ``offer`` and ``apply``"
    TRIED = "the same, with it and without, because it takes time"
    WHOLE = "the Net, whether or not a loop is rewritten"


_HERE = __name__.rpartition(".")[0]
NORMALISE, BEFORE, LOOP, BESIDE, TRIED, WHOLE = Kind


@dataclasses.dataclass(frozen=True)
class Pass:
    """One technique.

    Attributes:
      name: in ``allow`` and in a plan.
      decision: ``folder:class`` of its decisions, in ``decision.py`` of that folder.
      kind: what it decides on.
      exact: whether it changes no bit of any result.
      default: whether it may be used unless the user names others.
      module: of its own, where it shares the folder with others.
      group: the name that stands for it and others in ``allow``, too; empty: none does.
      before_segments: whether it is applied before loops are cut into segments.
      on_cpu_alone: whether its bits were held against a CPU's kernels and no other device's.
    """

    name: str
    decision: str
    kind: Kind
    exact: bool = True
    default: bool = True
    module: str = ""
    group: str = "recompute"
    before_segments: bool = False
    on_cpu_alone: bool = False

    @property
    def folder(self) -> str:
        """Where it is, below `rnnmem.passes`."""
        return self.decision.partition(":")[0]

    @property
    def what(self) -> str:
        """What it does, in a line."""
        doc = importlib.import_module(f"{_HERE}.{self.module or self.folder}").__doc__
        return (doc or "").partition("\n")[0].rstrip(".")

    @functools.cached_property
    def decides(self) -> Any:
        """The class of its decisions."""
        name = self.decision.partition(":")[2]
        return getattr(importlib.import_module(f"{_HERE}.{self.folder}.decision"), name)

    @functools.cached_property
    def decide(self) -> Callable[[Step], tuple[Any, ...]]:
        """What it decides before loops are planned."""
        return self._part("select").decide

    @functools.cached_property
    def offer(self) -> Callable[[Site], Offer]:
        """What it would decide beside loops that are rewritten."""
        return self._part("select").offer

    @functools.cached_property
    def apply(self) -> Callable[[Net, tuple[Any, ...], Context], Net]:
        """The Net (around the loops), and decisions -> the Net with these applied."""
        return self._part("apply").apply

    def _part(self, name: str) -> Any:
        return importlib.import_module(f"{_HERE}.{self.module or f'{self.folder}.{name}'}")


PASSES = (  # in the order of application
    Pass(
        "dead_code",
        "normalise:DeadCode",
        NORMALISE,
        module="normalise.gradient_loops",
        group="",
    ),
    Pass("congruent_ops", "normalise:CongruentOps", NORMALISE, module="normalise.congruent_ops"),
    Pass("zero_lists", "normalise:ZeroList", NORMALISE, module="normalise.zero_lists"),
    Pass("slice_gradients", "slice_gradients:SliceGradients", BEFORE),
    Pass("saved_shapes", "saved_shapes:SavedShape", BEFORE),
    Pass(
        "accumulated_products",
        "accumulated_products:AccumulatedProduct",
        BEFORE,
        on_cpu_alone=True,
    ),
    Pass("late_products", "late_products:LateProduct", BEFORE, group="order"),
    Pass(
        "broadcast_outside",
        "implicit_broadcast:ImplicitBroadcast",
        BEFORE,
        module="implicit_broadcast.outside",
    ),
    Pass("row_chunks", "chunked_loss:ChunkedLoss", WHOLE, module="chunked_loss.exact"),
    Pass(
        "chunked_loss",
        "chunked_loss:ChunkedLoss",
        WHOLE,
        exact=False,
        default=False,
        group="vocabulary",
    ),
    Pass("rematerialise", "rematerialise:LoopPlan", LOOP),
    Pass("bits", "encode:Encoding", LOOP, default=False, group=""),
    Pass("bfloat16", "encode:Encoding", LOOP, exact=False, default=False, group=""),
    Pass("offload", "encode:Encoding", LOOP, default=False, group=""),
    Pass(
        "induction_variables",
        "induction_variables:InductionVariable",
        BESIDE,
        before_segments=True,
    ),
    Pass("checkpoint", "checkpoint:Segments", LOOP, group="segments"),
    Pass("rebuild_lists", "rebuild_lists:RebuiltList", TRIED),
    Pass("gradient_start", "schedule:Edge", BESIDE, module="schedule.gradient_start"),
    Pass("lazy_gradient_lists", "lazy_gradient_lists:LazyGradientList", BESIDE),
    Pass("after_loss", "schedule:Edge", BESIDE, module="schedule.after_loss"),
    Pass("implicit_broadcast", "implicit_broadcast:ImplicitBroadcast", BESIDE),
    Pass("slice_of_stack", "slice_of_stack:SliceOfStack", BESIDE),
    Pass("unstacked_lists", "unstacked_lists:UnstackedList", BESIDE),
    Pass("straight_line", "straight_line:Region", WHOLE),
    Pass(
        "elementwise_chunks",
        "elementwise_chunks:ElementwiseChain",
        WHOLE,
        on_cpu_alone=True,
    ),
    Pass("readers_in_turn", "schedule:Edge", WHOLE, module="schedule.readers", group="order"),
    Pass("scheduling_edges", "schedule:Edge", WHOLE, module="schedule.serialise", group="order"),
)

BY_NAME: Mapping[str, Pass] = MappingProxyType({one.name: one for one in PASSES})
BEFORE_LOOPS = tuple(one for one in PASSES if one.kind is BEFORE)
"""What is decided before loops are planned."""
AROUND_LOOPS = tuple(one for one in PASSES if one.kind in (BESIDE, TRIED))
"""What loops that are rewritten bring along."""
DEFAULTS = tuple(one.name for one in PASSES if one.default)
"""What may be used unless the user names passes."""

DEFAULT = "default"
_GROUPS = ("recompute", "segments", "order", "vocabulary")
GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {DEFAULT: DEFAULTS}
    | {name: tuple(one.name for one in PASSES if one.group == name) for name in _GROUPS}
)
"""Names that stand for several passes, and those that passes had before."""


def passes_of(names: Iterable[str]) -> frozenset[str]:
    """The passes that names of passes and groups allow; dead code goes with any of them.

    Raises:
      KeyError: there is no such name.
    """
    found = {one for name in names for one in GROUPS.get(name) or (BY_NAME[name].name,)}
    return frozenset(found | {"dead_code"} if found else ())
