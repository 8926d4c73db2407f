"""``make prove``: all that is proven by going through every case; prints how many there were.

python -m tests.proofs [--sampled=600] [--workers=2]
"""

from __future__ import annotations

import os
import time

from absl import app, flags

from tests.proofs import schedules, small_scope
from tests.proofs.plans import PRODUCTS

SAMPLED = flags.DEFINE_integer(
    "sampled", 600, "step nets drawn of each size that is not complete", lower_bound=0
)
WORKERS = flags.DEFINE_integer("workers", os.cpu_count() or 1, "processes", lower_bound=1)


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"no arguments, only flags: {argv[1:]}")
    started = time.monotonic()
    checked = [schedules.check_all(slots) for slots in range(1, schedules.SLOTS + 1)]
    count = sum(one for one, _ in checked)
    above = {key: more for _, found in checked for key, more in found.items()}
    print(f"{count} schedules of up to {schedules.STEPS} steps in up to {schedules.SLOTS} slots")
    print(f"  {len(above)} of them, online and of unknown length, above the optimum: {above}")
    print(f"{schedules.check_segments()} loops in segments without a schedule", flush=True)
    for part in small_scope.scope(SAMPLED.value):
        nets, plans, left = part.prove(WORKERS.value)
        print(f"{part.name}: {nets} step nets, {plans} plans proven, {left} left alone; 0 differ")
        minutes = (time.monotonic() - started) / 60
        print(f"  {PRODUCTS[part.product]} ({minutes:.1f} minutes so far)", flush=True)


if __name__ == "__main__":
    app.run(main)
