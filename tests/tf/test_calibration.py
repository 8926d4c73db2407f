"""The costs of this machine: measured when asked, kept with care, and never in the way."""

import itertools
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
import tensorflow as tf

import rnnmem
from rnnmem import doctor
from rnnmem.analysis.known_costs import KNOWN, NAMES, flat
from rnnmem.cli import main
from rnnmem.errors import OptionError
from rnnmem.tf import calibration, calibration_cache, profile
from rnnmem.tf.calibration import Calibration
from rnnmem.tf.calibration_cache import calibration_here, path_here

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty cache, and a calibration that nobody switched off."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("RNNMEM_CALIBRATION")
    calibration_cache._known.cache_clear()
    yield tmp_path / "rnnmem"
    calibration_cache._known.cache_clear()
    calibration_cache._switched_off.clear()


@pytest.fixture
def counted(monkeypatch):
    """Measures nothing: gives known costs, and counts how often."""
    asked = []

    def made(seconds=calibration.SECONDS):
        asked.append(seconds)
        return Calibration(KNOWN, NAMES, 0.5)

    monkeypatch.setattr(calibration_cache, "calibrated", made)
    return asked


def another_process():
    calibration_cache._known.cache_clear()


X = tf.random.stateless_normal([16, 64], seed=[1, 2])
W = tf.Variable(tf.random.stateless_normal([64, 64], seed=[3, 4]) * 0.1)


def step(x):
    with tf.GradientTape() as tape:
        body = lambda t, h: (t + 1, tf.tanh(h @ W) * tf.sigmoid(x))  # noqa: E731
        loss = tf.reduce_sum(tf.while_loop(lambda t, _: t < 60, body, (0, x))[1])
    return loss, tape.gradient(loss, W)


def test_nothing_is_measured_that_nobody_asked_for(folder, counted):
    assert calibration_here().costs is None
    assert "rnnmem.calibrate()" in calibration_here().why
    plan = rnnmem.optimize(step, max_slowdown=2.0).plan(X)
    assert not plan.changes_nothing and not plan.calibrated and not plan.notes
    assert not counted and not folder.exists()


def test_it_is_measured_once_and_kept(folder, counted):
    assert "this machine's, 26 of 26 costs" in rnnmem.calibrate()
    first = calibration_here()
    assert first.costs == KNOWN
    (path,) = folder.iterdir()
    assert path == path_here()
    assert tf.__version__ in path.name and "-cores" in path.name
    another_process()
    assert calibration_here() == first
    assert len(counted) == 1


def clock(monkeypatch, step):
    """Seconds that pass from one look at the clock to the next, of what ends the measuring."""
    now = itertools.count(0.0, step)
    monkeypatch.setattr(calibration, "time", types.SimpleNamespace(perf_counter=lambda: next(now)))


def test_measuring_takes_as_long_as_it_may_and_gives_plausible_costs(monkeypatch):
    clock(monkeypatch, 1.0)
    found = calibration.calibrated(3.0)
    assert found.measured == ("op", *calibration.FIRST[:2])  # nothing is begun after 2.55 s
    assert found.seconds == 4.0
    assert all(value > 0 for value in flat(found.costs).values())


@pytest.mark.slow
def test_given_time_nearly_all_is_measured(monkeypatch):
    clock(monkeypatch, 0.0)
    found = calibration.calibrated()
    assert len(found.measured) >= len(NAMES) - 6  # the rest follow
    assert set(found.measured) <= set(NAMES)


@pytest.mark.parametrize(
    "text", ["", "[]", "null", '{"version": 1}', '{"version": 0, "costs": {}}', "NaN"]
)
def test_a_file_that_is_not_ours_does_not_serve(text, folder, counted):
    folder.mkdir()
    path_here().write_text(text)
    assert calibration_here().costs is None
    rnnmem.calibrate()
    assert calibration_here().costs == KNOWN
    assert json.loads(path_here().read_text())["costs"] == flat(KNOWN)


@pytest.mark.parametrize("wrong", ["NaN", "-1.0", "Infinity", "true", '"fast"', "[]", "1e9"])
def test_a_cost_that_is_none_does_not_serve(wrong, folder, counted):
    rnnmem.calibrate()
    text = path_here().read_text()
    path_here().write_text(text.replace(json.dumps(KNOWN.op), wrong, 1))
    another_process()
    assert calibration_here().costs is None
    assert rnnmem.optimize(step, max_slowdown=2.0).plan(X).calibrated is False


@pytest.mark.parametrize("fails", ["close", "replace"])
def test_a_full_disk_leaves_no_file_behind_and_the_built_in_table_serves(
    fails, folder, counted, monkeypatch
):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    if fails == "replace":
        monkeypatch.setattr(profile.os, "replace", full)
    else:
        monkeypatch.setattr(calibration_cache, "write_whole", full)
    assert "cannot be written" in rnnmem.calibrate()
    assert calibration_here().costs is None
    assert not list(folder.iterdir())


def test_a_folder_that_cannot_be_written_is_no_error(monkeypatch, tmp_path, counted):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert "cannot be written" in rnnmem.calibrate()
    assert not counted  # for every process would measure something else
    plan = rnnmem.optimize(step, max_slowdown=2.0).plan(X)
    assert not plan.changes_nothing and not plan.calibrated


def test_an_odd_machine_is_no_error(monkeypatch, folder):
    def odd(seconds=0.0):
        raise tf.errors.UnimplementedError(None, None, "no kernel")

    monkeypatch.setattr(calibration_cache, "calibrated", odd)
    assert "UnimplementedError" in rnnmem.calibrate()
    assert not list(folder.iterdir())


@pytest.mark.parametrize("value", ["off", "OFF", "0", "no", "false"])
def test_the_environment_switches_it_off(value, monkeypatch, folder, counted):
    rnnmem.calibrate()
    monkeypatch.setenv("RNNMEM_CALIBRATION", value)
    assert calibration_here().costs is None
    assert "built-in table" in rnnmem.calibrate()
    plan = rnnmem.optimize(step, max_slowdown=2.0).plan(X)
    assert not plan.calibrated
    assert len(counted) == 1


def test_a_process_may_do_without_it(folder, counted):
    rnnmem.calibrate()
    assert "built-in table" in rnnmem.calibrate(off=True)
    assert calibration_here().costs is None
    assert not rnnmem.optimize(step, max_slowdown=2.0).plan(X).calibrated
    assert "this machine's" in rnnmem.calibrate()
    assert counted == [calibration.SECONDS] * 2


def test_it_is_renewed_when_asked(folder, counted):
    rnnmem.calibrate()
    path_here().write_text(path_here().read_text().replace(json.dumps(KNOWN.op), "9e-07", 1))
    another_process()
    assert calibration_here().costs.op == 9e-07
    rnnmem.calibrate(seconds=7)
    assert calibration_here().costs.op == KNOWN.op
    assert counted[-1] == 7


@pytest.mark.parametrize("wrong", [0, -1.0, float("nan"), float("inf"), "3", None, True])
def test_seconds_are_a_number_above_0(wrong, counted):
    with pytest.raises(OptionError, match="seconds"):
        rnnmem.calibrate(wrong)
    with pytest.raises(OptionError, match="off"):
        rnnmem.calibrate(off="yes")
    assert not counted


def test_plans_say_that_this_machine_s_costs_served(folder, counted):
    rnnmem.calibrate()
    optimised = rnnmem.optimize(step, max_slowdown=2.0)
    plan = optimised.plan(X)
    assert plan.calibrated and plan.slowdown <= 2.0
    assert f"{plan.slowdown:.2f}x by this machine's costs" in str(optimised.explain(X))
    assert rnnmem.Plan.from_json(plan.to_json()) == plan
    same = tf.function(step)(X)
    found = optimised(X)
    assert [one.numpy().tobytes() for one in found] == [one.numpy().tobytes() for one in same]


def test_a_plan_that_is_given_asks_for_no_costs(folder, counted):
    plan = rnnmem.optimize(step, max_slowdown=2.0).plan(X)
    rnnmem.calibrate()
    optimised = rnnmem.optimize(step, plan=plan)
    assert optimised.plan(X).loops == plan.loops


@pytest.mark.slow
def test_two_processes_plan_alike(tmp_path):
    code = (
        "import tensorflow as tf, rnnmem\n"
        "from tests.tf.test_calibration import step, X\n"
        "print(rnnmem.optimize(step, max_slowdown=1.5).plan(X).to_json())\n"
    )
    rnnmem.calibrate(0.2)
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    plans = {
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, check=True
        ).stdout
        for _ in range(2)
    }
    assert len(plans) == 1


def test_the_doctor_shows_it_and_measures_it_when_asked(folder, counted, capsys):
    (found, _) = (one.found for one in doctor._calibration(False))
    assert "built-in table: nothing was measured here" in found
    main(["doctor", "--calibrate"])
    assert "this machine's" in " ".join(capsys.readouterr().out.split())
    assert len(counted) == 1
    found = {one.what: one.found for one in doctor._calibration(False)}
    assert "this machine's, 26 of 26 costs" in found["calibration"]
    assert "op 0.40 us" in found["its costs"] and "Gflop/s" in found["its costs"]
