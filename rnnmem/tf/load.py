"""A GraphDef file, a SavedModel or a function as a Net."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf
from google.protobuf import text_format
from google.protobuf.message import DecodeError

from rnnmem.errors import NetError, OptionError
from rnnmem.ir.graph import Net
from rnnmem.ir.inline import inline
from rnnmem.ir.order import without_pruned_ops
from rnnmem.tf import private
from rnnmem.tf.functions import net_of
from rnnmem.tf.importer import import_graph_def

_SAVED_MODEL = "saved_model.pb"


def load_net(source: Any, *, signature: str | None = None) -> Net:
    """Reads a Net, with the functions that it calls inlined.

    Args:
      source: the path of a SavedModel's folder, of a GraphDef in binary (``.pb``) or in text
        (``.pbtxt``); or a ``ConcreteFunction``, or a ``tf.function`` with one trace or an input
        signature. A GraphDef's inputs are its placeholders, its outputs what no op reads.
      signature: which signature of a SavedModel; by default ``serving_default``, or the only one.

    Raises:
      OptionError: there is no such file, function or signature.
      NetError: the file is no GraphDef.
      NotUnderstood: the graph holds something that a Net cannot.
    """
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        if os.path.isdir(path):
            model = saved_model(path)
            return _net(signature_of(model, path, signature))
        if not os.path.isfile(path):
            raise OptionError(f"source={path!r}: there is no such file or folder")
        return _net_of_file(path)
    if private.is_concrete(source):
        return _net(source)
    if private.is_polymorphic(source):
        return _net(_only_trace(source))
    raise OptionError(
        f"source={source!r} must be a path, a tf.function or a ConcreteFunction; trace a Python "
        "function with tf.function(fn).get_concrete_function(...)"
    )


def saved_model(path: str) -> Any:
    """A loaded SavedModel.

    Raises:
      OptionError: there is none.
    """
    if not os.path.isfile(os.path.join(path, _SAVED_MODEL)):
        raise OptionError(f"source={path!r} is no SavedModel: it holds no {_SAVED_MODEL}")
    return tf.saved_model.load(path)


def signature_of(model: Any, path: str, signature: str | None = None) -> Any:
    """A signature of a loaded SavedModel: by default ``serving_default``, or the only one.

    Raises:
      OptionError: the model, which came from ``path``, has none of that name.
    """
    signatures = model.signatures
    name = signature
    if name is None:
        name = next(iter(signatures)) if len(signatures) == 1 else "serving_default"
    if name not in signatures:
        raise OptionError(
            f"signature={signature!r}: {path!r} has {', '.join(sorted(signatures)) or 'none'}"
        )
    found = signatures[name]
    found.__name__ = name  # what explain and report call it
    return found


def _net(concrete: Any) -> Net:
    return without_pruned_ops(inline(net_of(concrete)))


def _only_trace(function: Any) -> Any:
    if function.input_signature is not None:
        return function.get_concrete_function()
    traces = private.traces(function)
    if len(traces) != 1:
        raise OptionError(
            f"source={function!r} has {len(traces)} traces: pass one of them, "
            "fn.get_concrete_function(...)"
        )
    return traces[0]


def _net_of_file(path: str) -> Net:
    graph_def = tf.compat.v1.GraphDef()
    with open(path, "rb") as file:
        content = file.read()
    try:
        if path.endswith((".pbtxt", ".txt")):
            text_format.Parse(content.decode(), graph_def)
        else:
            graph_def.ParseFromString(content)
    except (DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
        raise NetError(f"{path!r} holds no GraphDef: {error}") from error
    if not graph_def.node:
        raise NetError(f"{path!r} holds no GraphDef: it has no nodes")
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(graph_def, name="")
    ops = graph.get_operations()
    inputs = [
        op.outputs[0].name for op in ops if op.type.startswith("Placeholder") and not op.inputs
    ]
    results = [
        tensor.name
        for op in ops
        for tensor in op.outputs
        if not tensor.consumers() and tensor.name not in inputs
    ]
    waited = {other.name for op in ops for other in op.control_inputs}
    effects = [op.name for op in ops if not op.outputs and op.name not in waited]
    name = os.path.basename(path).partition(".")[0]
    shaped = graph.as_graph_def(add_shapes=True)
    net = import_graph_def(shaped, inputs, results, effects, name=name)
    return without_pruned_ops(inline(net))
