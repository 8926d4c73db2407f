"""Vectorisation (``pfor``), which looks inside functions that came from a library."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context as _context
from tensorflow.python.framework import func_graph as _func_graph
from tensorflow.python.framework import function_def_to_graph as _function_def_to_graph
from tensorflow.python.ops import gradients_impl as _gradients_impl
from tensorflow.python.ops import handle_data_util as _handle_data_util
from tensorflow.python.ops.parallel_for import control_flow_ops as _parallel_for
from tensorflow.python.ops.parallel_for import pfor as _pfor

from rnnmem.ir.op_table import CALLS, LOOPS, PUTS, TAKES, UNWRAP, WRAP


def let_pfor_look_inside(graph: Any, callers: frozenset[str]) -> None:
    """Lets TensorFlow vectorise a graph, as jacobians and ``tf.vectorized_map`` do.

    It asks for the FuncGraph of each loop's body; functions that came from a library have none, so
    one is made once it is asked for.

    Args:
      graph: a finished FuncGraph.
      callers: the types of ops that run functions, e.g. "While".
    """
    for op in graph.get_operations():
        if op.type in callers:
            op.pfor_converter = functools.partial(_vectorised, callers)


def vectorise_as(concrete: Any, original: Any) -> Any:
    """Has a call of the function vectorised as one of ``original`` would be.

    Args:
      concrete: a ConcreteFunction that computes the same from the same inputs; edited in place.
      original: a ConcreteFunction, with the same inputs in the same order.
    """
    concrete._inference_function.rnnmem_vectorised_as = original.graph
    return concrete


def _vectorised(callers: frozenset[str], pfor_input: Any) -> Any:
    """TensorFlow's vectorisation of an op that runs functions, which it can look inside."""
    seen = _SeenInside(pfor_input.op, callers)
    convert = _pfor._pfor_converter_registry[seen.type]
    return convert(_pfor._PforInput(pfor_input.pfor, seen, pfor_input.inputs))


def _vectorised_or_in_turn(pfor_input: Any) -> Any:
    """TensorFlow's vectorisation of a call; where it has none for what is inside, a loop of calls.

    A list can not be handed to such a loop: it would be one for each of the calls.
    """
    try:
        return _pfor._pfor_converter_registry[pfor_input.op_type](pfor_input)
    except Exception as error:
        stacked = [one.t for one in pfor_input.inputs if one.is_stacked]
        if any(one.dtype == tf.variant for one in (*stacked, *pfor_input.outputs)):
            raise
        return _pfor._fallback_converter(pfor_input, root_cause=str(error))


class _SeenInside:
    """An op that runs functions, with a FuncGraph behind each of them."""

    def __init__(self, op: tf.Operation, callers: frozenset[str]):
        self._op = op
        self._callers = callers
        self._found: dict[str, _Inside] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._op, name)

    @property
    def graph(self) -> Any:
        """Stands for the graph where a function is looked up by its name."""
        return self

    def _get_function(self, name: str | bytes) -> Any:
        label = tf.compat.as_str(name)
        if label not in self._found:
            known = self._op.graph._get_function(label)
            self._found[label] = (
                known
                if hasattr(known, "graph")
                else _Inside(_read_function(label, _arguments_like(self._op), self._callers))
            )
        return self._found[label]


class _Inside:
    """What TensorFlow's vectorisation asks of a function."""

    def __init__(self, graph: Any):
        self.graph = graph
        self.function_type = self
        self.flat_outputs = list(graph.outputs)


def _arguments_like(op: tf.Operation) -> list[tf.Tensor]:
    """Tensors like what an op gives its functions; those are the last of its inputs."""
    # What a loop begins with may have a narrower shape than what its body reads.
    return list(op.outputs if op.type in LOOPS else op.inputs)


def _read_function(name: str, likes: list[tf.Tensor], callers: frozenset[str]) -> Any:
    """The FuncGraph of a registered function.

    Its ops are made one after the other, because what a list holds is handed on as they are made.
    """
    with _context.eager_mode():
        definition = _context.context().get_function_def(name)
        graph_def, names = _function_def_to_graph.function_def_to_graph_def(definition)
    count = len(definition.signature.input_arg)
    graph = _func_graph.FuncGraph(name)
    made: dict[str, tf.Operation] = {}

    def tensor(written: str) -> tf.Tensor:
        op, _, index = written.rpartition(":")
        return made[op].outputs[int(index)]

    with graph.as_default():
        for node, like in zip(graph_def.node[:count], likes[len(likes) - count :], strict=True):
            placeholder = tf.compat.v1.placeholder(like.dtype, like.shape, name=node.name)
            _show_holdings(like, placeholder)
            made[node.name] = placeholder.op
            graph.inputs.append(placeholder)
        for node in _in_order(graph_def.node[count:], made):
            awaited = [made[one[1:]] for one in node.input if one.startswith("^")]
            inputs = [tensor(one) for one in node.input if not one.startswith("^")]
            with graph.control_dependencies(awaited):
                op = graph._create_op_internal(
                    node.op, inputs, name=node.name, attrs=dict(node.attr)
                )
            made[node.name] = op
            if op.type == UNWRAP:
                _show_shapes(op)
            _show_lists_in_lists(op)
            if op.type in callers:
                op.pfor_converter = functools.partial(_vectorised, callers)
                _tell_what_lists_hold(op, callers)
        graph.outputs = [
            tensor(names[definition.ret[one.name]]) for one in definition.signature.output_arg
        ]
        graph.control_outputs = [made[one] for one in definition.control_ret.values()]
    return graph


def _show_shapes(op: tf.Operation) -> None:
    """Hands on shapes behind a barrier: TensorFlow makes a batch of a matrix of unknown rank."""
    source = op.inputs[0].op
    if source.type == WRAP:
        for value, shown in zip(source.inputs, op.outputs, strict=True):
            shown.set_shape(value.shape)


def _in_order(nodes: Any, given: Any) -> Iterator[Any]:
    """NodeDefs, each after those that it reads or waits for."""
    left = {node.name: node for node in nodes}
    done = set(given)
    stack = list(reversed(nodes))
    while stack:
        node = stack[-1]
        needed = {one.lstrip("^").partition(":")[0] for one in node.input} - done
        if node.name in done or not needed:
            stack.pop()
            if node.name not in done:
                done.add(node.name)
                yield node
        else:
            stack += [left[one] for one in sorted(needed)]


def _tell_what_lists_hold(op: tf.Operation, callers: frozenset[str]) -> None:
    """Hands on what the lists among an op's results hold, which TensorFlow leaves to its makers."""
    if all(one.dtype != tf.variant for one in op.outputs):
        return
    attributes = op.node_def.attr
    first = next(
        attributes[one] for one in ("body", "f", "then_branch", "branches") if one in attributes
    )
    name = (first.list.func[0] if first.HasField("list") else first.func).name
    sources = _read_function(name, list(op.inputs), callers).outputs
    for source, target in zip(sources, op.outputs, strict=True):
        _show_holdings(source, target)


def _show_lists_in_lists(op: tf.Operation) -> None:
    """Hands on what lists hold that are put into lists and taken out again.

    TensorFlow's lists know the shapes of what they hold, but nothing of lists among it; its own
    gradients are told by those who make them. A matrix of unknown rank would become a batch.
    """
    if op.type in ("Identity", *TAKES, *PUTS) and op.inputs[0].dtype == tf.variant:
        _show_element(op.outputs[0], _element_of(op.inputs[0]))
    if op.type in PUTS and op.inputs[PUTS[op.type]].dtype == tf.variant:
        _show_element(op.outputs[0], op.inputs[PUTS[op.type]])
    if op.type == "TensorListPopBack":
        taken, element = op.outputs[1], _element_of(op.inputs[0])
        if element is not None:
            _show_holdings(element, taken)


def _show_holdings(source: tf.Tensor, target: tf.Tensor) -> None:
    """Tells the target what a resource or list like it holds, lists in lists included."""
    _handle_data_util.copy_handle_data(source, target)
    _show_element(target, _element_of(source))


def _element_of(held: tf.Tensor) -> tf.Tensor | None:
    """A list that stands for those in a list, if any was seen to be put there."""
    return getattr(held, "_rnnmem_element", None)


def _show_element(held: tf.Tensor, element: tf.Tensor | None) -> None:
    if element is not None:
        held._rnnmem_element = element


def vectorise_call(gradient: Any) -> None:
    """Has the call that a gradient comes from vectorised, or made for one row after the other."""
    if isinstance(gradient, tf.Tensor) and gradient.op.type in CALLS:
        gradient.op.pfor_converter = _vectorised_or_in_turn


def is_vectorised_or_differentiated_again(graph: tf.Graph) -> bool:
    """Whether a gradient in the graph is asked for by a jacobian, a vectorised map or a hessian.

    Where loops are vectorised, sums fuse otherwise around what was recomputed.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is _gradients_impl.hessians.__code__:
            return True
        if frame.f_code is _parallel_for._pfor_impl.__code__:
            variable = frame.f_locals.get("loop_var")
            if variable is not None and variable.graph is graph:
                return True
        frame = frame.f_back
    return False
