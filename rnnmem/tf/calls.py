"""Calls that TensorFlow's graph optimizer leaves calls: what it makes of the functions behind them.

It leaves those that have several implementations, one of which a device is given, as Keras 2 has of
an LSTM and a GRU (``api_implements``); and takes out results that nobody reads, and constants that
are given (``function_optimizer.cc``), which the call in the optimized graph has no more.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

from tensorflow.core.framework import graph_pb2, node_def_pb2

from rnnmem.ir.graph import Net, Op
from rnnmem.ir.inline import inline
from rnnmem.ir.op_table import CALLS, types
from rnnmem.ir.order import through_identities, without_dead_ops
from rnnmem.tf import private
from rnnmem.tf.importer import import_graph_def
from rnnmem.verify.flat_graph import FlatOp, Output, called_ops

Flat = Callable[[node_def_pb2.NodeDef], FlatOp]
_SPECIALIZED = "_specialized_for_"
_COMPILED = "_XlaMustCompile"
_CONSTANTS = types("fills") - {"Fill"} | {"Const"}
"""Op types whose numbers are known before any run, but for how many there are."""


def opened(optimized: graph_pb2.GraphDef, graph: Any, flat: Flat) -> list[FlatOp]:
    """The ops of an optimized graph; in the place of a call stand the ops of its function.

    Args:
      optimized: what became of the function.
      graph: its FuncGraph, as it was traced.
      flat: makes an op of a node.
    """
    before = functools.cache(functools.partial(_net, graph))
    ops: list[FlatOp] = []
    given: dict[Output, Output] = {}
    for node in optimized.node:
        op = flat(node)
        found = _inside(node, op, graph, before, flat) if node.op in CALLS else None
        if found is None:
            ops.append(op)
        else:
            ops += found[0]
            given |= found[1]
    return [op.reading(given) for op in ops] if given else ops


def _net(graph: Any) -> Net:
    """The traced function with what is still a call behind the optimizer left one."""
    inputs, outputs = ([one.name for one in some] for some in (graph.inputs, graph.outputs))
    controls = [op.name for op in graph.control_outputs]
    return without_dead_ops(
        inline(import_graph_def(graph.as_graph_def(), inputs, outputs, controls))
    )


def _inside(
    node: node_def_pb2.NodeDef, call: FlatOp, graph: Any, before: Callable[[], Net], flat: Flat
) -> tuple[list[FlatOp], dict[Output, Output]] | None:
    """`called_ops` of a node; None where it is not known what the function was given."""
    called = private.function_definition(node.attr["f"].func.name.partition(_SPECIALIZED)[0])
    if called is None or called.attr[_COMPILED].b:
        return None
    arguments: Sequence[Output] = call.inputs
    constants: list[FlatOp] = []
    kept: Sequence[int] = range(len(called.signature.output_arg))
    if _SPECIALIZED in node.attr["f"].func.name:
        net = before()
        op = net.op_by_name.get(node.name)
        if op is None:
            return None
        arguments, constants = _arguments(call, op, net, graph, flat)
        kept = [at for at, blob in enumerate(op.outputs) if blob in {*net.readers, *net.outputs}]
    if len(arguments) != len(called.signature.input_arg) or len(kept) != len(call.dtypes):
        return None
    body, function = private.optimized_body(called, kept)
    ops = [] if body is None else opened(body, function, flat)
    found = called_ops(ops, call, arguments) if ops else None
    return None if found is None else ([*constants, *found[0]], found[1])


def _arguments(
    call: FlatOp, op: Op, net: Net, graph: Any, flat: Flat
) -> tuple[list[Output], list[FlatOp]]:
    """What a call was given before constants were taken out, and these; fewer where not clear."""
    found, constants, left = [], [], list(call.inputs)
    some_left_out = len(call.inputs) < len(op.inputs)
    for place, blob in enumerate(op.inputs):
        source = _number(blob, net) if some_left_out else None
        # What is filled to a size that is not known yet is no constant, and still given.
        if (
            source is None
            or left
            and left[0][0] == net.producer[through_identities(net, blob)].name
        ):
            found += left[:1]
            del left[:1]
        else:
            constant = flat(graph.get_operation_by_name(source.name).node_def)
            name = f"{call.name}//given_{place}"
            constants.append(dataclasses.replace(constant, name=name, inputs=()))
            found.append((name, 0))
    return ([], []) if left else (found, constants)


def _number(blob: str, net: Net) -> Op | None:
    """The op that says which one number a blob holds, which the optimizer makes a constant of."""
    source = net.producer.get(through_identities(net, blob))
    if source is not None and source.type == "Fill":
        source = net.producer.get(through_identities(net, source.inputs[1]))
    return source if source is not None and source.type in _CONSTANTS else None
