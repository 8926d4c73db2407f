"""Every cell of the table that is not as good as it could be, and why; there is no other list.

A listed cell must not hold: one that turns out well fails its test until it is taken off.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable

_SECOND = "its gradient is differentiated again"


OF_KERNELS = ("keras.ConvLSTM2D", "while.convolution")
"""Programs in which the buffers of TensorFlow's own convolution kernels are nearly all of the peak,
where those run: there is nothing to be gained then."""
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
    (
        "several.parallel_branches",
        "prediction as it was",
    ): "which of four gradient loops meet makes a fifth of the peak",
    ("while.captured_tensor", "compiled bits"): _XLA,
}
"""(program, property) -> why the cell does not hold."""


_PYTHON = "Python frees what it was given when it comes to it"

_NESTED = "loops inside of several iterations that are under way at once are simulated in turn"
_CONVOLUTIONS = "which of its 24 convolutions meet is a race"

RACES: dict[tuple[str, str], str] = {
    ("effects.numpy_function", "peak"): _PYTHON,
    ("effects.py_function", "peak"): _PYTHON,
    ("gradients.accumulated_in_loop", "prediction"): _NESTED,
    ("gradients.accumulated_in_loop", "prediction as it was"): _NESTED,
    (
        "while.one_trip",
        "prediction as it was",
    ): "in some runs the zeros that a gradient starts from are made after its peak",
    ("keras.ConvLSTM2D", "prediction"): _CONVOLUTIONS,
    ("keras.ConvLSTM2D", "prediction as it was"): _CONVOLUTIONS,
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
