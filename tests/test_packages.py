"""What is installed and on what: the versions that are tested, the extras, what lies in a wheel."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

import rnnmem
import rnnmem.tf
from rnnmem.cli import main
from rnnmem.errors import RnnmemWarning
from rnnmem.version import PYTHONS, TESTED, untested
from tests.test_house import packaging

ROOT = Path(__file__).resolve().parent.parent


def python(script, *flags):
    return subprocess.run(
        [sys.executable, *flags, "-c", script], cwd=ROOT, capture_output=True, text=True
    )


# The versions.


def test_nothing_is_said_inside_of_what_is_tested():
    for tensorflow, pythons in TESTED.items():
        for one in pythons:
            assert not untested(f"{tensorflow}.1", f"{one}.4")
    assert not untested("2.17.0", "3.11.7")  # between two that are


@pytest.mark.parametrize(
    ("tensorflow", "python", "named"),
    [
        ("2.9.1", "3.11.7", "TensorFlow 2.9.1"),
        ("2.100.0-rc1", "3.11.7", "TensorFlow 2.100.0-rc1"),
        ("3.0.0", "3.11.7", "TensorFlow 3.0.0"),
        ("2.18.0", "3.100.0", "Python 3.100.0"),
        ("2.15.0", "3.10.2", "TensorFlow 2.15.0 and Python 3.10.2"),
    ],
)
def test_what_lies_outside_is_named_beside_what_is_tested(tensorflow, python, named):
    said = untested(tensorflow, python)
    assert said.startswith(f"rnnmem is not tested on {named}, but on TensorFlow {min(TESTED)} to")
    assert f"Python {PYTHONS[0]} to {PYTHONS[-1]}" in said


def test_the_warning_names_the_line_that_imports(monkeypatch):
    monkeypatch.setattr(tf, "__version__", "2.99.0")
    with pytest.warns(RnnmemWarning, match="not tested on TensorFlow 2.99.0") as caught:
        importlib.reload(rnnmem.tf)
    assert [one.filename for one in caught] == [__file__]


@pytest.mark.slow
def test_one_warning_a_process_says_so():
    script = (
        "import tensorflow as tf; tf.__version__ = '2.99.0'\n"
        "import rnnmem, rnnmem.keras\n"
        "rnnmem.optimize(lambda x: x)(tf.ones(1)); rnnmem.optimize(lambda x: x)(tf.ones(2))"
    )
    done = python(script, "-Walways::UserWarning")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("not tested on TensorFlow 2.99.0") == 1


# The packages.


def test_tensorflow_is_an_extra_with_an_end():
    stated = packaging()
    major, minor = max(TESTED).split(".")
    until = f">={min(TESTED)},<{major}.{int(minor) + 1}"
    assert stated["extras_require"]["tf"] == [f"tensorflow{until}"]
    assert stated["extras_require"]["tf-cpu"] == [f"tensorflow-cpu{until}"]
    assert not any("tensorflow" in one for one in stated["install_requires"])
    assert stated["python_requires"] == f">={PYTHONS[0]}"


def test_a_wheel_holds_rnnmem_and_nothing_else():
    packages = packaging()["packages"]
    assert {one.split(".")[0] for one in packages} == {"rnnmem"}
    folders = {path.parent for path in (ROOT / "rnnmem").rglob("*.py")}
    assert {one.replace(".", "/") for one in packages} == {
        path.relative_to(ROOT).as_posix() for path in folders
    }


def test_the_program_is_there_and_tells_its_version(capsys):
    (script,) = packaging()["entry_points"]["console_scripts"]
    name, _, place = script.partition(" = ")
    module, _, function = place.partition(":")
    assert name == "rnnmem" and getattr(importlib.import_module(module), function) is main
    with pytest.raises(SystemExit) as done:
        main(["--version"])
    assert not done.value.code
    assert capsys.readouterr().out == f"rnnmem {rnnmem.__version__}\n"


def test_the_makefile_installs_a_tensorflow():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "'.[tf,nmt]'" in text and "'.[tf,test]'" in text


MISSING = "import sys; sys.modules['tensorflow'] = None\n"


def test_without_tensorflow_the_import_says_so_in_one_sentence():
    done = python(MISSING + "import rnnmem; print(rnnmem.__version__)")
    assert done.returncode == 0 and done.stdout.strip() == rnnmem.__version__
    assert done.stderr.count("RnnmemWarning: rnnmem needs TensorFlow") == 1
    assert "pip install 'rnnmem[tf]'" in done.stderr


def test_what_needs_it_raises_the_same_sentence():
    done = python(MISSING + "from rnnmem import optimize", "-Wignore")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "rnnmem.errors.TensorFlowError: rnnmem needs TensorFlow, which is not installed here"
    )


def test_planning_needs_none():
    done = python(MISSING + "import rnnmem.planning.search, rnnmem.verify", "-Wignore")
    assert done.returncode == 0, done.stderr


def test_nothing_is_said_where_it_is_there():
    assert not python("import rnnmem", "-Wdefault").stderr
