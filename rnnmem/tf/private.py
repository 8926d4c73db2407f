"""Every private TensorFlow name that rnnmem uses stands in this file, and nowhere else."""

from __future__ import annotations

import copy
import dataclasses
import functools
import gc
import inspect
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import graph_debug_info_pb2 as _graph_debug_info_pb2
from tensorflow.core.function.polymorphism import function_cache as _function_cache
from tensorflow.python import pywrap_tfe as _pywrap_tfe
from tensorflow.python.autograph.impl import api as _autograph
from tensorflow.python.client import device_lib as _device_lib
from tensorflow.python.client import pywrap_tf_session as _pywrap_tf_session
from tensorflow.python.distribute import sharded_variable as _sharded_variable
from tensorflow.python.eager import backprop_util as _backprop_util
from tensorflow.python.eager import context as _context
from tensorflow.python.eager import execute as _execute
from tensorflow.python.eager import executor as _executor
from tensorflow.python.eager.polymorphic_function import atomic_function as _atomic_function
from tensorflow.python.eager.polymorphic_function import concrete_function as _concrete_function
from tensorflow.python.eager.polymorphic_function import function_type_utils as _type_utils
from tensorflow.python.eager.polymorphic_function import tracing_compilation as _tracing_compilation
from tensorflow.python.framework import func_graph as _func_graph
from tensorflow.python.framework import function as _function
from tensorflow.python.framework import function_def_to_graph as _function_def_to_graph
from tensorflow.python.framework import op_def_registry as _op_def_registry
from tensorflow.python.ops import gradients_impl as _gradients_impl
from tensorflow.python.ops import gradients_util as _gradients_util
from tensorflow.python.ops import handle_data_util as _handle_data_util
from tensorflow.python.ops import resource_variable_ops as _resource_variable_ops
from tensorflow.python.ops.parallel_for import control_flow_ops as _parallel_for
from tensorflow.python.ops.parallel_for import pfor as _pfor
from tensorflow.python.saved_model import function_deserialization as _function_deserialization
from tensorflow.python.saved_model import load as _saved_model_load
from tensorflow.tsl.profiler.protobuf import xplane_pb2 as _xplane_pb2

from rnnmem.ir.op_table import CALLS, LOOPS

_CHANGES = {"MemoryAllocation": "take", "MemoryDeallocation": "give"}


def eager_context_is_initialized() -> bool:
    """Whether TensorFlow ran its first op, after which allocator settings are read no more."""
    context = _context.context_safe()
    # A property would initialize the context, so the field itself is read.
    return context is not None and context._initialized


def new_executor() -> Any:
    """A queue of eager ops of its own: a remote worker runs each such queue beside the others."""
    return _executor.new_executor(enable_async=False)


def executor_scope(executor: Any) -> Any:
    """A context manager: eager ops of this thread go through the executor."""
    return _context.executor_scope(executor)


def retire(executor: Any) -> None:
    """Forgets the errors of a failed worker, and keeps the executor as long as the process.

    Calls to that worker which are still in flight end later, and write into the executor.
    """
    executor.clear_error()
    _retired.add(executor)


_retired: set[Any] = set()


def worker_addresses() -> dict[str, str]:
    """Every worker that TensorFlow is connected to: "/job:j/replica:0/task:i" -> "host:port"."""
    context = _context.context_safe()
    server = context._server_def if context is not None else None  # noqa: SLF001
    if server is None:
        return {}
    return {
        f"/job:{job.name}/replica:0/task:{task}": address
        for job in server.cluster.job
        for task, address in job.tasks.items()
        if (job.name, task) != (server.job_name, server.task_index)
    }


def move_keras_variable(variable: Any) -> Any:
    """Gives a Keras variable a new tf.Variable, of the same value, on the current device.

    Returns:
      The old tf.Variable; ``put_back`` takes it.
    """
    old = variable._value  # noqa: SLF001
    variable._value = tf.Variable(  # noqa: SLF001
        old.read_value(),
        dtype=old.dtype,
        trainable=old.trainable,
        name=old.name.split(":")[0],
        aggregation=old.aggregation,
        synchronization=old.synchronization,
    )
    return old


def put_back(variable: Any, old: Any) -> None:
    """Undoes ``move_keras_variable``."""
    variable._value = old  # noqa: SLF001


def run_loops_in_turn(graph: Any) -> None:
    """Has the loops of a graph that is being traced run one iteration at a time.

    The loops of its gradient, which TensorFlow makes later, do so too.
    """
    for op in graph.get_operations():
        if op.type in LOOPS:
            op._set_attr("parallel_iterations", tf.compat.v1.AttrValue(i=1))  # noqa: SLF001


class AllocationTrace:
    """TensorFlow's profiler, recording each request to its allocators and each release."""

    def __init__(self):
        """Starts recording; raises where another profile is being taken."""
        self._directory = tempfile.TemporaryDirectory()
        options = tf.profiler.experimental.ProfilerOptions(device_tracer_level=0)
        tf.profiler.experimental.start(self._directory.name, options)

    def stop(self) -> list[tuple[int, str, int, int]]:
        """What happened, by time.

        Returns:
          (picoseconds, "take", address, requested bytes), (..., "give", ...), and for each
          ``tf.profiler.experimental.Trace`` whose name starts with "rnnmem", (..., its name, 0, 0).
        """
        with self._directory as directory:
            tf.profiler.experimental.stop()
            files = list(pathlib.Path(directory).rglob("*.xplane.pb"))
            spaces = [_xplane_pb2.XSpace.FromString(file.read_bytes()) for file in files]
        planes = [plane for space in spaces for plane in space.planes]
        return sorted((one for plane in planes for one in _changes(plane)), key=lambda one: one[0])


def _changes(plane: Any) -> Iterator[tuple[int, str, int, int]]:
    kinds = {key: one.name for key, one in plane.event_metadata.items()}
    stats = {one.name: key for key, one in plane.stat_metadata.items()}
    for line in plane.lines:
        for event in line.events:
            kind = kinds[event.metadata_id]
            time = 1000 * line.timestamp_ns + event.offset_ps
            if kind.startswith("rnnmem"):
                yield time, kind, 0, 0
            elif kind in _CHANGES:
                held = {one.metadata_id: one.int64_value or one.uint64_value for one in event.stats}
                yield time, _CHANGES[kind], held[stats["addr"]], held[stats["requested_bytes"]]


def memory_limit(kind: str) -> int | None:
    """Bytes that TensorFlow may use of the first device of a kind ("GPU"), or None."""
    for device in _device_lib.list_local_devices():
        if device.device_type == kind:
            return device.memory_limit or None
    return None


def op_def(op_type: str):
    """The OpDef that TensorFlow registers for an op type, or None."""
    return _op_def_registry.get(op_type)


_INSIDE = tuple(
    os.path.dirname(os.path.abspath(file)) + os.sep
    for file in (os.path.dirname(__file__), tf.__file__)
)
"""Folders of files that no user wrote: rnnmem's and TensorFlow's."""


def register_function(function_def) -> None:
    """Makes a FunctionDef callable from eager code; an unregistered one crashes the process."""
    _context.context().ensure_initialized()
    _context.context().add_function_def(function_def)


def new_func_graph(name: str):
    """An empty FuncGraph."""
    return _func_graph.FuncGraph(name)


def copy_handle_data(source: tf.Tensor, target: tf.Tensor) -> None:
    """Tells ``target`` what the resource or variant behind ``source`` holds."""
    _handle_data_util.copy_handle_data(source, target)


def handle_shape(tensor: tf.Tensor) -> tuple[int | None, ...] | None:
    """The shape of the variable behind a resource; None where that is not known."""
    data = _handle_data_util.get_resource_handle_data(tensor)
    if not data.is_set or len(data.shape_and_type) != 1:
        return None
    shape = tf.TensorShape(data.shape_and_type[0].shape)
    return None if shape.rank is None else tuple(shape)


def handle_dtype(tensor: tf.Tensor) -> tf.DType | None:
    """The dtype of the variable behind a resource; None where that is not known."""
    data = _handle_data_util.get_resource_handle_data(tensor)
    if not data.is_set or len(data.shape_and_type) != 1:
        return None
    return tf.as_dtype(data.shape_and_type[0].dtype)


def copy_call_time_captures(source: Any, target: Any, stands_for: dict[int, tf.Tensor]) -> None:
    """Gives a FuncGraph the captures of another whose values are asked for at each call.

    A distribution strategy has them, to number its collective ops.

    Args:
      source: the FuncGraph that has them.
      target: the FuncGraph that is to have them.
      stands_for: id of a placeholder of ``source`` -> the one of ``target``.
    """
    captures = source._function_captures  # noqa: SLF001
    for key, closure in captures.by_ref_external.items():
        target._function_captures.add_or_replace(  # noqa: SLF001
            key=key,
            external=closure,
            internal=tf.nest.map_structure(
                lambda tensor: stands_for[id(tensor)], captures.by_ref_internal[key]
            ),
            tracetype=captures.by_ref_tracetype[key],
            is_by_ref=True,
        )


def copy_attribute(name: str, source: tf.Operation, target: tf.Operation) -> None:
    """Gives ``target`` the attribute that ``source`` has, where it has it."""
    if name in source.node_def.attr:
        target._set_attr(name, source.node_def.attr[name])  # noqa: SLF001


def concrete_function(graph: Any, original: Any, attributes: dict[str, Any]) -> Any:
    """A ConcreteFunction over a finished FuncGraph, called in the ways ``original`` is."""
    made = _concrete_function.ConcreteFunction.from_func_graph(
        graph, original.function_type, attributes
    )
    made._arg_keywords = original._arg_keywords  # noqa: SLF001
    made._num_positional_args = original._num_positional_args  # noqa: SLF001
    _tell_lines_of(made._inference_function, original.graph)  # noqa: SLF001
    return made


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
    concrete._inference_function.rnnmem_vectorised_as = original.graph  # noqa: SLF001
    return concrete


def _vectorised(callers: frozenset[str], pfor_input: Any) -> Any:
    """TensorFlow's vectorisation of an op that runs functions, which it can look inside."""
    seen = _SeenInside(pfor_input.op, callers)
    convert = _pfor._pfor_converter_registry[seen.type]  # noqa: SLF001
    return convert(_pfor._PforInput(pfor_input.pfor, seen, pfor_input.inputs))  # noqa: SLF001


def _vectorised_or_in_turn(pfor_input: Any) -> Any:
    """TensorFlow's vectorisation of a call; where it has none for what is inside, a loop of calls.

    A list can not be handed to such a loop: it would be one for each of the calls.
    """
    try:
        return _pfor._pfor_converter_registry[pfor_input.op_type](pfor_input)  # noqa: SLF001
    except Exception as error:
        stacked = [one.t for one in pfor_input.inputs if one.is_stacked]
        if any(one.dtype == tf.variant for one in (*stacked, *pfor_input.outputs)):
            raise
        return _pfor._fallback_converter(pfor_input, root_cause=str(error))  # noqa: SLF001


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
        name = tf.compat.as_str(name)
        if name not in self._found:
            known = self._op.graph._get_function(name)  # noqa: SLF001
            self._found[name] = (
                known
                if hasattr(known, "graph")
                else _Inside(_read_function(name, _arguments_like(self._op), self._callers))
            )
        return self._found[name]


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
            _handle_data_util.copy_handle_data(like, placeholder)
            made[node.name] = placeholder.op
            graph.inputs.append(placeholder)
        for node in _in_order(graph_def.node[count:], made):
            awaited = [made[one[1:]] for one in node.input if one.startswith("^")]
            inputs = [tensor(one) for one in node.input if not one.startswith("^")]
            with graph.control_dependencies(awaited):
                op = graph._create_op_internal(  # noqa: SLF001
                    node.op, inputs, name=node.name, attrs=dict(node.attr)
                )
            made[node.name] = op
            if op.type in callers:
                op.pfor_converter = functools.partial(_vectorised, callers)
                _tell_what_lists_hold(op, callers)
        graph.outputs = [
            tensor(names[definition.ret[one.name]]) for one in definition.signature.output_arg
        ]
        graph.control_outputs = [made[one] for one in definition.control_ret.values()]
    return graph


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
    sources = op.inputs
    if op.type not in LOOPS:
        attributes = op.node_def.attr
        first = next(
            attributes[one] for one in ("f", "then_branch", "branches") if one in attributes
        )
        name = (first.list.func[0] if first.HasField("list") else first.func).name
        sources = _read_function(name, list(op.inputs), callers).outputs
    for source, target in zip(sources, op.outputs, strict=True):
        _handle_data_util.copy_handle_data(source, target)


class _WithLines(_atomic_function.AtomicFunction):
    """A rewritten function whose errors name the lines that made the original's ops."""

    __slots__ = ()

    @property
    def graph(self):
        """The function's FuncGraph; where TensorFlow vectorises a call of it, the original's."""
        vectorises = sys._getframe(1).f_globals.get("__name__") == _pfor.__name__  # noqa: SLF001
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


class _StepNet(_WithLines, _function._DefinedFunction):  # noqa: SLF001
    """A step net of a rewritten function: TensorFlow looks for the failed node in it by name.

    It stands for a function that is registered for good, so nothing is removed when it goes. For
    exporters it is what it was, a function that came out of a GraphDef.
    """

    def __init__(self, name: str | bytes, around: Any):
        self._name = tf.compat.as_bytes(name)
        self._bound_context = _context.context()
        self._children = []
        self._cached_graph = self.rnnmem_rewritten = around

    def __del__(self):
        pass

    def __repr__(self):
        return f"_StepNet({self._name!r})"

    @property
    def graph(self):
        """There is none; TensorFlow asks for it and goes on without."""
        raise AttributeError("a step net of a rewritten function has no FuncGraph")


def _tell_lines_of(function: Any, *originals: Any) -> None:
    """Has errors of a function name lines of the FuncGraphs that it was rewritten from."""
    graph = function._cached_graph  # noqa: SLF001
    graph.rnnmem_originals = originals
    function.rnnmem_rewritten = graph
    function.__class__ = _WithLines
    function._children = [  # noqa: SLF001
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
    for function in graph._functions.values():  # noqa: SLF001
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


def graph_of_function(graph: tf.Graph, name: str) -> tf.Graph | None:
    """The FuncGraph that Python still holds behind a library function, where it does."""
    function = graph._get_function(name)  # noqa: SLF001
    return getattr(function, "graph", None)


def written_at(filename: str, line: int) -> tuple[str, int]:
    """Where the user wrote a line of code that AutoGraph generated; other lines stay as they are.

    TensorFlow maps such lines itself, but not those of a converted function that another returns.
    """
    if "__autograph_generated_file" not in filename:
        return filename, line
    for factories in list(_autograph._TRANSPILER._cache._cache.values()):  # noqa: SLF001
        for factory in factories.values():
            for place, origin in (factory.source_map or {}).items():
                if place.filename == filename and place.lineno == line:
                    return origin.loc.filename, origin.loc.lineno
    return filename, line


def is_concrete(fn: Any) -> bool:
    """Whether ``fn`` is a ConcreteFunction."""
    return isinstance(fn, _concrete_function.ConcreteFunction)


def is_polymorphic(fn: Any) -> bool:
    """Whether ``fn`` is a ``tf.function``."""
    return isinstance(fn, tf.types.experimental.PolymorphicFunction)


def is_compiled(concrete: Any) -> bool:
    """Whether XLA compiles the function as a whole."""
    mark = concrete.function_def.attr.get("_XlaMustCompile")
    return mark is not None and mark.b


def trace(base: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """The ConcreteFunction that the ``tf.function`` would run; found as fast as it finds it."""
    # A function that created variables runs traces of its second configuration, any other those of
    # its first; the other one would trace, and count random numbers, anew.
    created = base._created_variables  # noqa: SLF001
    config = (
        base._no_variable_creation_config  # noqa: SLF001
        if created
        else base._variable_creation_config  # noqa: SLF001
    )
    if config is None:
        return base.get_concrete_function(*args, **kwargs)
    return _tracing_compilation.trace_function(args, kwargs, config)


def flat_inputs(base: Any, concrete: Any, args: tuple, kwargs: dict[str, Any]) -> list[Any]:
    """The tensors that `call` would give the trace's inputs, in order; captures come last."""
    return [*_flat_arguments(base, concrete, args, kwargs), *concrete.captured_inputs]


def call(base: Any, concrete: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Calls one trace of the ``tf.function`` ``base``, or another with the same face, as it would.

    A ConcreteFunction alone does not know the defaults of the Python function behind it.
    """
    if base is None:
        return concrete(*args, **kwargs)
    flat = _flat_arguments(base, concrete, args, kwargs)
    return concrete._call_flat(flat, captured_inputs=concrete.captured_inputs)  # noqa: SLF001


def _flat_arguments(base: Any, concrete: Any, args: tuple, kwargs: dict[str, Any]) -> list[Any]:
    if base is not None:
        bound = _type_utils.canonicalize_function_inputs(
            args,
            kwargs,
            base._function_type,  # noqa: SLF001
            base._default_values,  # noqa: SLF001
        )
        args, kwargs = bound.args, bound.kwargs
    bound = concrete.function_type.bind(*args, **kwargs)
    return concrete.function_type.unpack_inputs(bound)


def result_count(concrete: Any) -> int:
    """How many tensors the function returns; a gradient taken of it adds others to its graph."""
    return concrete._delayed_rewrite_functions._num_inference_outputs  # noqa: SLF001


def with_gradient(concrete: Any, rewrite: Any) -> Any:
    """The same function, whose gradient comes from a rewritten pair of graphs.

    TensorFlow differentiates a call of a function inside a graph by a pair of functions that it
    makes on demand: a forward one that also returns intermediates, and a backward one.

    Args:
      concrete: a ConcreteFunction; it is left as it is.
      rewrite: called once with TensorFlow's ``(forward FuncGraph, backward FuncGraph)``; returns
        such a pair to use instead, or None to use the one given.
    """
    made = _concrete_function.ConcreteFunction(concrete._inference_function)  # noqa: SLF001
    made._arg_keywords = concrete._arg_keywords  # noqa: SLF001
    made._num_positional_args = concrete._num_positional_args  # noqa: SLF001
    made._delayed_rewrite_functions = _RewrittenGradient(concrete, rewrite)  # noqa: SLF001
    # An eager tape asks for no other pair, as long as no forward accumulator watches.
    made._first_order_tape_functions[False, ()] = _RewrittenForTape(  # noqa: SLF001
        concrete.graph,
        concrete._attrs,  # noqa: SLF001
        made._garbage_collector,  # noqa: SLF001
        forwardprop_input_indices=(),
        delayed_rewrite_functions=made._delayed_rewrite_functions,  # noqa: SLF001
        need_gradients_for_jvps=False,
    )
    return made


def differentiate_as(concrete: Any, original: Any) -> Any:
    """Has a call of the function inside a graph differentiated as one of ``original`` would be.

    Args:
      concrete: a ConcreteFunction that computes the same from the same inputs; edited in place.
      original: a ConcreteFunction.
    """
    maker = copy.copy(original._delayed_rewrite_functions)  # noqa: SLF001
    maker._inference_function = concrete._inference_function  # noqa: SLF001
    maker._gradient_name = None
    concrete._delayed_rewrite_functions = maker  # noqa: SLF001
    return concrete


class _RewrittenGradient(_concrete_function._DelayedRewriteGradientFunctions):  # noqa: SLF001
    """TensorFlow's maker of forward and backward functions, with a rewrite behind it."""

    def __init__(self, concrete, rewrite):
        self.__dict__.update(concrete._delayed_rewrite_functions.__dict__)  # noqa: SLF001
        self._cached_function_pairs = {}
        self._gradient_name = None
        self._original = concrete._delayed_rewrite_functions  # noqa: SLF001
        self._rewrite = rewrite

    def _construct_forward_backward(self, num_doutputs):
        if num_doutputs != self._num_inference_outputs:
            return super()._construct_forward_backward(num_doutputs)
        pair = self._original.forward_backward(num_doutputs)
        graphs = self._rewrite(self._original._func_graph, pair[1].graph)  # noqa: SLF001
        if graphs is None:
            return pair
        originals = self._original._func_graph, pair[1].graph  # noqa: SLF001
        self._func_graph, backward = graphs
        made = _concrete_function._create_forward_backward_with_graph(  # noqa: SLF001
            self._attrs, self._func_graph, backward
        )
        for one in (made[0], made[1]._inference_function):  # noqa: SLF001
            _tell_lines_of(one, *originals)
        return made

    def _rewrite_forward_and_call_backward(self, op, *doutputs):
        if self._is_left_to_tensorflow(op):
            return self._original._rewrite_forward_and_call_backward(op, *doutputs)  # noqa: SLF001
        # Once differentiated, a call has more outputs; nobody's gradient comes through those.
        count = self._num_inference_outputs
        forward, _ = self.forward_backward(count)
        again = len(op.outputs) <= len(forward.function_type.flat_outputs)
        if again and all(gradient is None for gradient in doutputs[count:]):
            doutputs = doutputs[:count]
        gradients = super()._rewrite_forward_and_call_backward(op, *doutputs)
        for gradient in gradients or ():
            _vectorise_call(gradient)
        return gradients

    def _is_left_to_tensorflow(self, op):
        """Whether TensorFlow's own pair differentiates a call; one that has a pair keeps it."""
        called = op.get_attr("f").name
        if called in _forward_names(self):
            return False
        if called in _forward_names(self._original):
            return True
        return _is_vectorised_or_differentiated_again(op.graph)


class _RewrittenForTape(_concrete_function._FirstOrderTapeGradientFunctions):  # noqa: SLF001
    """The pair for an eager call under a tape, rewritten.

    It is called as TensorFlow calls its own: through another function the arguments of loops would
    have other names, and sums that add them up another order.
    """

    def __init__(self, graph, *args, delayed_rewrite_functions, **kwargs):
        super().__init__(
            graph, *args, delayed_rewrite_functions=delayed_rewrite_functions, **kwargs
        )
        # A gradient that was taken of the function before may have added to what its graph returns.
        count = delayed_rewrite_functions._num_inference_outputs  # noqa: SLF001
        results = graph.outputs[:count]
        self._num_outputs = self._num_inference_outputs = count
        self._num_trainable_inference_outputs = len(
            [one for one in results if _backprop_util.IsTrainable(one)]
        )

    def _forward_and_backward_functions(self, inference_args, input_tangents):
        maker = self._delayed_rewrite_functions
        forward, backward = maker.forward_backward(self._num_inference_outputs)
        if maker._func_graph is self._func_graph:  # noqa: SLF001
            return super()._forward_and_backward_functions(inference_args, input_tangents)
        return forward, maker._func_graph, backward, None, 0  # noqa: SLF001

    def _wrap_backward_function(self, forward_graph, backward, outputs):
        run, recorded = super()._wrap_backward_function(forward_graph, backward, outputs)

        def run_or_vectorise(*gradients):
            found = run(*gradients)
            for one in () if tf.executing_eagerly() else found or ():
                _vectorise_call(one)
            return found

        return run_or_vectorise, recorded


def _vectorise_call(gradient: Any) -> None:
    """Has the call that a gradient comes from vectorised, or made for one row after the other."""
    if isinstance(gradient, tf.Tensor) and gradient.op.type in CALLS:
        gradient.op.pfor_converter = _vectorised_or_in_turn


def _forward_names(maker: Any) -> set[str]:
    pairs = maker._cached_function_pairs.values()  # noqa: SLF001
    return {tf.compat.as_str(forward.name) for forward, _ in pairs}


def _is_vectorised_or_differentiated_again(graph: tf.Graph) -> bool:
    """Whether a gradient in the graph is asked for by a jacobian, a vectorised map or a hessian.

    Where loops are vectorised, sums fuse otherwise around what was recomputed.
    """
    frame = sys._getframe()  # noqa: SLF001
    while frame is not None:
        if frame.f_code is _gradients_impl.hessians.__code__:
            return True
        if frame.f_code is _parallel_for._pfor_impl.__code__:  # noqa: SLF001
            variable = frame.f_locals.get("loop_var")
            if variable is not None and variable.graph is graph:
                return True
        frame = frame.f_back
    return False


def a_tape_is_active() -> bool:
    """Whether some gradient tape of this thread may be recording."""
    return not _pywrap_tfe.TFE_Py_TapeSetIsEmpty()


def higher_gradients_are_possible(concrete: Any, tensors: list[tf.Tensor]) -> bool:
    """Whether several tapes, or a persistent one, will record a call with these arguments."""
    for variable in concrete.graph.variables:
        _resource_variable_ops.variable_accessed(variable)  # as the call itself will
    tensors = [*tensors, *concrete.captured_inputs]
    kinds = _gradients_util.PossibleTapeGradientTypes(tensors)
    return kinds == _gradients_util.POSSIBLE_GRADIENT_TYPES_HIGHER_ORDER


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
                found = _gradients_util._GradientsHelper(  # noqa: SLF001
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
        self._forward, self._backward = _concrete_function._create_forward_backward_with_graph(  # noqa: SLF001
            concrete._attrs,  # noqa: SLF001
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
        return self._backward._call_flat(upstream, kept)  # noqa: SLF001


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
            op._add_control_inputs(others)  # noqa: SLF001


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


def force_gradient(concrete: Any) -> None:
    """Makes TensorFlow build the function's gradient now."""
    concrete._delayed_rewrite_functions.forward_backward()  # noqa: SLF001


def function_like(base: Any, run: Any) -> Any:
    """A ``tf.function`` around ``run`` that retraces when and as ``base`` does."""

    def traced(*args, **kwargs):
        return run(*args, **kwargs)

    python_function = base.python_function
    functools.update_wrapper(traced, python_function)
    return tf.function(
        traced,
        input_signature=base.input_signature,
        autograph=False,
        reduce_retracing=base._reduce_retracing,  # noqa: SLF001
    )


def keras_step_cell(function: Any) -> Any:
    """The closure cell of a Keras train function that holds its compiled single step, or None.

    Keras closes the function that it runs on a batch into one that unwraps optional inputs; what
    stands in that cell is all that ``fit`` and ``train_on_batch`` call, at any steps_per_execution.
    """
    wrapper = _cell(inspect.unwrap(function), "one_step_on_data")
    return None if wrapper is None else _cell(wrapper.cell_contents, "step_func")


def _cell(function: Any, name: str) -> Any:
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    return function.__closure__[names.index(name)] if name in names else None


def memory_limits() -> dict[str, int]:
    """Bytes that TensorFlow may use of each device but CPUs, e.g. {"GPU:0": 12 << 30}."""
    context = _context.context()
    context.ensure_initialized()
    devices = _pywrap_tfe.TFE_ContextListDevices(context._handle)  # noqa: SLF001
    limits = {}
    for index in range(_pywrap_tf_session.TF_DeviceListCount(devices)):
        name = _pywrap_tf_session.TF_DeviceListName(devices, index).rsplit("device:", 1)[-1]
        # What TensorFlow states for a CPU is a placeholder.
        if not name.startswith("CPU:"):
            limits[name] = _pywrap_tf_session.TF_DeviceListMemoryBytes(devices, index)
    return limits


def is_resource_variable(value: Any) -> bool:
    """Whether ``value`` is a variable behind one resource handle."""
    return isinstance(value, _resource_variable_ops.BaseResourceVariable)


def is_distributed(value: Any) -> bool:
    """Whether ``value`` stands for several variables, one for each replica or shard."""
    kinds = (tf.distribute.DistributedValues, _sharded_variable.ShardedVariableMixin)
    return isinstance(value, kinds)


def is_graph_variable(variable: Any) -> bool:
    """Whether the variable lives in a graph of TensorFlow 1."""
    return bool(getattr(variable, "_in_graph_mode", False))


def new_handle(variable: Any, dtype: tf.DType, device: str) -> tf.Tensor:
    """A handle of a fresh resource, which nothing was assigned to, for a variable that exists.

    Args:
      variable: its name, shape and marks are taken.
      dtype: what the resource will hold.
      device: where it will lie.
    """
    old = variable._handle  # noqa: SLF001
    name = variable._handle_name.partition(":")[0]  # noqa: SLF001
    with tf.device(device):
        handle = _resource_variable_ops._variable_handle_from_shape_and_dtype(  # noqa: SLF001
            variable.shape, dtype, None, name, False
        )
    # The parent, the name, the unique id: whatever TensorFlow or Keras wrote on the old one.
    handle.__dict__.update(old.__dict__)
    return handle


def set_handle(variable: Any, handle: tf.Tensor, dtype: tf.DType) -> None:
    """Puts another resource behind a variable; the Python object stays the same."""
    variable._handle = handle  # noqa: SLF001
    variable._dtype = dtype  # noqa: SLF001
    if getattr(variable, "_cached_value", None) is not None:
        with tf.device(variable._caching_device):  # noqa: SLF001
            variable._cached_value = tf.raw_ops.ReadVariableOp(  # noqa: SLF001
                resource=handle, dtype=dtype
            )


_EAGER_OP = "__wrapped__"
"""Starts the names of functions that TensorFlow makes of ops which it runs eagerly."""


@dataclasses.dataclass(frozen=True)
class Readers:
    """Traced functions that captured a tensor.

    Attributes:
      concretes: the ConcreteFunctions.
      cached: where a ``tf.function`` keeps one of them: its cache, and the key there.
      without_code: those that came from a SavedModel, so that nobody can trace them again.
    """

    concretes: list[Any]
    cached: list[tuple[Any, Any]]
    without_code: list[Any]


def readers_of(handles: set[int]) -> Readers:
    """Traced functions that captured any of these eager tensors.

    Args:
      handles: ids of eager tensors that are alive.
    """
    found = Readers([], [], [])
    if all(name.startswith(_EAGER_OP) for name in _context.context().list_function_names()):
        return found  # nothing was traced; to look at every object takes a while
    restored = set()
    for kind, thing in _functions():
        if kind is _function_cache.FunctionCache:
            for key, concrete in list(thing._primary.items()):  # noqa: SLF001
                if _captures_any(concrete, handles):
                    found.cached.append((thing, key))
        elif kind is _concrete_function.ConcreteFunction:
            if _captures_any(thing, handles):
                found.concretes.append(thing)
        else:
            restored.update(id(concrete) for concrete in thing.concrete_functions)
    wrapper = _saved_model_load._WrapperFunction  # noqa: SLF001
    found.without_code.extend(
        concrete
        for concrete in found.concretes
        if id(concrete) in restored or isinstance(concrete, wrapper)
    )
    return found


def _functions() -> Iterator[tuple[type, Any]]:
    """Every traced function, cache of traces and restored function that is alive.

    TensorFlow keeps no way from a tensor to the functions over it.
    """
    kinds = (
        _function_cache.FunctionCache,
        _concrete_function.ConcreteFunction,
        _function_deserialization.RestoredFunction,
    )
    known = {own: kind for kind in kinds for own in _with_subclasses(kind)}
    # An object refers to its class, and to ask for that is faster than to look at every object.
    for thing in gc.get_referrers(*known):
        if type(thing) in known:
            yield known[type(thing)], thing


def _with_subclasses(kind: type) -> list[type]:
    return [kind, *(own for below in kind.__subclasses__() for own in _with_subclasses(below))]


def captured_inputs(concrete: Any) -> list[Any]:
    """What a ConcreteFunction captured; values known only at each call are not asked for."""
    return list(getattr(concrete, "_captured_inputs", ()))


def _captures_any(concrete: Any, handles: set[int]) -> bool:
    return any(id(tensor) in handles for tensor in captured_inputs(concrete))


def forget_trace(cache: Any, key: Any) -> None:
    """Makes a ``tf.function`` trace anew where it would have used this trace."""
    context, function_type = key
    cache.delete(function_type, context)


def forbid_calls(concrete: Any, error: Exception) -> None:
    """Makes every call of a ConcreteFunction raise."""

    def refuse(*unused_args, **unused_kwargs):
        raise error

    concrete._call_flat = refuse  # noqa: SLF001


def execute(op_type: str, results: int, inputs: list, attributes: tuple) -> list:
    """Runs one kernel eagerly; ``attributes`` are names and values in turn."""
    context = _context.context()
    context.ensure_initialized()
    return _execute.quick_execute(op_type, results, inputs, attributes, context)


def traces(function: Any) -> list:
    """The ConcreteFunctions that a ``tf.function`` has been traced to."""
    return function._list_all_concrete_functions()  # noqa: SLF001
