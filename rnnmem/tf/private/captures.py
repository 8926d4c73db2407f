"""Traced functions by what they captured."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterator
from typing import Any

from tensorflow.core.function.polymorphism import function_cache as _function_cache
from tensorflow.python.eager import context as _context
from tensorflow.python.eager.polymorphic_function import concrete_function as _concrete_function
from tensorflow.python.saved_model import function_deserialization as _function_deserialization
from tensorflow.python.saved_model import load as _saved_model_load

_EAGER_OP = "__wrapped__"
"""Starts the names of functions that TensorFlow makes of ops which it runs eagerly."""


@dataclasses.dataclass(frozen=True)
class Readers:
    """Traced functions that captured a tensor.

    Attributes:
      concretes: the ConcreteFunctions.
      cached: where a ``tf.function`` keeps one of them: its cache, and the key there.
      without_code: those that came from a SavedModel, so that nobody can trace them again.
    """

    concretes: list[Any]
    cached: list[tuple[Any, Any]]
    without_code: list[Any]


def readers_of(handles: set[int]) -> Readers:
    """Traced functions that captured any of these eager tensors.

    Args:
      handles: ids of eager tensors that are alive.
    """
    found = Readers([], [], [])
    if all(name.startswith(_EAGER_OP) for name in _context.context().list_function_names()):
        return found  # nothing was traced; to look at every object takes a while
    restored: set[int] = set()
    for kind, thing in _functions():
        if kind is _function_cache.FunctionCache:
            for key, concrete in list(thing._primary.items()):
                if _captures_any(concrete, handles):
                    found.cached.append((thing, key))
        elif kind is _concrete_function.ConcreteFunction:
            if _captures_any(thing, handles):
                found.concretes.append(thing)
        else:
            restored.update(id(concrete) for concrete in thing.concrete_functions)
    wrapper = _saved_model_load._WrapperFunction
    found.without_code.extend(
        concrete
        for concrete in found.concretes
        if id(concrete) in restored or isinstance(concrete, wrapper)
    )
    return found


def _functions() -> Iterator[tuple[type, Any]]:
    """Every traced function, cache of traces and restored function that is alive.

    TensorFlow keeps no way from a tensor to the functions over it.
    """
    kinds = (
        _function_cache.FunctionCache,
        _concrete_function.ConcreteFunction,
        _function_deserialization.RestoredFunction,
    )
    known = {own: kind for kind in kinds for own in _with_subclasses(kind)}
    # An object refers to its class, and to ask for that is faster than to look at every object.
    for thing in gc.get_referrers(*known):
        if type(thing) in known:
            yield known[type(thing)], thing


def _with_subclasses(kind: type) -> list[type]:
    below: list[type] = kind.__subclasses__()
    return [kind, *(own for one in below for own in _with_subclasses(one))]


def captured_inputs(concrete: Any) -> list[Any]:
    """What a ConcreteFunction captured; values known only at each call are not asked for."""
    return list(getattr(concrete, "_captured_inputs", ()))


def _captures_any(concrete: Any, handles: set[int]) -> bool:
    return any(id(tensor) in handles for tensor in captured_inputs(concrete))


def forget_trace(cache: Any, key: Any) -> None:
    """Makes a ``tf.function`` trace again where it would have used this trace."""
    context, function_type = key
    cache.delete(function_type, context)


def forbid_calls(concrete: Any, error: Exception) -> None:
    """Makes every call of a ConcreteFunction raise."""

    def refuse(*unused_args, **unused_kwargs):
        raise error

    concrete._call_flat = refuse
