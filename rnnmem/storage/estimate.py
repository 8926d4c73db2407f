"""Statistics of a Net without running it: bytes of its blobs, and the peak along its order."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping

from rnnmem.analysis.live_ranges import ALREADY, live_ranges, views
from rnnmem.analysis.versions import SsaVersions, ssa
from rnnmem.errors import RnnmemWarning
from rnnmem.ir.graph import BYTES_PER_ELEMENT, Net
from rnnmem.sizes import counted, format_bytes
from rnnmem.storage.arguments import check_net
from rnnmem.storage.buffers import Sizes
from rnnmem.storage.plan import GLOBAL


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What a Net holds, beside its inputs.

    Attributes:
      blobs: distinct names that ops write, those of step nets included.
      bytes: of all of them, each with a buffer of its own for the whole run.
      peak_bytes: the most that is alive at once along the order, where each is freed after its last
        use.
      peak_op: the op that makes the peak.
      by_op_type: bytes that ops of each type write, largest first.
      unknown: names whose size is unknown; they count 0.
    """

    blobs: int
    bytes: int
    peak_bytes: int
    peak_op: str
    by_op_type: Mapping[str, int]
    unknown: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"{counted(self.blobs, 'blob')} of {format_bytes(self.bytes)}; at most "
            f"{format_bytes(self.peak_bytes)} alive, at {self.peak_op or 'no op'}"
        ]
        lines += [f"  {format_bytes(size):>12}  {kind}" for kind, size in self.by_op_type.items()]
        if self.unknown:
            lines.append(
                f"  {counted(len(self.unknown), 'blob of', 'blobs of')} unknown size count 0"
            )
        return "\n".join(lines)


def estimate(net: Net, sizes: Sizes = "shapes") -> Estimate:
    """Estimates the memory of a Net, shared or not.

    Views and what is there anyway (constants, reads of variables) count nothing. A step net counts
    while its op runs; of several, the one with the highest peak.

    Args:
      net: the Net.
      sizes: bytes by name (in a step net by its path and name, ``loop/body/x``), as
        :func:`rnnmem.tf.workspace.collect_sizes` gives them; what is not among them is as its
        shape says.
    """
    check_net(net)
    found = statistics(net, sizes)
    if found.unknown:
        warnings.warn(
            f"no known size, taken as 0: {counted(len(found.unknown), 'blob')}, "
            f"e.g. {found.unknown[0]!r}: give sizes=..., or collect them by running once",
            RnnmemWarning,
            stacklevel=2,
        )
    return found


def statistics(net: Net, sizes: Sizes = "shapes") -> Estimate:
    """What :func:`estimate` gives, without a warning."""
    tally = _Tally(sizes)
    peak, peak_op = tally.net(net)
    by_type = sorted(tally.by_type.items(), key=lambda item: -item[1])
    return Estimate(
        blobs=len(tally.bytes),
        bytes=sum(tally.bytes.values()),
        peak_bytes=peak,
        peak_op=peak_op,
        by_op_type={kind: size for kind, size in by_type if size},
        unknown=tuple(tally.unknown),
    )


def estimate_sizes(past: SsaVersions, sizes: Sizes = "shapes") -> list[int]:
    """Bytes per version, 0 where unknown."""
    tally = _Tally(sizes)
    return [tally.size(past.net, name) for name in past.name]


def bytes_inside(net: Net, sizes: Sizes = "shapes") -> int:
    """The peak of a step net by itself."""
    return _Tally(sizes).net(net)[0]


class _Tally:
    def __init__(self, sizes: Sizes):
        self.sizes = sizes
        self.bytes: dict[tuple, int] = {}
        self.by_type: dict[str, int] = {}
        self.unknown: dict[str, None] = {}

    def net(self, net: Net, path: tuple[str, ...] = ()) -> tuple[int, str]:
        """Counts a Net; returns its peak and the op that makes it."""
        past = ssa(net)
        sizes = {name: self.size(net, name, path) for name in past.versions}
        shown = views(past)
        starts, ends = live_ranges(past, shown)
        live, peak, peak_op = 0, 0, ""
        for index, op in enumerate(past.ops):
            live += sum(sizes[name] for name in starts.get(index, ()))
            inside, inner_op = self._inside(op, path)
            if live + inside > peak:
                peak = live + inside
                peak_op = f"{op.name}/{inner_op}" if inner_op else op.name
            self._count(op, sizes, shown, path)
            live -= sum(sizes[name] for name in ends.get(index, ()))
        return peak, peak_op

    def _inside(self, op, path) -> tuple[int, str]:
        peaks = [self.net(inner, (*path, op.name, key)) for key, inner in op.nets.items()]
        return max(peaks, default=(0, ""))

    def _count(self, op, sizes, shown, path) -> None:
        if op.type in ALREADY:
            return
        for name in op.outputs:
            if name in shown:
                continue
            # A storage of several step nets is there once.
            key = (name,) if name.startswith(GLOBAL) else (*path, name)
            self.bytes[key] = max(self.bytes.get(key, 0), sizes[name])
            self.by_type[op.type] = self.by_type.get(op.type, 0) + sizes[name]

    def size(self, net: Net, name: str, path: tuple[str, ...] = ()) -> int:
        """Bytes of a name of the Net at a path."""
        blob = net.blobs.get(name)
        if isinstance(self.sizes, Mapping):
            key = name if name.startswith(GLOBAL) else "/".join((*path, name))
            if key in self.sizes:
                return self.sizes[key]
        if blob is not None and blob.dtype not in BYTES_PER_ELEMENT:
            return 0
        if blob is None or blob.bytes is None:
            self.unknown[name] = None
            return 0
        return blob.bytes
