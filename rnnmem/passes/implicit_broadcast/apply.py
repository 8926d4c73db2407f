"""Applies folds: ops read what a blob was repeated from, and broadcast it themselves.

Between the two stands an output barrier, so that TensorFlow's graph optimizer finds no pattern in
ops that a Tile kept apart. It shows as little of the shape as was seen of what was made. Each
reader has its own, at which it may be made to wait; but readers that TensorFlow merges have one, so
that it merges them still (both factors of ``x * x`` have the same gradient, of which it makes twice
the one).
"""

from __future__ import annotations

from collections.abc import Iterable

from rnnmem.errors import NetError
from rnnmem.grappler.barrier import hidden
from rnnmem.grappler.cse import congruence_classes
from rnnmem.ir.editor import NetEditor, edit_step_nets
from rnnmem.ir.graph import Blob, Net, Op, Shape
from rnnmem.ir.op_table import BROADCASTS
from rnnmem.passes.decision import Context
from rnnmem.passes.implicit_broadcast.decision import ImplicitBroadcast, divides_by_number


def with_implicit_broadcasts(net: Net, implicit_broadcasts: Iterable[ImplicitBroadcast]) -> Net:
    """The Net with the folds of a plan, in its step nets.

    Raises:
      NetError: a fold names an op or an input that is not what a Tile or BroadcastTo made.
    """
    editor = NetEditor(net)
    here = edit_step_nets(editor, implicit_broadcasts, with_implicit_broadcasts)
    merged = congruence_classes(net, exactly=False) if here else ()
    first = {name: names[0] for names in merged for name in names}
    shown: dict[tuple[str, str], str] = {}
    for implicit_broadcast in here:
        op, maker = _found(net, implicit_broadcast)
        alike = first.get(op.name, op.name), first.get(maker.name, maker.name)
        if alike not in shown:
            shown[alike] = hidden(
                editor,
                maker.inputs[0],
                _seen(net, maker),
                name="rnnmem/unrepeated",
                stands_for=f"{op.name}:{implicit_broadcast.slot}",
                optional=True,
            )
        inputs = list(editor.ops[op.name].inputs)
        inputs[implicit_broadcast.slot] = shown[alike]
        editor.ops[op.name] = editor.ops[op.name].replace(inputs=tuple(inputs))
        _shrink(editor, net, op, maker.outputs[0], net.blobs[maker.inputs[0]].shape)
    return editor.net()


def _shrink(editor: NetEditor, net: Net, reader: Op, read: str, shape: Shape) -> None:
    """Notes the shape of what is divided by a number now, and of what is made of that."""
    if not divides_by_number(net, reader, read):
        return
    (made,) = reader.outputs
    editor.blobs[made] = Blob(made, net.blobs[made].dtype, shape)
    for op in net.readers.get(made, ()):
        _shrink(editor, net, op, made, shape)


def apply(net: Net, implicit_broadcasts: Iterable[ImplicitBroadcast], context: Context) -> Net:
    """Applies the decisions of a plan; XLA does it by itself."""
    return with_implicit_broadcasts(net, implicit_broadcasts) if context.keeps_alive else net


def _found(net: Net, implicit_broadcast: ImplicitBroadcast) -> tuple[Op, Op]:
    """The op that is to broadcast, and the one that makes what it reads."""
    op, slot = net.op_by_name.get(implicit_broadcast.op), implicit_broadcast.slot
    if op is not None and slot < len(op.inputs):
        maker = net.producer.get(op.inputs[slot])
        if maker is not None and maker.type in BROADCASTS:
            return op, maker
    raise NetError(
        f"the plan is for another function: input {slot} of {implicit_broadcast.op!r} is not "
        "repeated"
    )


def _seen(net: Net, maker: Op) -> Shape:
    """The shape that may be seen: no axis that is repeated, and only its rank where a run tells.

    Else TensorFlow would multiply what is small by other small factors first, by which last bits
    differ from those of the original, in which it is none of the small ones.
    """
    shape, made = (net.blobs[blob].shape for blob in (maker.inputs[0], maker.outputs[0]))
    often = net.producer.get(maker.inputs[1])
    if shape is None:
        return None
    if made is None or often is not None and often.type != "Const":
        return (None,) * len(shape)
    behind = made[len(made) - len(shape) :]
    return tuple(size if size == wide else None for size, wide in zip(shape, behind, strict=True))
