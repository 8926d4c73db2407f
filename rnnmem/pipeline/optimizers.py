"""One optimizer for each stage, like the one that the user passed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras

from rnnmem.errors import OptionError


def maker_of(optimizer: Any) -> Callable[[], Any]:
    """A function that makes one stage's optimizer.

    Raises:
      OptionError: it is no optimizer, has trained already, or looks at all gradients at once.
    """
    if isinstance(optimizer, str):
        _checked(_named(optimizer), optimizer)
        return lambda: _named(optimizer)
    if isinstance(optimizer, keras.optimizers.Optimizer):
        _checked(optimizer, optimizer)
        config = optimizer.get_config()
        return lambda: type(optimizer).from_config(config)
    if callable(optimizer) and not isinstance(optimizer, type):
        try:
            inspect.signature(optimizer).bind()
        except (TypeError, ValueError):
            raise _refused(optimizer) from None
        return lambda: _checked(optimizer(), optimizer)
    raise _refused(optimizer)


def _refused(optimizer: Any) -> OptionError:
    return OptionError(
        f"optimizer={optimizer!r} is neither a Keras optimizer, the name of one, nor a callable "
        "without arguments that makes one for a stage"
    )


def _named(name: str) -> Any:
    try:
        return keras.optimizers.get(name)
    except (TypeError, ValueError) as error:
        raise OptionError(f"optimizer={name!r}: Keras knows no such optimizer") from error


def _checked(optimizer: Any, given: Any) -> Any:
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise _refused(given)
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        raise OptionError(
            "optimizer=LossScaleOptimizer looks at the gradients of all stages at once: pass its "
            "inner optimizer, and bfloat16 instead of float16"
        )
    if getattr(optimizer, "global_clipnorm", None) is not None:
        raise OptionError(
            f"optimizer with global_clipnorm={optimizer.global_clipnorm!r} looks at the gradients "
            "of all stages at once: use clipnorm or clipvalue"
        )
    if optimizer.built and int(optimizer.iterations) > 0:
        raise OptionError(
            "optimizer has trained already, and every stage starts one of its own: pass a new one"
        )
    return optimizer
