"""What TensorFlow's graph optimizer makes of a function that does not run for it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.eager import cancellation as _cancellation
from tensorflow.python.eager import context as _context
from tensorflow.python.eager.polymorphic_function import atomic_function as _atomic_function


def optimized_nodes(graph: Any) -> list[Any] | None:
    """NodeDefs of a FuncGraph in the order in which TensorFlow lists them; None: it needs a call.

    A function is optimized before TensorFlow looks whether its call was cancelled meanwhile.
    """
    captured = [outside for outside, _ in graph.captures]
    given = [tensor.dtype for tensor in graph.inputs[: len(graph.inputs) - len(captured)]]
    if (
        not tf.executing_eagerly()
        or list(graph.deferred_external_captures)
        or any(dtype in (tf.resource, tf.variant) for dtype in given)
        or any(tf.is_symbolic_tensor(tensor) for tensor in captured)
    ):
        return None
    name = f"__only_optimized_{graph.name}_{id(graph)}"
    function = _atomic_function.from_func_graph(name, graph, {}, overwrite=True)
    call = _cancellation.CancellationManager()
    call.start_cancel()
    context = _context.context()
    context.enable_run_metadata()
    try:
        with _cancellation.CancellationManagerContext(call):
            function.call_flat(*(tf.zeros((), dtype) for dtype in given), *captured)
    except tf.errors.CancelledError:
        tf.identity(tf.zeros(()))  # what is known of a cancelled call is told after the next one
        graphs = [
            one.post_optimization_graph for one in context.export_run_metadata().function_graphs
        ]
    except tf.errors.OpError:
        return None  # nor could it run
    finally:
        context.disable_run_metadata()
    found = [list(one.node) for one in graphs if _results(one) == len(graph.outputs)]
    return max(found, key=len, default=None)


def _results(graph_def: Any) -> int:
    return sum(node.op in ("_Retval", "_DeviceRetval") for node in graph_def.node)
