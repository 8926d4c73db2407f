"""The code of docs/pipeline.md runs, in a process that has as many devices as the page names."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
DEVICES = """
import numpy as np, tensorflow as tf
(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 3)
x = np.random.default_rng(0).normal(size=(64, 4, 8)).astype("float32")
y = np.arange(64) % 10
x2, y2 = x, y
"""


@pytest.mark.slow
def test_the_page_runs(tmp_path):
    page = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")
    code = "\n".join(
        [DEVICES, *re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)]
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert list((tmp_path / "runs").iterdir())
