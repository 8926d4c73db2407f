"""Net -> GraphDef with its function library."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import tensorflow as tf
from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2

from rnnmem.ir.graph import FunctionRef, Net, Op
from rnnmem.tf import signatures
from rnnmem.tf.attributes import dtype_enum, encode

_fresh = itertools.count()


def export_graph_def(net: Net, closed_functions=()) -> graph_pb2.GraphDef:
    """Writes a Net as a GraphDef whose step nets are library functions under fresh names.

    The Net's inputs stay open: each is to be given by an input map when the graph is imported.
    Fresh names are needed because a name that the process knows silently runs the old body.

    Args:
      net: the Net.
      closed_functions: FunctionDefs that ops refer to and that are handed on as they are.
    """
    graph_def = graph_pb2.GraphDef()
    graph_def.versions.producer = tf.version.GRAPH_DEF_VERSION
    graph_def.library.function.extend(closed_functions)
    writer = _Writer(graph_def.library)
    written = tensor_names(net)
    for op in net.ops:
        writer.node(op, graph_def.node.add(), written.__getitem__, net)
    return graph_def


def tensor_names(net: Net) -> dict[str, str]:
    """Blob -> the name that a graph gives its tensor, ``op:index``; inputs keep theirs."""
    names = {blob: blob for blob in net.inputs}
    for op in net.ops:
        names.update({blob: f"{op.name}:{index}" for index, blob in enumerate(op.outputs)})
    return names


class _Writer:
    def __init__(self, library):
        self.library = library
        self.names: dict[int, str] = {}
        self.kept: list[Net] = []  # so that no id() is used twice

    def node(self, op: Op, node: node_def_pb2.NodeDef, input_name, net: Net) -> None:
        """Fills in a NodeDef for an op of ``net``."""
        node.name, node.op, node.device = op.name, op.type, op.device
        node.input.extend(input_name(blob) for blob in op.inputs)
        node.input.extend(f"^{name}" for name in op.controls)
        lists: dict[str, list[tuple[int, FunctionRef]]] = {}
        for key, value in op.attributes.items():
            if key.startswith("_name_of/"):
                label = key.removeprefix("_name_of/")
                ref = _renamed(value, self.function(op.nets[label]))
                stem, _, position = label.partition("/")
                if position:
                    lists.setdefault(stem, []).append((int(position), ref))
                else:
                    node.attr[label].CopyFrom(encode(ref))
            elif key == "_class":
                if marks := _colocated(value, net):
                    node.attr[key].CopyFrom(encode(marks))
            else:
                node.attr[key].CopyFrom(encode(value))
        for stem, refs in lists.items():
            ordered = tuple(ref for _, ref in sorted(refs, key=lambda pair: pair[0]))
            node.attr[stem].CopyFrom(encode(ordered))

    def function(self, net: Net) -> str:
        """The name of the library function that holds ``net``; written on first use."""
        if id(net) not in self.names:
            self.kept.append(net)
            self.names[id(net)] = f"{_stem(net.name)}_rnnmem_{next(_fresh)}"
            self.library.function.append(self._function_def(net, self.names[id(net)]))
        return self.names[id(net)]

    def _function_def(self, net: Net, name: str) -> function_pb2.FunctionDef:
        function = function_pb2.FunctionDef()
        signature = function.signature
        signature.name = name
        argument_attributes = net.attributes.get("argument_attributes", ())
        for position, blob in enumerate(net.inputs):
            signature.input_arg.add(name=blob, type=dtype_enum(net.blobs[blob].dtype))
            if position < len(argument_attributes):
                for key, value in argument_attributes[position].items():
                    function.arg_attr[position].attr[key].CopyFrom(encode(value))
        names = _FunctionNames(net)
        for position, blob in enumerate(net.outputs):
            signature.output_arg.add(name=f"r{position}", type=dtype_enum(net.blobs[blob].dtype))
            function.ret[f"r{position}"] = names(blob)
        for position, waited in enumerate(net.control_outputs):
            signature.control_output.append(f"c{position}")
            function.control_ret[f"c{position}"] = waited
        for key, value in net.attributes.get("attributes", {}).items():
            function.attr[key].CopyFrom(encode(value))
        for op in net.ops:
            self.node(op, function.node_def.add(), names, net)
        signature.is_stateful = any(signatures.is_stateful(node.op) for node in function.node_def)
        return function


class _FunctionNames:
    """Blob name -> the way a FunctionDef writes it."""

    def __init__(self, net: Net):
        self.written: Mapping[str, str] = {blob: blob for blob in net.inputs}
        for op in net.ops:
            position = 0
            for group, dtypes in signatures.result_groups(op.type, op.attributes):
                for index in range(len(dtypes)):
                    self.written[op.outputs[position]] = f"{op.name}:{group}:{index}"
                    position += 1

    def __call__(self, blob: str) -> str:
        return self.written[blob]


def _colocated(marks: tuple[bytes, ...], net: Net) -> tuple[bytes, ...]:
    """The colocation marks without those for arguments, which are no ops of the Net."""
    start = b"loc:@"
    return tuple(
        mark
        for mark in marks
        if not mark.startswith(start) or mark[len(start) :].decode() in net.op_by_name
    )


def _renamed(ref: FunctionRef, name: str) -> FunctionRef:
    attribute = encode(ref)
    attribute.func.name = name
    return FunctionRef(name, attribute.func.SerializeToString(deterministic=True))


def _stem(name: str) -> str:
    return name.partition("_rnnmem_")[0]
