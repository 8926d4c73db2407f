import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run():
    """Runs `python -m models.nmt.<module>`; returns the finished process."""

    def run_module(module, *flags, text=None):
        path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
        return subprocess.run(
            [sys.executable, "-m", f"models.nmt.{module}", *map(str, flags)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            input=text,
            capture_output=True,
            encoding="utf-8",
            timeout=300,
        )

    return run_module
