"""What loops and blobs are called: after the user's layers and functions, not TensorFlow's ops.

sequential/encoder_1/while                               encoder
gradient_tape/while_1/while_1_grad, made in decode()     decode, gradient
model.py:88 made two loops                               decode (while), decode (while_1)
"""

from __future__ import annotations

import collections
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from rnnmem.ir.graph import Net
from rnnmem.ir.lines import function_of
from rnnmem.ir.op_table import LOOPS

GRADIENT_SCOPES = ("gradient_tape/", "gradients/")
"""Name scopes that TensorFlow gives to what a tape, or ``tf.gradients``, adds."""
BETWEEN = " › "
"""Stands between a loop and what is in it."""
_COUNTER = re.compile(r"_\d+$")
_LOOP = re.compile(r"while(_\d+)?$")
_OP = re.compile(r"(?<![\w./-])[\w.-]+(?:/[\w.-]+)*")
"""The name of an op in a sentence, or any other word."""
_OURS = {"again": "replay"}
"""Loops that rnnmem adds, by the last part of their names."""


class InLoops(Protocol):
    """A blob, or several."""

    @property
    def label(self) -> str:
        """Names of the loops around it, a colon, and its own."""

    @property
    def loops(self) -> tuple[str, ...]:
        """Names of the loops around it, outermost first."""


class Names:
    """The names of a function's loops.

    Args:
      loops: names of the loop ops, at any depth.
      functions: some of them -> the user's Python functions that made them.
    """

    def __init__(self, loops: Iterable[str], functions: Mapping[str, str]):
        plain = {one: _scope(one) or functions.get(one) or one for one in map(_forward, loops)}
        short = {one: without_counter(name) for one, name in plain.items()}
        for found in (short, plain):
            counts = collections.Counter(found.values())
            plain.update({one: name for one, name in found.items() if counts[name] == 1})
        counts = collections.Counter(plain.values())
        self._names = {
            one: name if counts[name] == 1 else f"{name} ({one})" for one, name in plain.items()
        }

    def loop(self, loops: tuple[str, ...]) -> str:
        """The name of the innermost of some loops, behind those around it."""
        told = [self._names.get(_forward(one), _forward(one)) for one in loops]
        gradient = any(_forward(one) != one for one in loops)
        return BETWEEN.join(dict.fromkeys(told)) + (", gradient" if gradient else "")

    def told(self, sentence: str) -> str:
        """A sentence about ops, with the names of loops and layers in place of theirs."""
        return _OP.sub(lambda found: self._op(found[0]), sentence)

    def _op(self, name: str) -> str:
        """What an op is called, with its layer; without one, as TensorFlow calls it."""
        bare = name.removesuffix("/body")
        forward = _forward(bare)
        of = "gradient of " if forward != bare or bare.startswith(GRADIENT_SCOPES) else ""
        if forward in self._names:
            return of + self._names[forward]
        layer = self._layer(bare, ())
        return f"{of}{layer}/{bare.rpartition('/')[2]}" if layer else name

    def _layer(self, name: str, taken: Collection[str]) -> str:
        """The innermost name scope of an op that is neither TensorFlow's own nor taken."""
        scopes = user_scopes(name, taken)
        return scopes[-1] if scopes else ""

    def chain(self, name: str, around: Iterable[str]) -> tuple[str, ...]:
        """What an op is called behind all that it stands in, outermost first; of a gradient, none.

        Args:
          name: of the op.
          around: names of the loops and branches around it, outermost first.
        """
        stands_in = (*around, name)
        if any(is_of_gradient(one) for one in stands_in):
            return ()
        found: list[str] = []
        taken: set[str] = set()
        for loop in (one for one in stands_in if one in self._names):
            found += [*user_scopes(f"{loop}/", taken)[:-1], self._names[loop]]
            taken.update(loop.split("/"))
        own = () if name in self._names else (*user_scopes(name, taken), name.rpartition("/")[2])
        return (*found, *own)

    def places(self, parts: Iterable[InLoops], most: int = 3) -> str:
        """Where some blobs are that are alike: each place once."""
        found = list(dict.fromkeys(map(self.where, parts)))
        more = f" and {len(found) - most} more" if len(found) > most else ""
        return "; ".join(found[:most]) + more

    def where(self, part: InLoops) -> str:
        """The loop and the layer that a blob belongs to."""
        name = part.label.rpartition(": ")[2]
        taken = {scope for loop in part.loops for scope in loop.split("/")}
        layer = self._layer(name, taken)
        if part.loops:
            return self.loop(part.loops) + (f"{BETWEEN}{layer}" if layer else "")
        gradient = "gradient" if name.startswith(GRADIENT_SCOPES) else ""
        return ", ".join(filter(None, (layer, gradient))) or "outside of loops"


def user_scopes(name: str, taken: Collection[str] = ()) -> tuple[str, ...]:
    """The user's name scopes of an op, outermost first, without the counters of TensorFlow's.

    Args:
      name: of the op.
      taken: scopes that are left out.
    """
    scopes = (one for one in name.split("/")[:-1] if one[:1].islower() and one not in taken)
    return tuple(without_counter(one) for one in scopes if not is_technical(one))


def without_counter(scope: str) -> str:
    """A name scope without the number that TensorFlow appends where a name is taken."""
    return _COUNTER.sub("", scope)


def without_gradient_scopes(name: str) -> str:
    """The name of an op without the scopes that TensorFlow puts in front of gradients."""
    while name.startswith(GRADIENT_SCOPES):
        name = name.partition("/")[2]
    return name


def is_of_gradient(name: str) -> bool:
    """Whether an op, by its name, belongs to a gradient."""
    return name.startswith(GRADIENT_SCOPES) or _forward(name) != name


def functions_of(net: Net | None) -> dict[str, str]:
    """Loops of a function, at any depth -> the user's Python functions that made them."""
    if net is None:
        return {}
    loops = (op for _, inner in net.walk() for op in inner.ops if op.type in LOOPS)
    found = {op.name: function_of(op.source) for op in loops}
    return {loop: function for loop, function in found.items() if function}


def _forward(loop: str) -> str:
    """The loop that a gradient loop belongs to; any other loop itself."""
    if not loop.startswith(GRADIENT_SCOPES) and not loop.endswith("_grad"):
        return loop
    name = without_gradient_scopes(loop.removesuffix("_grad"))
    half = name[len(name) // 2 + 1 :]
    return half if name == f"{half}/{half}" else name.rpartition("/")[2]


def _scope(loop: str) -> str:
    """The innermost name scope of a loop that is not TensorFlow's own."""
    scopes = [one for one in loop.split("/") if not _LOOP.match(one)]
    return _OURS.get(scopes[-1], scopes[-1]) if scopes else ""


def is_technical(scope: str) -> bool:
    """Whether a name scope is TensorFlow's own, or ours."""
    technical = scope in ("gradient_tape", "gradients", "rnnmem", "again", "body", "cond")
    return technical or scope.endswith("_grad") or bool(_LOOP.match(scope))
