"""Every cell of the table that is not as good as it could be, and why; there is no other list.

A listed cell must not hold: one that turns out well fails its test until it is taken off.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable

_SECOND = "its gradient is differentiated again"


LEFT_ALONE: dict[str, str] = {
    "while.one_trip": "it runs at most one iteration",
    "while.zero_trips_known": "it runs at most one iteration",
    "gradients.of_gradients": _SECOND,
}
"""Program -> why no loop of it is rewritten, whatever time may be spent."""

_XLA = "XLA fuses a step net otherwise once it hands less out; close, not equal"
_UNKNOWN = "no peak is predicted: a shape or a trip count is unknown to the Net"
_FORETOLD = {
    "effects.numpy_function": _UNKNOWN,
    "effects.py_function": _UNKNOWN,
}

GAPS: dict[tuple[str, str], str] = {
    **{(name, "prediction"): why for name, why in _FORETOLD.items()},
    **{(name, "prediction as it was"): why for name, why in _FORETOLD.items()},
    ("calls.implementation", "prediction as it was"): "what a call is given it holds until it "
    "returns: the lists as a whole",
    ("gradients.custom_gradient", "compiled bits"): _XLA,
    ("nested.two_deep", "compiled bits"): _XLA,
    ("random.stateless", "compiled bits"): _XLA,
    ("straight.tokens_of_sentences", "prediction"): "of a loop over chunks of tokens more is "
    "counted than is held",
    ("while.captured_tensor", "compiled bits"): _XLA,
}
"""(program, property) -> why the cell does not hold."""


_BRANCHES = "which branch runs is known only at run time: the larger one is counted"
_PARTIALS = "how many partial gradients are under way at once is a race"

_PYTHON = "Python frees what it was given when it comes to it"

_UPDATES = "which updates of variables are under way at once is a race; the loop never runs"
_MEETING = "which ops meet in memory is a race; a tenth off in some runs, up to a third in few"

RACES: dict[tuple[str, str], str] = {
    ("effects.numpy_function", "peak"): _PYTHON,
    ("effects.py_function", "peak"): _PYTHON,
    ("branch.cond", "prediction"): _BRANCHES,
    ("branch.cond", "prediction as it was"): _BRANCHES,
    ("branch.loop_in_cond", "prediction"): _BRANCHES,
    ("branch.loop_in_cond_in_body", "prediction"): _BRANCHES,
    ("branch.loop_in_cond_in_body", "prediction as it was"): _BRANCHES,
    ("branch.switch_case", "prediction"): _BRANCHES,
    ("branch.switch_case", "prediction as it was"): _BRANCHES,
    ("effects.assert", "prediction as it was"): _PARTIALS,
    ("effects.check_numerics", "prediction"): _PARTIALS,
    ("several.parallel_branches", "prediction"): "which of four gradient loops meet is a race",
    ("gradients.accumulated_in_loop", "prediction"): _MEETING,
    ("keras.SimpleRNN", "prediction as it was"): _MEETING,
    ("keras.layer_norm_between", "prediction"): _MEETING,
    ("functional.scan_last", "prediction as it was"): "the row that is used holds the whole stack, "
    "and is counted apart from it",
    ("while.one_trip", "prediction as it was"): _MEETING,
    ("while.zero_trips_known", "prediction"): _UPDATES,
    ("while.zero_trips_known", "prediction as it was"): _UPDATES,
    ("keras.ConvLSTM2D", "prediction"): "which of its 24 convolutions meet is a race",
    ("keras.relu_hard_sigmoid", "prediction as it was"): "TensorFlow's graph optimizer divides "
    "what was saved by 6 first, for all iterations that are under way",
}
"""(program, property) -> why the cell holds in some runs and not in others; it is not asked."""


WHOLE_TABLE = "RNNMEM_CONFORMANCE"
"""Set to 1 in the environment, every property is asked of every program (`make conformance`)."""
CELLS = "RNNMEM_CELLS"
"""Names a file to which every cell is written as it is found, for tools/conformance_table.py."""


def record(program: str, property_name: str, value: object) -> None:
    """Writes a cell to the file that ``CELLS`` names, if any."""
    path = os.environ.get(CELLS)
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps([program, property_name, value]) + "\n")


def predicted(program: str, property_name: str, problem: Callable[[], str]) -> None:
    """Records whether a prediction holds; asked only with the whole table, on a quiet machine.

    Which ops meet in memory is a race between threads, and no race decides CI.
    """
    if os.environ.get(WHOLE_TABLE):
        hold(program, property_name, problem())
    elif os.environ.get(CELLS):
        known = GAPS.get((program, property_name), RACES.get((program, property_name), ""))
        record(program, property_name, known or problem())


def hold(program: str, property_name: str, problem: str) -> None:
    """Fails where the cell does not hold, or where it is listed and does.

    Args:
      program: the row.
      property_name: the column.
      problem: what is wrong, in words; empty where the cell holds.
    """
    cell = program, property_name
    known = GAPS.get(cell, RACES.get(cell, ""))
    record(*cell, known or problem)
    if cell in RACES:
        return
    if cell in GAPS:
        assert problem, f"{program}, {property_name} holds now: take it off GAPS ({known})"
    else:
        assert not problem, f"{program}, {property_name}: {problem}"
