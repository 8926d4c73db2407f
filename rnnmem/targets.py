"""What the shell names: a SavedModel, or ``module:function`` with the shapes of its arguments."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rnnmem.errors import OptionError
from rnnmem.sizes import counted
from rnnmem.tf.load import saved_model, signature_of

_SPEC = re.compile(r"(?:([a-z][a-z0-9_]*)\s*)?\[([0-9?,\s]*)\]")
_FORMS = (
    "write a SavedModel's folder, 'module:function' or 'path/to/file.py:function', "
    "and then a dtype and shape for each argument: 'int32[32,50]' 'float32[32,?]'"
)


@dataclasses.dataclass(frozen=True)
class Target:
    """A function and how to call it.

    Attributes:
      name: for people.
      function: a callable, ``tf.function`` or ConcreteFunction.
      args: values or TensorSpecs.
      kwargs: likewise, by name.
      keeps: what owns the function's variables, which it alone does not keep.
    """

    name: str
    function: Callable[..., Any]
    args: tuple = ()
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)
    keeps: Any = None


def target(
    text: str, shapes: Sequence[str], given: str = "", signature: str | None = None
) -> Target:
    """Finds the function; its arguments are TensorSpecs unless ``given`` names some.

    Args:
      text: the folder of a SavedModel, ``module:function`` or ``file.py:function``.
      shapes: one for each argument, e.g. ``int32[32,50]``; a ``?`` is an unknown dimension.
      given: ``module:name`` of a tuple of arguments, or of a function that returns it; its module
        may be left out where it is the same: ``:batch``. Those of a signature go by name, sorted.
      signature: which signature of a SavedModel.

    Raises:
      OptionError: there is no such thing, or a shape is malformed.
    """
    specs = [spec(one) for one in shapes]
    if os.path.isdir(text):
        model = saved_model(text)
        function = signature_of(model, text, signature)
        values = _arguments(given, text) if given else tuple(specs)
        kwargs = _by_name(text, function, values, _told(values, "--args" if given else ""))
        return Target(os.path.basename(os.path.normpath(text)), function, (), kwargs, model)
    if signature is not None:
        raise OptionError(
            f"--signature={signature} is of a SavedModel, and target={text!r} is none: leave it out"
        )
    function = _named(text, "target")
    if not callable(function):
        raise OptionError(f"target={text!r} is no function: its type is {type(function).__name__}")
    name = text.rpartition(":")[2]
    if given:
        values = _arguments(given, text)
        told = _told(values, f"--args={given}")
        _check_count(text, function, values, told, "give a tuple of them, or a function that does")
        return Target(name, function, values)
    if not specs and getattr(function, "input_signature", None):
        specs = list(function.input_signature)
    _check_count(text, function, specs, _told(specs), _FORMS)
    return Target(name, function, tuple(specs))


def _told(values: Sequence[Any], source: str = "") -> str:
    """How many values were given, in words: by an option, or as shapes."""
    if source:
        return f"{source} gives {counted(len(values), 'argument')}"
    return f"{counted(len(values), 'shape is', 'shapes are')} given"


def _by_name(text: str, function: Any, values: Sequence[Any], told: str) -> dict[str, Any]:
    """Values of a signature's arguments, whose names are sorted; the others are as it has them."""
    takes = function.structured_input_signature[1]
    names = sorted(takes)
    if len(values) > len(names):
        raise OptionError(f"target={text!r} takes {', '.join(names)}, and {told}")
    return {**takes, **dict(zip(names, values, strict=False))}


def _check_count(
    text: str, function: Callable[..., Any], values: Sequence[Any], told: str, way_out: str
) -> None:
    """Refuses more values than the function has arguments, or fewer than it must be given."""
    try:
        takes = inspect.signature(function)
    except (TypeError, ValueError):  # it does not tell
        return
    try:
        takes.bind(*values)
    except TypeError:
        names = f"({', '.join(map(_argument, takes.parameters.values()))})"
        raise OptionError(f"target={text!r} takes {names}, and {told}: {way_out}") from None


def _argument(parameter: inspect.Parameter) -> str:
    """How an argument is written where it is declared, without annotations."""
    return str(parameter.replace(annotation=inspect.Parameter.empty))


def with_values(found: Target) -> Target:
    """The same call with tensors for its TensorSpecs: floats are drawn, integers are 0.

    Raises:
      OptionError: a dimension is unknown.
    """
    args = tf.nest.map_structure(_value, found.args)
    kwargs = tf.nest.map_structure(_value, found.kwargs)
    return dataclasses.replace(found, args=args, kwargs=kwargs)


def spec(text: str) -> tf.TensorSpec:
    """Reads ``float32[32,50]``; without a dtype it is float32, a ``?`` is an unknown dimension.

    Raises:
      OptionError: the text is no shape, or names no dtype.
    """
    match = _SPEC.fullmatch(text.strip())
    if match is None:
        raise OptionError(f"shape={text!r} is no dtype and shape: {_FORMS}")
    dtype, dims = match.groups()
    try:
        known = tf.as_dtype(dtype or "float32")
    except TypeError:
        raise OptionError(f"shape={text!r} names no dtype that TensorFlow has: {_FORMS}") from None
    sizes = [one.strip() for one in dims.split(",") if one.strip()]
    if not all(one == "?" or one.isdecimal() for one in sizes):
        raise OptionError(f"shape={text!r} has a dimension that is no number: {_FORMS}")
    return tf.TensorSpec([None if one == "?" else int(one) for one in sizes], known)


def _value(given: Any) -> Any:
    if not isinstance(given, tf.TensorSpec):
        return given
    if not given.shape.is_fully_defined():
        raise OptionError(
            f"a run needs every dimension, and {given.dtype.name}{given.shape} leaves one open: "
            "give the argument's shape, e.g. 'int32[32,50]', or the arguments with --args"
        )
    if given.dtype.is_floating:
        drawn = np.random.default_rng(0).standard_normal(given.shape.as_list())
        return tf.cast(tf.constant(drawn), given.dtype)
    return tf.zeros(given.shape, given.dtype)


def _arguments(text: str, of: str) -> tuple:
    text = of.rpartition(":")[0] + text if text.startswith(":") else text
    found = _named(text, "args")
    found = found() if callable(found) else found
    return tuple(found) if isinstance(found, (tuple, list)) else (found,)


def _named(text: str, argument: str) -> Any:
    """What ``module:name`` or ``file.py:name`` names."""
    module, colon, name = text.rpartition(":")
    if not colon or not module or not name:
        raise OptionError(f"{argument}={text!r} names nothing: {_FORMS}")
    found = _script(module) if module.endswith(".py") else _module(module, argument)
    for part in name.split("."):
        if not hasattr(found, part):
            raise OptionError(f"{argument}={text!r}: {module!r} has no {name!r}")
        found = getattr(found, part)
    return found


def _module(name: str, argument: str) -> Any:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise OptionError(
                f"{argument}={name!r}: there is no such module here; {_FORMS}"
            ) from None
        raise


def _script(path: str) -> Any:
    """A script as a module; it is run once, and not as ``__main__``."""
    path = os.path.abspath(path)
    if not os.path.isfile(path):
        raise OptionError(f"target={path!r}: there is no such file")
    name = os.path.basename(path).removesuffix(".py")
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == path:
        return known
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise OptionError(f"target={path!r} is no Python file")
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    try:
        spec.loader.exec_module(made)
    except BaseException:
        del sys.modules[name]
        raise
    return made
