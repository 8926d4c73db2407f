"""The benchmark for a GPU, on a CPU: rows, reasons, time limits, partial results."""

import json
import threading
import time

import pytest
from absl import flags
from absl.testing import flagsaver

from benchmarks import gpu
from benchmarks.gpu import Asked, Figures


@pytest.fixture(scope="module")
def knobs():
    if "most" not in flags.FLAGS:
        gpu.define_flags()
    if not flags.FLAGS.is_parsed():
        flags.FLAGS(["gpu"])


@pytest.mark.slow
def test_a_row_runs_in_a_process_of_its_own():
    found = gpu.run(Asked("nmt-150", small=True, pairs=1), 300)
    assert found.reason is None
    assert 0 < found.after_bytes < found.before_bytes and found.bits_equal
    assert found.predicted_after_bytes > 0 and found.time_ratio > 0


@pytest.mark.slow
def test_the_largest_batch_is_found():
    found = gpu.run(Asked("largest batch, nmt-150", small=True, pairs=1, limit="512KiB"), 300)
    assert found.reason is None
    assert 1 <= found.before_batch < found.after_batch <= gpu.SMALL_HIGHEST
    assert found.before_tokens > 0 and found.after_tokens > 0


def test_a_row_that_fails_says_why(monkeypatch):
    def fails(asked):
        raise ValueError("no such thing")

    monkeypatch.setitem(gpu.ROWS, "nmt-50", fails)
    assert gpu.measured(Asked("nmt-50")).reason == "ValueError: no such thing"


def test_a_row_that_takes_too_long_is_ended():
    assert gpu.run(Asked("nmt-50"), 0.01).reason == "not done in 0 s"


def test_figures_are_written_after_each_row(knobs, tmp_path, monkeypatch):
    path = tmp_path / "gpu.json"
    written = []

    def run(asked, seconds):
        written.append(list(json.loads(path.read_text())["results"]) if path.exists() else [])
        return Figures(before_bytes=2 << 20, after_bytes=1 << 20)

    monkeypatch.setattr(gpu, "run", run)
    with flagsaver.flagsaver(json=str(path), row=["nmt-150", "nmt-50"], jobs=1):
        gpu.main([])
    assert written == [[], ["nmt-150"]]
    assert json.loads(path.read_text())["results"]["nmt-50"]["after_bytes"] == 1 << 20


def test_plans_of_several_rows_are_made_at_once_and_one_is_measured_at_a_time(knobs, monkeypatch):
    both, measuring, most = threading.Barrier(2), [], []

    def run(asked, seconds):
        both.wait(60)
        with asked.alone():
            measuring.append(asked.row)
            most.append(len(measuring))
            time.sleep(0.05)
            measuring.remove(asked.row)
        return Figures()

    monkeypatch.setattr(gpu, "run", run)
    with flagsaver.flagsaver(row=["nmt-150", "nmt-50"], jobs=2):
        gpu.main([])
    assert most == [1, 1]


def test_rows_that_have_no_time_left_say_so(knobs, tmp_path, capsys):
    with flagsaver.flagsaver(seconds=0.0, row=["nmt-150"]):
        gpu.main([])
    assert "| nmt-150 | no time was left |" in capsys.readouterr().out


def test_a_line_shows_what_there_is():
    shown = gpu.line("a", Figures(before_bytes=2 << 20, after_bytes=1 << 20, bits_equal=True))
    assert shown == "| a | 2.0 → 1.0 |  |  |  |  | equal |  |  |  |"
    assert shown.count("|") == gpu.HEAD.splitlines()[0].count("|")
