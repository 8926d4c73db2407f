"""Every private TensorFlow name that rnnmem uses stands in this file, and nowhere else."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context as _context
from tensorflow.python.eager.polymorphic_function import concrete_function as _concrete_function
from tensorflow.python.framework import auto_control_deps as _auto_control_deps  # noqa: F401
from tensorflow.python.framework import func_graph as _func_graph
from tensorflow.python.framework import op_def_registry as _op_def_registry
from tensorflow.python.ops import handle_data_util as _handle_data_util


def eager_context_is_initialized() -> bool:
    """Whether TensorFlow ran its first op, after which allocator settings are read no more."""
    context = _context.context_safe()
    # A property would initialize the context, so the field itself is read.
    return context is not None and context._initialized


def op_def(op_type: str):
    """The OpDef that TensorFlow registers for an op type, or None."""
    return _op_def_registry.get(op_type)


def register_function(function_def) -> None:
    """Makes a FunctionDef callable from eager code; an unregistered one crashes the process."""
    _context.context().ensure_initialized()
    _context.context().add_function_def(function_def)


def new_func_graph(name: str):
    """An empty FuncGraph."""
    return _func_graph.FuncGraph(name)


def copy_handle_data(source: tf.Tensor, target: tf.Tensor) -> None:
    """Tells ``target`` what the resource or variant behind ``source`` holds."""
    _handle_data_util.copy_handle_data(source, target)


def copy_attribute(name: str, source: tf.Operation, target: tf.Operation) -> None:
    """Gives ``target`` the attribute that ``source`` has, where it has it."""
    if name in source.node_def.attr:
        target._set_attr(name, source.node_def.attr[name])  # noqa: SLF001


def concrete_function(graph: Any, function_type: Any, attributes: dict[str, Any]):
    """A ConcreteFunction over a finished FuncGraph."""
    return _concrete_function.ConcreteFunction.from_func_graph(graph, function_type, attributes)


def graph_of_function(graph: tf.Graph, name: str) -> tf.Graph | None:
    """The FuncGraph that Python still holds behind a library function, where it does."""
    function = graph._get_function(name)  # noqa: SLF001
    return getattr(function, "graph", None)
