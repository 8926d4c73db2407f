"""The lines of the user's code that errors of a rewritten function name."""

from __future__ import annotations

import os
import sys
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import graph_debug_info_pb2 as _graph_debug_info_pb2
from tensorflow.python.autograph.impl import api as _autograph
from tensorflow.python.eager import context as _context
from tensorflow.python.eager.polymorphic_function import atomic_function as _atomic_function
from tensorflow.python.framework import function as _function
from tensorflow.python.ops.parallel_for import pfor as _pfor

import rnnmem

_INSIDE = tuple(
    os.path.dirname(os.path.abspath(file)) + os.sep for file in (rnnmem.__file__, tf.__file__)
)
"""Folders of files that no user wrote: rnnmem's and TensorFlow's."""


class _WithLines(_atomic_function.AtomicFunction):
    """A rewritten function whose errors name the lines that made the original's ops."""

    __slots__ = ()

    @property
    def graph(self):
        """The function's FuncGraph; where TensorFlow vectorises a call of it, the original's."""
        vectorises = sys._getframe(1).f_globals.get("__name__") == _pfor.__name__
        if vectorises and hasattr(self, "rnnmem_vectorised_as"):
            return self.rnnmem_vectorised_as
        return super().graph

    @property
    def graph_debug_info(self):
        """Node -> the stack that made it; TensorFlow asks for it where a node has failed."""
        try:
            return _debug_info(self.rnnmem_rewritten)
        except Exception:  # the user's error must be told, with lines or without
            return super().graph_debug_info


class _StepNet(_WithLines, _function._DefinedFunction):
    """A step net of a rewritten function: TensorFlow looks for the failed node in it by name.

    It stands for a function that is registered for good, so nothing is removed when it goes. For
    exporters it is what it was, a function that came out of a GraphDef.
    """

    def __init__(self, name: str | bytes, around: Any):
        self._name = tf.compat.as_bytes(name)
        self._bound_context = _context.context()
        self._children: list[Any] = []
        self._cached_graph = self.rnnmem_rewritten = around

    def __del__(self):
        pass

    def __repr__(self):
        return f"_StepNet({self._name!r})"

    @property
    def graph(self):
        """There is none; TensorFlow asks for it and goes on without."""
        raise AttributeError("a step net of a rewritten function has no FuncGraph")


def tell_lines_of(function: Any, *originals: Any) -> None:
    """Has errors of a function name lines of the FuncGraphs that it was rewritten from."""
    graph = function._cached_graph
    graph.rnnmem_originals = originals
    function.rnnmem_rewritten = graph
    function.__class__ = _WithLines
    function._children = [
        one if isinstance(one, _atomic_function.AtomicFunction) else _StepNet(one.name, graph)
        for one in function.children
    ]


def _debug_info(graph: Any) -> Any:
    """The stacks of the ops that a rewritten FuncGraph and its step nets have from others."""
    known: dict[str, tf.Operation] = {}
    for original in graph.rnnmem_originals:
        _collect_ops(original, known)
    info = _graph_debug_info_pb2.GraphDebugInfo()
    files: dict[str, int] = {}
    for name in _node_names(graph.as_graph_def()):
        op = _original_of(name, known)
        frames = () if op is None else _users_frames(op)
        if not frames:
            continue
        trace = info.name_to_trace_id[name] = len(info.traces_by_id) + 1
        for frame in frames:
            number = len(info.frames_by_id) + 1
            info.frames_by_id[number].file_index = files.setdefault(frame.filename, len(files))
            info.frames_by_id[number].line = frame.lineno
            info.frames_by_id[number].func = frame.name
            info.traces_by_id[trace].frame_id.append(number)
    info.files.extend(files)
    return info


def _collect_ops(graph: Any, known: dict[str, tf.Operation]) -> None:
    """Name -> op, of a FuncGraph and of the functions that it calls."""
    for op in graph.get_operations():
        known.setdefault(op.name, op)
    for function in graph._functions.values():
        inner = getattr(function, "_cached_graph", None)
        for one in getattr(inner, "rnnmem_originals", (inner,)):
            if one is not None:
                _collect_ops(one, known)


def _node_names(graph_def: Any) -> set[str]:
    inside = (node for one in graph_def.library.function for node in one.node_def)
    return {node.name for node in (*graph_def.node, *inside)}


def _original_of(name: str, known: dict[str, tf.Operation]) -> tf.Operation | None:
    """The op that a node was, before the function was inlined that it stood in, or it was cloned.

    Either puts something in front of its name.
    """
    while name:
        if name in known:
            return known[name]
        name = name.partition("/")[2]
    return None


def _users_frames(op: tf.Operation) -> list:
    return [one for one in op.traceback or () if not one.filename.startswith(_INSIDE)]


def written_at(filename: str, line: int) -> tuple[str, int]:
    """Where the user wrote a line of code that AutoGraph generated; other lines stay as they are.

    TensorFlow maps such lines itself, but not those of a converted function that another returns.
    """
    if "__autograph_generated_file" not in filename:
        return filename, line
    for factories in list(_autograph._TRANSPILER._cache._cache.values()):
        for factory in factories.values():
            for place, origin in (factory.source_map or {}).items():
                if place.filename == filename and place.lineno == line:
                    return origin.loc.filename, origin.loc.lineno
    return filename, line
