"""Real worker processes on this machine; the work is in process_script.py."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def run(count: int, directory: Path, what: str) -> dict:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    script = Path(__file__).with_name("process_script.py")
    done = subprocess.run(
        [sys.executable, str(script), str(count), str(directory), what],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return json.loads((directory / "seen.json").read_text())


@pytest.mark.slow
def test_two_processes_train_alike_and_training_resumes_after_one_is_killed(tmp_path):
    seen = run(2, tmp_path, "lose")
    assert seen["devices"][1] == "/job:worker/replica:0/task:1/device:CPU:0"
    assert seen["scopes"] == [2, 1]
    assert seen["error"].startswith("lost stage 1 (lstm_")
    assert seen["seconds"] < 60
    assert seen["found"] == pytest.approx(seen["wanted"], rel=1e-5)
    assert seen["difference"] < 1e-5


@pytest.mark.slow
def test_four_processes_train_alike_and_count_their_memory(tmp_path):
    seen = run(4, tmp_path, "measure")
    assert seen["scopes"] == [4, 3, 2, 1]
    assert seen["found"] == pytest.approx(seen["wanted"], rel=1e-5)
    assert seen["difference"] < 1e-5
    assert all(peak > 1000 for peak in seen["peaks"])


@pytest.mark.slow
def test_a_worker_that_is_stopped_is_not_waited_for_and_no_network_reaches_one(tmp_path):
    seen = run(2, tmp_path, "stop")
    assert seen["here"] and not seen["over a network"]
    during, afterwards = seen["errors"]
    assert during.startswith("lost stage 1 (lstm_") and "no longer answers" in during
    assert "did not answer" in afterwards or "no longer answers" in afterwards
