"""What is assumed of a machine, of TensorFlow's executor and of its allocator: every number.

Numbers that are TensorFlow's stand with the file of its sources that has them. One that says "by
hand" comes from no benchmark that was kept; what is predicted with it is held against the allocator
(`tests/tf/test_timeline_measured.py`) or, where it is a time, against the clock
(`python -m benchmarks.recurrent`), and a profile replaces it (`profile=True`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from types import MappingProxyType

from rnnmem.analysis.costs import Costs
from rnnmem.analysis.layouts import moves_nothing, transposed
from rnnmem.analysis.op_signature import op_signature
from rnnmem.ir.devices import ACCELERATOR, HOST
from rnnmem.ir.graph import Net, Op, static
from rnnmem.ir.marks import PACKS, PRIMITIVE
from rnnmem.ir.op_table import (
    POP,
    PUSH,
    READ,
    UNWRAP,
    WAKES,
    WRAP,
    arithmetic,
    einsum_terms,
    transposing,
    types,
)
from rnnmem.ir.order import popped_at_once, through_identities

_NOTHING: Mapping[str, float] = MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class Machine:
    """What an estimate of time assumes.

    Attributes:
      operations_per_second: of a matrix product, float32.
      pointwise_per_second: elements of an addition.
      bytes_per_second: of memory traffic, of values that were just written.
      kept_bytes_per_second: of a value that is written now and read much later, out of every cache.
      launch_seconds: what any op costs before it does anything.
      measured: op signature -> seconds of its kernel, where a profile was taken.
      host_bytes_per_second: of copies between the device and the host.
      device: where ops run that name no device.
      threads: that run ops side by side.
      costs: of all that happens in a step, less kernels at the user's own shapes; None: the rates
        above are all that is known.
      calibrated: whether these were measured here.
    """

    operations_per_second: float
    pointwise_per_second: float
    bytes_per_second: float
    kept_bytes_per_second: float
    launch_seconds: float
    measured: Mapping[str, float] = dataclasses.field(default_factory=lambda: _NOTHING, hash=False)
    host_bytes_per_second: float = 2e10
    device: str = HOST
    threads: int = 2
    costs: Costs | None = None
    calibrated: bool = False

    def costing(self, costs: Costs | None, calibrated: bool) -> Machine:
        """The machine with these costs, and with the rates that they make; None: as it is."""
        if costs is None:
            return self
        return dataclasses.replace(
            self,
            costs=costs,
            calibrated=calibrated,
            launch_seconds=costs.op,
            pointwise_per_second=1.0 / costs.computing("", 1.0),
            bytes_per_second=2**20 / costs.moving(2**20),
        )

    def seconds(self, op: Op, net: Net) -> float:
        """Estimated time of one run of the op (of one iteration, for a loop op)."""
        if op.type == PUSH:
            lives = _lives_anyway(net, op.inputs[1]) or popped_at_once(net, op)
            kept = 0 if lives else net.blobs[op.inputs[1]].bytes or 0
            return self._starting(op, net) + self.seconds_to_keep(kept)
        if self.measured and not op.nets:
            found = self.measured.get(op_signature(op, net) or "")
            if found is not None:
                return self._starting(op, net) + found
        work, moved = arithmetic(op, net)
        if self.costs is not None:
            if moves_nothing(net, op):
                return self.costs.op
            return self._starting(op, net) + self._kernel(op, net, work, moved)
        rate = self.operations_per_second if _multiplies(op) else self.pointwise_per_second
        return self._starting(op, net) + max(work / rate, moved / self.bytes_per_second)

    def least_seconds(self, op: Op, net: Net) -> float:
        """Estimated time of an op that hands on what it reads; of any, where costs are known."""
        return self.launch_seconds if self.costs is None else self.seconds(op, net)

    def _starting(self, op: Op, net: Net) -> float:
        """What the op costs before it does anything."""
        costs = self.costs
        if costs is None:
            return self.launch_seconds
        if op.type in (PUSH, POP):
            return costs.list + self._seconds_to_cross(op, net)
        is_primitive = op.attributes.get(PRIMITIVE) and (not _multiplies(op) or _of_items(op, net))
        started = PRIMITIVE_SECONDS if is_primitive else 0.0
        return started + (costs.optional if op.type in (WRAP, UNWRAP) else costs.op)

    def _seconds_to_cross(self, op: Op, net: Net) -> float:
        """What a host's number costs in a list of the device: a copy, for which a pop waits."""
        if self.device != ACCELERATOR:
            return 0.0
        assert self.costs is not None
        blob, times = (op.inputs[1], 1) if op.type == PUSH else (op.outputs[1], 2)
        return times * self.costs.moving(1.0) if net.blobs[blob].dtype == WHOLE else 0.0

    def _kernel(self, op: Op, net: Net, work: float, moved: float) -> float:
        """What it does then, by the costs that were measured."""
        assert self.costs is not None
        if self.device == ACCELERATOR and not _starts_kernel(op, net):
            return 0.0
        if _multiplies(op):
            taken = self.costs.product(work, _is_thin(op, net))
        else:
            taken = self.costs.computing(op.type, work)
        found = max(taken * self._by_dtype(op, net), self.costs.moving(moved))
        found += seconds_to_pack(op, net) + self._seconds_to_lay_out(op, net)
        return found + _wakes(op, net, moved) * self.costs.woken

    def _seconds_to_lay_out(self, op: Op, net: Net) -> float:
        """What an einsum takes to transpose what it reads and writes: each in several threads."""
        if op.type != "Einsum" or self.device == ACCELERATOR:
            return 0.0
        assert self.costs is not None
        dtype, seconds = net.blobs[op.outputs[0]].dtype, 0.0
        for blob, shape in transposed(op, net):
            work, moved = transposing(dtype, net.blobs[blob].shape, shape)
            taken = max(self.costs.computing("Transpose", work), self.costs.moving(moved))
            seconds += taken + self.costs.woken
        return seconds

    def _by_dtype(self, op: Op, net: Net) -> float:
        """So many times as long as in float32 the op computes; costs are those of float32."""
        dtype = net.blobs[op.inputs[0]].dtype if op.inputs else ""
        if self.device == ACCELERATOR or dtype not in BY_DTYPE or op.type in _OF_COMPLEX:
            return 1.0
        product, batched, other = BY_DTYPE[dtype]
        if not _multiplies(op):
            return other
        return batched if _is_batched(op) else product

    def seconds_to_keep(self, size: int) -> float:
        """Estimated time that saving ``size`` bytes for the gradient takes: out and in again."""
        if self.costs is not None:
            return size * self.costs.kept
        return 2.0 * size / self.kept_bytes_per_second


def _lives_anyway(net: Net, blob: str) -> bool:
    """Whether the blob is a variable's buffer or a loop invariant: keeping it moves nothing."""
    blob = through_identities(net, blob)
    producer = net.producer.get(blob)
    if producer is not None:
        return producer.type == READ
    return any(pair == (blob, blob) for pair in zip(net.inputs, net.outputs, strict=False))


def _starts_kernel(op: Op, net: Net) -> bool:
    """Whether an accelerator is told to do something: the op computes what is not the host's."""
    if op.type in (POP, UNWRAP, WRAP) or arithmetic(op, net) == (0.0, 0.0):
        return False
    return any(net.blobs[blob].dtype not in HOST_DTYPES for blob in op.outputs)


def _is_thin(op: Op, net: Net) -> bool:
    """Whether a matrix of a product has few rows, or few columns."""
    shapes = (net.blobs[blob].shape for blob in (*op.inputs[:2], *op.outputs[:1]))
    sides = [size for shape in shapes if shape is not None for size in shape[-2:] if size]
    return "Conv" not in op.type and min(sides, default=FEW_ROWS + 1) <= FEW_ROWS


def seconds_to_pack(op: Op, net: Net) -> float:
    """What TensorFlow's own kernel takes to lay out the second matrix of each item of a batch.

    One thread does that.
    """
    if not op.attributes.get(PACKS):
        return 0.0
    second, made = static(net.blobs[op.inputs[1]].shape), static(net.blobs[op.outputs[0]].shape)
    if second is None or made is None or len(second) < 2 or len(made) < 3 or made[-2] == 1:
        return 0.0
    items = math.prod(made[:-2])
    each = PACKED_TURNED if op.attributes.get("adj_y") else PACKED
    return 0.0 if items == 1 else items * math.prod(second[-2:]) * each


def _wakes(op: Op, net: Net, moved: float) -> int:
    """How often the kernel hands parts of its work to other threads: not of one small matrix."""
    times = WAKES.get(op.type, 0)
    if not times or moved >= WAKING_BYTES:
        return times
    return times if _multiplies(op) and _of_items(op, net) else 0


def _of_items(op: Op, net: Net) -> bool:
    """Whether a product is that of several matrices."""
    shape = net.blobs[op.inputs[0]].shape or ()
    terms = einsum_terms(op) if op.type == "Einsum" else None
    if terms is None:
        items = shape[:-2]
    else:  # a label of all three counts items
        (first, *others), made = terms
        shared = set(made).intersection(*others)
        items = tuple(size for label, size in zip(first, shape, strict=False) if label in shared)
    return math.prod(size or 2 for size in items) > 1


def _multiplies(op: Op) -> bool:
    return "MatMul" in op.type or "Conv" in op.type or op.type == "Einsum"


def _is_batched(op: Op) -> bool:
    return op.type == "Einsum" or op.type.startswith("BatchMatMul")


WHOLE = "int32"
"""Whole numbers that are in host memory, but for those in lists."""
HOST_DTYPES = frozenset({WHOLE, "resource", "string", "variant"})
"""Dtypes whose values are in host memory, whatever the device."""

# Rates by hand, of the order of two cores and of one accelerator; each bound on time is held
# against the clock by `python -m benchmarks.recurrent`. The two threads are those of the machine
# on which predictions are held against the allocator.
CPU = Machine(
    operations_per_second=5e10,
    pointwise_per_second=5e9,
    bytes_per_second=3e10,
    kept_bytes_per_second=1e10,
    launch_seconds=2e-6,
)
GPU = Machine(
    operations_per_second=2e13,
    pointwise_per_second=1e12,
    bytes_per_second=1e12,
    kept_bytes_per_second=1e12,
    launch_seconds=1e-5,
    device=ACCELERATOR,
    threads=1,
)
"""Its kernels run one after the other."""


WAKING_BYTES = 1 << 13
"""Read and written: from here on one matrix is shared among threads, where small ones are not. As
measured with batches of 1 to 256 matrices of 4 to 64 rows."""
PRIMITIVE_SECONDS = 4.5e-5
"""What oneDNN takes before a softmax, a transposition or a product of several matrices begins,
however small it is. By hand: 30 to 75 us one after the other, up to 115 us in a step."""
FEW_ROWS = 32
"""Rows up to which a product is thin: its factors are read for little work. By hand."""
WIDE_SECONDS = 5e-5
"""An op that takes longer than this keeps most cores busy by itself. By hand."""
TOGETHER = 1.6
"""So many of those are done in the time of one, where nothing orders them: some of what they do is
done by one core. As measured: sixteen products of [512, 256] and [256, 2048] on two cores."""

# --- the executor

CHEAP_SECONDS = 3e-6
"""An op that takes less runs at once, in the thread that made it ready: 8000 cycles
(``executor.cc``, ``kOpIsExpensiveThresholdCycles``)."""
PAUSE = 3e-3
"""Seconds that a thread may be away; the peak of a run is that of its worst moment. By hand."""
STALL = 1.0
"""Seconds that a thread is away where a budget must hold all the same: more than any op takes."""
STEADY_AFTER = 3
"""Iterations beyond the window until all are alike: a state may be handed on and saved later.

By hand; see `tests/simulate/test_timeline.py`."""
LARGE = 0.1
"""Part of a peak that an op must hold for its stall to be looked at."""
MOST_STALLED = 8
"""Ops whose stall is looked at, those that hold most; one simulation each."""
MOST_RUNS = 400_000
"""Runs of ops that are simulated, about; a function of more has shorter looks at its loops.

By hand, for the seconds that `python -m benchmarks.planning` prints."""

# --- tables

ROWS_FOR_TABLE = 2
"""Times the bytes of a variable that rows of it must take for a copy of it to be worth it.

By hand: a half of what is saved may be had for less by other means."""

# --- kernels

PACKED, PACKED_TURNED = 4e-10, 1.5e-9
"""Seconds for a number of a matrix that a kernel lays out on one of two cores, and of one that it
turns (``adj_y``). As measured with 4 to 32 matrices of 128 to 2000 columns, AVX2."""
BY_DTYPE: Mapping[str, tuple[float, float, float]] = {
    "bfloat16": (0.6, 0.7, 2.0),
    "complex64": (4.7, 3.0, 6.0),
    "complex128": (12.0, 7.5, 12.0),
    "float16": (1.3, 5.0, 1.5),
    "float64": (2.5, 2.5, 2.0),
}
"""Dtype -> so many times as long as in float32 a product takes on a CPU, one of batches, and what
any other op computes. As measured with 25 ops of 8192 and 262144 numbers, AVX-512 with bfloat16;
complex with 20, of which `Exp` takes 8 times, and `Sigmoid` and `Sin` 30 to 50."""
_OF_COMPLEX = types("complex")
PATCHES_BYTES = 30 << 20
"""What a convolution's gradient works on at once (``conv_grad_filter_ops.cc``)."""
PATCHES_TOGETHER = 1.2
"""So many of those are done in the time of one: one thread does part of it alone. As measured with
three convolutions of 16 channels in a loop."""
SHARED_WORK_BYTES = 256 << 10
"""A thread's share of one image from which on images are worked on one by one
(``conv_grad_input_ops.h``, ``l2_cache_size``)."""

# --- what is computed before any run

SMALL_CONSTANT = 100 * 1024
"""Bytes up to which an op of constants is computed once and for all (``constant_folding.cc``,
``kMaxConstantSize``)."""
COMPUTED = 10 * 2**20
"""Bytes up to which equal numbers are written out (``constant_folding.cc``)."""
ONE_NUMBER = 64
"""Bytes up to which an encoded constant holds one number, repeated. By hand."""

# --- the allocator

GRANULE = 256
"""What every buffer's bytes are a multiple of (``bfc_allocator.h``, ``kMinAllocationSize``)."""
ALIGNMENT = 64
"""What a row begins at that is handed on as a view (``EIGEN_MAX_ALIGN_BYTES``)."""
FIRST_REGION = 2 << 20
"""Bytes of the first region; each is twice the one before (``bfc_allocator.cc``)."""
LARGEST_LOSS = 128 << 20
"""Bytes that a chunk may have too many, at most (``bfc_allocator.cc``)."""
LARGEST_LEFT = 1 << 20
"""Bytes of the largest chunks that earlier runs leave in an arena. By hand."""
STRING_BYTES = 24
"""Bytes of a string in a tensor (``tstring``); its letters are not the allocator's."""
FEW_STRINGS = 1024
"""Strings up to which they matter little; what more of them take, a run tells. By hand."""
ONE_BY_ONE = 512
"""Equal buffers that are booked at once are laid out one by one, up to so many. By hand."""
ARENAS = 4
"""Arenas that a run is laid into, of which the worst counts. By hand."""
MOST_ARENAS = 16
"""The same where it is asked how bad it may get."""
MORE_WASTE = 1 / 20, 128 << 10
"""What chunks take beyond the worst of so many arenas: part of a peak, and bytes of any.

As measured over the conformance table (`make conformance-table`)."""
LESS_HELD = 1 / 50
"""Part of a peak by which a run may be better than the best that is simulated. Measured as well."""
LONGEST_LOG = 50_000
"""Changes that are laid out: of a longer run those of its largest buffers. By hand."""


def rounded(size: int) -> int:
    """Bytes that the allocator hands out for a buffer."""
    return -(-size // GRANULE) * GRANULE
