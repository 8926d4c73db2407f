"""Five recurrent programs that train under rnnmem, each in less than a minute."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import rnnmem


def run(
    train_step: Callable,
    batch: Callable[[], tuple],
    about: str,
    arguments: list[str] | None,
    *,
    steps: int,
    every: int = 10,
) -> float:
    """The command line of an example: trains, prints what it took, and returns the last loss.

    Args:
      train_step: takes what ``batch`` makes; returns the loss.
      batch: makes the arguments of a step.
      about: the example's documentation.
      arguments: of the command line; None: those of the process.
      steps: of training, where the command line names no number.
      every: steps from one printed loss to the next.
    """
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=steps, help="steps of training")
    parser.add_argument("--report", default="", help="write the report here, e.g. memory.html")
    options = parser.parse_args(arguments)
    for step in range(options.steps):
        loss = float(train_step(*batch()))
        if step % every == 0 or step == options.steps - 1:
            print(f"step {step:4}  loss {loss:.3f}", flush=True)
    report = rnnmem.report(train_step, *batch())
    print(report)
    if options.report:
        report.save(options.report)
    return loss
