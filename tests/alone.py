"""Runs a function of a test module in a process of its own, for what it measures.

TensorFlow's allocator takes chunks whole that others left, so that a peak may be larger where other
tests have run before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = """
import importlib, json, sys

module, name, arguments = sys.argv[1:]
print(json.dumps(getattr(importlib.import_module(module), name)(*json.loads(arguments))))
"""


def run_alone(module: str, name: str, *arguments: Any) -> Any:
    """What `module.name(*arguments)` returns; both that and the arguments are JSON."""
    command = [sys.executable, "-c", SCRIPT, module, name, json.dumps(arguments)]
    process = {**os.environ, "TF_CPU_ALLOCATOR_USE_BFC": "true"}
    done = subprocess.run(
        command, cwd=ROOT, env=process, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
