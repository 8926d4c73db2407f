"""Type checking: of rnnmem itself, and of a program that uses it."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """
import tensorflow as tf

import rnnmem

@rnnmem.optimize
def plain(x: int, *, scale: float = 1.0) -> str:
    return ""

@rnnmem.optimize(budget="2GiB", verify=True)
def with_options(x: int) -> str:
    return ""

@rnnmem.optimize
@tf.function
def traced(x: int) -> str:
    return ""

class Trainer:
    @rnnmem.optimize
    def step(self, x: int) -> str:
        return ""

reveal_type(plain)
reveal_type(plain(3))
reveal_type(with_options)
reveal_type(Trainer().step)
reveal_type(traced.plan(3))
reveal_type(plain.explain(3))
plain("3")
plain(3, scale="large")
Trainer().step("3")
rnnmem.optimize(bugdet=3)
"""


def mypy(*options: object) -> str:
    command = [sys.executable, "-m", "mypy", "--no-error-summary", *map(str, options)]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert not done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_users_checker_knows_signatures_plans_and_options(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    quiet = ("--config-file=", "--follow-imports=silent", "--ignore-missing-imports")
    told = mypy(*quiet, f"--cache-dir={tmp_path}", tmp_path / "program.py")
    assert re.findall(r'Revealed type is "(.*)"', told) == [
        "rnnmem.optimized.Optimized[[x: int, *, scale: float =], str]",
        "str",
        "rnnmem.optimized.Optimized[[x: int], str]",
        "rnnmem.optimized.Optimized[[x: int], str]",
        "rnnmem.planning.plan.Plan",
        "rnnmem.reports.explain.Explanation",
    ]
    assert re.findall(r"error: (.*)  \[", told) == [
        'Argument 1 to "__call__" of "Optimized" has incompatible type "str"; expected "int"',
        'Argument "scale" to "__call__" of "Optimized" has incompatible type "str"; '
        'expected "float"',
        'Argument 1 to "__call__" of "Optimized" has incompatible type "str"; expected "int"',
        'Unexpected keyword argument "bugdet" for overloaded function "optimize"; '
        'did you mean "budget"?',
    ]


@pytest.mark.slow
def test_the_modules_that_are_not_typed_yet_are_those_of_the_list(tmp_path):
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    overrides = tomllib.loads(text)["tool"]["mypy"]["overrides"]
    listed = {name for one in overrides if one.get("ignore_errors") for name in one["module"]}
    asked = tmp_path / "pyproject.toml"
    asked.write_text(text.replace("ignore_errors = true", ""), encoding="utf-8")
    told = mypy(f"--config-file={asked}", f"--cache-dir={tmp_path}")
    files = set(re.findall(r"^(rnnmem/.*)\.py:\d+: error", told, re.MULTILINE))
    assert {file.replace("/", ".").removesuffix(".__init__") for file in files} == listed
