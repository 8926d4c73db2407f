"""What has to be set before TensorFlow starts: devices, other machines and numbers of threads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.expectations import hold
from tests.workers import cluster

ROOT = Path(__file__).resolve().parents[2]

THREADS = """
import tensorflow as tf
tf.config.threading.set_inter_op_parallelism_threads({threads})
tf.config.experimental.enable_op_determinism()
tf.keras.utils.set_random_seed(7)
from tests.conformance.harness import Subject
from tests.conformance.programs import build
for name in {names}:
    gap = Subject(build(name)).compare()
    assert not gap, (name, gap)
print("same bits")
"""
THREADED = "several.parallel_branches", "nested.two_deep", "keras.Bidirectional"


DISTRIBUTED = "tests.conformance.distributed"
SECONDS = 240
"""After which workers that still run are ended."""
TRIES = 3
"""A port that was free may be taken by the time that its worker listens."""


def started(*arguments: str, **environment: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-W", "error::rnnmem.RnnmemWarning", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(processes: list[subprocess.Popen]) -> list[tuple[int, str, str]]:
    """Code, output and errors of each; those that take too long are killed."""
    try:
        outputs = [one.communicate(timeout=SECONDS) for one in processes]
    finally:
        for one in processes:
            one.kill()
    return [(one.returncode, *out) for one, out in zip(processes, outputs, strict=True)]


def run(*arguments: str) -> None:
    ((code, output, errors),) = ended([started(*arguments)])
    assert code == 0 and "same bits" in output, errors[-3000:]


@pytest.mark.parametrize("threads", [1, 16])
def test_one_and_many_threads_between_ops(threads):
    run("-c", THREADS.format(threads=threads, names=THREADED))
    for name in THREADED:
        hold(name, f"{threads} threads", "")


@pytest.mark.parametrize("where", ["replica", "step"])
def test_mirrored_strategy_on_two_devices(where):
    run("-m", DISTRIBUTED, "mirrored", where)
    hold("keras.LSTM", f"MirroredStrategy, {where}", "")


@pytest.mark.slow
@pytest.mark.parametrize("where", ["replica", "step"])
def test_multi_worker_strategy_in_two_processes(where):
    for _ in range(TRIES):
        arguments = "-m", DISTRIBUTED, "multi_worker", where
        found = ended([started(*arguments, **one) for one in cluster()])
        if not any("in use" in errors for *_, errors in found):
            break
    # A worker that died makes the others fail: what each says is needed.
    told = "\n\n".join(f"ended with {code}:\n{errors[-2000:]}" for code, _, errors in found)
    assert all(code == 0 and "same bits" in output for code, output, _ in found), told
    hold("keras.LSTM", f"MultiWorkerMirroredStrategy, {where}", "")
