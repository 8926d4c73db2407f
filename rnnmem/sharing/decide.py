"""Whether large buffers of a whole function take turns: where a simulation says that it helps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from rnnmem.net.cost import Machine
from rnnmem.net.nouns import Net
from rnnmem.net.shapes import with_known_shapes
from rnnmem.net.timeline import simulate
from rnnmem.options import Options
from rnnmem.plan import Plan, Turn
from rnnmem.sharing.turns import all_turns
from rnnmem.sizes import format_bytes


def in_turns(
    net: Net,
    plan: Plan,
    machine: Machine,
    options: Options,
    apply: Callable[[tuple[Turn, ...]], Net],
) -> tuple[Plan, Net | None]:
    """Adds control edges where they lower the predicted peak in the time that is left.

    Args:
      net: the function, rewritten by ``plan`` if that changes anything.
      plan: the decisions so far.
      machine: what estimates of time assume.
      options: what the user asks for.
      apply: adds edges to the Net.

    Returns:
      The plan with the edges, and the Net with them; the plan as it was and None where they do not
      pay.
    """
    turns = all_turns(with_known_shapes(net), machine, options.max_slowdown / max(1, plan.slowdown))
    if turns is None:
        return plan, None
    ordered = apply(turns.edges)
    original, predicted = simulate(net).peak_bytes, simulate(ordered).peak_bytes
    if original is None or predicted is None or predicted >= original:
        return plan, None
    note = f"{len(turns.edges)} control edges let large buffers take turns"
    if turns.bytes_before:
        note += (
            f": of those outside loops at most {format_bytes(turns.bytes)} are alive at once, "
            f"where it could be {format_bytes(turns.bytes_before)}"
        )
    return dataclasses.replace(
        plan,
        turns=turns.edges,
        notes=(*plan.notes, note),
        slowdown=plan.slowdown * max(1.0, turns.slowdown),
        original_peak=original if plan.original_peak is None else plan.original_peak,
        predicted_peak=predicted,
    ), ordered
