"""``tf.function`` and ConcreteFunction: traced, called, and made of a finished graph."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import concrete_function as _concrete_function
from tensorflow.python.eager.polymorphic_function import function_type_utils as _type_utils
from tensorflow.python.eager.polymorphic_function import tracing_compilation as _tracing_compilation

from rnnmem.tf.private.lines import tell_lines_of


def concrete_function(graph: Any, original: Any, attributes: dict[str, Any]) -> Any:
    """A ConcreteFunction over a finished FuncGraph, called in the ways ``original`` is."""
    made = _concrete_function.ConcreteFunction.from_func_graph(
        graph, original.function_type, attributes
    )
    made._arg_keywords = original._arg_keywords
    made._num_positional_args = original._num_positional_args
    tell_lines_of(made._inference_function, original.graph)
    return made


def is_concrete(fn: Any) -> bool:
    """Whether ``fn`` is a ConcreteFunction."""
    return isinstance(fn, _concrete_function.ConcreteFunction)


def is_polymorphic(fn: Any) -> bool:
    """Whether ``fn`` is a ``tf.function``."""
    return isinstance(fn, tf.types.experimental.PolymorphicFunction)


def is_compiled(concrete: Any) -> bool:
    """Whether XLA compiles the function as a whole."""
    mark = concrete.function_def.attr.get("_XlaMustCompile")
    return mark is not None and mark.b


def trace(base: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """The ConcreteFunction that the ``tf.function`` would run; found as fast as it finds it."""
    # A function that created variables runs traces of its second configuration, any other those of
    # its first; the other one would trace, and count random numbers, again.
    created = base._created_variables
    config = base._no_variable_creation_config if created else base._variable_creation_config
    if config is None:
        return base.get_concrete_function(*args, **kwargs)
    return _tracing_compilation.trace_function(args, kwargs, config)


def traces(function: Any) -> list:
    """The ConcreteFunctions that a ``tf.function`` has been traced to."""
    return function._list_all_concrete_functions()


def flat_inputs(base: Any, concrete: Any, args: tuple, kwargs: dict[str, Any]) -> list[Any]:
    """The tensors that `call` would give the trace's inputs, in order; captures come last."""
    return [*_flat_arguments(base, concrete, args, kwargs), *concrete.captured_inputs]


def call(base: Any, concrete: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Calls one trace of the ``tf.function`` ``base``, or another with the same face, as it would.

    A ConcreteFunction alone does not know the defaults of the Python function behind it.
    """
    if base is None:
        return concrete(*args, **kwargs)
    flat = _flat_arguments(base, concrete, args, kwargs)
    return concrete._call_flat(flat, captured_inputs=concrete.captured_inputs)


def caller_of(concrete: Any, specs: Sequence[Any]) -> Any:
    """A ConcreteFunction that does nothing but call another one with arguments of these types."""

    def call(*given):
        return concrete._call_flat(list(given), captured_inputs=concrete.captured_inputs)

    return tf.function(call, autograph=False).get_concrete_function(*specs)


def _flat_arguments(base: Any, concrete: Any, args: tuple, kwargs: dict[str, Any]) -> list[Any]:
    if base is not None:
        bound = _type_utils.canonicalize_function_inputs(
            args,
            kwargs,
            base._function_type,
            base._default_values,
        )
        args, kwargs = bound.args, bound.kwargs
    bound = concrete.function_type.bind(*args, **kwargs)
    return concrete.function_type.unpack_inputs(bound)


def result_count(concrete: Any) -> int:
    """How many tensors the function returns; a gradient taken of it adds others to its graph."""
    return concrete._delayed_rewrite_functions._num_inference_outputs


def function_like(base: Any, run: Any) -> Any:
    """A ``tf.function`` around ``run`` that retraces when and as ``base`` does."""

    def traced(*args, **kwargs):
        return run(*args, **kwargs)

    python_function = base.python_function
    functools.update_wrapper(traced, python_function)
    return tf.function(
        traced,
        input_signature=base.input_signature,
        autograph=False,
        reduce_retracing=base._reduce_retracing,
    )


def keras_step_cell(function: Any) -> Any:
    """The closure cell of a Keras train function that holds its compiled single step, or None.

    Keras closes the function that it runs on a batch into one that unwraps optional inputs; what
    stands in that cell is all that ``fit`` and ``train_on_batch`` call, at any steps_per_execution.
    """
    wrapper = _cell(inspect.unwrap(function), "one_step_on_data")
    return None if wrapper is None else _cell(wrapper.cell_contents, "step_func")


def _cell(function: Any, name: str) -> Any:
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    return function.__closure__[names.index(name)] if name in names else None
