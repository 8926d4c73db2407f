"""Runs rnnmem on every TensorFlow and Python that it says it is tested on: `make test-versions`.

    python tools/versions.py                       # all pairs of rnnmem/version.py
    python tools/versions.py --only=2.16,3.13      # those with this TensorFlow or this Python
    python tools/versions.py --part=4              # one of four conformance programs
    python tools/versions.py --page                # only writes docs/versions.md once more

Each pair has an environment of its own below .venv-versions/, with TensorFlow's wheel for CPUs. It
runs the API tests, the conformance programs and one step of the translation model. What came of it
goes to benchmarks/results/versions-cpu.json, from where docs/versions.md is made.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".venv-versions"
RESULTS = ROOT / "benchmarks" / "results" / "versions-cpu.json"
PAGE = ROOT / "docs" / "versions.md"
TESTED = runpy.run_path(str(ROOT / "rnnmem" / "version.py"))["TESTED"]
API = (
    "tests/test_api.py",
    "tests/test_doctor.py",
    "tests/test_keras_2.py",
    "tests/reports/test_memory_log.py",
    "tests/tf/test_eager_tapes.py",
    "tests/tf/test_optimized.py",
    "tests/tf/test_traced_gradients.py",
)
"""Tests of what users call, and of what rests on private names of TensorFlow's."""
CONFORMANCE = "tests/conformance/test_bits.py"
NOT_RUN = "not run"
COLUMNS = ("bits", "bits without fusions", "side effects", "peak")
TOOLS = ("pytest>=8", "pytest-timeout", "hypothesis")


def pairs(only: list[str]) -> Iterator[tuple[str, str]]:
    """(TensorFlow, Python) that are to run."""
    for tensorflow, pythons in TESTED.items():
        for python in pythons:
            if not only or tensorflow in only or python in only:
                yield tensorflow, python


def interpreter(python: str) -> str | None:
    """A Python of this version, on the path or among pyenv's."""
    folder = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [*folder.glob(f"{python}.*/bin/python"), shutil.which(f"python{python}")]
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    for one in filter(None, found):
        done = subprocess.run([str(one), "-c", ask], capture_output=True, text=True)
        if done.stdout.strip() == python:
            return str(one)
    return None


def environment(tensorflow: str, python: str) -> Path | None:
    """The interpreter of a pair's environment, made where it is not there; None: no such Python."""
    folder = ENVIRONMENTS / f"py{python}-tf{tensorflow}"
    inside, ready = folder / "bin" / "python", folder / "ready"
    wanted = ["-e", f"{ROOT}[tf-cpu,nmt,report]", f"tensorflow-cpu=={tensorflow}.*", *TOOLS]
    # Its own requirement is the package `tensorflow`, which would lie over the one that is there.
    alone = ["--no-deps", f"tf_keras=={tensorflow}.*"]
    text = json.dumps([wanted, alone])
    if ready.exists() and ready.read_text(encoding="utf-8") == text:
        return inside
    base = interpreter(python)
    if base is None:
        return None
    subprocess.run([base, "-m", "venv", "--clear", folder], check=True)
    for some in (wanted, alone):
        pip = [inside, "-m", "pip", "install", "-q", "--disable-pip-version-check", *some]
        subprocess.run(pip, check=True)
    ready.write_text(text, encoding="utf-8")
    return inside


def run(inside: Path, part: int) -> dict[str, Any]:
    """What the tests and the translation model say in one environment.

    Args:
      inside: its interpreter.
      part: of so many conformance programs one is run.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return {
            "versions": _versions(inside),
            "api": _pytest(inside, folder, *API, "-m", "not slow"),
            "conformance": _conformance(inside, folder, part),
            "translation": _translation(inside, folder),
        }


def _pytest(inside: Path, folder: Path, *arguments: str) -> dict[str, Any]:
    """How many tests passed, and which failed, with the beginning of the message."""
    report = folder / "tests.xml"
    _call(inside, "-m", "pytest", "-q", f"--junitxml={report}", *arguments)
    cases = list(ElementTree.parse(report).iter("testcase"))
    wrong = [(case, *case.findall("failure"), *case.findall("error")) for case in cases]
    failed = {
        f"{case.get('classname')}::{case.get('name')}": " ".join(why[0].get("message", "").split())
        for case, *why in wrong
        if why
    }
    skipped = sum(case.find("skipped") is not None for case in cases)
    failed = {name: text.removeprefix("AssertionError: ")[:300] for name, text in failed.items()}
    return {"passed": len(cases) - skipped - len(failed), "skipped": skipped, "failed": failed}


def _conformance(inside: Path, folder: Path, part: int) -> dict[str, Any]:
    """What of the conformance programs, one of so many, does not hold."""
    script = "from tests.conformance.programs import PROGRAMS; print(*PROGRAMS)"
    done = subprocess.run([inside, "-c", script], cwd=ROOT, capture_output=True, check=True)
    test = f"{CONFORMANCE}::test_three_steps_leave_the_same"
    names = done.stdout.decode().split()[::part]
    return _pytest(inside, folder, *(f"{test}[{name}]" for name in names))


def _translation(inside: Path, folder: Path) -> dict[str, Any]:
    """Peaks and bits of one step of the benchmark model."""
    path = folder / "translation.json"
    _call(inside, "-m", "models.nmt.benchmark", "--source_length=50", "--steps=1", f"--json={path}")
    (result,) = json.loads(path.read_text(encoding="utf-8"))["results"]
    kept = ("before_bytes", "after_bytes", "loss_identical", "gradients_identical", "digest")
    return {key: result[key] for key in kept}


def _versions(inside: Path) -> dict[str, str]:
    script = (
        "import json, keras, numpy, platform, tensorflow as tf; print(json.dumps(dict("
        "python=platform.python_version(), tensorflow=tf.__version__, keras=keras.__version__,"
        "numpy=numpy.__version__)))"
    )
    done = subprocess.run([inside, "-c", script], capture_output=True, check=True)
    return json.loads(done.stdout)


def _call(inside: Path, *arguments: str, **changes: str) -> None:
    process = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **changes}
    subprocess.run([inside, "-W", "ignore", *arguments], cwd=ROOT, env=process)


HEADINGS = ("TensorFlow", "Python", "Keras", "NumPy", "API tests", "programs", *COLUMNS, "NMT step")
HEAD = """\
# Versions

rnnmem uses private names of TensorFlow's, and keeps clear of what its graph optimizer does: both
may change with every version. `make test-versions` runs each pair below in an environment of its
own (Linux, a CPU), and writes this page: the API tests, conformance programs
([what works](what-works.md); how many of them ran stands in the table) and a step of the
translation model (50 tokens, peak before and after). *All* means: what holds on the version that
rnnmem is made with holds here, the same exceptions listed.

`rnnmem/version.py` states the versions. setup.py reads them there, `python -m rnnmem doctor`, and
the one warning that is given elsewhere ("rnnmem is not tested on ...").

"""
BITS = """\
## Bits by version

rnnmem keeps the bits of the TensorFlow that it runs on. TensorFlow's own may differ between
versions: of the translation model's loss and gradients, as TensorFlow runs them (beginning of the
SHA-256), TensorFlow on Python:

"""


def table(results: dict[str, Any]) -> str:
    """The table of the page: a line a pair."""
    rows = [HEADINGS, ["---"] * len(HEADINGS)]
    rows += [_cells(*pair, results.get(" ".join(pair))) for pair in pairs([])]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cells(tensorflow: str, python: str, found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return [tensorflow, python, NOT_RUN, *[""] * (len(HEADINGS) - 3)]
    ran, api, programs = found["versions"], found["api"], found.get("conformance")
    return [
        *(ran[name] for name in ("tensorflow", "python", "keras", "numpy")),
        f"{api['passed']} of {api['passed'] + len(api['failed'])}",
        *([NOT_RUN, *[""] * len(COLUMNS)] if programs is None else _held(programs)),
        _step(found["translation"]) if "translation" in found else NOT_RUN,
    ]


def _held(programs: dict[str, Any]) -> list[str]:
    """How many programs ran, and whether each column held for all."""
    texts = programs["failed"].values()
    off = [sum(f", {column}: " in text for text in texts) for column in COLUMNS]
    return [
        str(programs["passed"] + len(texts)),
        *(f"all but {one}" if one else "all" for one in off),
    ]


def _step(found: dict[str, Any]) -> str:
    same = found["loss_identical"] and found["gradients_identical"]
    before, after = (found[key] / 2**20 for key in ("before_bytes", "after_bytes"))
    return f"{before:.1f} to {after:.1f} MiB, {'same bits' if same else 'bits DIFFER'}"


def failures(results: dict[str, Any]) -> list[str]:
    """A line for everything that does not hold on some version."""
    return [
        "* TensorFlow {} on Python {}".format(*pair.split()) + f": `{test}`: {text}"
        for pair, found in results.items()
        for part in ("api", "conformance")
        for test, text in found.get(part, {"failed": {}})["failed"].items()
    ]


def bits_by_version(results: dict[str, Any]) -> list[str]:
    """Which pairs give the same bits of the translation model's loss and gradients."""
    groups = collections.defaultdict(list)
    for pair, found in results.items():
        if "translation" in found:
            groups[found["translation"]["digest"]].append(pair.replace(" ", " on "))
    return [f"* `{digest}`: {', '.join(some)}" for digest, some in groups.items()]


def page(results: dict[str, Any]) -> str:
    """The text of docs/versions.md."""
    wrong = failures(results) or ["Nothing."]
    parts = [
        HEAD + table(results),
        "## What does not hold everywhere\n\n" + "\n".join(wrong) + "\n",
        BITS + "\n".join(bits_by_version(results)) + "\n",
    ]
    return "\n".join(parts)


def read() -> dict[str, Any]:
    """What was found so far: "TensorFlow Python" -> results."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def main() -> int:
    """Runs the pairs, writes results and page, prints the table.

    Returns:
      1 where a pair has failures or could not be run, else 0.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="TensorFlows and Pythons, e.g. 2.16,3.13")
    parser.add_argument("--part", type=int, default=1, help="run one of so many programs")
    parser.add_argument("--page", action="store_true", help="run nothing, write the page")
    options = parser.parse_args()
    some = [] if options.page else list(pairs([one for one in options.only.split(",") if one]))
    bad = False
    for tensorflow, python in some:
        inside = environment(tensorflow, python)
        if inside is None:
            print(f"no Python {python} here: TensorFlow {tensorflow} was not run", file=sys.stderr)
            bad = True
            continue
        found = run(inside, options.part)
        bad |= bool(found["api"]["failed"] or found["conformance"]["failed"])
        results = {**read(), f"{tensorflow} {python}": found}
        ordered = {f"{one} {two}": results.get(f"{one} {two}") for one, two in pairs([])}
        kept = {pair: found for pair, found in ordered.items() if found}
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        print(table(kept), flush=True)
    PAGE.write_text(page(read()), encoding="utf-8")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
