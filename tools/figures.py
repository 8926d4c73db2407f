"""Writes the tables of README.md and docs/benchmarks.md from benchmarks/results: `make docs`.

Each table stands between its markers; one whose file of figures is not there stays as it is.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGES = (ROOT / "README.md", ROOT / "docs" / "benchmarks.md")
BLOCK = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)
MIB = 2**20
DEFAULT = 1.1
"""The bound on time without `max_slowdown`."""
WHOLE_STEPS = {
    "transformer": "Transformer, 8 layers, batch 8, length 256, 256 units",
    "small_transformer": "Transformer, 6 layers, batch 4, length 160, 128 units",
    "resnet50": "Keras ResNet-50 at 224, batch 8",
    "small_resnet50": "Keras ResNet-50 at 64, batch 8",
    "conv_lstm": "three convolutions over 64 frames in front of an LSTM",
    "language_model_smoothed": "GRU language model, 10000 words, tied, label smoothing",
    "language_model_sparse": "the same with a masked sparse cross entropy",
    "keras_language_model": "Keras language model, 20 x 35 tokens, 10000 words",
    "multi30k": "Multi30k, the translation toolkit's step",
    "attention-50": "attention model, length 50",
    "attention-150": "attention model, length 150",
    "attention-150-vocabulary-32000": "attention model, length 150, 32000 words",
}
LOOPS = {
    "keras_lstm_bfloat16": "Keras LSTM, bfloat16",
    "keras_lstm": "Keras LSTM",
    "two_lstm_recurrent_dropout": "two Keras LSTMs with recurrent dropout",
    "hand_lstm": "LSTM written as a loop",
    "keras_lstm_jit_100": "Keras LSTM under XLA, 100 iterations",
    "keras_lstm_jit_400": "Keras LSTM under XLA, 400 iterations",
}
Rows = Iterator[list[str]]


def translation() -> Rows:
    """The translation model, at the default and with more time."""
    yield ["source and target length", *COMPARED]
    for bound in (DEFAULT, 1.35):
        for one in _results(f"nmt-cpu-slowdown-{bound}.json"):
            same = one["loss_identical"] and one["gradients_identical"]
            yield [f"{one['source_length']}, {_bound(bound)}", *_compared(one, same)]


def loops() -> Rows:
    """Recurrent layers."""
    yield ["train step", *COMPARED]
    for one in _results("recurrent-cpu.json"):
        if one["workload"] in LOOPS:
            name = f"{LOOPS[one['workload']]}, {_bound(one['max_slowdown'])}"
            yield [name, *_compared(one, one["bits_equal"])]


def whole_steps() -> Rows:
    """What lies outside of loops, and steps that have none."""
    yield ["train step", *COMPARED]
    for one in _results("whole-step-cpu.json"):
        name = f"{WHOLE_STEPS[one['workload']]}, {_bound(one['max_slowdown'])}"
        yield [name, *_compared(one, one["bits_equal"])]


def pipeline() -> Rows:
    """The stages of a pipeline under each schedule."""
    rows = _results("pipeline-memory.json")
    yield ["schedule", "micro-batches", *(f"stage {i}" for i in range(len(rows[0]["scopes"])))]
    for one in rows:
        pairs = zip(one["requested_bytes"], one["scopes"], strict=True)
        peaks = [f"{size / MIB:.2f} ({scopes})" for size, scopes in pairs]
        yield [one["schedule"], str(one["micro_batches"]), *peaks]


def planning() -> Rows:
    """Seconds that planning takes."""
    yield ["function", "ops", "planning"]
    for one in _results("planning-cpu.json"):
        yield [one["function"], str(one["ops"]), f"{one['seconds']:.1f} s"]


def promises() -> Rows:
    """How many programs' measured times are within each bound."""
    yield ["bound", "programs", "within it and 5 %", "step time, median", "most", "saving, median"]
    rows = _results("promises-cpu.json")
    for bound in sorted({one["bound"] for one in rows}):
        here = [one for one in rows if one["bound"] == bound]
        times = [one["measured"] for one in here]
        saved = (100 * (1 - one["after_bytes"] / one["before_bytes"]) for one in here)
        yield [
            _bound(bound),
            str(len(here)),
            str(sum(one["is_kept"] for one in here)),
            f"{statistics.median(times):.2f}x",
            f"{max(times):.2f}x",
            f"{statistics.median(saved):.0f} %",
        ]


COMPARED = ["TensorFlow", "rnnmem", "saving", "step time", "bits"]
TABLES: dict[str, Callable[[], Rows]] = {
    one.__name__: one for one in (translation, loops, whole_steps, pipeline, planning, promises)
}


def write(page: str) -> str:
    """Returns the page with the tables between its markers made again."""
    return BLOCK.sub(_made, page)


def _made(block: re.Match) -> str:
    begin, name, end = block.groups()
    try:
        return f"{begin}\n{_table(TABLES[name]())}\n{end}"
    except FileNotFoundError:
        return block[0]


def _table(rows: Rows) -> str:
    """Markdown; all columns but the first are numbers."""
    head, *body = rows
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _results(name: str) -> list[dict[str, Any]]:
    document = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return document.get("results") or document["rows"]


def _bound(bound: float) -> str:
    return "default" if bound == DEFAULT else f"`max_slowdown={bound:g}`"


def _compared(one: dict[str, Any], same: bool) -> list[str]:
    before, after = one["before_bytes"], one["after_bytes"]
    saving = f"{100 * (1 - after / before):.1f} %"
    time = f"{one['time_ratio']:.2f}x"
    bits = "the same" if same else "differ"
    return [f"{before / MIB:.1f} MiB", f"{after / MIB:.1f} MiB", saving, time, bits]


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(write(path.read_text(encoding="utf-8")), encoding="utf-8")
