"""Decides the way and the order of every tensor before anything is changed; imports no TensorFlow.

The order is that of Abdel-Wahab and Kameda ("Scheduling to minimize maximum cumulative cost subject
to series-parallel precedence constraints", Operations Research 26, 1978), which for independent
jobs gives the least peak: first what frees memory, the least need first; then what takes memory,
that which frees most at its end first. The test for head-room is the one of Paddle's
``Layer.to`` (pull request 36862).
"""

from __future__ import annotations

import dataclasses
import math

from rnnmem.conversion.floats import is_exact
from rnnmem.sizes import format_bytes

UNTOUCHED = "untouched"
ON_DEVICE = "on device"
THROUGH_HOST = "through host"

_CHUNK = 256
_MARGIN = 1.2
# TensorFlow's allocator hands a free chunk out whole unless half of it would be left over. Below
# this size nobody minds.
_SPLIT_MATTERS = 1 << 20


def need(count: int, itemsize: int) -> float:
    """Bytes that must be free for a tensor to be made on a device, chunks and margin included.

    Args:
      count: elements.
      itemsize: bytes of one.

    Returns:
      ``(count * itemsize / 256 + 1) * 256 * 1.2``; 1000 elements of float16 need 2707.2 bytes.
    """
    return (count * itemsize / _CHUNK + 1) * _CHUNK * _MARGIN


def chunked(size: int) -> int:
    """Bytes that an allocator with chunks of 256 bytes hands out."""
    return -(-size // _CHUNK) * _CHUNK


@dataclasses.dataclass(frozen=True)
class Tensor:
    """What is known of a tensor before the conversion.

    Attributes:
      name: as the user knows it.
      count: elements.
      dtype_before: the dtype's name.
      dtype_after: the same where it stays.
      itemsize_before: bytes of an element.
      itemsize_after: bytes of an element afterwards.
      device_before: e.g. "CPU:0".
      device_after: the same where it stays.
      reason: why it stays as it is, where something was asked of it.
    """

    name: str
    count: int
    dtype_before: str
    dtype_after: str
    itemsize_before: int
    itemsize_after: int
    device_before: str
    device_after: str
    reason: str = ""

    @property
    def bytes_before(self) -> int:
        """Bytes as it is."""
        return self.count * self.itemsize_before

    @property
    def bytes_after(self) -> int:
        """Bytes that it will have."""
        return self.count * self.itemsize_after

    @property
    def need(self) -> float:
        """Bytes that must be free for its new form to be made on the device."""
        return need(self.count, self.itemsize_after)

    @property
    def moves(self) -> bool:
        """Whether it goes to another device."""
        return self.device_before != self.device_after

    @property
    def changes(self) -> bool:
        """Whether anything happens to it."""
        return self.moves or self.dtype_before != self.dtype_after

    @property
    def is_reversible(self) -> bool:
        """Whether its new form holds everything that is needed to go back."""
        return is_exact(self.dtype_before, self.dtype_after)


@dataclasses.dataclass(frozen=True)
class Step:
    """What becomes of one tensor.

    Attributes:
      index: its place in the list of tensors that was planned.
      tensor: the tensor.
      route: ``ON_DEVICE``, ``THROUGH_HOST`` or ``UNTOUCHED``.
    """

    index: int
    tensor: Tensor
    route: str


@dataclasses.dataclass(frozen=True)
class ConversionPlan:
    """All decisions of a conversion; prints as a table.

    Attributes:
      steps: in the order in which they are taken; untouched tensors last.
      free: device -> bytes that were free, None where nobody knows.
      peak: device -> most bytes above what was in use at the start.
      short: device -> bytes that are missing, where the conversion cannot fit.
      host: bytes of host memory that the conversion needs at once.
      keeps_originals: whether the originals wait on the host until all is done, because no other
        way back exists.
    """

    steps: tuple[Step, ...]
    free: dict[str, int | None]
    peak: dict[str, int]
    short: dict[str, int]
    host: int
    keeps_originals: bool

    @property
    def changing(self) -> tuple[Step, ...]:
        """The steps that do something."""
        return tuple(step for step in self.steps if step.route != UNTOUCHED)

    def __str__(self) -> str:
        """The plan as a table for people."""
        from rnnmem.conversion.table import table

        return table(self)

    def summary(self) -> list[str]:
        """One line for each device: the peak that will be reached, against what is free."""
        lines = []
        for device, peak in self.peak.items():
            free = self.free.get(device)
            known = "free memory is unknown" if free is None else f"{format_bytes(free)} free"
            lines.append(f"{device}: peak {format_bytes(peak)} above the start, {known}")
        for device, size in self.short.items():
            lines.append(f"{device}: {format_bytes(size)} are missing, the conversion cannot fit")
        return lines


def make_plan(
    tensors: list[Tensor],
    free: dict[str, int | None],
    through_host: frozenset[int] = frozenset(),
) -> ConversionPlan:
    """Chooses order and route of each tensor.

    Args:
      tensors: all of them, each buffer once.
      free: device -> bytes that are free on it, None where nobody knows.
      through_host: indices of tensors that go through the host however much is free.

    Returns:
      The plan. Where it has ``short`` devices it must not be carried out.
    """
    books = _Books(free)
    changing = [i for i, tensor in enumerate(tensors) if tensor.changes]
    steps = [
        Step(i, tensors[i], books.take(tensors[i], i in through_host))
        for i in sorted(changing, key=lambda i: _rank(tensors[i]))
    ]
    steps += [Step(i, t, UNTOUCHED) for i, t in enumerate(tensors) if not t.changes]
    keeps = _keeps_originals([tensors[i] for i in changing])
    return ConversionPlan(
        steps=tuple(steps),
        free=dict(free),
        peak=books.peak,
        short=books.short,
        host=_host_bytes(steps, keeps),
        keeps_originals=keeps,
    )


def _rank(tensor: Tensor) -> tuple[int, int]:
    if tensor.moves:
        return 1, tensor.bytes_after
    if tensor.bytes_after <= tensor.bytes_before:
        return 0, tensor.bytes_after
    return 2, -tensor.bytes_before


def _keeps_originals(changing: list[Tensor]) -> bool:
    """Whether a failure could find no way on and no way back.

    A tensor that only shrinks where it lies can always be finished: it needs less than it frees.
    One that grows or moves can run out of memory; then all others must be able to go back.
    """
    lossy = any(not tensor.is_reversible for tensor in changing)
    may_fail = any(t.moves or t.bytes_after > t.bytes_before for t in changing)
    return lossy and may_fail


def _host_bytes(steps: list[Step], keeps: bool) -> int:
    """The old form, the new one and NumPy's copy of it on its way to the device."""
    staged = [
        step.tensor.bytes_before + 2 * step.tensor.bytes_after
        for step in steps
        if step.route == THROUGH_HOST
    ]
    kept = sum(step.tensor.bytes_before for step in steps if not step.tensor.is_reversible)
    return max(staged, default=0) + (kept if keeps else 0)


class _Books:
    """What every device has in use above the start, step by step."""

    def __init__(self, free: dict[str, int | None]):
        self._free = free
        self._used = dict.fromkeys(free, 0)
        self.peak = dict.fromkeys(free, 0)
        self.short: dict[str, int] = {}

    def take(self, tensor: Tensor, through_host: bool) -> str:
        """Books one tensor; returns its route."""
        source, target = tensor.device_before, tensor.device_after
        old, new = chunked(tensor.bytes_before), chunked(tensor.bytes_after)
        fits = not through_host and self._has_room(tensor)
        if fits:
            if tensor.moves and tensor.dtype_before != tensor.dtype_after:
                self._touch(*((source, new) if new < old else (target, old + new)))
            self._use(target, new)
            self._use(source, -old)
        else:
            self._use(source, -old)
            self._use(target, new)
        return ON_DEVICE if fits else THROUGH_HOST

    def _has_room(self, tensor: Tensor) -> bool:
        before = need(tensor.count, tensor.itemsize_before)
        room_on_target = self._left(tensor.device_after)
        if not tensor.moves:
            return self._fits_beside(tensor, room_on_target)
        if tensor.dtype_before == tensor.dtype_after:
            return tensor.need <= room_on_target
        # The smaller form travels: it is made where the tensor comes from, or where it goes to.
        if tensor.bytes_after < tensor.bytes_before:
            return tensor.need <= min(room_on_target, self._left(tensor.device_before))
        return before + tensor.need <= room_on_target

    def _fits_beside(self, tensor: Tensor, room: float) -> bool:
        """Whether the new form fits beside the old one, and takes no more than it needs."""
        large = tensor.bytes_after >= _SPLIT_MATTERS
        return tensor.need <= room and not (large and 2 * tensor.bytes_after > room)

    def _left(self, device: str) -> float:
        free = self._free.get(device)
        return math.inf if free is None else free - self._used[device]

    def _touch(self, device: str, size: int) -> None:
        self.peak[device] = max(self.peak[device], self._used[device] + size)

    def _use(self, device: str, size: int) -> None:
        self._used[device] += size
        self._touch(device, 0)
        if (missing := -self._left(device)) > 0:
            self.short[device] = max(self.short.get(device, 0), math.ceil(missing))
