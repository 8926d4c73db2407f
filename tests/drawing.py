"""Draws Nets by hand, op by op, and edits drawn ones; needs no TensorFlow."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rnnmem.ir.graph import BYTES_PER_ELEMENT, Blob, Constant, DType, Net, Op

KINDS = {
    "f": "float32",
    "h": "bfloat16",
    "i": "int32",
    "z": "bool",
    "v": "variant",
    "r": "resource",
}


def blob(name: str, kind: str) -> Blob:
    """``f[4,?]`` is a float32 matrix of four rows; ``f*`` and ``float32`` are of unknown rank."""
    drawn = re.fullmatch(r"(\w)(?:\[(.*)\]|\*)", kind)
    if drawn is None:
        assert kind in BYTES_PER_ELEMENT or kind in KINDS.values(), kind
        return Blob(name, kind)
    dtype, dims = drawn.groups()
    if dims is None:
        return Blob(name, KINDS[dtype])
    shape = tuple(None if dim == "?" else int(dim) for dim in dims.split(",") if dim)
    return Blob(name, KINDS[dtype], shape)


def encoded(value: Any, dtype: str) -> Constant:
    """Stands for the exporter's encoding: (value, dtype) -> Constant."""
    listed = isinstance(value, (tuple, list))
    shape = (len(value),) if listed else ()
    if listed and value and isinstance(value[0], tuple):
        return Constant(dtype, (*shape, len(value[0])), repr(value).encode(), rows=tuple(value))
    return Constant(dtype, shape, repr(value).encode(), tuple(value) if listed else value)


class Drawing:
    """A Net in the making: every call adds an op and gives the blob that it writes."""

    def __init__(self, name: str, /, **inputs: str):
        self.name = name
        self.blobs = {given: blob(given, kind) for given, kind in inputs.items()}
        self.inputs = list(inputs)
        self.ops: list[Op] = []

    def add(self, op: Op, blobs: Iterable[Blob]) -> None:
        """An op that is made already, with what it writes."""
        self.ops.append(op)
        self.blobs |= {one.name: one for one in blobs}

    def op(
        self,
        type: str,
        *inputs: str,
        gives: str | tuple[str, ...] = "float32",
        name: str = "",
        controls: tuple[str, ...] = (),
        device: str = "",
        nets: Mapping[str, Net] | None = None,
        **attributes,
    ):
        """One blob, or a tuple of them where ``gives`` is a tuple of dtypes."""
        name = name or f"{type.lower()}{len(self.ops)}"
        dtypes = (gives,) if isinstance(gives, str) else gives
        outputs = tuple(f"{name}:{place}" for place in range(len(dtypes)))
        made = Op(name, type, inputs, outputs, attributes, controls, nets or {}, device=device)
        self.add(made, map(blob, outputs, dtypes))
        return outputs[0] if isinstance(gives, str) else outputs

    def const(self, value: float, dtype: str = "int32", name: str = "") -> str:
        held = encoded(value, dtype)
        return self.op("Const", gives=dtype, name=name, value=held, dtype=DType(dtype))

    def empty_list(self, name: str = "", element: str = "float32") -> str:
        shape, most = self.const(-1), self.const(-1)
        return self.op(
            "EmptyTensorList",
            shape,
            most,
            gives="variant",
            name=name,
            element_dtype=DType(element),
        )

    def push(self, held: str, item: str, name: str = "") -> str:
        element = DType(self.blobs[item].dtype)
        return self.op(
            "TensorListPushBack", held, item, gives="variant", name=name, element_dtype=element
        )

    def pop(self, held: str, name: str = "", element: str = "float32") -> tuple[str, str]:
        """The list without its last element, and that element."""
        return self.op(
            "TensorListPopBack",
            held,
            self.const(-1),
            gives=("variant", element),
            name=name,
            element_dtype=DType(element),
        )

    def net(self, *outputs: str, control_outputs: tuple[str, ...] = ()) -> Net:
        return Net(
            self.name, tuple(self.inputs), outputs, tuple(self.ops), self.blobs, control_outputs
        )


class LoopDrawing:
    """A loop in the making: ``carry`` its variables, draw in ``body``, then ``close``."""

    def __init__(self, outside: Drawing, name: str):
        self.outside, self.name = outside, name
        self.body = Drawing(f"{name}_body")
        self.starts: dict[str, str] = {}
        self.next: dict[str, str] = {}
        self.control_outputs: tuple[str, ...] = ()

    def carry(self, label: str, start: str) -> str:
        """The variable's blob in the body; it stays as it is until ``next[label]`` is set."""
        self.starts[label] = start
        self.body.inputs.append(label)
        self.body.blobs[label] = Blob(label, self.outside.blobs[start].dtype)
        self.next[label] = label
        return label

    def close(self, going_on: Callable[[Drawing], str], **attributes) -> dict[str, str]:
        """Label -> what the loop hands outside; ``going_on`` draws the cond."""
        dtypes = {label: self.body.blobs[label].dtype for label in self.starts}
        cond = Drawing(f"{self.name}_cond", **dtypes)
        cond_net = cond.net(going_on(cond))
        body = self.body.net(*self.next.values(), control_outputs=self.control_outputs)
        results = self.outside.op(
            "While",
            *self.starts.values(),
            gives=tuple(dtypes.values()),
            name=self.name,
            nets={"cond": cond_net, "body": body},
            T=tuple(DType(dtype) for dtype in dtypes.values()),
            **attributes,
        )
        return dict(zip(self.starts, results, strict=True))


def below(net: Net, *path: str) -> Net:
    """The step net at a path of op names and attribute names."""
    for name, label in zip(path[::2], path[1::2], strict=True):
        net = net.op_by_name[name].nets[label]
    return net


def edited(net: Net, path: tuple[str, ...], edit: Callable[[Net], Net]) -> Net:
    """The Net with ``edit`` applied to the step net at the path."""
    if not path:
        return edit(net)
    name, label, *rest = path
    op = net.op_by_name[name]
    nets = {**op.nets, label: edited(op.nets[label], tuple(rest), edit)}
    return with_op(net, name, nets=nets)


def with_op(net: Net, name: str, **changes) -> Net:
    """The Net with some fields of one op changed."""
    assert name in net.op_by_name
    return net.replace(
        ops=tuple(op.replace(**changes) if op.name == name else op for op in net.ops)
    )


def with_input(net: Net, name: str, slot: int, blob: str) -> Net:
    """The Net with one input of one op changed."""
    inputs = list(net.op_by_name[name].inputs)
    inputs[slot] = blob
    return with_op(net, name, inputs=tuple(inputs))


def without_op(net: Net, name: str) -> Net:
    assert name in net.op_by_name
    return net.replace(ops=tuple(op for op in net.ops if op.name != name))


def with_more(net: Net, draw: Callable[[Drawing], object], before: str = "") -> Net:
    """The Net with more ops, at its end or right before an op."""
    drawing = Drawing(net.name)
    drawing.blobs = dict(net.blobs)
    drawing.inputs = list(net.inputs)
    draw(drawing)
    place = [op.name for op in net.ops].index(before) if before else len(net.ops)
    ops = (*net.ops[:place], *drawing.ops, *net.ops[place:])
    return net.replace(ops=ops, blobs=drawing.blobs)


def renamed(net: Net, mark: str) -> Net:
    """The same Net with every op and blob below its face named otherwise."""

    def other(name: str) -> str:
        return name if name in net.inputs else f"{mark}/{name}"

    ops = tuple(
        op.replace(
            name=f"{mark}/{op.name}",
            inputs=tuple(map(other, op.inputs)),
            outputs=tuple(map(other, op.outputs)),
            controls=tuple(f"{mark}/{name}" for name in op.controls),
            nets={label: renamed(inner, mark) for label, inner in op.nets.items()},
        )
        for op in net.ops
    )
    return net.replace(
        outputs=tuple(map(other, net.outputs)),
        ops=ops,
        blobs={
            other(name): Blob(other(name), old.dtype, old.shape) for name, old in net.blobs.items()
        },
        control_outputs=tuple(f"{mark}/{name}" for name in net.control_outputs),
    )
