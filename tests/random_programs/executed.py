"""What TensorFlow executes in a call: graphs, as its graph optimizer left them, and eager ops."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context as _context
from tensorflow.python.framework import op_callbacks as _op_callbacks

from rnnmem.tf.private import optimized

_NAMED = re.compile(r'^ *(?:name|input|s): ".*"$', re.MULTILINE)
_NUMBER = re.compile(r"\d+")
CALLS = 4
"""What is called may choose, call by call, what it runs."""


def executed(call: Callable[[], Any]) -> tuple[frozenset[str], tuple[str, ...]]:
    """The graphs of some calls, of which the first traces, and one more's eager ops in order."""
    return _graphs(call), _eager_ops(call)


def _eager_ops(call: Callable[[], Any]) -> tuple[str, ...]:
    found: list[str] = []

    def note(op_type: str, *_given: Any, graph: Any = None, **_named: Any) -> None:
        if graph is None:
            found.append(_NUMBER.sub("", op_type))

    _op_callbacks.add_op_callback(note)
    try:
        call()
    finally:
        _op_callbacks.remove_op_callback(note)
    return tuple(found)


def _graphs(call: Callable[[], Any]) -> frozenset[str]:
    """Every graph that calls make TensorFlow optimize and run, as a text.

    Numbers in names count all that the process ever traced; here they count those of the graph, in
    the order in which they occur. All else, and the order of ops, is as it runs. A function that
    ran before is not told of: the first call must trace anew. What rnnmem has optimized to compare
    it, and does not run, is left out.
    """
    context = _context.context()
    found: list[Any] = []
    probe = optimized._collected

    def set_aside(*given: Any) -> Any:
        found.extend(_told(context))
        try:
            return probe(*given)
        finally:
            context.enable_graph_collection()
            _told(context)

    optimized._collected = set_aside
    context.enable_graph_collection()
    try:
        _told(context)
        for _ in range(CALLS):
            call()
        found.extend(_told(context))
    finally:
        optimized._collected = probe
        context.disable_graph_collection()
    return frozenset(_text(one) for one in found if len(one.node))


def _text(graph: Any) -> str:
    for node in graph.node:
        node.ClearField("experimental_debug_info")
    numbers: dict[str, str] = {}

    def counted(number: re.Match[str]) -> str:
        return numbers.setdefault(number[0], f"#{len(numbers)}")

    return _NAMED.sub(lambda line: _NUMBER.sub(counted, line[0]), str(graph))


def _told(context: Any) -> list[Any]:
    """What was collected since the last time; the runtime hands it out after the next op."""
    tf.identity(tf.zeros(()))
    told = context.export_run_metadata()
    return [] if told is None else [one.post_optimization_graph for one in told.function_graphs]
