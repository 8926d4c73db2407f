"""Nets made by hand as lists of equations; :mod:`tests.drawing` draws them op by op.

An op that writes one blob gives it its own name:

    make_net({"x": "f[4]"}, [op("y", "Tanh", "x", "f[4]")], ["y"])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rnnmem.ir.graph import Blob, DType, Net, Op, ShapeValue
from rnnmem.passes.decision import Context
from tests.drawing import KINDS, Drawing, blob, encoded

CONTEXT = Context(lambda name: (), encoded, keeps_alive=True)
"""Of a decision that is applied alone."""


class Drawn:
    """An op together with the kinds of what it writes."""

    def __init__(self, op: Op, blobs: Sequence[Blob]):
        self.op = op
        self.blobs = blobs


def op(name: str, type: str, inputs: str = "", kinds: str = "", **fields: Any) -> Drawn:
    """An op; ``inputs`` and ``kinds`` are words; one of several results is called ``name:0``."""
    words = kinds.split()
    names = [name] if len(words) == 1 else [f"{name}:{index}" for index in range(len(words))]
    made = Op(name, type, tuple(inputs.split()), tuple(names), **fields)
    return Drawn(made, [blob(one, kind) for one, kind in zip(names, words, strict=True)])


def const(name: str, value: Any) -> Drawn:
    """A Const that holds an int, a float, a bool or a tuple of ints."""
    kind = {bool: "z[]", int: "i[]", float: "f[]"}.get(type(value), "i[?]")
    held = encoded(value, KINDS[kind[0]])
    return op(name, "Const", "", kind, attributes={"dtype": DType(held.dtype), "value": held})


def make_net(
    inputs: Mapping[str, str],
    ops: Iterable[Drawn],
    outputs: Sequence[str],
    *,
    name: str = "net",
    **fields: Any,
) -> Net:
    drawing = Drawing(name, **inputs)
    for drawn in ops:
        drawing.add(drawn.op, drawn.blobs)
    return drawing.net(*outputs).replace(**fields)


def while_op(
    name: str, starts: str, body: Net, cond: Net | None = None, limit: int = 5, **attributes: Any
) -> Drawn:
    """A loop; without a ``cond`` its first variable counts up to ``limit``."""
    if cond is None:
        cond = make_net(
            {blob: _kind(body.blobs[blob]) for blob in body.inputs},
            [const("limit", limit), op("more", "Less", f"{body.inputs[0]} limit", "z[]")],
            ["more"],
            name=f"{name}_cond",
        )
    kinds = [body.blobs[blob] for blob in body.inputs]
    attributes = {
        "T": tuple(DType(kind.dtype) for kind in kinds),
        "output_shapes": tuple(ShapeValue(kind.shape) for kind in kinds),
        "parallel_iterations": 10,
        **attributes,
    }
    return op(
        name,
        "While",
        starts,
        " ".join(map(_kind, kinds)) + ("" if len(kinds) > 1 else " "),
        attributes=attributes,
        nets={"body": body, "cond": cond},
    )


def _kind(blob: Blob) -> str:
    letter = next(letter for letter, dtype in KINDS.items() if dtype == blob.dtype)
    if blob.shape is None:
        return f"{letter}*"
    return f"{letter}[{','.join('?' if size is None else str(size) for size in blob.shape)}]"


def empty_list(name: str) -> Drawn:
    return op(name, "EmptyTensorList", "any any", "v[]")


def push(name: str, held: str, blob: str) -> Drawn:
    return op(name, "TensorListPushBack", f"{held} {blob}", "v[]")


def pop(name: str, held: str, kind: str) -> Drawn:
    """Writes ``name:0``, the shorter list, and ``name:1``, the blob."""
    return op(name, "TensorListPopBack", f"{held} any", f"v[] {kind}")


def rnn(units: int = 64, limit: int = 5) -> Net:
    """A loop with its gradient loop, as TensorFlow writes them, smaller.

    forward                                   gradient
    i ──► next                                i ──► next
    h ─► MatMul(h, w) = m ─► Tanh = t ─► h    g ─► TanhGrad(t', g) = d ─► MatMul(d, w') ─► g
    w ──────┘ (invariant)                     d ─► MatMul(h', d) = e ─► Add ─► total
    acc_h ◄─ push h                           acc_h ─► pop h'
    acc_t ◄─ push t                           acc_t ─► pop t'
    acc_w ◄─ push w                           acc_w ─► pop w'
    """
    f = f"f[{units},{units}]"
    state = {"i": "i[]", "h": f, "w": f, "acc_h": "v[]", "acc_t": "v[]", "acc_w": "v[]"}
    body = make_net(
        state,
        [
            const("one", 1),
            op("next", "AddV2", "i one", "i[]"),
            op("m", "MatMul", "h w", f),
            op("t", "Tanh", "m", f),
            push("push_h", "acc_h", "h"),
            push("push_t", "acc_t", "t"),
            push("push_w", "acc_w", "w"),
        ],
        ["next", "t", "w", "push_h", "push_t", "push_w"],
        name="body",
    )
    back = {"i": "i[]", "g": f, "total": f, "acc_h": "v[]", "acc_t": "v[]", "acc_w": "v[]"}
    gradient = make_net(
        back,
        [
            const("one", 1),
            const("any", (-1, -1)),
            op("next", "AddV2", "i one", "i[]"),
            pop("pop_h", "acc_h", f),
            pop("pop_t", "acc_t", f),
            pop("pop_w", "acc_w", f),
            op("d", "TanhGrad", "pop_t:1 g", f),
            op("back", "MatMul", "d pop_w:1", f),
            op("e", "MatMul", "pop_h:1 d", f),
            op("sum", "AddV2", "total e", f),
        ],
        ["next", "back", "sum", "pop_h:0", "pop_t:0", "pop_w:0"],
        name="gradient_body",
    )
    return make_net(
        {"x": f, "w": f},
        [
            const("zero", 0),
            const("any", (-1, -1)),
            empty_list("list_h"),
            empty_list("list_t"),
            empty_list("list_w"),
            while_op("loop", "zero x w list_h list_t list_w", body, limit=limit),
            op("ones", "OnesLike", "loop:1", f),
            op("zeros", "ZerosLike", "w", f),
            while_op("gradient", "zero ones zeros loop:3 loop:4 loop:5", gradient, limit=limit),
        ],
        ["loop:1", "gradient:1", "gradient:2"],
    )


def edited(net: Net, name: str, **fields: Any) -> Net:
    """The Net with an op of its own changed, or one of the step net of its loop ``gradient``."""
    if name in net.op_by_name:
        return net.replace(
            ops=tuple(one.replace(**fields) if one.name == name else one for one in net.ops)
        )
    gradient = net.op_by_name["gradient"]
    body = edited(gradient.nets["body"], name, **fields)
    return edited(net, "gradient", nets={**gradient.nets, "body": body})
