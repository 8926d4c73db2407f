"""A traced function in two: forward, and gradient."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import concrete_function as _concrete_function
from tensorflow.python.framework import func_graph as _func_graph
from tensorflow.python.ops import gradients_util as _gradients_util

from rnnmem.ir.op_table import LOOPS


class Halves:
    """A function in two: a forward that also returns what its gradient reads, and that gradient.

    An eager tape keeps the same, and besides zeros like every accumulator of every loop.
    """

    def __init__(self, concrete: Any, places: list[int], sources: list[tf.Tensor]):
        """Takes the gradient of a function; the function's own graph gets more outputs by it.

        Args:
          concrete: a ConcreteFunction.
          places: which of its outputs have a gradient.
          sources: inputs of its graph, captures included, whose gradients are wanted.
        """
        graph = concrete.graph
        self._results = len(graph.outputs)
        targets = [graph.outputs[place] for place in places]
        gradient = _func_graph.FuncGraph(f"{graph.name}_gradient")

        def differentiate(*upstream):
            with tf.device(None):
                found = _gradients_util._GradientsHelper(
                    targets, sources, grad_ys=upstream, src_graph=graph
                )
            return [None if one is None else tf.convert_to_tensor(one) for one in found]

        with graph.as_default():
            _func_graph.func_graph_from_py_func(
                name=gradient.name,
                python_func=differentiate,
                args=[],
                kwargs={},
                signature=[tf.TensorSpec(one.shape, one.dtype) for one in targets],
                func_graph=gradient,
            )
        _make_zeros_last(gradient)
        read = gradient.external_captures
        inside = [one for one in read if getattr(one, "graph", None) is graph]
        known = {id(one) for one in (*graph.outputs, *graph.inputs)}
        graph.outputs.extend(one for one in inside if id(one) not in known)
        place_of = {id(one): i for i, one in enumerate((*graph.outputs, *graph.inputs))}
        self._read = [(place_of.get(id(one)), one) for one in read]
        self._concrete = concrete
        self._forward, self._backward = _concrete_function._create_forward_backward_with_graph(
            concrete._attrs,
            graph,
            gradient,
        )
        self.connected = [one is not None for one in gradient.structured_outputs]

    def forward(self, inputs: list[tf.Tensor]) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """The function's own results, and what ``backward`` reads."""
        given = [*inputs, *self._concrete.captured_inputs]
        outputs = self._forward.call_flat(*given)
        held = [*outputs, *given]
        kept = [one if place is None else held[place] for place, one in self._read]
        return list(outputs[: self._results]), kept

    def backward(self, upstream: list[tf.Tensor], kept: list[tf.Tensor]) -> list:
        """The gradients of the sources, None where none of the outputs depends on one."""
        return self._backward._call_flat(upstream, kept)


def _make_zeros_last(graph: Any) -> None:
    """Has the zeros that loops start with wait until the other values at their start are made.

    Both are independent, so that without this it is a race whether the zeros, a sequence of them
    among others, lie beside what the other values are made of.
    """
    for loop in graph.get_operations():
        if loop.type not in LOOPS:
            continue
        made = [
            one.op for one in loop.inputs if one.op.type != "Placeholder" and one.op.type != "Const"
        ]
        makers = dict.fromkeys(made)  # in order, so that the graph is the same in every process
        zeros = {op: None for op in makers if op.type == "ZerosLike" or op.type == "Fill"}
        others = [op for op in makers if op not in zeros and not zeros.keys() & _before(op)]
        for op in zeros:
            op._add_control_inputs(others)


def _before(op: tf.Operation) -> set[tf.Operation]:
    """The ops whose results an op waits for, directly or not."""
    found: set[tf.Operation] = set()
    left = [op]
    while left:
        one = left.pop()
        for source in (*(tensor.op for tensor in one.inputs), *one.control_inputs):
            if source not in found:
                found.add(source)
                left.append(source)
    return found
