"""Whether what TensorFlow makes of a rewritten function does the original's arithmetic."""

from __future__ import annotations

import dataclasses
import logging
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2

from rnnmem.grappler.listing import name_in_net
from rnnmem.tf import private
from rnnmem.tf.calls import opened
from rnnmem.verify.arithmetic import FLOATS, Half, difference
from rnnmem.verify.flat_graph import FlatGraph, FlatOp
from rnnmem.verify.value_numbers import FILL

_LOG = logging.getLogger("rnnmem")

T = TypeVar("T")
_Optimized = Callable[[Any, Sequence[Any]], "graph_pb2.GraphDef | None"]
_NOT_ARITHMETIC = frozenset(
    """T N Tshape Tidx TI dtype shape container shared_name frame_name is_constant
    parallel_iterations element_shape output_shapes""".split()
)
"""Attributes that say nothing of how numbers are computed."""


def other_arithmetic(
    concrete: Any, rewritten: Any, of_nothing: Callable[[], Collection[str]] = tuple
) -> str | None:
    """The op of a rewritten function that TensorFlow lets do other arithmetic than the original's.

    Args:
      concrete: a ConcreteFunction.
      rewritten: that which is to run instead; it has not run yet.
      of_nothing: finds the names of sums, of both, that add nothing up; asked where they matter.

    Returns:
      The op's name; None where all results have the same bits, or where it cannot be found out.
    """

    def compare() -> str | None:
        before = _LATEST.of(concrete)
        if before is None:
            return None
        after = private.optimized_graph(rewritten._inference_function, _inputs(rewritten))
        if after is None:
            return None
        flat = before, _flat(after, rewritten.graph)
        if _difference(*flat) is None:
            return None
        names = of_nothing()
        return _difference(*(_handing_on(one, names) for one in flat))

    return _found_out(compare)


def ops_left(concrete: Any) -> tuple[str, ...]:
    """Names of the ops that TensorFlow makes of a function; none where it does not tell."""

    def names() -> tuple[str, ...]:
        known = _LATEST.of(concrete)
        return () if known is None else tuple(known.ops)

    return _found_out(names) or ()


def types_left(concrete: Any) -> dict[str, str]:
    """The types of those ops, by their paths in a Net; of ops with one path, of none of them."""
    known = _found_out(lambda: _LATEST.of(concrete))
    ops = () if known is None else known.ops.values()
    count = Counter(name_in_net(op.name) for op in ops)
    return {name: op.type for op in ops if count[name := name_in_net(op.name)] == 1}


def folds_constants() -> bool:
    """Whether TensorFlow's graph optimizer computes with constants, as it does by default."""
    options = tf.config.optimizer.get_experimental_options()
    return bool(options.get("constant_folding", True)) and not options.get("disable_meta_optimizer")


class _Latest:
    """What TensorFlow made of the original that was asked for last.

    One function is planned for again and again: for several budgets, or until its time is found.
    """

    def __init__(self) -> None:
        # One value, so that another thread's original is never taken for this one's.
        self._known: tuple[Callable[[], Any], str, FlatGraph | None] | None = None

    def of(self, concrete: Any) -> FlatGraph | None:
        """The optimized graph of a ConcreteFunction; None where TensorFlow does not tell."""
        options = repr(sorted(tf.config.optimizer.get_experimental_options().items()))
        known = self._known
        if known is not None and known[0]() is concrete and known[1] == options:
            return known[2]
        found = private.optimized_copy(concrete._inference_function, _inputs(concrete))
        flat = None if found is None else _flat(found, concrete.graph)
        self._known = weakref.ref(concrete, self._forget), options, flat
        return flat

    def _forget(self, dead: Any) -> None:
        if self._known is not None and self._known[0] is dead:
            self._known = None


_LATEST = _Latest()


def _difference(before: FlatGraph, after: FlatGraph) -> str | None:
    return difference([Half(before)], [Half(after)])


def _handing_on(graph: FlatGraph, of_nothing: Collection[str]) -> FlatGraph:
    """The graph in which sums that add nothing up hand on what they read."""
    return FlatGraph(
        dataclasses.replace(op, type="Identity", inputs=op.inputs[:1])
        if op.type == "Sum" and (op.name in of_nothing or _adds_nothing(graph, op))
        else op
        for op in graph.ops.values()
    )


def _adds_nothing(graph: FlatGraph, sum_of: FlatOp) -> bool:
    """Whether a sum is over the axes along which a shape is broadcast to itself, which are none."""
    axes = graph.ops[sum_of.inputs[1][0]]
    return axes.type == "BroadcastGradientArgs" and len(set(axes.inputs)) == 1


def other_gradient(concrete: Any, results: int, pair: Any, rewritten: Any) -> str | None:
    """The same where a function is differentiated later, by a pair of functions.

    Args:
      concrete: the function, whose captured inputs both pairs have.
      results: how many results it has; what else the forward functions return goes to the gradient.
      pair: TensorFlow's forward and backward function.
      rewritten: those that are to run instead.
    """

    def compare() -> str | None:
        befores = _halves(concrete, results, pair, private.optimized_copy)
        if not befores:
            return None
        afters = _halves(concrete, results, rewritten, private.optimized_graph)
        return difference(befores, afters) if afters else None

    return _found_out(compare)


def _found_out(ask: Callable[[], T | None]) -> T | None:
    try:
        with tf.init_scope():
            return ask() if tf.executing_eagerly() else None
    except Exception as error:  # nothing but the hearing of a difference depends on it
        _LOG.debug("not compared as TensorFlow runs it: %s: %s", type(error).__name__, error)
        return None


def _inputs(concrete: Any) -> list[Any]:
    """What the function captures, and None for each argument."""
    captured = list(concrete.captured_inputs)
    if any(tf.is_symbolic_tensor(one) for one in captured):
        raise ValueError("it captures tensors of a graph")
    return [None] * (len(concrete.inputs) - len(captured)) + captured


def _halves(concrete: Any, results: int, pair: Any, optimized: _Optimized) -> list[Half]:
    """The forward and the backward function of a pair; none where TensorFlow does not tell."""
    forward, backward = pair
    given = _inputs(concrete)
    first = optimized(forward, given)
    if first is None:
        return []
    outputs = {id(tensor): place for place, tensor in enumerate(forward.graph.outputs)}
    inputs = {id(tensor): place for place, tensor in enumerate(forward.graph.inputs)}
    captured = {id(inside): outside for outside, inside in backward.graph.captures}
    sources: dict[int, tuple[str, int]] = {}
    tensors: list[Any] = []
    for place, tensor in enumerate(backward.graph.inputs):
        outside = captured.get(id(tensor))
        known = None
        if outside is None:
            sources[place] = "gradient", place
        elif id(outside) in inputs:
            sources[place] = "argument", inputs[id(outside)]
            known = given[inputs[id(outside)]]
        elif id(outside) in outputs:
            sources[place] = "result", outputs[id(outside)]
        else:
            sources[place] = "capture", id(outside)
            known = None if tf.is_symbolic_tensor(outside) else outside
        tensors.append(known)
    second = optimized(backward._inference_function, tensors)
    if second is None:
        return []
    return [
        Half(_flat(first, forward.graph), results=results),
        Half(_flat(second, backward.graph), sources),
    ]


def _flat(optimized: graph_pb2.GraphDef, graph: Any) -> FlatGraph:
    return FlatGraph(opened(optimized, graph, _op))


def _op(node: node_def_pb2.NodeDef) -> FlatOp:
    dtypes = _dtypes(node)
    return FlatOp(
        name=node.name,
        type=node.op,
        inputs=tuple(_blob(name) for name in node.input if not name.startswith("^")),
        dtypes=dtypes,
        detail=_detail(node),
        value=_content(node) if node.op == "Const" and dtypes[0] in FLOATS else None,
        index=node.attr["index"].i if "index" in node.attr else 0,
        frame=node.attr["frame_name"].s.decode() if node.op == "Enter" else "",
        after=tuple(name.removeprefix("^") for name in node.input if name.startswith("^")),
    )


def _blob(name: str) -> tuple[str, int]:
    op, _, place = name.partition(":")
    return op, int(place or 0)


def _dtypes(node: node_def_pb2.NodeDef) -> tuple[str, ...]:
    found: list[int] = []
    definition = private.op_def(node.op)
    for output in definition.output_arg if definition is not None else ():
        if output.type_list_attr:
            found += node.attr[output.type_list_attr].list.type
            continue
        count = node.attr[output.number_attr].i if output.number_attr else 1
        found += [output.type or node.attr[output.type_attr].type] * count
    return tuple(tf.dtypes.as_dtype(one).base_dtype.name for one in found)


def _detail(node: node_def_pb2.NodeDef) -> tuple[tuple[str, bytes], ...]:
    """The attributes that say how numbers are computed, each as its bytes."""
    return tuple(
        (name, node.attr[name].SerializeToString(deterministic=True))
        for name in sorted(node.attr)
        if not name.startswith("_")
        and name not in _NOT_ARITHMETIC
        and node.attr[name].WhichOneof("value") != "func"  # a rewritten one has another name
    )


def _content(node: node_def_pb2.NodeDef) -> tuple[object, ...]:
    """What stands for a constant's numbers: its one value, or its shape and bytes."""
    array = tf.make_ndarray(node.attr["value"].tensor)
    if array.size and (array == array.flat[0]).all():
        return FILL, complex(array.flat[0]) if array.dtype.kind == "c" else float(array.flat[0])
    return array.shape, array.tobytes()
