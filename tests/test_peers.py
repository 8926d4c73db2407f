"""The benchmark beside the peers: every way computes the same model, and figures come back."""

import importlib.util
import json

import numpy as np
import pytest

from benchmarks.peers import __main__ as peers
from benchmarks.peers import step as steps
from benchmarks.peers import table
from benchmarks.peers.columns import COLUMNS
from benchmarks.peers.models import MODELS, SMALL
from benchmarks.peers.table import Cell

KINDS = ("nmt-50", "lstm-1000", "recurrent-dropout", "language-model", "transformer")
"""A model of each kind."""


def computed(column, model):
    step = COLUMNS[column].make_step(SMALL[model]())
    return step.arrays(step.call())


@pytest.fixture(scope="module")
def tensorflows():
    import tensorflow as tf

    tf.config.experimental.enable_op_determinism()
    return {model: computed("tensorflow", model) for model in KINDS}


def test_small_models_are_of_the_same_kinds():
    assert list(SMALL) == list(MODELS)
    assert all(SMALL[name].func is MODELS[name].func for name in SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("model", KINDS)
@pytest.mark.parametrize("column", ["rnnmem", "recompute-grad"])
def test_rnnmem_and_recompute_grad_keep_tensorflows_bits(column, model, tensorflows):
    found = computed(column, model)
    assert all(found[n].tobytes() == one.tobytes() for n, one in tensorflows[model].items())


@pytest.mark.slow
@pytest.mark.parametrize("model", KINDS)
@pytest.mark.parametrize(
    "column", ["jax", "jax-nested-checkpoint", "equinox", "torch", "torch-checkpoint"]
)
def test_a_peer_computes_the_same_model(column, model, tensorflows):
    if COLUMNS[column].missing:
        pytest.skip(f"{COLUMNS[column].missing} is not installed")
    found, expected = computed(column, model), tensorflows[model]
    assert set(found) == set(expected)
    assert abs(float(found["loss"]) - float(expected["loss"])) < 1e-5
    assert peers.largest_difference(found, expected) < 1e-4


@pytest.mark.slow
def test_a_run_gives_every_figure(tmp_path):
    cells = {
        name: peers.run("lstm-1000", name, tmp_path, small=True, timeout=300)
        for name in ("tensorflow", "rnnmem")
    }
    for cell in cells.values():
        assert cell.reason is None
        assert cell.counted_bytes > 0 and cell.process_bytes > 0 and cell.seconds > 0
        assert cell.same_bits and cell.off_plain == 0 and cell.repeats_itself
    assert cells["rnnmem"].counted_bytes < cells["tensorflow"].counted_bytes


def test_what_is_not_installed_has_its_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    cell = peers.run("nmt-50", "torch", tmp_path, small=True, timeout=1)
    assert cell.reason == "torch is not installed"


def test_what_takes_too_long_has_its_reason(tmp_path):
    cell = peers.run("nmt-50", "tensorflow", tmp_path, small=True, timeout=0.01)
    assert cell.reason == "not done in 0.01 s"


def test_columns_bring_along_what_they_are_held_against():
    assert peers.with_references(["rnnmem-xla"]) == ["tensorflow", "tensorflow-xla", "rnnmem-xla"]
    assert peers.with_references(["torch-checkpoint"])[-2:] == ["torch", "torch-checkpoint"]


def test_the_peak_of_the_process_is_what_a_step_touches():
    step = steps.Step(lambda: np.ones(32 << 20, np.uint8), lambda _: {}, lambda: None)
    assert 32 << 20 <= steps.process_peak(step, 2) < 36 << 20


MEASURED = {"process_bytes": 3 << 20, "seconds": 0.5, "off_plain": 1e-6, "repeats_itself": True}


def cells():
    made = [
        Cell("nmt-50", "rnnmem", counted_bytes=2 << 20, same_bits=True, **MEASURED),
        Cell("nmt-50", "jax", counted_bytes=1 << 20, same_bits=False, **MEASURED),
        Cell("nmt-50", "torch", counted_bytes=4 << 20, same_bits=True, **MEASURED),
        Cell("nmt-50", "equinox", reason="it did not want to"),
    ]
    return {(cell.model, cell.column): cell for cell in made}


def test_tables_say_what_did_not_run_and_where_a_peer_is_better():
    text = table.tables(cells())
    assert "| **rnnmem** | 2.0 |" in text and "| JAX, `scan` | off 1e-06 |" in text
    assert "| equinox, checkpointed loop | (1) |" in text and "1. it did not want to" in text
    better = text.partition("Where a peer needs less")[2]
    assert "JAX, `scan` needs less memory, 1.0 MiB against 2.0" in better
    assert "PyTorch" not in better


def test_the_page_holds_the_tables_between_its_markers(tmp_path):
    page = tmp_path / "peers.md"
    page.write_text(f"before\n\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    table.write_page(table.tables(cells()), page)
    text = page.read_text()
    assert text.startswith("before") and text.endswith("after\n")
    assert "old" not in text and table.tables(cells()) in text
    page.write_text("nothing")
    with pytest.raises(ValueError, match="has no lines"):
        table.write_page(table.tables(cells()), page)


def test_figures_come_back_from_their_file(tmp_path):
    path = tmp_path / "peers.json"
    assert table.read(path) == {}
    path.write_text(json.dumps({"results": [vars(cell) for cell in cells().values()]}))
    assert table.read(path) == cells()


def test_a_picture_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    table.draw(cells(), tmp_path / "peers.png")
    assert (tmp_path / "peers.png").read_bytes().startswith(b"\x89PNG")
