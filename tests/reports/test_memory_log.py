"""Peaks of steps, in plain loops and in Keras, and what TensorBoard reads of them."""

import dataclasses
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import rnnmem
import rnnmem.keras
from rnnmem.errors import MeasureError, OptionError
from rnnmem.sizes import KIB, MIB
from tests.reports import handmade_report

BATCH, LENGTH = 16, 40


def events(folder):
    """Scalars and tensors by tag, as TensorBoard's own reader gives them."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    reader = accumulator.EventAccumulator(str(folder), size_guidance={"tensors": 0})
    reader.Reload()
    return {tag: reader.Tensors(tag) for tag in reader.Tags()["tensors"]}


def test_each_step_of_a_plain_loop_is_measured(tmp_path):
    log = rnnmem.MemoryLog(tmp_path)
    for size in (256, 512):
        with log.step():
            tf.fill([size, 1024], 1.0).numpy()
    log.close()
    log.close()
    assert MIB <= log.peaks[0] < log.peaks[1] >= 2 * MIB
    found = events(tmp_path)
    told = [float(tf.make_ndarray(one.tensor_proto)) for one in found["memory/peak_bytes"]]
    assert told == log.peaks
    assert [one.step for one in found["memory/peak_bytes"]] == [0, 1]


def test_a_report_is_written_with_its_picture(tmp_path):
    log = rnnmem.MemoryLog(tmp_path)
    log.report(rnnmem.report(tf.function(lambda x: tf.tanh(x) @ x), tf.ones([64, 64])))
    log.close()
    found = events(tmp_path)
    width, height, picture = tf.make_ndarray(found["memory/timeline"][0].tensor_proto)
    assert picture.startswith(b"\x89PNG")
    assert int(width) > int(height)
    assert b"peak above resident" in tf.make_ndarray(found["memory/report"][0].tensor_proto).item()
    assert "memory/predicted_peak_bytes_before" in found


def test_predicted_peak_and_budget_stand_beside_the_peaks(tmp_path):
    step, x = rnnmem.optimize(lambda x: tf.tanh(x) @ x, budget="1MiB"), tf.ones([64, 64])
    log = rnnmem.MemoryLog(tmp_path)
    log.report(rnnmem.report(step, x, measure=False))
    for _ in range(2):
        with log.step():
            step(x)
    log.close()
    found = events(tmp_path)
    told = [float(tf.make_ndarray(one.tensor_proto)) for one in found["memory/budget_bytes"]]
    assert told == [MIB] * 3
    assert len(found["memory/predicted_peak_bytes"]) == 2


def test_beside_the_peaks_stands_the_predicted_peak_of_what_runs(tmp_path):
    report = dataclasses.replace(handmade_report.report(), applied=False)
    assert report.before.peak_bytes != report.after.peak_bytes
    log = rnnmem.MemoryLog(tmp_path)
    log.report(report)
    with log.step():
        tf.ones([64, KIB]).numpy()
    log.close()
    (told,) = events(tmp_path)["memory/predicted_peak_bytes"]
    assert float(tf.make_ndarray(told.tensor_proto)) == report.before.peak_bytes
    assert report.summary().startswith(f"{report.name}: runs as TensorFlow runs it; optimised it")


def test_without_a_folder_nothing_is_written():
    log = rnnmem.MemoryLog()
    with log.step():
        tf.ones([64, KIB]).numpy()
    assert log.peaks[0] > 0


def test_a_step_that_raises_is_not_counted():
    log = rnnmem.MemoryLog()
    with pytest.raises(ZeroDivisionError), log.step():
        _ = 1 / 0
    assert log.peaks == []
    log.begin()
    assert log.end() >= 0


def test_an_end_needs_a_begin():
    with pytest.raises(MeasureError, match="no step was begun"):
        rnnmem.MemoryLog().end()


def test_a_device_that_is_not_here_is_named():
    with pytest.raises(OptionError, match="device='GPU:7' is not here"):
        rnnmem.MemoryLog(device="GPU:7")


def model(optimised=True, **options):
    keras.utils.set_random_seed(0)
    made = keras.Sequential([keras.Input((LENGTH, 4)), keras.layers.GRU(32), keras.layers.Dense(1)])
    made.compile("sgd", "mse", **options)
    return rnnmem.keras.optimize(made) if optimised else made


def fit(made, *callbacks, epochs=2):
    random = np.random.default_rng(0)
    x, y = random.normal(size=(3 * BATCH, LENGTH, 4)), random.normal(size=(3 * BATCH, 1))
    return made.fit(
        x, y, batch_size=BATCH, epochs=epochs, callbacks=list(callbacks), verbose=0
    ).history


class Seen(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.logs = []

    def on_train_batch_end(self, batch, logs=None):
        self.logs.append(dict(logs))


@pytest.mark.slow
def test_peaks_are_in_the_logs_the_history_and_tensorboard(tmp_path, capsys):
    memory, seen = rnnmem.keras.MemoryCallback(tmp_path), Seen()
    history = fit(model(), memory, seen)
    assert len(memory.peaks) == 6
    in_mib = [peak / 2**20 for peak in memory.peaks]
    assert [logs["memory_peak_mib"] for logs in seen.logs] == in_mib
    assert history["memory_peak_mib"] == [max(in_mib[:3]), max(in_mib[3:])]
    assert "loss" in history
    assert memory.plan is not None and memory.plan.loops
    assert abs(memory.report.after.peak_bytes / max(memory.peaks[1:]) - 1) < 0.25
    told = capsys.readouterr().out
    assert told.startswith("the train step of sequential") and "peak above resident" in told
    found = events(tmp_path)
    assert len(found["memory/peak_bytes"]) == 6
    assert len(found["memory/predicted_peak_bytes"]) == 5  # known once the first batch was run
    assert "memory/timeline" in found


class Batches(keras.callbacks.Callback):
    """What was printed when a batch, and when an epoch, was over."""

    def __init__(self, capsys):
        super().__init__()
        self.capsys, self.printed = capsys, []

    def on_train_batch_end(self, batch, logs=None):
        self.printed.append(("batch", self.capsys.readouterr().out))

    def on_epoch_end(self, epoch, logs=None):
        self.printed.append(("epoch", self.capsys.readouterr().out))


@pytest.mark.slow
def test_the_peaks_are_told_between_two_progress_bars(capsys):
    memory, batches = rnnmem.keras.MemoryCallback(), Batches(capsys)
    fit(model(), memory, batches)
    told = [(when, "peak above" in text) for when, text in batches.printed]
    assert told == [("batch", False)] * 3 + [("epoch", False)] + [("batch", True)] + [
        ("batch", False)
    ] * 2 + [("epoch", False)]


@pytest.mark.slow
def test_a_model_that_is_not_optimised_is_told_of_as_such(tmp_path, capsys):
    memory = rnnmem.keras.MemoryCallback(tmp_path, batch_size=BATCH)
    fit(model(optimised=False), memory, epochs=1)
    before, after = memory.report.before.peak_bytes, memory.report.after.peak_bytes
    assert 0 < after < before
    told = capsys.readouterr().out
    assert "runs as TensorFlow runs it; optimised it would have 1 loop" in " ".join(told.split())
    assert "rnnmem.keras.optimize was not applied" in " ".join(memory.report.notes)
    predicted = events(tmp_path)["memory/predicted_peak_bytes"]
    assert [float(tf.make_ndarray(one.tensor_proto)) for one in predicted] == [before] * 2


def test_a_model_that_runs_eagerly_has_peaks_and_no_report():
    memory = rnnmem.keras.MemoryCallback()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        history = fit(model(run_eagerly=True, optimised=False), memory, epochs=1)
    assert memory.report is None and memory.plan is None
    assert history["memory_peak_mib"][0] > 0


def test_a_wrong_batch_size_is_named():
    with pytest.raises(OptionError, match="batch_size=0"):
        rnnmem.keras.MemoryCallback(batch_size=0)
