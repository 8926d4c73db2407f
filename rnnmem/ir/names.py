"""What loops and blobs are called: after the user's layers and functions, not TensorFlow's ops.

sequential_1/encoder_1/while                             encoder
gradient_tape/while_1/while_1_grad, made in decode()     decode, gradient
model.py:88 made two loops                               decode (while), decode (while_1)

A number at the end of a name is dropped only where no other name differs in nothing but it, and
nobody asked for the name with the number (see `Origins`).
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Protocol

from rnnmem.ir.graph import Net
from rnnmem.ir.joint import BACKWARD
from rnnmem.ir.lines import function_of
from rnnmem.ir.op_table import LOOPS

GRADIENT_SCOPES = ("gradient_tape/", "gradients/", f"{BACKWARD}/")
"""Name scopes that TensorFlow gives to what a tape, or ``tf.gradients``, adds, and that of what it
traces by itself where a function is differentiated later."""
BETWEEN = " › "
"""Stands between a loop and what is in it."""
_COUNTER = re.compile(r"_\d+$")
_TECHNICAL = {"gradient_tape", "gradients", BACKWARD, "rnnmem", "again", "body", "cond"}
_LOOP = re.compile(r"while(_\d+)?$")
_OP = re.compile(r"(?<![\w./-])([\w.-]+(?:/[\w.-]+)*)(:\d+)?")
"""The name of an op or blob in a sentence, or any other word; a line of the user's too."""
_OURS = {"again": "replay", "way": "way to a segment", "items": "items of a product"}
"""Loops that rnnmem adds, by the last part of their names."""


@dataclasses.dataclass(frozen=True)
class Origins:
    """What is known of names beyond themselves; see `rnnmem.ir.origins`.

    Attributes:
      lines: ops that are told of -> the user's lines; in a gradient, those that are differentiated.
      numbered: the user's name scopes, outermost first, that were asked for with their numbers.
    """

    lines: Mapping[str, str] = dataclasses.field(default_factory=dict)
    numbered: frozenset[tuple[str, ...]] = frozenset()


UNKNOWN = Origins()
"""Where names are all that there is."""


class Scopes:
    """The user's name scopes, without the numbers that tell nothing apart.

    Args:
      names: of all ops and blobs that are told of together.
      asked_for: scopes that keep their numbers anyway, outermost first.
    """

    def __init__(self, names: Iterable[str], asked_for: Collection[tuple[str, ...]] = ()):
        self._asked_for = asked_for
        found: dict[tuple[str, ...], set[str]] = {}
        for scopes in {name.rpartition("/")[0] for name in names}:
            path = user_scopes(scopes)
            for depth, scope in enumerate(path):
                found.setdefault((*path[:depth], without_counter(scope)), set()).add(scope)
        self._numbered = {one for one, scopes in found.items() if len(scopes) > 1}

    def of(self, name: str) -> tuple[str, ...]:
        """The user's name scopes of an op, outermost first."""
        path = user_scopes(name.rpartition("/")[0])
        stems = ((*path[:depth], without_counter(scope)) for depth, scope in enumerate(path))
        return tuple(
            scope if stem in self._numbered or self._was_asked_for(path[:end]) else stem[-1]
            for end, (scope, stem) in enumerate(zip(path, stems, strict=True), 1)
        )

    def _was_asked_for(self, path: tuple[str, ...]) -> bool:
        """Whether a scope keeps its number; calls and gradients put scopes in front of it."""
        return any(path[first:] in self._asked_for for first in range(len(path)))


def user_scopes(scopes: str) -> tuple[str, ...]:
    """Those of some name scopes that are not technical."""
    return tuple(one for one in scopes.split("/") if one[:1].islower() and not is_technical(one))


def without_counter(scope: str) -> str:
    """A name without the number that TensorFlow or Keras may have added; they begin with 1."""
    return scope if scope.endswith("_0") else _COUNTER.sub("", scope)


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
      ops: names of the ops and blobs that are told of.
      origins: what is known of the names.
    """

    def __init__(
        self,
        loops: Iterable[str],
        functions: Mapping[str, str],
        ops: Iterable[str] = (),
        origins: Origins = UNKNOWN,
    ):
        self._lines = origins.lines
        every = dict.fromkeys(loops)
        forward = list(dict.fromkeys(map(_forward, every)))
        self._inlined = _inlined(forward, every)
        forward = [one for one in forward if one not in self._inlined]
        self._scopes = Scopes((*ops, *(f"{one}/body" for one in forward)), origins.numbered)
        plain = {one: _scope(one) or functions.get(one) or one for one in forward}
        short = {one: self._short(one, name) for one, name in plain.items()}
        for found in (short, plain):
            counts = collections.Counter(found.values())
            plain.update({one: name for one, name in found.items() if counts[name] == 1})
        counts = collections.Counter(plain.values())
        self._names = {
            one: name if counts[name] == 1 else f"{name} ({one})" for one, name in plain.items()
        }

    def _short(self, loop: str, name: str) -> str:
        """The name of a loop without its number, where that tells it from no other scope."""
        scopes = self._scopes.of(f"{loop}/body") if name == _scope(loop) else ()
        return scopes[-1] if scopes and scopes[-1] in (name, without_counter(name)) else name

    def loop(self, loops: tuple[str, ...]) -> str:
        """The name of the innermost of some loops, behind those around it."""
        told = [self._names.get(one, one) for one in map(self._forward, loops)]
        gradient = any(_forward(one) != one for one in loops)
        return BETWEEN.join(dict.fromkeys(told)) + (", gradient" if gradient else "")

    def _forward(self, loop: str) -> str:
        """The loop that a gradient loop belongs to, as it is called in the function."""
        forward = _forward(loop)
        return forward if forward == loop else self._inlined.get(forward, forward)

    def told(self, sentence: str) -> str:
        """A sentence about ops, with the names of loops and layers in place of theirs."""
        return _OP.sub(self._word, sentence)

    def _word(self, found: re.Match[str]) -> str:
        """What a word of a sentence is called: an op, a blob, or itself."""
        name, number = found[1], found[2]
        has_line = found.string.startswith(" (", found.end())
        told = self._op(name, "" if has_line else self._lines.get(name, ""))
        if told == name or number in (None, ":0"):
            return found[0] if told == name else told
        return f"result {number[1:]} of {told}"

    def _op(self, name: str, line: str) -> str:
        """What an op is called: with its layer or loop, and its line; else as TensorFlow does."""
        bare = name.removesuffix("/body")
        forward = self._forward(bare)
        of = "gradient of " if forward != bare or bare.startswith(GRADIENT_SCOPES) else ""
        if forward in self._names:
            return of + self._names[forward]
        where = f" ({line})" if line else ""
        layer = self._layer(bare, ())
        if layer:
            return f"{of}{layer}/{bare.rpartition('/')[2]}{where}"
        around, _, last = without_gradient_scopes(bare).rpartition("/")
        if around in self._names:
            return f"{of}{self._names[around]}/{last}{where}"
        if bare.startswith(f"{BACKWARD}/"):
            return f"{last} of the gradient{where}"
        return f"{of}{self._in_loop(bare)}{where}" if line else name

    def _in_loop(self, name: str) -> str:
        """The name of an op, of a gradient or not, behind what the loop around it is called."""
        parts = differentiated(name).split("/")
        for end in reversed(range(1, len(parts))):
            if (loop := "/".join(parts[:end])) in self._names:
                return "/".join((self._names[loop], *parts[end:]))
        return "/".join(parts)

    def _layer(self, name: str, taken: Collection[str]) -> str:
        """The innermost name scope of an op that is neither TensorFlow's own nor taken."""
        scopes = self._layers(name, taken)
        return scopes[-1] if scopes else ""

    def _layers(self, name: str, taken: Collection[str]) -> list[str]:
        """What the user's name scopes of an op are called, outermost first, but for those taken."""
        scopes = user_scopes(name.rpartition("/")[0])
        told = zip(scopes, self._scopes.of(name), strict=True)
        return [short for scope, short in told if scope not in taken]

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
            found += [*self._layers(f"{loop}/", taken)[:-1], self._names[loop]]
            taken.update(loop.split("/"))
        own = () if name in self._names else (*self._layers(name, taken), name.rpartition("/")[2])
        return (*found, *own)

    def places(self, parts: Iterable[InLoops], most: int = 3) -> str:
        """Where some blobs are that are alike: each place once."""
        found = list(dict.fromkeys(map(self.where, parts)))
        more = f" and {len(found) - most} more" if len(found) > most else ""
        return "; ".join(found[:most]) + more

    def where(self, part: InLoops) -> str:
        """The loop and the layer that a blob belongs to."""
        name = part.label.rpartition(": ")[2]
        around = (*part.loops, *map(_forward, part.loops))
        taken = {scope for loop in around for scope in loop.split("/")}
        layer = self._layer(name, taken)
        if part.loops:
            return self.loop(part.loops) + (f"{BETWEEN}{layer}" if layer else "")
        gradient = "gradient" if name.startswith(GRADIENT_SCOPES) else ""
        return ", ".join(filter(None, (layer, gradient))) or "outside of loops"


def functions_of(net: Net | None) -> dict[str, str]:
    """Loops of a function, at any depth -> the user's Python functions that made them."""
    if net is None:
        return {}
    loops = (op for _, inner in net.walk() for op in inner.ops if op.type in LOOPS)
    found = {op.name: function_of(op.source) for op in loops}
    return {loop: function for loop, function in found.items() if function}


def words_of(sentence: str) -> Iterator[str]:
    """Names of ops in a sentence, and other words that might be."""
    return (found[1] for found in _OP.finditer(sentence))


def is_of_gradient(name: str) -> bool:
    """Whether an op, by its name, belongs to a gradient."""
    return name.startswith(GRADIENT_SCOPES) or _forward(name) != name


def _forward(loop: str) -> str:
    """The loop that a gradient loop belongs to; any other loop itself."""
    if not loop.startswith(GRADIENT_SCOPES) and not loop.endswith("_grad"):
        return loop
    name = without_gradient_scopes(loop.removesuffix("_grad"))
    scopes = name.split("/")
    for first in range(1, len(scopes)):
        twice = "/".join(scopes[first:])
        if f"/{name}".endswith((f"/{twice}/{twice}", f"/{twice}_grad/{twice}")):
            return twice
    return scopes[-1]


def without_gradient_scopes(name: str) -> str:
    """The name of an op without the scopes that TensorFlow puts in front of gradients."""
    while name.startswith(GRADIENT_SCOPES):
        name = name.partition("/")[2]
    return name


def differentiated(name: str) -> str:
    """The name of an op without what stands before it in a gradient, and in the step net of one."""
    return without_gradient_scopes(name.rpartition("/gradients/")[2])


def _inlined(forward: Collection[str], loops: Collection[str]) -> dict[str, str]:
    """Names of loops that only their gradients have -> those behind the call that was inlined."""
    behind = {
        one: [loop for loop in loops if loop in forward and loop.endswith(f"/{one}")]
        for one in forward
        if one not in loops
    }
    return {one: found[0] for one, found in behind.items() if len(found) == 1}


def _scope(loop: str) -> str:
    """The innermost name scope of a loop that is not TensorFlow's own."""
    scopes = [one for one in loop.split("/") if not _LOOP.match(one)]
    return _OURS.get(scopes[-1], scopes[-1]) if scopes else ""


def is_technical(scope: str) -> bool:
    """Whether a name scope is TensorFlow's own, or ours."""
    technical = scope in _TECHNICAL
    return technical or scope.endswith("_grad") or bool(_LOOP.match(scope))
