"""What is alive when: a simulation of a whole function's memory, without running it.

    bytes        loss
      │         ╱╲
      │      ╱╱╱  ╲╲        accumulators grow in the forward loop, shrink in the gradient loop;
      │   ╱╱╱       ╲╲╲     between them stands what the loss needs
      │╱╱╱             ╲╲__ results
      └──────────────────── ops

Counted is what the function allocates above what is resident: its arguments, captures and
variables, and the constants in its graph.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rnnmem.analysis.machine import (
    CPU,
    LARGE,
    LONGEST_LOG,
    MOST_RUNS,
    MOST_STALLED,
    Machine,
)
from rnnmem.analysis.shapes import KnownNet, known_net
from rnnmem.ir.graph import Net
from rnnmem.ir.lines import Line
from rnnmem.simulate import bfc
from rnnmem.simulate.buffers import (
    Buffer,
    Ledger,
    LimitReached,
    ListValue,
    Origin,
    Series,
    Span,
    shares,
)
from rnnmem.simulate.executor import Run
from rnnmem.simulate.folding import PLAIN, Simplified
from rnnmem.simulate.program import compile_net
from rnnmem.simulate.setting import Deals, Setting
from rnnmem.simulate.steps import Program, Step, all_steps

SAVED, RESULT, TEMPORARY = "saved", "result", "temporary"


@dataclasses.dataclass(frozen=True)
class Alive:
    """Buffers of one origin that are alive at the peak.

    Attributes:
      label: the blob; ``loop: blob`` for what a loop made, by the pushed blob where it is saved.
      bytes: of all of them.
      source: the user's line of the op that made them.
      kind: "saved" (for a gradient loop), "result" (of the function), or "temporary".
      loops: the loops around the op, outermost first.
    """

    label: str
    bytes: int
    source: str | Line
    kind: str
    loops: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Timeline:
    """The simulated memory of one run of a function.

    Attributes:
      peak_bytes: the most that is alive at once; None where a size that matters is unknown.
      peak_op: the op that makes the peak.
      peak_source: the user's line of it.
      live_at_peak: what is alive then, largest first.
      events: (op, bytes alive once it has its outputs), in the order simulated; of a long loop the
        first and the last iterations.
      unknown: names of blobs whose size, and of loops whose trip count, is unknown.
    """

    peak_bytes: int | None
    peak_op: str
    peak_source: str | Line
    live_at_peak: tuple[Alive, ...]
    events: tuple[tuple[str, int], ...]
    unknown: tuple[str, ...] = ()

    def by_kind(self) -> dict[str, int]:
        """Bytes at the peak by kind; saved blobs by the loop that saves them (``saved: loop``)."""
        sums: dict[str, int] = {}
        for alive in self.live_at_peak:
            named = alive.kind == SAVED and alive.loops
            key = f"{SAVED}: {'/'.join(alive.loops)}" if named else alive.kind
            sums[key] = sums.get(key, 0) + alive.bytes
        return dict(sorted(sums.items(), key=lambda item: -item[1]))


def simulate(
    net: Net | KnownNet, *, unknown_dimension: int | None = None, machine: Machine = CPU
) -> Timeline:
    """Simulates the memory of one run of a function.

    Args:
      net: the whole function, inlined; or what `known_net` found of it.
      unknown_dimension: stands for a dimension, and a trip count, that the Net does not tell; None:
        they stay unknown.
      machine: whose threads and times are assumed.
    """
    program = prepared(net, machine, unknown_dimension)
    events: list[tuple[str, int]] = []
    ledger = _run(program, machine, events=events)
    peak_origin = ledger.log[ledger.peak_entries - 1][0].origin if ledger.log else Origin()
    return Timeline(
        peak_bytes=None if program.unknown else ledger.peak,
        peak_op="/".join((*peak_origin.loops, peak_origin.op)),
        peak_source=peak_origin.source,
        live_at_peak=_alive(ledger),
        events=tuple(events),
        unknown=program.unknown,
    )


def counted_peak(
    net: Net | KnownNet, machine: Machine = CPU, *, limit: float = math.inf
) -> int | None:
    """The peak that the device's memory statistics would show, for one run of a function.

    They count whole chunks, so it is above :attr:`Timeline.peak_bytes`. Which of several ready ops
    runs first is a race; the peak is that of the worse of two orders (of one order only, where the
    function is large).

    Args:
      net: the whole function, inlined; or what `known_net` found of it.
      machine: whose threads and times are assumed.
      limit: from which on nobody asks how high the peak is; it may be higher than is said then.

    Returns:
      Bytes above what is resident; None where a size that matters is unknown.
    """
    program = prepared(net, machine)
    if program.unknown:
        return None
    ledger = _worse(program, machine, limit)
    if ledger.peak >= limit:
        return ledger.peak
    return bfc.counted_peak(ledger.log, ledger.peak, limit)


def blobs_peak(net: Net | KnownNet, machine: Machine = CPU) -> int | None:
    """Most bytes of blobs that are alive at once: without what ops ask for while they run.

    Args:
      net: the whole function, inlined; or what `known_net` found of it.
      machine: whose threads and times are assumed.

    Returns:
      Bytes above what is resident, of one run; None where a size that matters is unknown.
    """
    program = prepared(net, machine)
    return None if program.unknown else _run(program, machine, scratch=False).peak


def is_told(net: Net | KnownNet) -> bool:
    """Whether all sizes are known that matter to a function's peak."""
    return not prepared(net, CPU).unknown


def worst_peak(net: Net | KnownNet, machine: Machine = CPU) -> int | None:
    """The peak, counted as `counted_peak` does, where the worst of the large ops is held up.

    A thread that has to wait holds what its op reads and writes while the other ones go on. That is
    rare, so it is not what is predicted; a budget must hold all the same.
    """
    program = prepared(net, machine)
    if program.unknown:
        return None
    _, ledger = _worst(program, machine, [])
    return bfc.counted_peak(ledger.log, ledger.peak)


def peaks_where_all_goes_wrong(program: Program, machine: Machine) -> tuple[int, int]:
    """The lowest and the highest peak of a program's runs in which things go wrong.

    All of its sizes are known.

    Beside an op that is held up: sums that fall behind, and more arenas.
    """
    hows = [{"deals": deals, "sums_lag": True} for deals in (Deals.OLDEST, Deals.NEWEST)]
    low, ledger = _worst(program, machine, hows)
    return low, bfc.counted_peak(ledger.log, ledger.peak, is_worst=True)


def _worst(
    program: Program, machine: Machine, more: Sequence[Mapping[str, Any]]
) -> tuple[int, Ledger]:
    """Of the runs where an op is held up, and some more: the lowest peak, and the worst account.

    Args:
      program: of a whole function.
      machine: whose threads and times are assumed.
      more: how other runs go.
    """
    worst = _worse(program, machine)
    low = worst.peak
    if len(worst.log) > LONGEST_LOG:
        return low, worst
    hows = [{}, *({"stalled": step} for step in _largest(program, worst.peak)), *more]
    if any(step.scratch > LARGE * worst.peak for step in all_steps(program)):
        hows += [{"scratch_lasts": True, "deals": deals} for deals in (Deals.OLDEST, Deals.NEWEST)]
    for how in hows:
        ledger = _run(program, machine, **how, keepalives_lag=True)
        low = min(low, ledger.peak)
        worst = max(worst, ledger, key=lambda one: one.peak)
    return low, worst


def _largest(program: Program, peak: int) -> list[Step]:
    """The ops outside of loops that hold most while they run."""
    size_of = {
        slot: size
        for step in program.steps
        for slot, size in zip(step.outputs, step.sizes, strict=False)
    }
    held = {
        id(step): sum(size_of.get(slot, 0) for slot in {*step.read, *step.outputs})
        for step in program.steps
        if not step.inner
    }
    large = [step for step in program.steps if held.get(id(step), 0) > LARGE * peak]
    return sorted(large, key=lambda step: -held[id(step)])[:MOST_STALLED]


def peaks(net: Net | KnownNet, machine: Machine = CPU) -> tuple[int, int]:
    """Bytes alive at the peak, where the oldest of several ready ops runs first and the newest.

    Which of them it is in a run is a race. `counted_peak` says whether all sizes are known.
    """
    program = prepared(net, machine)
    return _run(program, machine).peak, _run(program, machine, deals=Deals.NEWEST).peak


@dataclasses.dataclass(frozen=True)
class Record:
    """Everything that a simulated run did to memory, in order.

    Attributes:
      log: ``(holder, change of its bytes, bytes alive then)``; a holder has an `Origin`.
      in_use: bytes in use after each entry of the log, counted by whole chunks.
      spans: which entries belong to which loop.
      unknown: names of blobs whose size, and of loops whose trip count, is unknown.
    """

    log: list[tuple[Buffer | Series, int, int]]
    in_use: list[int]
    spans: tuple[Span, ...]
    unknown: tuple[str, ...]


def record(net: Net | KnownNet, machine: Machine = CPU) -> Record:
    """Simulates one run of a function and keeps all of it; the most in use is `counted_peak`."""
    program = prepared(net, machine)
    ledger = _worse(program, machine)
    return Record(ledger.log, bfc.in_use(ledger.log), tuple(ledger.spans), program.unknown)


def prepared(
    net: Net | KnownNet,
    machine: Machine,
    unknown_dimension: int | None = None,
    simplified: Simplified = PLAIN,
) -> Program:
    """The program of a whole function."""
    known = net if isinstance(net, KnownNet) else known_net(net, None, unknown_dimension)
    return compile_net(known, machine, simplified)


def most_iterations(program: Program) -> int:
    """Of each loop of a whole function, before the simulation leaps."""
    return max(2, MOST_RUNS // (2 * program.size + 1))


def run(program: Program, setting: Setting) -> Ledger:
    """Simulates a run of a whole function; it ends where the ledger's limit is reached."""
    with contextlib.suppress(LimitReached):
        for value in Run(program, setting, eager=True).execute([None] * len(program.inputs)):
            _mark_results(value)
    return setting.ledger


def _run(program: Program, machine: Machine, limit: float = math.inf, **how: Any) -> Ledger:
    """The same on a machine's threads; see `Setting` for how."""
    setting = Setting(Ledger(limit), machine.threads, most_iterations(program), **how)
    return run(program, setting)


def _worse(program: Program, machine: Machine, limit: float = math.inf) -> Ledger:
    """The account of the run that asks for more, of those with either order of ready ops.

    A run that reaches the limit, or is too long to be laid out in chunks, is not looked at twice.
    """
    ledger = _run(program, machine, limit=limit)
    if ledger.peak >= limit or len(ledger.log) > LONGEST_LOG:
        return ledger
    other = _run(program, machine, deals=Deals.NEWEST, limit=limit)
    return max(ledger, other, key=lambda one: one.peak)


def _mark_results(value: Buffer | ListValue | Series | None) -> None:
    if isinstance(value, ListValue):
        for element, _ in value.runs:
            _mark_results(element)
    elif value is not None:
        value.origin.is_result = True


def _alive(ledger: Ledger) -> tuple[Alive, ...]:
    sizes: dict[int, int] = {}
    origins: dict[int, Origin] = {}
    for holder, change, _ in ledger.log[: ledger.peak_entries]:
        for origin, share in shares(holder, change):
            key = id(origin)
            origins[key] = origin
            sizes[key] = sizes.get(key, 0) + share
    found = [_named(origins[key], size) for key, size in sizes.items() if size]
    return tuple(sorted(found, key=lambda alive: -alive.bytes))


def _named(origin: Origin, size: int) -> Alive:
    kind = SAVED if origin.saved_in else RESULT if origin.is_result else TEMPORARY
    blob = origin.saved_in or origin.blob
    label = f"{'/'.join(origin.place)}: {blob}" if origin.place else blob
    return Alive(label, size, origin.source, kind, origin.place)
