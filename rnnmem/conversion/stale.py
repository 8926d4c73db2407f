"""Functions that were traced over a variable before its conversion.

A ``tf.function`` traces again by itself once its old traces are forgotten. A ConcreteFunction that
the user kept cannot; its calls raise, because its graph reads the old resource.
"""

from __future__ import annotations

from typing import Any

from rnnmem.conversion.holders import TensorHolder, VariableHolder
from rnnmem.errors import ConvertError, StaleFunctionError
from rnnmem.tf import private


def handles_of(holders: list[VariableHolder | TensorHolder]) -> dict[int, str]:
    """Id of each handle that a function may have captured -> the variable's name."""
    return {id(h.handle): h.name for h in holders if isinstance(h, VariableHolder)}


def readers_of(handles: dict[int, str]) -> private.Readers:
    """The functions that read the variables.

    Raises:
      ConvertError: one of them was loaded from a SavedModel.
    """
    readers = private.readers_of(set(handles))
    for concrete in readers.without_code:
        raise ConvertError(
            f"variable {_first(concrete, handles)!r} belongs to a SavedModel that was loaded "
            "without its code, whose functions cannot be traced again: build the model from its "
            "code, load the weights and convert that; nothing was changed"
        )
    return readers


def retire(readers: private.Readers, handles: dict[int, str]) -> None:
    """Makes every ``tf.function`` over the handles trace again, and kept traces raise."""
    for cache, key in readers.cached:
        private.forget_trace(cache, key)
    for concrete in readers.concretes:
        error = StaleFunctionError(
            "this function was traced before rnnmem.convert changed variable "
            f"{_first(concrete, handles)!r}: get_concrete_function once more traces it again"
        )
        private.forbid_calls(concrete, error)


def _first(concrete: Any, handles: dict[int, str]) -> str:
    names = (handles.get(id(tensor)) for tensor in private.captured_inputs(concrete))
    return next(name for name in names if name is not None)
