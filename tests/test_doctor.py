"""``python -m rnnmem doctor``: what it finds here, and what it says where something is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

import rnnmem
from rnnmem import doctor
from rnnmem.cli import FAILED, main
from rnnmem.doctor import Finding, run

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def found():
    return {one.what: one for one in run()}


@pytest.mark.slow
def test_all_that_is_essential_works_here(found):
    essential = [one for one in found.values() if one.essential]
    assert len(essential) == 4
    assert all(one.works for one in essential)
    assert found["TensorFlow"].found == tf.__version__
    assert found["rnnmem"].found == rnnmem.__version__


def test_the_loop_is_rewritten_and_takes_less(found):
    assert found["a loop is rewritten"].works and found["its bits"].works
    assert found["allocator statistics"].works and found["its peak"].works
    assert "MiB" in found["its peak"].found


def test_other_bits_are_found_out(monkeypatch):
    optimize = rnnmem.optimize

    def off(step, **options):
        made = optimize(step, **options)
        spoilt = lambda x: tuple(one * 1.0000002 for one in made(x))  # noqa: E731
        spoilt.plan = made.plan
        return spoilt

    monkeypatch.setattr(rnnmem, "optimize", off)
    monkeypatch.setattr("rnnmem.tf.counting.counts_memory", lambda: False)
    last = list(doctor._loop())[-1]
    assert last == Finding("its bits", False, "they are not the same", essential=True)


def test_what_raises_is_a_finding_and_what_rests_on_it_is_not_looked_at(monkeypatch, capsys):
    def gone():
        raise ImportError("cannot import name 'halves'")

    gone.__name__ = "_private_names"
    monkeypatch.setattr(doctor, "_private_names", gone)
    monkeypatch.setattr(doctor, "_NEEDED", (gone,))
    assert main(["doctor"]) == FAILED
    told = capsys.readouterr().out
    assert "private names" in told and "ImportError: cannot import name 'halves'" in told
    assert "FAILS" in told and "a loop is rewritten" not in told
    assert told.splitlines()[-1] == "rnnmem cannot work here: private names"


def test_a_loop_that_is_left_fails(monkeypatch):
    plain = tf.function(lambda x: (x, x + 1.0))
    monkeypatch.setattr(doctor, "_small_step", lambda: (plain, tf.ones([2])))
    monkeypatch.setattr("rnnmem.tf.counting.counts_memory", lambda: False)
    left, same = doctor._loop()
    assert left.essential and left.works is False and left.found
    assert same.works


def test_another_backend_of_keras_is_told(monkeypatch):
    monkeypatch.setattr("keras.config.backend", lambda: "jax")
    (one,) = doctor._keras()
    assert not one.works and "KERAS_BACKEND=tensorflow" in one.found


def test_without_tensorflow_it_says_how_to_get_it():
    script = "import sys; sys.modules['tensorflow'] = None; from rnnmem.cli import main; "
    done = subprocess.run(
        [sys.executable, "-c", script + "sys.exit(main(['doctor']))"],
        cwd=ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
    )
    assert done.returncode == FAILED
    assert "pip install 'rnnmem[tf]'" in done.stdout
    assert done.stdout.splitlines()[-1] == "rnnmem cannot work here: TensorFlow"
