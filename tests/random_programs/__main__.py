"""Verifies random programs by hand, prints one, or verifies one that was changed by hand.

python -m tests.random_programs FIRST LAST [--jobs=1] [--all] [--keep=FOLDER]
python -m tests.random_programs --show SEED > case.py
python -m tests.random_programs --file case.py
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import queue
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.random_programs.pool import PROGRAMS, SECONDS, Outcome, verified
from tests.random_programs.programs import program

UNUSABLE = "unusable"


def main(arguments: list[str]) -> int:
    """Returns 1 where something is wrong with any program, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.random_programs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("first", type=int, nargs="?", help="the first seed")
    parser.add_argument("last", type=int, nargs="?", help="one more than the last seed")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="the most for one program")
    parser.add_argument("--all", action="store_true", help="print programs without findings too")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write failing programs here")
    parser.add_argument("--show", type=int, metavar="SEED", help="print this program")
    parser.add_argument("--file", type=Path, help="verify the program in this file")
    chosen = parser.parse_args(arguments)
    if chosen.show is not None:
        print(program(chosen.show).text)
        return 0
    if chosen.file is not None:
        return _verify_file(chosen.file)
    if chosen.first is None or chosen.last is None:
        parser.error("FIRST and LAST, --show or --file")
    seeds = range(chosen.first, chosen.last)
    return _verify_all(seeds, chosen)


def _verify_all(seeds: range, chosen: argparse.Namespace) -> int:
    counts: collections.Counter[str] = collections.Counter()
    begin = time.monotonic()
    for outcome in _outcomes(seeds, chosen.jobs, chosen.seconds):
        categories = {category for category, _ in outcome.findings} or {"nothing wrong"}
        counts.update(categories)
        counts["improved"] += outcome.improved
        counts["peak above 1 MiB"] += outcome.peaks[0] > 2**20
        counts["with a note"] += bool(outcome.notes)
        wrong = categories - {"nothing wrong", UNUSABLE}
        if wrong or outcome.notes or chosen.all:
            print(line(outcome), flush=True)
        if wrong and chosen.keep is not None:
            _keep(outcome, chosen.keep)
    minutes = (time.monotonic() - begin) / 60
    told = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    print(f"{len(seeds)} programs in {minutes:.1f} minutes: {told}", flush=True)
    return int(bool(set(counts) - {"nothing wrong", UNUSABLE, *_COUNTED}))


def _keep(outcome: Outcome, folder: Path) -> None:
    """Writes a program to a file: another version of this package makes another of its seed."""
    folder.mkdir(parents=True, exist_ok=True)
    text = f"# {line(outcome)}\n{program(outcome.seed).text}"
    (folder / f"{outcome.seed}.py").write_text(text, encoding="utf-8")


_COUNTED = ("improved", "peak above 1 MiB", "with a note")


def _outcomes(seeds: range, jobs: int, seconds: float) -> Iterator[Outcome]:
    """What comes of each program, as soon as it does: a run that is broken off keeps the rest."""
    found: queue.SimpleQueue[Outcome] = queue.SimpleQueue()

    def verify(part: range) -> None:
        for outcome in verified(part, seconds):
            found.put(outcome)

    parts = [seeds[first : first + PROGRAMS] for first in range(0, len(seeds), PROGRAMS)]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        under_way = {pool.submit(verify, part) for part in parts}
        while under_way:
            done, under_way = concurrent.futures.wait(under_way, timeout=1.0)
            while not found.empty():
                yield found.get()
            for one in done:
                one.result()


def line(outcome: Outcome) -> str:
    """All about a program that was verified, on one line."""
    one = program(outcome.seed)
    (options,) = re.findall(r"^OPTIONS = (.*)$", one.text, re.MULTILINE)
    found = "; ".join(f"[{category}] {message}" for category, message in outcome.findings)
    notes = "".join(f" ({note})" for note in outcome.notes)
    before, after = (f"{peak / 2**20:.2f}" for peak in outcome.peaks)
    improved = "improved" if outcome.improved else "as it was"
    return (
        f"{outcome.seed} {one.mode} {options} hash {outcome.hashes}, {improved}, "
        f"{before} -> {after} MiB: {found or 'nothing wrong'}{notes}"
    )


def _verify_file(path: Path) -> int:
    from tests.random_programs.pool import verified_text

    outcome = verified_text(path.read_text(encoding="utf-8"))
    for category, message in outcome.findings:
        print(f"[{category}] {message}")
    for note in outcome.notes:
        print(note)
    before, after = (f"{peak / 2**20:.2f}" for peak in outcome.peaks)
    print(f"{'improved' if outcome.improved else 'as it was'}, {before} -> {after} MiB")
    return int(bool(outcome.findings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
