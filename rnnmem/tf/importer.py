"""GraphDef with its function library -> Net."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rnnmem.errors import NotUnderstood
from rnnmem.ir.graph import Blob, DType, FunctionRef, Net, Op
from rnnmem.ir.lines import Line
from rnnmem.ir.marks import ON_GPU, OWN_KERNEL, PACKS, PRIMITIVE
from rnnmem.ir.op_table import MATRIX_PRODUCTS, PATCHES, PRIMITIVES, SOFTMAX, column
from rnnmem.tf import own_kernels, signatures
from rnnmem.tf.attributes import decode, decode_shape, dtype_name

NETS_OF = {name: tuple(held.split(",")) for name, held in column("nets").items()}
"""Op type -> the attributes whose functions are step nets, and are descended into."""

_Results = list[tuple[str, list[str]]]
"""What an op writes: names and dtypes, as in `signatures.result_groups`."""

SourceOf = Callable[[str, str], str]
"""(function name, op name) -> the user's line; the function name is empty for the outer graph."""


def import_graph_def(
    graph_def,
    inputs: Sequence[str],
    outputs: Sequence[str],
    control_outputs: Sequence[str] = (),
    *,
    name: str = "net",
    source_of: SourceOf = lambda function, op: "",
    device: str = "",
) -> Net:
    """Reads a GraphDef as a Net.

    Args:
      graph_def: made with ``add_shapes=True``, else shapes are unknown.
      inputs: tensor names (``x:0``) of the placeholders that stand for arguments and captures.
      outputs: tensor names of the results, flat.
      control_outputs: names of ops that must run.
      name: name of the Net.
      source_of: gives the user's line of an op.
      device: the only kind of device that there is, of several implementations of a function the
        one for it runs; empty: which one runs is not known.

    Raises:
      NotUnderstood: an op type is not registered, or a function is missing from the library.
    """
    library = {function.signature.name: function for function in graph_def.library.function}
    reader = _Reader(library, source_of, device)
    fed = {tensor.rpartition(":")[0] for tensor in inputs}
    ops, blobs, _ = reader.ops(graph_def.node, {}, "")
    kept = _with_awaited(
        [op for op in ops if op.name not in fed],
        {tensor.rpartition(":")[0]: tensor for tensor in inputs},
        blobs,
    )
    return Net(name, tuple(inputs), tuple(outputs), kept, blobs, tuple(control_outputs))


@dataclasses.dataclass
class _Reader:
    library: Mapping[str, Any]  # FunctionDefs
    source_of: SourceOf
    device: str
    nets: dict[str, Net] = dataclasses.field(default_factory=dict)

    def net(self, name: str) -> Net:
        """The library function of that name; read once, shared by all its callers."""
        if name not in self.nets:
            self.nets[name] = self._read_function(name)
        return self.nets[name]

    def _read_function(self, name: str) -> Net:
        function = self.library.get(name)
        if function is None:
            raise NotUnderstood(f"the function {name!r} is missing from the graph's library")
        arguments = {}
        for position, argument in enumerate(function.signature.input_arg):
            known = function.arg_attr[position].attr if position in function.arg_attr else {}
            arguments[argument.name] = Blob(
                argument.name, dtype_name(argument.type), _first_shape(known)
            )
        ops, blobs, tensor = self.ops(function.node_def, arguments, name)
        attributes = {key: decode(value) for key, value in _in_order(function.attr)}
        if self.device and attributes.get("api_preferred_device") == self.device.encode():
            attributes.pop("api_implements", None)  # there is no other to be chosen
        return Net(
            name=name,
            inputs=tuple(arguments),
            outputs=tuple(
                tensor(function.ret[argument.name]) for argument in function.signature.output_arg
            ),
            ops=ops,
            blobs=blobs,
            control_outputs=tuple(
                function.control_ret[label] for label in function.signature.control_output
            ),
            attributes={
                "attributes": attributes,
                "argument_attributes": tuple(
                    {
                        key: decode(value)
                        for key, value in _in_order(function.arg_attr[position].attr)
                    }
                    if position in function.arg_attr
                    else {}
                    for position in range(len(arguments))
                ),
            },
        )

    def ops(self, nodes, arguments: Mapping[str, Blob], function: str):
        """The nodes as ops, every blob among them (``arguments`` included), and `_tensor_names`."""
        blobs = dict(arguments)
        results: dict[str, _Results] = {}
        read = [self._op(self._called(node, results), blobs, function, results) for node in nodes]
        tensor = _tensor_names(results, arguments)
        ops = _with_awaited(
            [op.replace(inputs=tuple(tensor(name) for name in inputs)) for op, inputs in read],
            {name: name for name in arguments},
            blobs,
        )
        return ops, blobs, tensor

    def _called(self, node, results: dict[str, _Results]):
        """The node, or a call by attribute if its type is a function's name, as in ``Defun``."""
        if node.op not in self.library:
            return node
        signature = self.library[node.op].signature
        results[node.name] = [
            (argument.name, [dtype_name(argument.type)]) for argument in signature.output_arg
        ]
        call = type(node)()
        call.CopyFrom(node)
        call.op = "StatefulPartitionedCall" if signature.is_stateful else "PartitionedCall"
        call.attr["f"].func.name = node.op
        call.attr["Tin"].list.type.extend(argument.type for argument in signature.input_arg)
        call.attr["Tout"].list.type.extend(argument.type for argument in signature.output_arg)
        return call

    def _op(
        self, node, blobs: dict[str, Blob], function: str, results: dict[str, _Results]
    ) -> tuple[Op, list[str]]:
        nets = {}
        attributes = {}
        for key, value in _in_order(node.attr):
            if key == "_output_shapes":
                continue
            decoded = decode(value)
            if key in NETS_OF.get(node.op, ()):
                for position, ref in enumerate(
                    decoded if isinstance(decoded, tuple) else (decoded,)
                ):
                    label = f"{key}/{position}" if isinstance(decoded, tuple) else key
                    nets[label] = self.net(_ref_name(ref))
                    attributes[f"_name_of/{label}"] = ref
            else:
                attributes[key] = decoded
        signatures.with_defaults(node.op, attributes, decode)
        if node.op in PATCHES and own_kernels.runs(attributes, node.device):
            attributes[OWN_KERNEL] = True
        elif node.op in MATRIX_PRODUCTS and own_kernels.runs(attributes, node.device):
            attributes[PACKS] = True
        elif node.op in PRIMITIVES and own_kernels.is_primitive(attributes, node.device):
            attributes[PRIMITIVE] = True
        elif node.op in SOFTMAX and own_kernels.on_gpu(node.device):
            attributes[ON_GPU] = True
        if node.name not in results:
            results[node.name] = signatures.result_groups(node.op, attributes)
        dtypes = [dtype for _, group in results[node.name] for dtype in group]
        shapes = (
            [decode_shape(shape) for shape in node.attr["_output_shapes"].list.shape]
            if ("_output_shapes" in node.attr)
            else []
        )
        shapes += [None] * (len(dtypes) - len(shapes))
        outputs = tuple(f"{node.name}:{index}" for index in range(len(dtypes)))
        for output, dtype, shape in zip(outputs, dtypes, shapes, strict=False):
            blobs[output] = Blob(output, dtype, shape)
        op = Op(
            name=node.name,
            type=node.op,
            outputs=outputs,
            attributes=attributes,
            controls=tuple(name[1:] for name in node.input if name.startswith("^")),
            nets=nets,
            device=node.device,
            source=Line(functools.partial(self.source_of, function, node.name)),
            stateful=signatures.is_stateful(node.op),
            stateless=not signatures.is_stateful(node.op),
        )
        return op, [name for name in node.input if not name.startswith("^")]


def _in_order(attributes) -> list[tuple[str, object]]:
    """The entries of a protobuf map by key: a map has another order in every process."""
    return sorted(attributes.items(), key=lambda entry: entry[0])


def _with_awaited(
    ops: Sequence[Op], inputs: Mapping[str, str], blobs: dict[str, Blob]
) -> tuple[Op, ...]:
    """The ops; one that waits for an input of the Net waits for an Identity of it, which is an Op.

    Args:
      ops: as they were read.
      inputs: the name under which a control edge knows an input -> its blob.
      blobs: every blob; what is added here is added there.
    """
    awaited = {name for op in ops for name in op.controls if name in inputs}
    if not awaited:
        return tuple(ops)
    taken = {op.name for op in ops}
    stands_for: dict[str, str] = {}
    added = []
    for name in sorted(awaited):
        blob = blobs[inputs[name]]
        made = f"{name}/awaited"
        while made in taken:
            made += "_"
        taken.add(made)
        stands_for[name] = made
        blobs[f"{made}:0"] = Blob(f"{made}:0", blob.dtype, blob.shape)
        kind = {"T": DType(blob.dtype)}
        added.append(Op(made, "Identity", (blob.name,), (f"{made}:0",), kind))
    return (
        *added,
        *(
            op.replace(controls=tuple(stands_for.get(name, name) for name in op.controls))
            for op in ops
        ),
    )


def _ref_name(ref: object) -> str:
    if not isinstance(ref, FunctionRef):
        raise NotUnderstood(f"a step net is given by {ref!r}, which is no function")
    return ref.name


def _first_shape(attributes):
    if "_output_shapes" not in attributes:
        return None
    shapes = attributes["_output_shapes"].list.shape
    return decode_shape(shapes[0]) if shapes else None


def _tensor_names(results: Mapping[str, _Results], arguments: Mapping[str, Blob] = {}):
    """A function from the name that a node's input has in a file to the blob's name.

    A GraphDef writes ``op`` or ``op:1``; a FunctionDef writes ``argument`` or ``op:result:0``.
    """
    starts: dict[str, dict[str, int]] = {}

    def first_index(name: str, result: str) -> int:
        if name not in starts:
            starts[name] = {}
            position = 0
            for group, dtypes in results[name]:
                starts[name][group] = position
                position += len(dtypes)
        return starts[name][result]

    def blob_name(written: str) -> str:
        if written in arguments:
            return written
        parts = written.split(":")
        if len(parts) == 3:
            return f"{parts[0]}:{first_index(parts[0], parts[1]) + int(parts[2])}"
        if len(parts) == 2:
            return written
        return f"{written}:0" if written in results else written

    return blob_name
