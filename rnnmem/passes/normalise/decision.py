"""What goes before anything is planned."""

from __future__ import annotations

import dataclasses

from rnnmem.ir.graph import Net
from rnnmem.sizes import counted


@dataclasses.dataclass(frozen=True)
class DeadCode:
    """Ops of one step net that nobody reads.

    Attributes:
      path: of the step net, names of ops and attributes in turn.
      ops: their names.
    """

    path: tuple[str, ...]
    ops: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """What is decided, in words."""
        where = "/".join(self.path) or "the function"
        return f"{where}: {counted(len(self.ops), 'op')} that nobody reads taken out"


@dataclasses.dataclass(frozen=True)
class ZeroList:
    """A list of zeros that a gradient loop no longer carries; each zero is made where it is added.

    Attributes:
      path: of the step net in which the list was made, names of ops and attributes in turn.
      zeros: the op that made it; empty: every such list (files of the first format name none).
    """

    path: tuple[str, ...] = ()
    zeros: str = ""

    @property
    def sentence(self) -> str:
        """What is decided, in words."""
        name = "/".join((*self.path, self.zeros)) if self.zeros else "every list of zeros"
        return f"{name}: not made, each zero is made in its iteration"


@dataclasses.dataclass(frozen=True)
class CongruentOps:
    """Ops of one step net that are merged with others, which compute the same value.

    Attributes:
      path: of the step net, names of ops and attributes in turn.
      ops: names of those that are gone.
      into: of those that stand for them, one for each.
    """

    path: tuple[str, ...]
    ops: tuple[str, ...]
    into: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """What is decided, in words."""
        where = "/".join(self.path) or "the function"
        merged = counted(len(self.ops), "op")
        return f"{where}: {merged} merged with congruent ones, as TensorFlow does"


def dead_code(before: Net, after: Net) -> tuple[DeadCode, ...]:
    """What is in one Net and no longer in the other, by step net."""
    return tuple(DeadCode(path, names) for path, names in _gone(before, after) if names)


def zero_lists(before: Net, after: Net) -> tuple[ZeroList, ...]:
    """The lists of zeros that are in one Net and no longer in the other."""
    inside = dict(before.walk())
    return tuple(
        ZeroList(path, name)
        for path, names in _gone(before, after)
        for name in names
        if inside[path].op_by_name[name].type == "ZerosLike"
    )


def _gone(before: Net, after: Net):
    now = dict(after.walk())
    for path, net in before.walk():
        if path in now and now[path] is not net:
            left = now[path].op_by_name
            yield path, tuple(op.name for op in net.ops if op.name not in left)
