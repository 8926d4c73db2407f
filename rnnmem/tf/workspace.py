"""Runs a Net op by op over named storages, so that blobs really overwrite each other.

Each name is a piece of memory. An op reads copies of its storages, a TensorFlow kernel computes,
and the results are copied into the storages of its outputs, whatever was there. What is read no
more is filled with NaN, so a plan that reuses a storage too early gives other numbers:

    storage s    x x x x   NaN NaN   y y y y
                 a         dead      b

Loops, branches and calls run their step nets here too; the storages that step nets own together
(``//loop/body/...``) are there once. This verifies and profiles; it is no fast way to run a Net.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from rnnmem.analysis.versions import OUTSIDE, ssa
from rnnmem.errors import NetError, RnnmemWarning
from rnnmem.ir.graph import Constant, DType, FunctionRef, Net, Op, ShapeValue
from rnnmem.ir.op_table import BRANCHES, CALLS, LOOPS
from rnnmem.sizes import counted
from rnnmem.storage.plan import GLOBAL, is_shared
from rnnmem.tf import private, signatures
from rnnmem.tf.attributes import decode, dtype_enum

POISON = 0xFF
"""Every byte of a dead storage: NaN for floats, -1 for ints."""


@dataclasses.dataclass
class Spent:
    """What an op spent in all its runs.

    Attributes:
      type: the op type.
      runs: how often it ran.
      seconds: in its kernel (for an op with step nets: in all of them).
      bytes: that it wrote.
    """

    type: str
    runs: int = 0
    seconds: float = 0.0
    bytes: int = 0


class Storage:
    """A named piece of memory; a value of another length makes it grow, never shrink."""

    __slots__ = ("capacity", "dtype", "fixed", "memory", "shape", "size", "value")

    def __init__(self, capacity: int | None):
        self.fixed = capacity
        self.capacity = self.size = 0
        self.memory = np.zeros(0, np.uint8)
        self.value: Any = None
        self.dtype = self.shape = None

    def write(self, value: Any, name: str) -> int:
        """Puts a tensor in; a handle (list, variable, string) is kept as it is.

        Returns:
          Bytes written.

        Raises:
          NetError: the value is larger than the storage was planned to be.
        """
        if value.dtype.as_datatype_enum in _HANDLES:
            self.value, self.dtype = value, None
            return 0
        array = value.numpy()
        size = array.nbytes
        if self.fixed is not None and size > self.fixed:
            raise NetError(
                f"storage {name!r} was planned with {self.fixed} bytes and is given {size}"
            )
        if size > self.capacity:
            self.memory = np.full(max(size, self.fixed or 0), POISON, np.uint8)
            self.capacity = len(self.memory)
        self.memory[:size] = array.reshape(-1).view(np.uint8)
        self.dtype, self.shape, self.size, self.value = array.dtype, array.shape, size, None
        return size

    def read(self) -> Any:
        """A tensor with what stands there now."""
        if self.dtype is None:
            return self.value
        copy = self.memory[: self.size].copy().view(self.dtype).reshape(self.shape)
        return tf.convert_to_tensor(copy)

    def poison(self) -> None:
        """Spoils what stands there."""
        if self.dtype is not None:
            self.memory[:] = self.dtype == np.bool_ or POISON
        self.value = None


_HANDLES = frozenset(one.as_datatype_enum for one in (tf.variant, tf.resource, tf.string))


class Workspace:
    """Runs one Net, shared or not.

    Args:
      net: the Net; its op types are TensorFlow's.
      poison: whether dead storages are spoiled.
      most_runs: how many ops may be run in all; None: any number.

    Attributes:
      spent: ``path/op`` -> what it spent, filled by `run`.
      sizes: ``path/blob`` -> most bytes that were written, handles 0; filled by `run`.
    """

    def __init__(self, net: Net, *, poison: bool = True, most_runs: int | None = None):
        self.net = net
        self.most_runs = most_runs
        self._runs = 0
        self.poison = poison
        self.spent: dict[str, Spent] = {}
        self.sizes: dict[str, int] = {}
        self._shared: dict[str, Storage] = {}
        self._programs: dict[tuple[int, str], list[_Step]] = {}
        self._capacities: dict[str, int | None] = {}
        for _, inner in net.walk():
            for name, blob in inner.blobs.items():
                if name.startswith(GLOBAL):
                    sizes = [self._capacities.get(name, 0), blob.bytes]
                    known = [size for size in sizes if size is not None]
                    self._capacities[name] = max(known) if len(known) == len(sizes) else None

    def run(self, inputs: Sequence[Any]) -> list[tf.Tensor]:
        """Runs the Net on its inputs, in their order; returns its outputs.

        Raises:
          NetError: another number of inputs, an op that TensorFlow cannot run alone, a storage that
            is smaller than what it is given, or more runs of ops than may be.
        """
        if len(inputs) != len(self.net.inputs):
            raise NetError(f"the Net has {len(self.net.inputs)} inputs, not {len(inputs)}")
        return self._net(self.net, [_tensor(value) for value in inputs], "")

    def _net(self, net: Net, inputs: Sequence[Any], path: str) -> list[Any]:
        key = (id(net), path)
        if key not in self._programs:
            self._programs[key] = _compile(net, path)
        frame: dict[str, Storage] = {}
        for blob, value in zip(net.inputs, inputs, strict=True):
            frame[blob] = Storage(None)
            frame[blob].write(value, blob)
        capacities = net.blobs if is_shared(net) else {}
        for step in self._programs[key]:
            self._runs += 1
            if self.most_runs is not None and self._runs > self.most_runs:
                raise NetError(f"{path}{step.op.name}: {self.most_runs} ops were run, and no end")
            values = [self._storage(frame, blob).read() for blob in step.op.inputs]
            start = time.perf_counter()
            results = self._op(step, values, path)
            seconds = time.perf_counter() - start
            written = 0
            for blob, value in zip(step.op.outputs, results, strict=True):
                if blob not in frame and not blob.startswith(GLOBAL):
                    planned = capacities.get(blob)
                    frame[blob] = Storage(None if planned is None else planned.bytes)
                size = self._storage(frame, blob).write(value, blob)
                written += size
                self.sizes[path + blob] = max(size, self.sizes.get(path + blob, 0))
            spent = self.spent.setdefault(path + step.op.name, Spent(step.op.type))
            spent.runs += 1
            spent.seconds += seconds
            spent.bytes += written
            if self.poison:
                for blob in step.dead:
                    self._storage(frame, blob).poison()
        return [self._storage(frame, blob).read() for blob in net.outputs]

    def _storage(self, frame: dict[str, Storage], blob: str) -> Storage:
        if not blob.startswith(GLOBAL):
            return frame[blob]
        if blob not in self._shared:
            self._shared[blob] = Storage(self._capacities.get(blob))
        return self._shared[blob]

    def _op(self, step: _Step, values: list[Any], path: str) -> list[Any]:
        op = step.op
        if op.type in LOOPS:
            inner = f"{path}{op.name}/"
            while bool(self._net(op.nets["cond"], values, f"{inner}cond/")[0]):
                values = self._net(op.nets["body"], values, f"{inner}body/")
            return values
        if op.type in BRANCHES or op.type in CALLS:
            key, given = _chosen(op, values)
            return self._net(op.nets[key], given, f"{path}{op.name}/{key}/")
        assert step.kernel is not None  # an op without step nets has one
        try:
            return step.kernel(values)
        except tf.errors.OpError as error:
            raise NetError(f"op {path}{op.name} ({op.type}) failed: {error.message}") from error


def collect_sizes(net: Net, inputs: Sequence[Any]) -> Mapping[str, int]:
    """Runs a Net once and tells the bytes of each blob, ``path/blob`` in step nets.

    A blob that cannot be fetched (a list, a variable, a string) counts 0, with a warning. The
    result serves as ``sizes=`` of the functions of :mod:`rnnmem.storage`.
    """
    workspace = Workspace(net, poison=False)
    workspace.run(inputs)
    closed = [
        path.child(blob).text
        for path, inner in net.walk()
        for op in inner.ops
        for blob in op.outputs
        if (known := inner.blobs.get(blob)) and known.dtype in ("variant", "resource", "string")
    ]
    if closed:
        warnings.warn(
            f"{counted(len(closed), 'blob')} cannot be fetched, taken as 0, e.g. {closed[0]!r}",
            RnnmemWarning,
            stacklevel=2,
        )
    return dict(workspace.sizes)


@dataclasses.dataclass(frozen=True)
class _Step:
    op: Op
    kernel: Callable[[list[Any]], list[Any]] | None
    dead: tuple[str, ...]


def _compile(net: Net, path: str) -> list[_Step]:
    past = ssa(net)
    final = {past.last(blob) for blob in net.outputs}
    dead: dict[int, list[str]] = {}
    for version, name in enumerate(past.name):
        if version not in final and past.writer[version] != OUTSIDE:
            last = max((past.writer[version], *past.readers[version]))
            # An op that reads a version and writes the next one over it leaves nothing dead.
            if name not in past.ops[last].outputs or past.writer[version] == last:
                dead.setdefault(last, []).append(name)
    steps = []
    for index, op in enumerate(past.ops):
        kernel = None if op.nets else _kernel(op, path)
        steps.append(_Step(op, kernel, tuple(dead.get(index, ()))))
    return steps


def _tensor(value: Any) -> Any:
    return value if isinstance(value, tf.Tensor) else tf.convert_to_tensor(value)


def _chosen(op: Op, values: list[Any]) -> tuple[str, list[Any]]:
    """The attribute name of the Net that runs, and what it is given."""
    if op.type in CALLS:
        return "f", values
    if "then_branch" in op.nets:
        return ("then_branch" if _is_true(values[0]) else "else_branch"), values[1:]
    last = len(op.nets) - 1
    index = int(values[0])
    return f"branches/{index if 0 <= index <= last else last}", values[1:]


def _is_true(value: Any) -> bool:
    return bool(value.numpy()) if value.shape.rank == 0 else value.shape.num_elements() > 0


def _kernel(op: Op, path: str) -> Callable[[list[Any]], list[Any]]:
    """A function that runs the op's kernel on tensors."""
    if op.type == "NoOp":
        return lambda values: []
    if op.type == "Const":
        held: Constant = op.attributes["value"]
        value = tf.constant(tf.make_ndarray(tensor_pb2.TensorProto.FromString(held.encoded)))
        return lambda values: [value]
    if op.type.startswith("Placeholder") and not op.inputs:
        raise NetError(f"{path}{op.name} is a placeholder that is no input of the Net")
    definition = signatures.op_def(op.type)
    known = dict(op.attributes)
    signatures.with_defaults(op.type, known, decode)
    fixed = [
        (attr.name, _plain(known[attr.name])) for attr in definition.attr if attr.name in known
    ]
    count = len(op.outputs)
    flat: tuple[Any, ...] = ()

    def run(values: list[Any]) -> list[Any]:
        nonlocal flat
        if not flat:
            missing = len(fixed) < len(definition.attr)
            given = {**dict(_inferred(definition, values) if missing else ()), **dict(fixed)}
            flat = tuple(item for pair in given.items() for item in pair)
        with tf.device(op.device) if op.device else contextlib.nullcontext():
            found = private.execute(op.type, count, values, flat)
        return list(found) if count else []

    return run


def _inferred(definition: Any, values: list[Any]) -> list[tuple[str, Any]]:
    """Types and counts that the inputs tell, for an op that does not state them."""
    found: list[tuple[str, Any]] = []
    rest = list(values)
    single = [arg for arg in definition.input_arg if not (arg.number_attr or arg.type_list_attr)]
    for arg in definition.input_arg:
        if arg.number_attr or arg.type_list_attr:
            taken = len(values) - len(single)
            some, rest = rest[:taken], rest[taken:]
            if arg.type_list_attr:
                found.append((arg.type_list_attr, [one.dtype.as_datatype_enum for one in some]))
                continue
            found.append((arg.number_attr, taken))
        else:
            some, rest = rest[:1], rest[1:]
        if arg.type_attr and some:
            found.append((arg.type_attr, some[0].dtype.as_datatype_enum))
    return found


def _plain(value: Any) -> Any:
    """An attribute as the eager runtime takes it."""
    match value:
        case tuple():
            return [_plain(item) for item in value]
        case DType():
            return dtype_enum(value.name)
        case ShapeValue():
            dims = value.dims
            return None if dims is None else [-1 if size is None else size for size in dims]
        case FunctionRef():
            return value.name
    return value
