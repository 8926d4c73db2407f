"""House rules that a machine can hold against the tree."""

import ast
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

import rnnmem

ROOT = Path(__file__).resolve().parent.parent
PRIVATE = "rnnmem/tf/private.py"
# Planning never imports TensorFlow, so that it is tested in milliseconds on hand-made Nets.
PLANNING = (
    "rnnmem/net",
    "rnnmem/sharing",
    "rnnmem/recompute",
    "rnnmem/rewrite",
    "rnnmem/vocabulary",
    "rnnmem/check.py",
    "rnnmem/conversion/floats.py",
    "rnnmem/conversion/plan.py",
)


def sources(*places: str) -> list[Path]:
    found = []
    for place in places:
        path = ROOT / place
        found += [path] if path.is_file() else sorted(path.rglob("*.py"))
    return found


def imported(path: Path) -> set[str]:
    """Every module that the file imports, inside functions too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def uses_private_names(path: Path) -> bool:
    by_import = any(name.startswith("tensorflow.python") for name in imported(path))
    by_attribute = any(
        isinstance(node, ast.Attribute) and node.attr == "__internal__"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    )
    return by_import or by_attribute


def test_private_tensorflow_stands_in_one_file():
    files = sources("rnnmem", "models", "examples", "benchmarks")
    private = [path.relative_to(ROOT).as_posix() for path in files if uses_private_names(path)]
    assert private == [PRIVATE]


def test_planning_imports_neither_tensorflow_nor_what_does():
    impure = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources(*PLANNING)
        for name in sorted(imported(path))
        if name.split(".")[0] in ("tensorflow", "keras") or name.startswith("rnnmem.tf")
    ]
    assert not impure


def test_importing_rnnmem_imports_no_tensorflow():
    script = "import sys, rnnmem, rnnmem.sizes; sys.exit('tensorflow' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


def test_every_public_name_is_there_and_found_once_asked_for():
    for name in rnnmem.__all__:
        assert getattr(rnnmem, name) is not None
    assert set(rnnmem.__all__) <= set(dir(rnnmem))
    with pytest.raises(AttributeError, match="no attribute 'optimise'"):
        _ = rnnmem.optimise


def test_the_installed_version_is_the_stated_one():
    try:
        installed = importlib.metadata.version("rnnmem")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("rnnmem is not installed here, only on the path")
    assert installed == rnnmem.__version__
