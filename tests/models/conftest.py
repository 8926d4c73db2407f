import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from models.nmt.corpus import generate, write

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--shapes=1", "--vocabulary=40", "--max_length=12", "--heldout=10", "--batch=8"]
MODEL = ["--units=8", "--embedding=8", "--cell=gru", "--attention=luong", "--dropout=0.2"]


def command(module, flags, environment=()):
    """What starts `python -m models.nmt.<module>`, for `subprocess`."""
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    return {
        "args": [sys.executable, "-m", f"models.nmt.{module}", *map(str, flags)],
        "cwd": ROOT,
        "env": {**os.environ, "PYTHONPATH": path, **dict(environment)},
        "encoding": "utf-8",
    }


@pytest.fixture
def run():
    """Runs `python -m models.nmt.<module>`; returns the finished process."""

    def run_module(module, *flags, text=None):
        return subprocess.run(
            **command(module, flags), input=text, capture_output=True, timeout=300
        )

    return run_module


@pytest.fixture
def start():
    """Starts `python -m models.nmt.<module>`; what still runs at the end is killed."""
    started = []

    def start_module(module, *flags, environment=(), **options):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen(**command(module, flags, environment), **pipes, **options))
        return started[-1]

    yield start_module
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def wait_for():
    """Waits until something holds while a process runs."""

    def wait(condition, process):
        end = time.monotonic() + 280
        while not condition():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end
            time.sleep(0.01)

    return wait


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    """A small parallel text and a small model, as flags of train."""
    folder = tmp_path_factory.mktemp("text")
    write(generate(train=600, validation=1, heldout=1), folder)
    return [f"--source={folder / 'train.en'}", f"--target={folder / 'train.de'}", *SMALL, *MODEL]
