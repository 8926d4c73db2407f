"""What loops and blobs are called: after the user's layers and functions, not TensorFlow's ops.

sequential/encoder_1/while                               encoder
gradient_tape/while_1/while_1_grad, made in decode()     decode, gradient
model.py:88 made two loops                               decode (while), decode (while_1)
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Mapping

from rnnmem.reports.data import Part, Side

GRADIENT_SCOPES = ("gradient_tape/", "gradients/")
"""Name scopes that TensorFlow gives to what a tape, or ``tf.gradients``, adds."""
_COUNTER = re.compile(r"_\d+$")
_LOOP = re.compile(r"while(_\d+)?$")
_OURS = {"again": "replay"}
"""Loops that rnnmem adds, by the last part of their names."""


class Names:
    """The names of a function's loops.

    Args:
      loops: names of the loop ops, at any depth.
      functions: some of them -> the user's Python functions that made them.
    """

    def __init__(self, loops: Iterable[str], functions: Mapping[str, str]):
        plain = {one: _scope(one) or functions.get(one) or one for one in map(_forward, loops)}
        short = {one: _COUNTER.sub("", name) for one, name in plain.items()}
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
        return " › ".join(dict.fromkeys(told)) + (", gradient" if gradient else "")

    def where(self, part: Part) -> str:
        """The loop and the layer that a blob belongs to."""
        name = part.label.rpartition(": ")[2]
        taken = {scope for loop in part.loops for scope in loop.split("/")}
        scopes = [
            scope
            for scope in name.split("/")[:-1]
            if scope[:1].islower() and scope not in taken and not _is_technical(scope)
        ]
        layer = _COUNTER.sub("", scopes[-1]) if scopes else ""
        if part.loops:
            return self.loop(part.loops) + (f" › {layer}" if layer else "")
        gradient = "gradient" if name.startswith(GRADIENT_SCOPES) else ""
        return ", ".join(filter(None, (layer, gradient))) or "outside of loops"


def names_of(sides: Iterable[Side], functions: Mapping[str, str]) -> Names:
    """The names of the loops of some variants of one function."""
    loops = {loop: None for side in sides for span in side.spans for loop in span.loops}
    return Names(loops, functions)


def _forward(loop: str) -> str:
    """The loop that a gradient loop belongs to; any other loop itself."""
    if not loop.startswith(GRADIENT_SCOPES) and not loop.endswith("_grad"):
        return loop
    name = loop.removesuffix("_grad")
    while name.startswith(GRADIENT_SCOPES):
        name = name.partition("/")[2]
    half = name[len(name) // 2 + 1 :]
    return half if name == f"{half}/{half}" else name.rpartition("/")[2]


def _scope(loop: str) -> str:
    """The innermost name scope of a loop that is not TensorFlow's own."""
    scopes = [one for one in loop.split("/") if not _LOOP.match(one)]
    return _OURS.get(scopes[-1], scopes[-1]) if scopes else ""


def _is_technical(scope: str) -> bool:
    technical = scope in ("gradient_tape", "gradients", "rnnmem", "again", "body", "cond")
    return technical or scope.endswith("_grad") or bool(_LOOP.match(scope))
