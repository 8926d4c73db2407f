"""What ``optimize`` logs, under the name "rnnmem"; quiet until somebody listens."""

from __future__ import annotations

import logging
import time

from rnnmem.planning.plan import Plan
from rnnmem.planning.telling import verdict

LOG = logging.getLogger("rnnmem")
LOG.addHandler(logging.NullHandler())  # without one, Python prints warnings of a library by itself


def planned(name: str, where: str, plan: Plan, began: float) -> None:
    """Logs a plan: INFO what was decided and what was left, DEBUG each loop that changes.

    Args:
      name: the function's name.
      where: its line, in brackets, or empty.
      plan: what was decided.
      began: ``time.perf_counter`` when planning began.
    """
    if not LOG.isEnabledFor(logging.INFO):
        return
    LOG.info(
        "%s%s: %s, predicted peak %s (was %s), step time %.2fx, planned in %.2f s",
        name,
        where,
        verdict(plan),
        plan.told_peaks[1],
        plan.told_peaks[0],
        plan.slowdown,
        time.perf_counter() - began,
    )
    for loop in plan.every_loop():
        line = f" ({loop.source})" if loop.source else ""
        if loop.closed:
            LOG.info("%s: loop %s%s left as it was: %s", name, loop.path[-1], line, loop.closed)
        else:
            LOG.debug(
                "%s: loop %s%s: %s iterations, %s saved in each, recomputed %s, %s parallel",
                name,
                "/".join(loop.path),
                line,
                "?" if loop.trips is None else loop.trips,
                ", ".join(loop.saved) or "nothing",
                ", ".join(loop.recomputed) or "nothing",
                loop.parallel_iterations,
            )
    for note in plan.notes:
        LOG.info("%s: %s", name, note)
