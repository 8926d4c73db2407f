"""What TensorFlow's graph optimizer makes of a function, found out without running it.

The runtime optimizes a function before it looks whether the call was cancelled meanwhile, and gives
what it optimized to whoever collects graphs.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import function_pb2, graph_pb2
from tensorflow.python.eager import cancellation as _cancellation
from tensorflow.python.eager import context as _context
from tensorflow.python.eager.polymorphic_function import atomic_function as _atomic_function
from tensorflow.python.framework import function_def_to_graph as _function_def_to_graph

_copies = itertools.count()


def optimized_graph(function: Any, inputs: Sequence[Any]) -> graph_pb2.GraphDef | None:
    """The function as it would run: loops and branches lowered, calls inlined, all optimized.

    Args:
      function: a function of the runtime that has not run yet; it does not run now.
      inputs: the tensors that it takes; None for one that only its type matters of.

    Returns:
      The graph; None where TensorFlow does not tell.
    """
    return _collected(function, inputs) if _is_told_without_a_run() else None


def optimized_copy(function: Any, inputs: Sequence[Any]) -> graph_pb2.GraphDef | None:
    """The same of a copy of the function, so that nothing of it is left in the runtime."""
    return _copied(function.graph, len(function.function_type.flat_outputs), inputs)


def optimized_body(
    definition: function_pb2.FunctionDef, results: Sequence[int]
) -> tuple[graph_pb2.GraphDef | None, Any]:
    """The same of a function that others call, with some of its results, and its FuncGraph."""
    graph = _function_def_to_graph.function_def_to_graph(definition)
    graph.outputs = [graph.outputs[place] for place in results]
    return _copied(graph, len(results), [None] * len(graph.inputs)), graph


def function_definition(name: str) -> function_pb2.FunctionDef | None:
    """A function that the runtime knows."""
    context = _context.context()
    return context.get_function_def(name) if context.has_function(name) else None


def optimized_nodes(graph: Any) -> list[Any] | None:
    """Ops of a FuncGraph in the order in which TensorFlow lists them; None: it needs a call."""
    captured = [outside for outside, _ in graph.captures]
    given = graph.inputs[: len(graph.inputs) - len(captured)]
    if (
        not tf.executing_eagerly()
        or list(graph.deferred_external_captures)
        or any(one.dtype in (tf.resource, tf.variant) for one in given)
        or any(tf.is_symbolic_tensor(tensor) for tensor in captured)
    ):
        return None
    found = _copied(graph, len(graph.outputs), [None] * len(given) + captured)
    return None if found is None else list(found.node)


def _copied(graph: Any, results: int, inputs: Sequence[Any]) -> graph_pb2.GraphDef | None:
    if not _is_told_without_a_run():
        return None
    outputs = graph.outputs
    name = f"__rnnmem_optimized_{next(_copies)}"
    graph.outputs = outputs[:results]  # a gradient that was taken of it has added others
    try:
        copied = _atomic_function.from_func_graph(name, graph, {}, overwrite=True)
    finally:
        graph.outputs = outputs
    return _collected(copied, inputs)


@functools.cache
def _is_told_without_a_run() -> bool:
    """Tried with a function of no matter, for nobody promises it."""
    runs = tf.Variable(0, trainable=False)
    concrete = tf.function(lambda: runs.assign_add(1)).get_concrete_function()
    found = _collected(concrete._inference_function, concrete.captured_inputs)
    return found is not None and runs.numpy() == 0


def _collected(function: Any, inputs: Sequence[Any]) -> graph_pb2.GraphDef | None:
    call = _cancellation.CancellationManager()
    call.start_cancel()
    context = _context.context()
    results = len(function.function_type.flat_outputs)
    context.enable_graph_collection()
    try:
        given = [_tensor(*one) for one in zip(inputs, function.graph.inputs, strict=True)]
        _tell(context)
        with _cancellation.CancellationManagerContext(call):
            # Not `call_flat`: it would look for the user's lines, for the error's message.
            context.call_function(function.name, given, results)
    except tf.errors.CancelledError:
        found = [one.post_optimization_graph for one in _tell(context).function_graphs]
    except tf.errors.OpError:
        return None
    finally:
        context.disable_graph_collection()
    return next((one for one in found if _results(one) == results), None)


def _tell(context: Any) -> Any:
    """What was collected so far, which the runtime hands out after the next op."""
    tf.identity(tf.zeros(()))
    return context.export_run_metadata()


def _results(graph: graph_pb2.GraphDef) -> int:
    return sum(node.op == "_Retval" for node in graph.node)


def _tensor(given: Any, kind: Any) -> Any:
    """The tensor, or one of the type without content."""
    if given is not None:
        return given
    if kind.dtype == tf.variant:
        shape = tf.constant([], tf.int32)
        return tf.raw_ops.EmptyTensorList(
            element_shape=shape, max_num_elements=0, element_dtype=tf.float32
        )
    if kind.dtype == tf.resource:
        return tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="rnnmem/nothing")
    return tf.constant("") if kind.dtype == tf.string else tf.zeros((), kind.dtype)
