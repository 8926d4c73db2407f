"""Whether large buffers of a whole function take turns: where a simulation says that it helps."""

from __future__ import annotations

import dataclasses
import math

from rnnmem.analysis.loops import loops_of
from rnnmem.analysis.shapes import filled, with_known_shapes
from rnnmem.ir.graph import Net
from rnnmem.passes.schedule.apply import with_edges
from rnnmem.passes.schedule.serialise import Edges, all_edges, most_scratch
from rnnmem.planning.assumed_sizes import assumed_peaks, may_be_larger
from rnnmem.planning.plan import Plan
from rnnmem.planning.setting import Setting
from rnnmem.planning.step_time import run_seconds
from rnnmem.simulate.timeline import counted_peak, simulate
from rnnmem.sizes import counted, format_bytes

MOST_OPS = 5000
"""Ops of a function with loops, at all depths, beyond which no turns are looked for."""
LEAST_GAIN = 0.01
"""Part of the peak that turns must take off a function with loops."""
LEAST_GAIN_FIRST = 0.2
"""The same of edges for which loops are given less time."""
LEAST_GAIN_ELSEWHERE = 0.15
"""The same of a function without, where what takes turns is most of the time."""


def with_edges_where_they_pay(
    net: Net, plan: Plan, setting: Setting, max_slowdown: float
) -> tuple[Plan, Net | None]:
    """Adds control edges where they lower the predicted peak in the time that is left.

    Args:
      net: the function, rewritten by ``plan`` if that changes anything.
      plan: the decisions so far.
      setting: what plans depend on; the sizes of a call among it, where the Net tells none.
      max_slowdown: the bound on the factor of step time.

    Returns:
      The plan with the edges, and the Net with them; the plan as it was and None where neither the
      predicted peak nor that of a worse run is lowered. Of a function with loops it must be the
      predicted peak: that is what its budget was held against. Of one without, within a bound on
      time, one of the two must fall by `LEAST_GAIN_ELSEWHERE`.
    """
    has_loops = _has_loops(net)
    if has_loops and net.op_count > MOST_OPS:
        return plan, None
    allowed = max_slowdown / max(1.0, plan.slowdown)
    legal, sized = with_known_shapes(net), filled(setting.known(net))
    scheduling_edges = all_edges(legal, setting.machine, allowed, sized)
    if scheduling_edges is None:
        return plan, None
    scheduling_edges, ordered = _in_time(net, scheduling_edges, setting, allowed)
    if not scheduling_edges.edges:
        return plan, None
    original = plan.predicted_peak if has_loops else None
    if original is None:
        original = predicted_peak(net, setting)
    predicted = predicted_peak(ordered, setting)
    if original is None or predicted is None or predicted > original:
        return plan, None
    if has_loops and predicted > (1 - LEAST_GAIN) * original:
        return plan, None
    # The prediction is of one run; another may hold all that nothing orders.
    bound, before = scheduling_edges.bytes, scheduling_edges.bytes_before
    if predicted == original and not bound <= original < before:
        return plan, None
    least = LEAST_GAIN_ELSEWHERE if max_slowdown < math.inf and not has_loops else 0.0
    if predicted > (1 - least) * original and bound > (1 - least) * before:
        return plan, None
    if setting.sizes is not None and may_be_larger(ordered, assumed_peaks(net), original):
        return plan, None
    edges = scheduling_edges.edges
    note = f"{counted(len(edges), 'scheduling edge serialises', 'scheduling edges serialise')} "
    note += "large buffers"
    if before:
        note += (
            f": of those outside loops at most {format_bytes(bound)} are alive at once, where it "
            f"could be {format_bytes(before)}"
        )
    found = dataclasses.replace(
        plan,
        notes=(*plan.notes, note),
        slowdown=plan.slowdown * max(1.0, scheduling_edges.slowdown),
        original_peak=original if plan.original_peak is None else plan.original_peak,
        predicted_peak=predicted,
    )
    return found.having(scheduling_edges=scheduling_edges.edges), ordered


def _in_time(net: Net, found: Edges, setting: Setting, allowed: float) -> tuple[Edges, Net]:
    """The edges with what those in loops make iterations lose; without these, if that is too much.

    Where iterations run one at a time, what an edge orders overlaps with nothing.

    Returns:
      The edges, and the Net with them.
    """
    ordered = with_edges(net, found.edges)
    machine, known = setting.machine, setting.known
    if machine.costs is None or not any(edge.path for edge in found.edges):
        return found, ordered
    lost = run_seconds(known(ordered), machine) / run_seconds(known(net), machine)
    slowdown = max(found.slowdown, lost)
    if slowdown <= allowed:
        return dataclasses.replace(found, slowdown=slowdown), ordered
    outside = tuple(edge for edge in found.edges if not edge.path)
    return dataclasses.replace(found, edges=outside), with_edges(net, outside)


def time_of_edges(net: Net, plan: Plan, setting: Setting) -> float:
    """The factor of time that edges take where what they save is worth planning anew in the rest.

    That is looked for where the buffers that kernels ask for make much of the peak.

    Args:
      net: the function, rewritten by ``plan`` if that changes anything.
      plan: the decisions so far.
      setting: what plans depend on.

    Returns:
      1.0 where there are no such edges.
    """
    scratch = most_scratch(filled(setting.known(net)), setting.machine.threads)
    if not scratch:
        return 1.0
    peak = plan.predicted_peak or predicted_peak(net, setting)
    if peak is None or scratch < 2 * LEAST_GAIN_FIRST * peak:
        return 1.0
    found, _ = with_edges_where_they_pay(net, plan, setting, math.inf)
    pays = found.predicted_peak is not None and found.predicted_peak < (1 - LEAST_GAIN_FIRST) * peak
    return found.slowdown / plan.slowdown if pays else 1.0


def predicted_peak(net: Net, setting: Setting) -> int | None:
    """What plans say of a function's peak: in chunks where loops are, else what it asks for."""
    known = setting.known(net)
    return counted_peak(known) if _has_loops(net) else simulate(known).peak_bytes


def _has_loops(net: Net) -> bool:
    return bool(loops_of(net))
