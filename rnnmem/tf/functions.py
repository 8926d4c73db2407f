"""ConcreteFunction -> Net, and Net -> ConcreteFunction with the same face."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterable

import tensorflow as tf

from rnnmem.errors import NotUnderstood
from rnnmem.net.nouns import FunctionRef, Net
from rnnmem.tf import private
from rnnmem.tf.exporter import export_graph_def, tensor_names
from rnnmem.tf.importer import import_graph_def

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_LIBRARIES = (sysconfig.get_paths()["purelib"], sysconfig.get_paths()["stdlib"], _OWN)


def net_of(concrete) -> Net:
    """The Net of a traced function; its inputs are the arguments, then the captures.

    Raises:
      NotUnderstood: the graph holds something that a Net cannot.
    """
    graph = concrete.graph
    if list(graph.deferred_external_captures):
        raise NotUnderstood("the function captures a value that is only known at each call")
    graph_def = graph.as_graph_def(add_shapes=True)
    return import_graph_def(
        graph_def,
        [tensor.name for tensor in graph.inputs],
        [tensor.name for tensor in graph.outputs],
        [op.name for op in graph.control_outputs],
        name=tf.compat.as_str(concrete.name),
        source_of=_SourceLines(graph),
    )


def function_of(net: Net, concrete):
    """A ConcreteFunction that runs ``net`` behind the signature and captures of ``concrete``."""
    original = concrete.graph
    graph = private.new_func_graph(original.name)
    graph_def = export_graph_def(net, _closed_functions(net, original))
    for function in graph_def.library.function:
        private.register_function(function)
    with graph.as_default():
        placeholders = [_placeholder(tensor) for tensor in original.inputs]
        given = dict(zip(net.inputs, placeholders, strict=True))
        read = {blob: given[blob] for blob in net.inputs if blob in net.readers}
        tf.graph_util.import_graph_def(graph_def, input_map=read, name="")
    captured = {id(internal): external for external, internal in original.captures}
    arguments = [
        placeholder
        for tensor, placeholder in zip(original.inputs, placeholders, strict=True)
        if id(tensor) not in captured
    ]
    graph.inputs = arguments
    for tensor, placeholder in zip(original.inputs, placeholders, strict=True):
        if id(tensor) in captured:
            graph.add_capture(captured[id(tensor)], placeholder)
    written = tensor_names(net)
    results = [
        given[blob] if blob in given else graph.get_tensor_by_name(written[blob])
        for blob in net.outputs
    ]
    for old, new in zip(original.outputs, results, strict=False):
        private.copy_handle_data(old, new)
    graph.inputs = list(placeholders)
    graph.outputs = results
    graph.control_outputs = [graph.get_operation_by_name(name) for name in net.control_outputs]
    graph.structured_input_signature = original.structured_input_signature
    graph.structured_outputs = tf.nest.pack_sequence_as(
        original.structured_outputs,
        _structured(original, results),
        expand_composites=True,
    )
    graph.variables = original.variables
    return private.concrete_function(graph, concrete, _attributes(concrete))


def _placeholder(tensor: tf.Tensor) -> tf.Tensor:
    made = tf.compat.v1.placeholder(
        tensor.dtype, tensor.shape, name=tensor.op.name.replace("/", "_")
    )
    private.copy_attribute("_user_specified_name", tensor.op, made.op)
    private.copy_handle_data(tensor, made)
    return made


def _structured(original, results):
    """The flat structured outputs, with None where the function returned None."""
    remaining = iter(results)
    return [
        next(remaining) if isinstance(leaf, tf.Tensor) else leaf
        for leaf in tf.nest.flatten(original.structured_outputs, expand_composites=True)
    ]


def _attributes(concrete) -> dict[str, object]:
    """The function attributes that change how it runs (e.g. that XLA must compile it)."""
    definition = concrete.function_def
    return {
        name: value
        for name, value in definition.attr.items()
        if name not in ("_input_shapes", "_construction_context")
    }


def _closed_functions(net: Net, graph: tf.Graph) -> list:
    """The library functions that ops of the Net refer to without their being step nets."""
    library = {
        function.signature.name: function for function in graph.as_graph_def().library.function
    }
    wanted = [
        ref.name for _, inner in net.walk() for op in inner.ops for ref in _refs(op.attributes)
    ]
    found = {}
    while wanted:
        name = wanted.pop()
        if name in found or name not in library:
            continue
        found[name] = library[name]
        for node in library[name].node_def:
            wanted.append(node.op)
            for value in node.attr.values():
                wanted += [value.func.name] if value.HasField("func") else []
                wanted += [ref.name for ref in value.list.func]
    return list(found.values())


def _refs(attributes) -> Iterable[FunctionRef]:
    for key, value in attributes.items():
        if key.startswith("_name_of/"):
            continue
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, FunctionRef):
                yield item


class _SourceLines:
    """Finds the user's line of an op: the innermost frame outside installed libraries."""

    def __init__(self, graph: tf.Graph):
        self.graph = graph
        self.graphs = {"": graph}

    def __call__(self, function: str, op_name: str) -> str:
        if function not in self.graphs:
            self.graphs[function] = private.graph_of_function(self.graph, function)
        graph = self.graphs[function]
        if graph is None:
            return ""
        try:
            op = graph.get_operation_by_name(op_name)
        except KeyError:
            return ""
        for frame in reversed(op.traceback or ()):
            if not frame.filename.startswith(_LIBRARIES):
                return f"{os.path.basename(frame.filename)}:{frame.lineno}"
        return ""
