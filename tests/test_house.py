"""House rules that a machine can hold against the tree."""

import ast
import importlib.metadata
import re
import runpy
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

import rnnmem

ROOT = Path(__file__).resolve().parent.parent
PRIVATE = "rnnmem/tf/private"
LONGEST = 500
# Files that are still longer; one that no longer is must leave the list, and none joins it.
STILL_LONGER: set[str] = set()
BASICS = {"errors", "sizes", "solver", "version", "warn"}
# Which rooms of rnnmem, or which modules of them, a room may import; a new room needs a line here.
MAY_IMPORT = {
    # The Net, and the facts about it.
    "ir": set(),
    "analysis": {"ir"},
    "grappler": {"analysis", "ir"},
    "simulate": {"analysis", "grappler", "ir"},
    # The verifier: nothing of those who select or apply, and of the analyses the shapes alone. With
    # the Net and the op table they are what it trusts, and are held against TensorFlow's kernels.
    "verify": {
        "analysis.flat_tokens",
        "analysis.row_rules",
        "analysis.row_views",
        "analysis.shape_sources",
        "analysis.shapes",
        "analysis.slice_windows",
        "analysis.symbolic_sizes",
        "ir",
    },
    # Deciding and applying.
    "passes": {"analysis", "grappler", "ir", "simulate", "storage"},
    "planning": {"analysis", "ir", "passes", "simulate", "tables"},
    "storage": {"analysis", "ir"},
    # What knows TensorFlow.
    "tf": {
        "analysis",
        "grappler",
        "ir",
        "planning",
        "storage",
        "verify.arithmetic",
        "verify.flat_graph",
        "verify.value_numbers",
    },
    "conversion": {"tables", "tf"},
    "pipeline": {"analysis", "ir", "tf"},
    "reports": {"analysis", "ir", "passes", "planning", "simulate", "spared", "tables", "tf"},
}
# Planning never imports TensorFlow, so that it is tested in milliseconds on hand-made Nets.
PURE = (
    "rnnmem/errors.py",
    "rnnmem/sizes.py",
    "rnnmem/solver.py",
    "rnnmem/ir",
    "rnnmem/analysis",
    "rnnmem/grappler",
    "rnnmem/simulate",
    "rnnmem/passes",
    "rnnmem/planning",
    "rnnmem/storage",
    "rnnmem/verify",
    "rnnmem/conversion/floats.py",
    "rnnmem/conversion/plan.py",
)


def sources(*places: str) -> list[Path]:
    """Every source of the places; one that is gone is an error, not nothing to look at."""
    found = []
    for place in places:
        path = ROOT / place
        files = [path] if path.suffix == ".py" else sorted(path.rglob("*.py"))
        assert files and files[0].is_file(), f"{place} is gone: mend the rule that names it"
        found += files
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


@pytest.mark.slow
def test_private_tensorflow_stands_in_one_folder():
    files = sources("rnnmem", "models", "examples", "benchmarks")
    private = {
        path.parent.relative_to(ROOT).as_posix() for path in files if uses_private_names(path)
    }
    assert private == {PRIVATE}


def test_no_file_is_longer_than_a_reader_can_hold():
    longer = {
        path.relative_to(ROOT).as_posix()
        for path in sources("rnnmem")
        if len(path.read_text(encoding="utf-8").splitlines()) > LONGEST
    }
    assert longer - STILL_LONGER == set()
    assert STILL_LONGER - longer == set(), "shorter now: take it off the list"


def test_planning_imports_neither_tensorflow_nor_what_does():
    impure = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources(*PURE)
        for name in sorted(imported(path))
        if name.split(".")[0] in ("tensorflow", "keras") or name.startswith("rnnmem.tf")
    ]
    assert not impure


def strange_imports(path: Path, allowed: set[str]) -> list[str]:
    """What a file imports of rnnmem that lies in none of the allowed rooms and modules."""
    ours = (name for name in sorted(imported(path)) if name.startswith("rnnmem."))
    starts = tuple(f"rnnmem.{one}." for one in allowed)
    return [name for name in ours if not f"{name}.".startswith(starts)]


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_what_it_may_know(room):
    allowed = MAY_IMPORT[room] | BASICS | {room}
    place = f"rnnmem/{room}" if (ROOT / "rnnmem" / room).is_dir() else f"rnnmem/{room}.py"
    strangers = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources(place)
        for name in strange_imports(path, allowed)
    ]
    assert not strangers


def test_every_room_has_its_contract():
    rooms = {path.parent.name for path in (ROOT / "rnnmem").glob("*/__init__.py")}
    assert rooms <= set(MAY_IMPORT)


def test_a_rule_about_a_file_that_is_gone_fails():
    with pytest.raises(AssertionError, match="rnnmem/gone.py is gone"):
        sources("rnnmem/gone.py")
    with pytest.raises(AssertionError, match="rnnmem/nowhere is gone"):
        sources("rnnmem/nowhere")


# An extra of its own, for there are two packages of it, and what it requires: protobuf and Keras.
WITH_TENSORFLOW = {"google", "keras", "tensorflow"}


def packaging() -> dict:
    """What setup.py tells setuptools."""
    with mock.patch("setuptools.setup") as setup:
        runpy.run_path(str(ROOT / "setup.py"))
    return setup.call_args.kwargs


def modules(requirements: list[str]) -> set[str]:
    """The modules that required packages hold."""
    names = {re.split(r"[<>=~]", one)[0].replace("-", "_") for one in requirements}
    return {"absl" if name == "absl_py" else name for name in names}


def at_the_top(path: Path) -> set[str]:
    """The packages that the file imports outside of functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {one.name for node in tree.body if isinstance(node, ast.Import) for one in node.names}
    names |= {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    return {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) - {"rnnmem"}


@pytest.mark.slow
def test_what_rnnmem_imports_is_required():
    required = modules(packaging()["install_requires"]) | WITH_TENSORFLOW
    extras = packaging()["extras_require"]
    extra = modules([*extras["report"], *extras["shell"]])
    for path in sources("rnnmem"):
        assert at_the_top(path) <= required, path
        everywhere = {name.split(".")[0] for name in imported(path)}
        assert everywhere <= required | extra | {"rnnmem", *sys.stdlib_module_names}, path


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
