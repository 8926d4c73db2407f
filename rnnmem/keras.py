"""Keras models: ``optimize`` applied to what ``fit`` and ``train_on_batch`` run."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from rnnmem import api
from rnnmem.errors import OptionError, RnnmemWarning
from rnnmem.options import Options
from rnnmem.tf import private


def optimize(model: Any, **options: Any) -> Any:
    """Makes a Keras model train in less memory, in place; everything else stays as it is.

    ``fit``, ``train_on_batch``, ``evaluate``, ``predict``, ``save`` and custom ``train_step``
    methods work as before; ``compile`` may come before or after. A model that is loaded from a file
    is a new one: call ``optimize`` on it too. With ``run_eagerly=True`` there is no graph, and
    nothing to rewrite.

    Args:
      model: a ``keras.Model``.
      **options: those of :func:`rnnmem.optimize`.

    Returns:
      The model itself.

    Raises:
      OptionError: ``model`` is no Keras model, or an option is malformed.
    """
    if not callable(getattr(model, "_make_function", None)):
        raise OptionError(
            f"model={type(model).__name__} is no Keras model that trains with TensorFlow: "
            "pass a keras.Model, or decorate the train step with rnnmem.optimize"
        )
    _check(options)
    make = type(model)._make_function.__get__(model)

    def make_function(step: Callable[..., Any]) -> Callable[..., Any]:
        function = make(step)
        cell = private.keras_step_cell(function) if step == model.train_step else None
        if cell is not None and private.is_polymorphic(cell.cell_contents):
            cell.cell_contents = api.optimize(cell.cell_contents, **options)
        elif step == model.train_step and not model.run_eagerly:
            warnings.warn(
                "rnnmem does not know how this Keras makes its train function, and left it as it "
                "was; decorate a train step of your own with rnnmem.optimize",
                RnnmemWarning,
                stacklevel=3,
            )
        return function

    model._make_function = make_function
    model.train_function = None
    return model


def _check(options: dict[str, Any]) -> None:
    """Refuses unknown options now, not when the model first trains."""
    defaults = {
        "budget": None,
        "max_slowdown": 1.1,
        "allow": None,
        "verify": False,
        "plan": None,
        "profile": False,
    }
    for name in options:
        if name not in defaults:
            raise OptionError(
                f"{name}={options[name]!r} is no option; there are {', '.join(defaults)}"
            )
    Options.of(**{**defaults, **options})
