"""How a stage is called: layers, callables and builders behind one face."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import tensorflow as tf

from rnnmem.errors import OptionError
from rnnmem.tf import private

_NAMED = ("training", "mask")


class Chain:
    """Layers or callables one after the other, as one stage.

    Args:
      layers: each takes what the one before returns, as stages do.
    """

    def __init__(self, layers: Iterable[Callable[..., Any]]):
        self.layers = list(layers)
        for i, layer in enumerate(self.layers):
            if not callable(layer):
                raise OptionError(f"layers[{i}]={layer!r} is neither a layer nor a callable")

    def __call__(self, inputs: Any, training: bool = False) -> Any:
        """Runs the layers on a structure of tensors."""
        for layer in self.layers:
            inputs = call(layer, [inputs], training)
        return inputs


def is_builder(fn: Callable[..., Any]) -> bool:
    """Whether a callable takes no inputs, so that it makes a stage instead of being one."""
    if isinstance(_core(fn), (keras.layers.Layer, Chain)):
        return False
    parameters = _parameters(fn)
    return not _required(parameters) and not _takes_any(parameters)


def takes(fn: Callable[..., Any], count: int) -> bool:
    """Whether a callable takes so many inputs one by one."""
    parameters = _parameters(fn)
    least, most = len(_required(parameters)), len(_positional(parameters))
    return least <= count and (count <= most or _takes_any(parameters))


def call(fn: Callable[..., Any], inputs: list[Any], training: bool) -> Any:
    """Calls a stage.

    Args:
      fn: a layer or a callable. One that needs several inputs gets a tuple or list spread out; one
        with a parameter ``training`` gets that too.
      inputs: one structure of tensors, or several.
      training: whether this is a training step.
    """
    if len(inputs) == 1 and type(inputs[0]) in (tuple, list) and _is_spread(fn, len(inputs[0])):
        inputs = inputs[0]
    named = {"training": training} if "training" in _parameters(fn) else {}
    return fn(*inputs, **named)


def layers_of(fn: Any) -> list[keras.layers.Layer]:
    """The Keras layers that a stage is made of, as far as its closure and globals show them."""
    found: list[keras.layers.Layer] = []
    seen: set[int] = set()

    def visit(thing: Any, depth: int) -> None:
        if id(thing) in seen or depth > 8:
            return
        seen.add(id(thing))
        if isinstance(thing, keras.layers.Layer):
            found.append(thing)
            return
        for part in _parts(thing):
            visit(part, depth + 1)

    visit(fn, 0)
    return found


def holds_its_layers(fn: Any) -> bool:
    """Whether all layers that ``layers_of`` finds are the stage's, and none just lies about."""
    return isinstance(_core(fn), (keras.layers.Layer, Chain))


def may_be_moved(fn: Any) -> bool:
    """Whether no trace of the stage exists yet, which would go on with its old variables."""
    traced: Any = fn
    while traced is not None:
        base: Any = getattr(traced, "_base", None)
        if private.is_concrete(traced) or private.is_concrete(getattr(traced, "_concrete", None)):
            return False
        for function in (traced, base):
            if private.is_polymorphic(function) and function.experimental_get_tracing_count():
                return False
        traced = getattr(traced, "__wrapped__", None)
    return True


def name_of(fn: Any) -> str:
    """A short name for people."""
    core = _core(fn)
    if isinstance(core, Chain):
        return "+".join(name_of(layer) for layer in core.layers)
    return str(getattr(core, "name", None) or getattr(core, "__name__", type(core).__name__))


def _is_spread(fn: Callable[..., Any], count: int) -> bool:
    parameters = _parameters(fn)
    required = len(_required(parameters))
    return takes(fn, count) and (required > 1 or (required == 0 and _takes_any(parameters)))


def _core(fn: Any) -> Any:
    """What stands behind decorators, ``tf.function`` and ``rnnmem.optimize``."""
    while True:
        if private.is_polymorphic(fn):
            fn = fn.python_function
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        else:
            return fn


def _parameters(fn: Any) -> dict[str, inspect.Parameter]:
    core = _core(fn)
    target = core.call if isinstance(core, keras.layers.Layer) else core
    try:
        return dict(inspect.signature(target).parameters)
    except (TypeError, ValueError):
        return {"inputs": inspect.Parameter("inputs", inspect.Parameter.POSITIONAL_ONLY)}


def _positional(parameters: dict[str, inspect.Parameter]) -> list[inspect.Parameter]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p for p in parameters.values() if p.kind in kinds and p.name not in _NAMED]


def _required(parameters: dict[str, inspect.Parameter]) -> list[inspect.Parameter]:
    return [p for p in _positional(parameters) if p.default is inspect.Parameter.empty]


def _takes_any(parameters: dict[str, inspect.Parameter]) -> bool:
    return any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters.values())


def _parts(thing: Any) -> Iterator[Any]:
    """What a callable or a container holds that may be a layer."""
    yield from filter(None, [getattr(thing, "__wrapped__", None)])
    if private.is_polymorphic(thing):
        yield thing.python_function
    elif isinstance(thing, (list, tuple, set, frozenset)):
        yield from thing
    elif isinstance(thing, dict):
        yield from thing.values()
    elif isinstance(thing, Chain):
        yield from thing.layers
    elif isinstance(thing, functools.partial):
        yield from (thing.func, *thing.args, *thing.keywords.values())
    elif inspect.ismethod(thing):
        yield from (thing.__self__, thing.__func__)
    elif _is_of_a_library(thing):
        return
    elif inspect.isfunction(thing):
        yield from _parts_of_function(thing)
    elif isinstance(thing, tf.Module) or (callable(thing) and hasattr(thing, "__dict__")):
        if not isinstance(thing, type) and not inspect.ismodule(thing):
            yield from vars(thing).values()


def _is_of_a_library(thing: Any) -> bool:
    """Whether to look no further: TensorFlow's own functions hold no layer of the user's."""
    module = getattr(thing, "__module__", None) or type(thing).__module__
    return str(module).split(".")[0] in ("tensorflow", "keras", "numpy", "rnnmem")


def _parts_of_function(fn: Any) -> Iterator[Any]:
    for cell in fn.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            continue
    yield from fn.__defaults__ or ()
    yield from (fn.__globals__[name] for name in fn.__code__.co_names if name in fn.__globals__)
