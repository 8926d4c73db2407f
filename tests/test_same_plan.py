"""The same function gets the same plan, and the same graph, in every process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.programs import PROGRAMS

ROOT = Path(__file__).resolve().parent.parent

SEEDS = ("1", "4242")
FEW = ("branch.cond", "tensorarray.gather_scatter", "gradients.two_losses")
"""Branches that share what they hand out, lists, and two gradients of one loop."""


def planned(names, seed):
    run = [sys.executable, "-m", "tests.planned", *names]
    process = {**os.environ, "PYTHONHASHSEED": seed, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(run, cwd=ROOT, env=process, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def differences(names, seeds):
    """What the processes do not agree on."""
    first, *others = (planned(names, seed) for seed in seeds)
    assert set(first) == set(names)
    return [
        f"{name}, {what}"
        for name in names
        for what in first[name]
        if any(other[name][what] != first[name][what] for other in others)
    ]


@pytest.mark.slow
def test_two_processes_plan_alike():
    assert not differences(FEW, SEEDS)


@pytest.mark.slow
def test_two_processes_plan_each_tenth_program_alike():
    assert not differences(list(PROGRAMS)[::10], SEEDS)
