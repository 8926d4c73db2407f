"""FuncGraphs: what a copy of one needs beside its ops."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.core.framework import op_def_pb2 as _op_def_pb2
from tensorflow.python.eager import context as _context
from tensorflow.python.framework import func_graph as _func_graph
from tensorflow.python.framework import function as _function

from rnnmem.ir.op_table import LOOPS


def new_func_graph(name: str):
    """An empty FuncGraph."""
    return _func_graph.FuncGraph(name)


def add_functions(library: Any, graph: Any) -> None:
    """Gives a FuncGraph the functions of a library, which eager code can call from then on too.

    They are the runtime's own: with its library an imported GraphDef would leave two more copies of
    each, and a third of all of it. A function that the runtime lacks would end the process.
    """
    context = _context.context()
    context.ensure_initialized()
    for definition in library.function:
        context.add_function_def(definition)
        made = _function._from_definition(definition)
        made._c_func = context.get_c_function(definition.signature.name)
        # A part of a message keeps the whole.
        made._op_def = _op_def_pb2.OpDef.FromString(definition.signature.SerializeToString())
        graph._add_function(made)


def run_loops_in_turn(graph: Any) -> None:
    """Has the loops of a graph that is being traced run one iteration at a time.

    The loops of its gradient, which TensorFlow makes later, do so too.
    """
    for op in graph.get_operations():
        if op.type in LOOPS:
            op._set_attr("parallel_iterations", tf.compat.v1.AttrValue(i=1))


def copy_attribute(name: str, source: tf.Operation, target: tf.Operation) -> None:
    """Gives ``target`` the attribute that ``source`` has, where it has it."""
    if name in source.node_def.attr:
        target._set_attr(name, source.node_def.attr[name])


def copy_call_time_captures(source: Any, target: Any, stands_for: dict[int, tf.Tensor]) -> None:
    """Gives a FuncGraph the captures of another whose values are asked for at each call.

    A distribution strategy has them, to number its collective ops.

    Args:
      source: the FuncGraph that has them.
      target: the FuncGraph that is to have them.
      stands_for: id of a placeholder of ``source`` -> the one of ``target``.
    """
    captures = source._function_captures
    for key, closure in captures.by_ref_external.items():
        target._function_captures.add_or_replace(
            key=key,
            external=closure,
            internal=tf.nest.map_structure(
                lambda tensor: stands_for[id(tensor)], captures.by_ref_internal[key]
            ),
            tracetype=captures.by_ref_tracetype[key],
            is_by_ref=True,
        )


def graph_of_function(graph: tf.Graph, name: str) -> tf.Graph | None:
    """The FuncGraph that Python still holds behind a library function, where it does."""
    function = graph._get_function(name)
    return getattr(function, "graph", None)


def names_in_use(graph: Any) -> set[str]:
    """Names of ops and scopes that a FuncGraph, and those that it calls, gave away; lower case."""
    found: set[str] = set()
    seen: set[int] = set()
    pending = [graph]
    while pending:
        one = pending.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        found.update(one._names_in_use)
        pending += (getattr(each, "_cached_graph", None) for each in one._functions.values())
    return found
