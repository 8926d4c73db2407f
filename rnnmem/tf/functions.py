"""ConcreteFunction -> Net, and Net -> ConcreteFunction with the same face."""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sysconfig
from collections.abc import Iterable, Mapping
from importlib.util import find_spec

import tensorflow as tf

from rnnmem.errors import NotUnderstood
from rnnmem.grappler.boundaries import with_boundaries
from rnnmem.ir.awaited import with_awaited_results
from rnnmem.ir.graph import VARIABLE_SHAPES, FunctionRef, Net
from rnnmem.ir.lines import Written
from rnnmem.ir.op_table import LOOPS
from rnnmem.tf import private
from rnnmem.tf.exporter import export_graph_def, tensor_names
from rnnmem.tf.importer import NETS_OF, import_graph_def

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_FRAMEWORKS = [find_spec(name) for name in ("tensorflow", "keras")]
_LIBRARIES = (
    *(sysconfig.get_paths()[name] for name in ("purelib", "platlib", "stdlib")),
    _OWN,
    os.path.join(sysconfig.get_paths()["scripts"], "rnnmem"),  # the shell's script
    "<frozen ",  # what runs a module
    # Wherever they are: a user's own folder, the system's.
    *(os.path.dirname(one.origin) for one in _FRAMEWORKS if one and one.origin),
)


def net_of(concrete) -> Net:
    """The Net of a traced function; its inputs are the arguments, then the captures.

    Raises:
      NotUnderstood: the graph holds something that a Net cannot.
    """
    name = tf.compat.as_str(concrete.name)
    results = private.result_count(concrete)
    return _net(concrete.graph, name, results, private.is_compiled(concrete))


def net_of_graph(
    graph: tf.Graph, name: str, results: int | None = None, compiled: bool = False
) -> Net:
    """The Net of a FuncGraph, with its first ``results`` outputs (all by default).

    Args:
      graph: the FuncGraph.
      name: of the Net.
      results: how many outputs it has.
      compiled: whether XLA compiles it.

    Raises:
      NotUnderstood: the graph holds something that a Net cannot, or captures what changes.
    """
    if list(graph.deferred_external_captures):
        raise NotUnderstood("the function captures a value that is only known at each call")
    return _net(graph, name, results, compiled)


def _net(graph: tf.Graph, name: str, results: int | None, compiled: bool) -> Net:
    # XLA knows no optionals, through which the results of a call go that the device chose.
    undecided = compiled or tf.config.list_logical_devices("GPU")
    net = import_graph_def(
        graph.as_graph_def(add_shapes=True),
        [tensor.name for tensor in graph.inputs],
        [tensor.name for tensor in graph.outputs[:results]],
        [op.name for op in graph.control_outputs],
        name=name,
        source_of=_SourceLines(graph),
        device="" if undecided else "CPU",
    )
    handles = {
        blob: private.handle_shape(tensor)
        for blob, tensor in zip(net.inputs, graph.inputs, strict=True)
        if tensor.dtype == tf.resource
    }
    return net.replace(attributes={**net.attributes, VARIABLE_SHAPES: handles})


def function_of(net: Net, concrete):
    """A ConcreteFunction that runs ``net`` behind the signature and captures of ``concrete``."""
    original = concrete.graph
    if not any(op.stateful for op in net.ops):  # a call of it has no control outputs
        net = with_awaited_results(net)
    graph, tensors = new_graph(net, original.name, original.inputs, [original])
    capture_like(original, graph)
    private.copy_call_time_captures(
        original, graph, dict(zip(map(id, original.inputs), graph.inputs, strict=True))
    )
    graph.outputs = [tensors[blob] for blob in net.outputs]
    for old, new in zip(original.outputs, graph.outputs, strict=False):
        private.copy_handle_data(old, new)
    graph.structured_input_signature = original.structured_input_signature
    graph.structured_outputs = structured_like(original, graph.outputs)
    graph.variables = original.variables
    made = private.concrete_function(graph, concrete, _attributes(concrete))
    return private.vectorise_as(made, concrete)


def same_function(concrete):
    """The same function under another name, so that its random ops start from their seeds.

    Where TensorFlow took a gradient of the function, its graph has more outputs than the function
    returns; then it is given back as it is.
    """
    if len(concrete.graph.outputs) != private.result_count(concrete):
        return concrete
    return private.concrete_function(concrete.graph, concrete, _attributes(concrete))


def new_graph(net: Net, name: str, likes, originals, names: Mapping[str, str] | None = None):
    """A FuncGraph that holds the Net, its inputs and control outputs set.

    Args:
      net: the Net.
      name: the graph's name.
      likes: for each input of the Net, a tensor whose dtype, shape and handle data it takes.
      originals: graphs whose library holds the functions that ops of the Net call closed.
      names: name of such a tensor -> what the input is called; all others are called as it is.

    Returns:
      The graph, and a map from every blob of the Net that is an input or output to its tensor.
    """
    net = with_boundaries(net)
    graph = private.new_func_graph(name)
    graph_def = export_graph_def(net, _closed_functions(net, originals))
    private.add_functions(graph_def.library, graph)
    graph_def.ClearField("library")
    with graph.as_default():
        graph.inputs = [_placeholder(tensor, (names or {}).get(tensor.name)) for tensor in likes]
        tensors = dict(zip(net.inputs, graph.inputs, strict=True))
        # An input that no op reads is refused in an input map.
        read = {blob: tensors[blob] for blob in net.inputs if blob in net.readers}
        tf.graph_util.import_graph_def(graph_def, input_map=read, name="")
    for op in graph.get_operations():
        if op.type in LOOPS:
            for before, after in zip(op.inputs, op.outputs, strict=True):
                private.copy_handle_data(before, after)
    private.let_pfor_look_inside(graph, frozenset(NETS_OF))
    written = tensor_names(net)
    for blob in net.outputs:
        if blob not in tensors:
            tensors[blob] = graph.get_tensor_by_name(written[blob])
    graph.control_outputs = [graph.get_operation_by_name(name) for name in net.control_outputs]
    return graph, tensors


def add_captures(graph, captures) -> None:
    """Declares inputs of the graph to be captures: pairs of what is captured and its placeholder.

    The order of the inputs stays: arguments first, then captures.
    """
    inputs = list(graph.inputs)
    internal = {id(placeholder) for _, placeholder in captures}
    graph.inputs = [tensor for tensor in inputs if id(tensor) not in internal]
    for external, placeholder in captures:
        graph.add_capture(external, placeholder)
    graph.inputs = inputs


def capture_like(original, graph) -> None:
    """Lets ``graph`` capture what ``original`` does; their inputs are the same, in order."""
    captured = {id(internal): external for external, internal in original.captures}
    add_captures(
        graph,
        [
            (captured[id(tensor)], placeholder)
            for tensor, placeholder in zip(original.inputs, graph.inputs, strict=True)
            if id(tensor) in captured
        ],
    )


def structured_like(original, results):
    """The results in the structure of the original's, with None where it returned None."""
    remaining = iter(results)
    flat = [
        next(remaining) if isinstance(leaf, (tf.Tensor, tf.TensorArray)) else leaf
        for leaf in tf.nest.flatten(original.structured_outputs, expand_composites=True)
    ]
    return tf.nest.pack_sequence_as(original.structured_outputs, flat, expand_composites=True)


def _placeholder(tensor: tf.Tensor, name: str | None) -> tf.Tensor:
    made = tf.compat.v1.placeholder(
        tensor.dtype, tensor.shape, name=name or tensor.op.name.replace("/", "_")
    )
    private.copy_attribute("_user_specified_name", tensor.op, made.op)
    private.copy_handle_data(tensor, made)
    return made


def _attributes(concrete) -> dict[str, object]:
    """The function attributes that change how it runs (e.g. that XLA must compile it)."""
    definition = concrete.function_def
    return {
        name: value
        for name, value in definition.attr.items()
        if name not in ("_input_shapes", "_construction_context")
    }


def _closed_functions(net: Net, originals) -> list:
    """The library functions that ops of the Net refer to without their being step nets."""
    wanted = [
        ref.name for _, inner in net.walk() for op in inner.ops for ref in _refs(op.attributes)
    ]
    if not wanted:
        return []
    library = {
        function.signature.name: function
        for graph in originals
        for function in graph.as_graph_def().library.function
    }
    found = {}
    while wanted:
        name = wanted.pop()
        if name in found or name not in library:
            continue
        found[name] = library[name]
        for node in library[name].node_def:
            wanted.append(node.op)
            for _, value in sorted(node.attr.items(), key=lambda entry: entry[0]):
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
        self.written: dict[tuple[str, int], tuple[str, int]] = {}

    def __call__(self, function: str, op_name: str) -> str:
        place = self._place(function, op_name)
        if place is None:
            return ""
        text = f"{os.path.basename(place[0])}:{place[1]}"
        return Written(text, functools.partial(_function_at, *place))

    def _place(self, function: str, op_name: str) -> tuple[str, int] | None:
        if function not in self.graphs:
            self.graphs[function] = private.graph_of_function(self.graph, function)
        graph = self.graphs[function]
        if graph is None:
            return None
        try:
            op = graph.get_operation_by_name(op_name)
        except KeyError:
            return None
        for frame in reversed(op.traceback or ()):
            if not frame.filename.startswith(_LIBRARIES):
                place = frame.filename, frame.lineno
                if place not in self.written:
                    self.written[place] = private.written_at(*place)
                return self.written[place]
        return None


def _function_at(filename: str, line: int) -> str:
    """The innermost function in whose text a line of a file stands; empty where there is none."""
    around = [
        span for span in _functions_in("".join(linecache.getlines(filename))) if line in span[0]
    ]
    return max(around, key=lambda span: span[0].start)[1] if around else ""


@functools.lru_cache(maxsize=8)
def _functions_in(text: str) -> tuple[tuple[range, str], ...]:
    """The lines of each Python function in a text, and its name."""
    try:
        tree = ast.parse(text)
    except Exception:  # no Python, or deeper than its parser goes: a name is not worth an error
        return ()
    return tuple(
        (range(node.lineno, (node.end_lineno or node.lineno) + 1), node.name)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
