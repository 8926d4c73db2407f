"""``convert``: another dtype or device for what holds variables, without holding it twice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rnnmem.conversion import stale
from rnnmem.conversion.collect import Found, collect
from rnnmem.conversion.floats import FLOATS, MIXED, parse_dtype
from rnnmem.conversion.holders import TensorHolder, VariableHolder
from rnnmem.conversion.memory import free_bytes
from rnnmem.conversion.plan import ConversionPlan, Tensor, make_plan
from rnnmem.conversion.policies import Change, policy_changes
from rnnmem.conversion.progress import reporting
from rnnmem.conversion.ranges import Excess, excess_of
from rnnmem.conversion.transaction import Transaction
from rnnmem.errors import ConvertError, OptionError, RangeError
from rnnmem.sizes import counted, format_bytes
from rnnmem.tf.own_devices import find_device, sync_devices

_OVERFLOW = ("error", "clip", "ignore")
_NAMED = 8

Progress = bool | None | Callable[[int, int, str], None]


def convert(
    target: Any,
    dtype: Any = None,
    device: str | None = None,
    *,
    blocking: bool = True,
    only_floats: bool = True,
    dry_run: bool = False,
    overflow: str = "error",
    progress: Progress = None,
) -> Any:
    """Gives variables another dtype, another device or both, in place and tensor by tensor.

    Each tensor is tested against the memory that is free: where its new form fits beside its old
    one it is cast on the device, else it goes through the host. All Python objects stay the same
    (model, layers, variables, the optimizer's references); ``tf.function``s trace again; Keras
    dtype policies follow. After an error, Ctrl-C included, either every tensor is as it was or
    every tensor is converted.

    Args:
      target: a Keras model, layer, optimizer or metric, a ``tf.Module``, a variable, an eager
        tensor, or a list, tuple or dict of them. A model brings its optimizer. Eager tensors are
        immutable: the items of a list or dict, or the attributes, that hold them are replaced.
      dtype: float8_e4m3fn, float8_e5m2, bfloat16, float16, float32 or float64, or for Keras layers
        mixed_float16 or mixed_bfloat16 (variables in float32); None leaves it. Integers, strings,
        complex numbers, random states, counters, metrics and settings of an optimizer (learning
        rate, loss scale) keep theirs, as in a model that is built in the new dtype.
      device: such as "GPU:0" or "CPU:0"; None leaves it. Everything but strings and resources goes.
      blocking: False returns before a GPU has finished; later ops wait for it by themselves. It has
        no effect on a CPU.
      only_floats: False gives integer and boolean variables the new dtype too, but not those that
        Keras counts or draws random numbers with.
      dry_run: True changes nothing, prints the plan and returns it.
      overflow: values outside the new dtype's range raise ("error"), become the nearest value in
        range ("clip"), or infinite or NaN ("ignore").
      progress: None shows a bar for long work on a terminal, True always, False never; a function
        is called with bytes done, bytes in all and the tensor's name.

    Returns:
      The target; a new tensor or tuple where the target is one. With ``dry_run`` a
      ``ConversionPlan``.

    Raises:
      OptionError: an argument is malformed or unknown.
      RangeError: values are outside the range of the new dtype; nothing was changed.
      ConvertError: a variable cannot be converted, or memory does not suffice; nothing was changed.
    """
    _check_flags(blocking=blocking, only_floats=only_floats, dry_run=dry_run)
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise OptionError(f"progress={progress!r} must be True, False, None or a function")
    if dtype is None and device is None:
        raise OptionError(
            "dtype=None and device=None: nothing is asked for; give a dtype such as 'float16', "
            "a device such as 'GPU:0', or both"
        )
    wanted = _Wanted.of(dtype, device, only_floats=only_floats, overflow=overflow)
    if not tf.executing_eagerly() or tf.inside_function():
        raise ConvertError("convert works outside of tf.function and of graphs: call it there")
    found = collect(target)
    if wanted.dtype in MIXED and not found.layers:
        raise OptionError(f"dtype={dtype!r} is a policy of Keras layers, and the target has none")
    work = _Work(found, wanted)
    if dry_run:
        print(work.plan, end="")
        return work.plan
    work.carry_out(progress)
    if blocking:
        sync_devices()
    return found.result()


def _check_flags(**flags: Any) -> None:
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise OptionError(f"{name}={value!r} must be True or False")


@dataclasses.dataclass(frozen=True)
class _Wanted:
    """The arguments, checked."""

    dtype: str | None
    device: str | None
    only_floats: bool
    overflow: str

    @classmethod
    def of(cls, dtype: Any, device: Any, *, only_floats: bool, overflow: str) -> _Wanted:
        if overflow not in _OVERFLOW:
            raise OptionError(f"overflow={overflow!r}: choose from {', '.join(_OVERFLOW)}")
        return cls(
            dtype=None if dtype is None else parse_dtype(dtype),
            device=None if device is None else find_device(device),
            only_floats=only_floats,
            overflow=overflow,
        )

    @property
    def variable_dtype(self) -> str | None:
        """What variables become."""
        return "float32" if self.dtype in MIXED else self.dtype


class _Work:
    """One conversion: everything that can fail without a trace comes first."""

    def __init__(self, found: Found, wanted: _Wanted):
        self._found = found
        self._wanted = wanted
        self._holders = found.holders
        self._tensors = [_facts(h, found.reasons.get(id(h)), wanted) for h in self._holders]
        self._changes = _changes(found, wanted)
        self._free = free_bytes(*_places(self._tensors))
        self.plan = make_plan(self._tensors, self._free)

    def carry_out(self, progress: Progress) -> None:
        """Converts, all or nothing."""
        _check_fits(self.plan)
        changing = [self._holders[step.index] for step in self.plan.changing]
        handles = stale.handles_of(changing)
        readers = stale.readers_of(handles) if handles or self._changes else None
        clipped = self._out_of_range()
        if clipped:
            self.plan = make_plan(self._tensors, self._free, frozenset(clipped))
            _check_fits(self.plan)

        def commit() -> None:
            _do(self._changes)
            if readers is not None:
                stale.retire(readers, handles)

        with reporting(self.plan, progress) as report:
            Transaction(self.plan, self._holders, clipped, report).run(commit)

    def _out_of_range(self) -> set[int]:
        """Indices of tensors that must be clipped."""
        if self._wanted.overflow == "ignore":
            return set()
        excess = {}
        for step in self.plan.changing:
            tensor = step.tensor
            if tensor.dtype_before != tensor.dtype_after:
                value = self._holders[step.index].read()
                found = excess_of(value, tensor.name, tensor.dtype_after, tensor.device_before)
                if found is not None:
                    excess[step.index] = found
        if excess and self._wanted.overflow == "error":
            raise RangeError(_excess_text(list(excess.values()), self._wanted.variable_dtype))
        return set(excess)


def _facts(holder: VariableHolder | TensorHolder, reason: str | None, wanted: _Wanted) -> Tensor:
    before, device = holder.dtype.base_dtype, holder.device
    after, why = _new_dtype(before, reason, wanted)
    fixed = before in (tf.string, tf.resource, tf.variant)
    return Tensor(
        name=holder.name,
        count=0 if fixed else holder.count(),
        dtype_before=before.name,
        dtype_after=after.name,
        itemsize_before=0 if fixed else before.size,
        itemsize_after=0 if fixed else after.size,
        device_before=device,
        device_after=device if fixed or wanted.device is None else wanted.device,
        reason=why,
    )


def _new_dtype(before: tf.DType, reason: str | None, wanted: _Wanted) -> tuple[tf.DType, str]:
    if wanted.variable_dtype is None:
        return before, ""
    after = tf.as_dtype(wanted.variable_dtype)
    if reason is not None:
        return before, "" if before == after else reason
    if before.name in FLOATS:
        return after, ""
    if not wanted.only_floats and (before.is_integer or before.is_bool):
        return after, ""
    return before, "no floating-point numbers"


def _places(tensors: list[Tensor]) -> tuple[list[str], dict[str, int]]:
    """Every device that is concerned, and the bytes of the tensors there."""
    occupied: dict[str, int] = {}
    for tensor in tensors:
        occupied[tensor.device_before] = occupied.get(tensor.device_before, 0) + tensor.bytes_before
        occupied.setdefault(tensor.device_after, 0)
    return list(occupied), occupied


def _check_fits(plan: ConversionPlan) -> None:
    for device, missing in plan.short.items():
        raise ConvertError(
            f"{device} has {format_bytes(plan.free[device])} free, and the tensors grow by "
            f"{format_bytes(missing)} more than that, whatever the order: free memory there, or "
            "convert a part of the model; nothing was changed"
        )


def _changes(found: Found, wanted: _Wanted) -> list[Change]:
    """What follows the tensors: policies, variables without a value yet, compiled functions."""
    changes = []
    if wanted.dtype is not None:
        changes += policy_changes(found.layers, wanted.dtype)
        changes += [
            Change(variable, "_dtype", variable._dtype, wanted.variable_dtype)  # noqa: SLF001
            for variable in found.deferred
            if variable._dtype in FLOATS  # noqa: SLF001
        ]
    for layer in found.layers:
        for name in ("train_function", "test_function", "predict_function"):
            if getattr(layer, name, None) is not None:
                changes.append(Change(layer, name, getattr(layer, name), None))
    return changes


def _do(changes: list[Change]) -> None:
    done = []
    try:
        for change in changes:
            change.do()
            done.append(change)
    except BaseException:
        for change in reversed(done):
            change.undo()
        raise


def _excess_text(excess: list[Excess], dtype: str | None) -> str:
    named = ", ".join(map(str, excess[:_NAMED]))
    more = f" and {len(excess) - _NAMED} more" if len(excess) > _NAMED else ""
    many = counted(len(excess), "tensor holds", "tensors hold")
    return (
        f"{many} values outside the range of {dtype}: {named}{more}. "
        "overflow='clip' takes the nearest value in range, 'ignore' lets them become infinite or "
        "NaN; nothing was changed"
    )
