"""What a pass decides, as a plan holds it, and what it offers to decide."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from rnnmem.analysis.loops import LoopPair
from rnnmem.analysis.machine import Machine
from rnnmem.analysis.shapes import KnownNet, with_known_shapes
from rnnmem.analysis.variable_effects import Writers
from rnnmem.errors import NetError
from rnnmem.ir.devices import HOST
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import Blob, Constant, Net, Op


class Decision(Protocol):
    """A frozen dataclass of numbers, texts, tuples and such dataclasses.

    It goes to JSON and back by its fields (`rnnmem.planning.as_json`). One that may turn out to be
    nothing has a field ``closed``: why the pass left its place as it was. What is decided before
    loops are planned has a class attribute ``COUNTED``: what one of these is called, and several.
    """

    @property
    def sentence(self) -> str:
        """What is decided, in words; its place first."""


@dataclasses.dataclass(frozen=True)
class Step:
    """A whole step whose loops are not planned yet.

    Attributes:
      net: inlined.
      in_call: the same with the shapes of a call, or with its own where nothing else tells them.
      sizes: the blobs with the shapes of a call; None where the Net tells its own.
      machine: what estimates of time assume.
    """

    net: Net
    in_call: KnownNet
    sizes: Mapping[str, Blob] | None
    machine: Machine

    @property
    def shaped(self) -> Net:
        """The Net with all shapes that it tells itself."""
        return with_known_shapes(self.net)


@dataclasses.dataclass(frozen=True)
class Site:
    """Where a pass may decide something beside loops that are rewritten.

    Attributes:
      net: the Net around the loops, with all shapes that are known.
      pairs: its loop pairs.
      seconds: estimated time of one run of an op of a Net.
      writers: what may write variables; None: no variable may be read again.
      device: where ops run that name no device.
    """

    net: Net
    pairs: tuple[LoopPair, ...]
    seconds: Callable[[Op, Net], float]
    writers: Writers | None = None
    device: str = HOST


@dataclasses.dataclass(frozen=True)
class Offer:
    """What a pass decides beside the loops that are rewritten.

    Attributes:
      decide: the pairs that are rewritten, and what is decided so far by name of the pass -> the
        decisions.
      spared: of each pair of the site, the estimated seconds that these take off an iteration.
    """

    decide: Callable[[Sequence[LoopPair], Callable[[str], tuple[Any, ...]]], tuple[Any, ...]]
    spared: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True)
class Context:
    """What applying a decision depends on beside the Net.

    Attributes:
      of: name of a pass -> its decisions in the plan.
      constant: encodes a number as the exporter wants it: (value, dtype) -> Constant.
      keeps_alive: whether a graph optimizer that fuses by neighbourhood runs afterwards.
    """

    of: Callable[[str], tuple[Any, ...]]
    constant: Callable[[Any, str], Constant]
    keeps_alive: bool


def planned_op(editor: NetEditor, name: str, type: str | None = None) -> Op:
    """The op that a decision names.

    Args:
      editor: of the Net that the decision is applied to.
      name: of the op.
      type: of the op; None: any.

    Raises:
      NetError: there is none of that name and type.
    """
    op = editor.ops.get(name)
    if op is None or type not in (None, op.type):
        raise NetError(f"the plan is for another function: no {type or 'loop'} {name!r}")
    return op


def await_no_more(editor: NetEditor, gone: Op) -> None:
    """Whoever waits for an op that is to go waits for what that op waited for and read."""
    makers = (editor.original.producer.get(blob) for blob in gone.inputs)
    before = (*gone.controls, *(one.name for one in makers if one is not None))
    for name, waiting in list(editor.ops.items()):
        if gone.name in waiting.controls:
            controls = [one for one in waiting.controls if one != gone.name]
            editor.ops[name] = waiting.replace(controls=tuple(dict.fromkeys([*controls, *before])))
