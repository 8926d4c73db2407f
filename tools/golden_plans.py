"""Records the plan and the exported graph of every conformance program, to compare states of code.

python -m tools.golden_plans before.json                  # on one state of the code
python -m tools.golden_plans after.json --against=before.json   # on another
python -m tools.golden_plans some.json --against=before.json --every=5   # each fifth program
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import warnings
from pathlib import Path

os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("RNNMEM_CALIBRATION", "off")  # plans that are the same everywhere

import rnnmem
from tests.conformance.harness import Subject
from tests.conformance.programs import PROGRAMS, build

BOUNDS = (1.1, 1.35, 2.0)


def graph_hash(function) -> str:
    """A hash of a traced function's graph in which functions are numbered, not named."""
    graph = function.graph.as_graph_def()
    names = {one.signature.name for one in graph.library.function}
    body = {one.signature.name: one for one in graph.library.function}
    numbers: dict[str, str] = {}
    pending, texts = [str(graph.node)], []
    pattern = re.compile("|".join(sorted(map(re.escape, names), key=len, reverse=True)) or "$^")

    def number(match) -> str:
        name = match.group()
        if name not in numbers:
            numbers[name] = f"function_{len(numbers)}"
            pending.append(str(body[name]))
        return numbers[name]

    while pending:
        texts.append(pattern.sub(number, pending.pop(0)))
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def record(name: str) -> dict[str, object]:
    """By bound: the program's plan, and the hash of what runs."""
    found: dict[str, object] = {}
    for bound in BOUNDS:
        subject = Subject(build(name))
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", rnnmem.RnnmemWarning)
            function = rnnmem.optimize(subject.function, max_slowdown=bound)
            plan = json.loads(function.plan(*subject.case.inputs).to_json())
            run = function.get_concrete_function(*subject.case.inputs)
        texts = [str(one.message) for one in warned if one.category is rnnmem.RnnmemWarning]
        found[str(bound)] = {"plan": plan, "graph": graph_hash(run), "warnings": texts}
    return found


def differences(before: dict, after: dict) -> list[str]:
    """A line for each program and bound that is not as it was."""
    lines = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name, {}), after.get(name, {})
        for bound in sorted(old.keys() | new.keys()):
            pair = old.get(bound, {}), new.get(bound, {})
            what = [
                key for key in ("plan", "graph", "warnings") if pair[0].get(key) != pair[1].get(key)
            ]
            if what:
                lines.append(f"{name} at {bound}: other {', '.join(what)}")
    return lines


def main(arguments: list[str]) -> int:
    """Writes the records; with ``--against`` also says what differs. Returns how much does."""
    parser = argparse.ArgumentParser(prog="python -m tools.golden_plans")
    parser.add_argument("target", type=Path, help="a JSON file to write")
    parser.add_argument("--against", type=Path, help="records of another state of the code")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth program only")
    chosen = parser.parse_args(arguments)
    records = {}
    for name in list(PROGRAMS)[:: chosen.every]:
        records[name] = record(name)
        print(".", end="", flush=True)
    print()
    chosen.target.write_text(json.dumps(records, indent=1, sort_keys=True), encoding="utf-8")
    lines = []
    if chosen.against is not None:
        before = json.loads(chosen.against.read_text("utf-8"))
        known = records if chosen.every > 1 else before
        lines = differences({name: before.get(name, {}) for name in known}, records)
    print("\n".join(lines) or f"{len(records)} programs recorded")
    return len(lines)


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1:])))
