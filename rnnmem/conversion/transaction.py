"""Carries a plan out, all or nothing.

Whatever fails half-way, one of two ways is always open. Either every tensor that was converted can
go back exactly (its new form holds all of the old one, or the original waits on the host), or every
tensor that is left only shrinks where it lies, so that the rest can be finished.
"""

from __future__ import annotations

import contextlib
import gc
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from rnnmem.conversion import cast
from rnnmem.conversion.holders import TensorHolder, VariableHolder
from rnnmem.conversion.memory import host_free_bytes
from rnnmem.conversion.plan import ON_DEVICE, ConversionPlan, Step
from rnnmem.errors import ConvertError
from rnnmem.sizes import format_bytes

_ATTEMPTS = 3

Holder = VariableHolder | TensorHolder


class Transaction:
    """One conversion, from the first tensor to the last.

    Args:
      plan: what to do.
      holders: by the index of the plan's steps.
      clipped: indices of tensors whose values must be brought into range.
      report: called with each finished step.
    """

    def __init__(
        self,
        plan: ConversionPlan,
        holders: list[Holder],
        clipped: set[int],
        report: Callable[[Step], None],
    ):
        self._plan = plan
        self._holders = holders
        self._clipped = clipped
        self._report = report
        self._originals: dict[int, np.ndarray] = {}
        self._done: list[Step] = []
        self._reserve = _Reserve(plan.host)

    def run(self, commit: Callable[[], None]) -> None:
        """Converts every tensor, then calls ``commit``; on an error goes back, or on to the end.

        Args:
          commit: what follows the tensors (dtype policies); it undoes its own work if it fails.

        Raises:
          BaseException: what went wrong. Where the way back was closed everything is converted
            all the same, and a note on the error says so.
        """
        self._reserve.take()
        with _interrupts_deferred() as interrupted:
            try:
                for step in self._plan.changing:
                    self._holders[step.index].prepare(tf.as_dtype(step.tensor.dtype_after))
                for step in self._plan.changing:
                    interrupted()
                    self._take(step)
                    self._report(step)
                interrupted()
                commit()
            except BaseException as error:
                self._resolve(error, commit)
                raise

    def _resolve(self, error: BaseException, commit: Callable[[], None]) -> None:
        """After an error every tensor goes back, or every tensor goes on."""
        if all(self._can_go_back(step) for step in self._done):
            for step in reversed(self._done):
                self._go_back(step)
            return
        done = {step.index for step in self._done}
        for step in self._plan.changing:
            if step.index not in done:
                self._take(step)
        commit()
        error.add_note(
            "rnnmem.convert had gone too far to go back without loss, and was finished: every "
            "tensor is converted"
        )

    def _can_go_back(self, step: Step) -> bool:
        return step.tensor.is_reversible or step.index in self._originals

    def _take(self, step: Step) -> None:
        """Converts one tensor; if it raises, the tensor is as it was."""
        holder = self._holders[step.index]
        keep = self._plan.keeps_originals and not step.tensor.is_reversible
        if keep:
            self._reserve.shrink(step.tensor.bytes_before)
            self._originals[step.index] = cast.to_host(holder.read())
        if step.route == ON_DEVICE:
            try:
                holder.put(cast.on_device(holder.read(), step.tensor), step.tensor.device_after)
                self._done.append(step)
                return
            except cast.NO_ROOM_OR_NO_KERNEL:
                gc.collect()  # the allocator's free chunks are not where they are needed
        with self._reserve.lent():
            self._take_through_host(step, holder)
        self._done.append(step)

    def _take_through_host(self, step: Step, holder: Holder) -> None:
        tensor = step.tensor
        staged = self._originals.get(step.index)
        if staged is None:
            staged = cast.to_host(holder.read())
        try:
            holder.release()
            fresh = cast.on_host(staged, tensor.dtype_after, clip=step.index in self._clipped)
            _put(holder, fresh, tensor.device_after)
        except BaseException as error:
            try:
                _put_back(holder, staged, tensor.device_before)
            except BaseException as cause:
                holder.abandon()
                raise _rescue(error, holder.name, staged) from cause
            raise

    def _go_back(self, step: Step) -> None:
        holder, tensor = self._holders[step.index], step.tensor
        original = self._originals.pop(step.index, None)
        if original is not None:
            holder.release()
            _put_back(holder, original, tensor.device_before)
            return
        back = _reversed(tensor)
        try:
            holder.put_back(cast.on_device(holder.read(), back))
        except cast.NO_ROOM_OR_NO_KERNEL:
            staged = cast.on_host(cast.to_host(holder.read()), back.dtype_after, clip=False)
            holder.release()
            _put_back(holder, staged, tensor.device_before)


def _reversed(tensor: Any) -> Any:
    return type(tensor)(
        name=tensor.name,
        count=tensor.count,
        dtype_before=tensor.dtype_after,
        dtype_after=tensor.dtype_before,
        itemsize_before=tensor.itemsize_after,
        itemsize_after=tensor.itemsize_before,
        device_before=tensor.device_after,
        device_after=tensor.device_before,
    )


def _put(holder: Holder, values: np.ndarray, device: str) -> None:
    _again(lambda: holder.put(cast.from_host(values, device), device))


def _put_back(holder: Holder, values: np.ndarray, device: str) -> None:
    _again(lambda: holder.put_back(cast.from_host(values, device)))


def _again(act: Callable[[], None]) -> None:
    """Tries a few times: what another thread took may come back."""
    for attempt in range(_ATTEMPTS):
        try:
            act()
            return
        except (tf.errors.ResourceExhaustedError, MemoryError):
            if attempt == _ATTEMPTS - 1:
                raise
            gc.collect()


def _rescue(error: BaseException, name: str, values: np.ndarray) -> ConvertError:
    """The last resort: no device takes the values any more, so the error carries them."""
    rescued = ConvertError(
        f"{type(error).__name__} in the midst of {name!r}, which no device has room for any more: "
        "its values are in this error's `rescued`"
    )
    rescued.rescued = {name: values}
    return rescued


class _Reserve:
    """Host memory that is known to be there before anything is changed.

    Its pages are never written to, so that it takes address space and no memory.
    """

    def __init__(self, size: int):
        self._size = size
        self._pages: np.ndarray | None = None

    def take(self) -> None:
        """Takes hold of it.

        Raises:
          ConvertError: the host has not so much.
        """
        if not self._size:
            return
        free = host_free_bytes()
        error = ConvertError(
            f"the conversion needs {format_bytes(self._size)} of host memory at once and "
            f"{format_bytes(free)} are free: convert parts of the model one after the other, or "
            "free device memory. Nothing was changed"
        )
        if free is not None and self._size > free:
            raise error
        try:
            self._pages = np.empty(self._size, np.uint8)
        except MemoryError as cause:
            raise error from cause

    def shrink(self, size: int) -> None:
        """Gives a part up for good, to be used at once."""
        self._pages = None
        self._size = max(0, self._size - size)

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Gives it up for as long as the block runs."""
        self._pages = None
        yield
        with contextlib.suppress(MemoryError):
            self._pages = np.empty(self._size, np.uint8)


@contextlib.contextmanager
def _interrupts_deferred() -> Iterator[Callable[[], None]]:
    """Ctrl-C is heard between two tensors, never within one.

    Yields:
      A function that raises KeyboardInterrupt if Ctrl-C was pressed since.
    """
    pressed = threading.Event()

    def interrupted() -> None:
        if pressed.is_set():
            pressed.clear()
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield interrupted
        return
    signal.signal(signal.SIGINT, lambda *_: pressed.set())
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed.is_set():
        signal.raise_signal(signal.SIGINT)
