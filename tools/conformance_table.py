"""Prints the README's "What works" table from a run: python -m tools.conformance_table [NAME …].

Each program of tests/conformance/programs.py runs three train steps as it is and optimised, with
TensorFlow's graph optimizer at its defaults and with its fusions off. The names, where given, are
beginnings of program names.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator

HEAD = """\
| program | same bits | same bits, fusions off | peak saved | peak saved, all recomputed | \
left alone because |
| --- | --- | --- | --- | --- | --- |"""


def conformance_table(programs: Iterable[str]) -> Iterator[str]:
    """The lines of the table in Markdown, one a program, as they are found."""
    # TensorFlow reads its environment when it is imported, so main() comes first.
    from tests.conformance import harness
    from tests.conformance.programs import build

    yield HEAD
    for name in programs:
        subject = harness.Subject(build(name))
        default, _ = subject.optimised(1.1)
        everything, plan = subject.optimised()
        functions = subject.function, default, everything
        runs = [subject.run(function, measured=True) for function in functions]
        harness.set_fusions(False)
        plain = [subject.run(function) for function in functions]
        harness.set_fusions(True)
        cells = (
            name,
            _same(harness, runs),
            _same(harness, plain),
            *(_saved(runs[0].peak, run.peak) for run in runs[1:]),
            "; ".join(sorted(set(harness.reasons(plan)))),
        )
        yield f"| {' | '.join(cells)} |"


def _same(harness, runs) -> str:
    gaps = [harness.difference(runs[0], run) for run in runs[1:]]
    return "no" if any(gaps) else "yes"


def _saved(before: int, after: int) -> str:
    return f"{max(0.0, 1.0 - after / before):.0%}"


def main(arguments: list[str]) -> None:
    """Runs the programs that the command line names, or all."""
    os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "true"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    from tests.conformance.programs import PROGRAMS

    tf.config.experimental.enable_op_determinism()
    tf.keras.utils.set_random_seed(7)
    chosen = [name for name in PROGRAMS if not arguments or name.startswith(tuple(arguments))]
    for line in conformance_table(chosen):
        print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
