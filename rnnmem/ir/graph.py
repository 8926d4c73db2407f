"""The vocabulary: Net, Op, Blob, Path, and the values that an op's attributes may hold.

A Net is plain, frozen data. Nothing here, or anywhere else in ``rnnmem.ir``, knows TensorFlow, so
everything that is decided on a Net can be tested on a Net made by hand.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Self, TypeVar

from rnnmem.ir.lines import Line

Shape = tuple[int | None, ...] | None
"""A blob's shape: None where the rank is unknown, a None entry where a dimension is."""

_T = TypeVar("_T")
_NOTHING: Mapping[str, Any] = MappingProxyType({})

ACCUMULATED: Mapping[str, str] = MappingProxyType(
    {"bfloat16": "float32", "float16": "float32", "half": "float32"}
)
"""Dtype -> the one in which its numbers are added up, where that is another one."""

REAL_DTYPES = frozenset({"bfloat16", "float16", "float32", "float64"})
"""Dtypes of real numbers that kernels round one by one."""
BYTES_PER_ELEMENT: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("bool", "int8", "uint8", "qint8", "quint8"), 1),
        **dict.fromkeys(("float8_e5m2", "float8_e4m3fn", "int4", "uint4"), 1),
        **dict.fromkeys(("float16", "bfloat16", "int16", "uint16", "qint16", "quint16"), 2),
        **dict.fromkeys(("float32", "int32", "uint32", "qint32"), 4),
        **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 8),
        "complex128": 16,
    }
)
"""Bytes of one element by dtype; dtypes of handles (variant, resource, string) are absent."""


@dataclasses.dataclass(frozen=True, slots=True)
class DType:
    """An attribute value that names a dtype, e.g. ``DType("float32")``."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class ShapeValue:
    """An attribute value that holds a shape (which may be wholly unknown)."""

    dims: Shape


VARIABLE_SHAPES = "variable_shapes"
"""The attribute of a whole Net that tells the shape of the variable behind each handle given it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Constant:
    """An attribute value that holds a constant's elements in the exporter's own encoding."""

    dtype: str
    shape: Shape
    encoded: bytes
    value: int | float | bool | tuple[int, ...] | None = None  # of one number or a short int vector
    rows: tuple[tuple[int, ...], ...] | None = None  # of a small int matrix


@dataclasses.dataclass(frozen=True, slots=True)
class FunctionRef:
    """An attribute value that names a library function which is never descended into."""

    name: str
    encoded: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Blob:
    """A named value that an op writes and ops read."""

    name: str
    dtype: str
    shape: Shape = None

    @property
    def bytes(self) -> int | None:
        """Bytes of the value, or None where the dtype holds handles or a dimension is unknown."""
        return bytes_of(self.dtype, self.shape)


@functools.lru_cache(4096)  # a function has few shapes, and is asked for their bytes all the time
def bytes_of(dtype: str, shape: Shape) -> int | None:
    """Bytes of a value, or None where the dtype holds handles or a dimension is unknown."""
    size = BYTES_PER_ELEMENT.get(dtype)
    known = static(shape)
    return None if size is None or known is None else size * math.prod(known)


def static(shape: Shape) -> tuple[int, ...] | None:
    """A shape all of which is known; None for any other."""
    known = () if shape is None else tuple(one for one in shape if one is not None)
    return None if shape is None or len(known) < len(shape) else known


def may_be_one_shape(one: Shape, other: Shape) -> bool:
    """Whether two shapes may turn out to be the same."""
    if one is None or other is None:
        return True
    return len(one) == len(other) and all(
        a == b or a is None or b is None for a, b in zip(one, other, strict=True)
    )


def kind_text(dtype: str, shape: Shape) -> str:
    """A dtype and a shape for people; ``?`` for what is unknown."""
    dims = "?" if shape is None else ",".join("?" if d is None else str(d) for d in shape)
    return f"{dtype}[{dims}]"


class FindsOnce:
    """What never changes keeps what was found out about it."""

    def once(self, find: Callable[[Self], _T]) -> _T:
        """``find(self)``, worked out once."""
        if find not in self._found:
            self._found[find] = find(self)
        return self._found[find]

    @functools.cached_property
    def _found(self) -> dict[Callable, Any]:
        return {}


@dataclasses.dataclass(frozen=True, slots=True)
class Op(FindsOnce):
    """One operation: what it reads, what it writes, and the Nets that it runs.

    Attributes:
      name: unique in its Net.
      type: the kernel, e.g. ``MatMul``.
      inputs: blob names, in the order of the kernel's arguments.
      outputs: blob names, in the order of the kernel's results.
      attributes: name -> int, float, bool, bytes, DType, ShapeValue, Constant, FunctionRef, or a
        tuple of those.
      controls: names of ops that must have run before this one starts.
      nets: attribute name -> step net (a loop's ``cond`` and ``body``, a branch, a call's ``f``).
      device: where it runs; empty: wherever it is placed.
      source: the user's line that made it, e.g. ``train.py:88``; empty where unknown.
      stateful: whether running it can be seen elsewhere, or depends on more than its inputs.
      stateless: whether TensorFlow's registry says that neither is so; of an op that it does not
        know, and of one that we add, neither is said.
    """

    name: str
    type: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=lambda: _NOTHING)
    controls: tuple[str, ...] = ()
    nets: Mapping[str, Net] = dataclasses.field(default_factory=lambda: _NOTHING)
    device: str = ""
    source: str | Line = ""
    stateful: bool = False
    stateless: bool = False

    def replace(self, **changes: Any) -> Op:
        """A copy of this op with the given fields changed."""
        return Op(**(dict(zip(_OP_FIELDS, _values_of(self), strict=True)) | changes))


_OP_FIELDS = tuple(field.name for field in dataclasses.fields(Op))
_values_of = operator.attrgetter(*_OP_FIELDS)


class Path(tuple[str, ...]):
    """The way from a Net to one below it: names of ops and keys of their step nets, in turn.

    It may go one name further, to an op. It equals the plain tuple of the names.
    """

    __slots__ = ()

    @classmethod
    def of(cls, *names: str) -> Path:
        """The path of these names."""
        return cls(names)

    def child(self, *names: str) -> Path:
        """The path that goes on by these names."""
        return Path((*self, *names))

    @property
    def text(self) -> str:
        """The names with slashes between them, for people."""
        return "/".join(self)

    def at(self, net: Net) -> Net:
        """The step net at the end of the path from a Net.

        Raises:
          KeyError: there is none.
        """
        for name, key in zip(self[::2], self[1::2], strict=True):
            net = net.op_by_name[name].nets[key]
        return net

    def put(self, net: Net, new: Net, **marks: Any) -> Net:
        """The Net with another step net at the end of the path; the op that runs it gets marks."""
        if not self:
            return new
        name, key = self[:2]
        op, below = net.op_by_name[name], Path(self[2:])
        changed = op.replace(nets={**op.nets, key: below.put(op.nets[key], new, **marks)})
        if marks and not below:
            changed = changed.replace(attributes={**op.attributes, **marks})
        return net.replace(ops=tuple(changed if one is op else one for one in net.ops))


class _Index:
    """Who writes, reads and awaits what among some ops; each question is settled once."""

    def __init__(self, ops: tuple[Op, ...]):
        self._ops = ops
        self._found: dict[Callable, Any] = {}

    def found(self, find: Callable[[tuple[Op, ...]], _T]) -> _T:
        if find not in self._found:
            self._found[find] = find(self._ops)
        return self._found[find]

    @functools.cached_property
    def op_by_name(self) -> Mapping[str, Op]:
        return {op.name: op for op in self._ops}

    @functools.cached_property
    def producer(self) -> Mapping[str, Op]:
        return {blob: op for op in self._ops for blob in op.outputs}

    @functools.cached_property
    def readers(self) -> Mapping[str, tuple[Op, ...]]:
        found: dict[str, list[Op]] = {}
        for op in self._ops:
            for blob in op.inputs:
                if blob in found:
                    found[blob].append(op)
                else:
                    found[blob] = [op]
        return {blob: tuple(ops) for blob, ops in found.items()}

    @functools.cached_property
    def controlled(self) -> Mapping[str, tuple[Op, ...]]:
        found: dict[str, list[Op]] = {}
        for op in self._ops:
            for name in op.controls:
                found.setdefault(name, []).append(op)
        return {name: tuple(ops) for name, ops in found.items()}


@dataclasses.dataclass(frozen=True)
class Net(FindsOnce):
    """A list of ops over named blobs.

    Attributes:
      name: for people, and the stem of an exported function's name.
      inputs: blobs that are given from outside, in order.
      outputs: blobs that are handed outside, in order (a blob may stand there twice).
      ops: in an order in which they may run.
      blobs: name -> Blob, for every name that stands in ``inputs`` or in an op.
      control_outputs: names of ops that must run even where no output needs them.
      attributes: what the exporter must hand back untouched (e.g. argument attributes).
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    ops: tuple[Op, ...]
    blobs: Mapping[str, Blob]
    control_outputs: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=lambda: _NOTHING)

    def __str__(self) -> str:
        """The Net as text, which :func:`rnnmem.ir.text.parse` reads."""
        from rnnmem.ir.text import to_text  # it is made of the nouns here

        return to_text(self)

    def replace(self, **changes: Any) -> Net:
        """A copy of this Net with the given fields changed."""
        copy = dataclasses.replace(self, **changes)
        if copy.ops is self.ops:
            copy.__dict__["_index"] = self._index
        return copy

    @functools.cached_property
    def _index(self) -> _Index:
        """What is known of the ops; Nets of the same ops share it."""
        return _Index(self.ops)

    @functools.cached_property
    def op_by_name(self) -> Mapping[str, Op]:
        """Op name -> Op."""
        return self._index.op_by_name

    @functools.cached_property
    def producer(self) -> Mapping[str, Op]:
        """Blob -> the op that writes it (the last one, where several do); inputs have none."""
        return self._index.producer

    @functools.cached_property
    def readers(self) -> Mapping[str, tuple[Op, ...]]:
        """Blob -> the ops that read it, once per input slot; absent where nobody does."""
        return self._index.readers

    @functools.cached_property
    def controlled(self) -> Mapping[str, tuple[Op, ...]]:
        """Op name -> the ops that wait for it through a control edge."""
        return self._index.controlled

    def of_ops(self, find: Callable[[tuple[Op, ...]], _T]) -> _T:
        """``find(ops)``, worked out once for all Nets of the same ops."""
        return self._index.found(find)

    def fan_out(self, blob: str) -> int:
        """How many slots read the blob: op inputs, and outputs of this Net."""
        return len(self.readers.get(blob, ())) + self._handed.get(blob, 0)

    @functools.cached_property
    def _handed(self) -> Mapping[str, int]:
        """Blob -> how often it stands among the outputs; absent where it does not."""
        return collections.Counter(self.outputs)

    @property
    def op_count(self) -> int:
        """How many ops there are in this Net and in each below it."""
        return sum(len(net.ops) for _, net in self.walk())

    def walk(self) -> Iterator[tuple[Path, Net]]:
        """Yields ``(path, net)`` for this Net and each below it."""
        yield Path(), self
        for op in self.ops:
            for key, inner in op.nets.items():
                for path, net in inner.walk():
                    yield Path((op.name, key, *path)), net
