"""The one place that states rnnmem's version and what it is tested on; setup.py runs it."""

__version__ = "0.1.0"

TESTED = {
    "2.16": ("3.11", "3.12"),
    "2.18": ("3.11", "3.12"),
    "2.20": ("3.11", "3.12", "3.13"),
    "2.21": ("3.11", "3.12", "3.13"),
}
"""TensorFlow -> Pythons that `make test-versions` runs it on: those that it has wheels for."""


PYTHONS = sorted({one for some in TESTED.values() for one in some})
RANGES = f"TensorFlow {min(TESTED)} to {max(TESTED)} and Python {PYTHONS[0]} to {PYTHONS[-1]}"


def untested(tensorflow: str, python: str) -> str:
    """The sentence on a TensorFlow or a Python outside of what is tested; empty inside of it.

    Args:
      tensorflow: its version, e.g. "2.21.0".
      python: likewise.
    """
    ran = ("TensorFlow", tensorflow, list(TESTED)), ("Python", python, PYTHONS)
    outside = [
        f"{name} {version}"
        for name, version, some in ran
        if not _minor(some[0]) <= _minor(version) <= _minor(some[-1])
    ]
    if not outside:
        return ""
    return (
        f"rnnmem is not tested on {' and '.join(outside)}, but on {RANGES}; "
        "`python -m rnnmem doctor` tells what works here"
    )


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])
