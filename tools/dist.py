"""Builds wheel and sdist into dist/, and uses both as somebody does who has nothing else.

`make dist`. Their metadata is checked; the wheel holds no package but rnnmem, is installed into a
fresh environment with the extra [tf-cpu], and runs the quick start and the shell from another
folder; the sdist is unpacked and runs some of its own tests there.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
TESTS = (
    "tests/test_house.py",
    "tests/test_build_file.py",
    "tests/test_packages.py",
    "tests/test_api.py",
    "tests/docs/test_made_from_sources.py",
    "tests/ir",
    "tests/planning",
)
"""Of the sdist's tests some that take about a minute; two of them look for its files."""


def build() -> tuple[Path, Path]:
    """The wheel and the sdist, freshly built, their metadata checked."""
    shutil.rmtree(DIST, ignore_errors=True)
    _run(sys.executable, "-m", "build", "--outdir", DIST, ROOT, quiet=True)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    _run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    return wheel, sdist


def packages(wheel: Path) -> set[str]:
    """What lies at the top of a wheel, but for its own metadata."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name.split("/")[0] for name in archive.namelist()}
    return {name for name in names if not name.endswith(".dist-info")}


def quick_start() -> str:
    """The first program of docs/quick-start.md, which prints what it saves."""
    page = (ROOT / "docs" / "quick-start.md").read_text(encoding="utf-8")
    block = re.search(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert block, "docs/quick-start.md has no program"
    return block.group(1)


def use(wheel: Path, sdist: Path, folder: Path) -> None:
    """Installs the wheel into a folder, and runs what is in both there."""
    python = folder / "environment" / "bin" / "python"
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    assert packages(wheel) == {"rnnmem"}, f"{wheel.name} installs {packages(wheel)}"
    start = time.monotonic()
    _run(sys.executable, "-m", "venv", python.parent.parent)
    _install(python, f"rnnmem[tf-cpu] @ {wheel.as_uri()}")
    (elsewhere / "start.py").write_text(quick_start(), encoding="utf-8")
    _run(python, "start.py", at=elsewhere)
    print(f"from the wheel to the first saving: {time.monotonic() - start:.0f} s", flush=True)
    _run(python.parent / "rnnmem", "--version", at=elsewhere)
    _install(python, "pytest", "pytest-timeout", "hypothesis")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    unpacked = folder / sdist.name.removesuffix(".tar.gz")
    _run(python, "-m", "pytest", "-q", "-m", "not slow", *TESTS, at=unpacked)


def _install(python: Path, *packages: str) -> None:
    _run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages)


def _run(*command: object, at: Path = ROOT, quiet: bool = False) -> None:
    output = subprocess.PIPE if quiet else None
    done = subprocess.run([str(one) for one in command], cwd=at, stdout=output, stderr=output)
    if done.returncode:
        sys.stderr.buffer.write((done.stdout or b"") + (done.stderr or b""))
        sys.exit(f"dist: {' '.join(map(str, command))} exits with {done.returncode}")


def main() -> None:
    """Builds, checks and uses both."""
    wheel, sdist = build()
    with tempfile.TemporaryDirectory() as folder:
        use(wheel, sdist, Path(folder))
    print(f"dist: {wheel.name} and {sdist.name} work")


if __name__ == "__main__":
    main()
