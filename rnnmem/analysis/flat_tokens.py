"""Ops on ``[B, T, V]`` as ops on ``[B*T, V]``, where somebody sees what they read so anyway.

A loss sees logits of several axes as rows of tokens, whose number only a run tells. What else reads
them, such as the accuracy, works on the numbers one by one, or on each row:

    logits [?, ?, V] ─┬─► Reshape ─► [?, V] ─► softmax loss
                      └─► Equal, SelectV2, ... ─► ArgMax ─► [?, ?]

    logits [?, ?, V] ─► Reshape ─► [?, V] ─┬─► softmax loss
                                           └─► Equal, ... ─► ArgMax ─► [?] ─► Reshape ─► [?, ?]

What only such a view is read of is made flat, such as labels that are smoothed:

    words [?, ?] ─► OneHot ─► Mul(0.9) ─► AddV2(0.1 / V) ─► Reshape ─► [?, V]
    words [?, ?] ─► Reshape ─► [?] ─► OneHot ─► Mul(0.9) ─► AddV2(0.1 / V) ─► [?, V]
"""

from __future__ import annotations

import functools

from rnnmem.analysis.shapes import KnownNet, known_net
from rnnmem.ir.builders import INT, Encode, made, number
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import DType, Net, Op, Shape
from rnnmem.ir.op_table import ASKS_SHAPE, REDUCES, column, types
from rnnmem.ir.order import topological, without_dead_ops

_EACH = (types("pointwise") - types("own_shape")) | {
    name for name, how in column("tokens").items() if how == "each"
}
"""Types that make each number of one that they read, or of those of its row along the last axis."""
_LAST_AXIS = REDUCES | {name for name, how in column("tokens").items() if how == "axes"}
"""Types that make one number of those along axes, among others."""
_SAME_BITS = types("bits")


def flat_view(known: KnownNet, blob: str) -> str:
    """What sees a blob of several axes as rows of its last one; empty where nothing does.

    Args:
      known: the Net with its shapes.
      blob: of the Net.
    """
    for op in known.net.readers.get(blob, ()):
        if op.type == "Reshape" and op.inputs[0] == blob and not op.controls:
            if _columns(known, op.outputs[0]):
                return op.outputs[0]
    return ""


def with_flat_tokens(net: Net, flat: str, constant: Encode) -> Net:
    """The Net with what reads a blob of several axes reading its flat view; itself if none does.

    Args:
      net: the Net.
      flat: the view, ``[B*T, V]``.
      constant: encodes numbers of axes.
    """
    known = known_net(net)
    columns = _columns(known, flat)
    view = net.producer.get(flat)
    if not columns or view is None:
        return net
    whole = view.inputs[0]
    ops = _flat_ops(known, whole, view)
    net = _Flattened(known, whole, flat, ops, constant).net() if ops else net
    for op in [one for one in known.net.ops if one is not view]:
        blob = op.outputs[0] if op.outputs else ""
        if _columns(known, blob) != columns:
            continue
        if op.inputs[0] == whole and not op.controls:
            net = _without_second(net, op, flat)
        elif chain := _chain(known, op):
            net = _made_flat(known, net, op, chain, constant) or net
    return net


def _without_second(net: Net, second: Op, flat: str) -> Net:
    """The Net where one view stands for a second one of the same blob."""
    editor = NetEditor(net)
    editor.rename(second.outputs[0], flat)
    editor.swap(second.name, net.producer[flat].name)
    return editor.net()


def _columns(known: KnownNet, flat: str) -> int | None:
    """How long the rows are of a view that has those of a blob of more axes; None: it is none."""
    op = known.net.producer.get(flat)
    if op is None or op.type != "Reshape":
        return None
    shape, seen = known.facts[op.inputs[0]].shape, known.facts[flat].shape
    if not shape or not seen or len(shape) < 3 or len(seen) != 2:
        return None
    return seen[1] if seen[1] == shape[-1] else None


def _flat_ops(known: KnownNet, whole: str, view: Op) -> list[Op]:
    """The ops that may read the view, in order: whatever reads one of them may, or is a row's."""
    order = topological(known.net.ops)
    found: dict[str, Op] = {}
    shaped = {whole}
    for op in order:
        if op is view or shaped.isdisjoint(op.inputs) or op.controls:
            continue
        if _is_each(known, op, whole, shaped):
            found[op.name] = op
            shaped.add(op.outputs[0])
        elif _is_row(known, op, whole):
            found[op.name] = op
    while True:  # what is read as it was is made as it was
        stay = [op for op in found.values() if _is_read_whole(known, op, found, shaped)]
        if not stay:
            return [op for op in order if op.name in found]
        for op in stay:
            del found[op.name]
            shaped.discard(op.outputs[0])
        for op in [one for one in found.values() if not shaped.intersection(one.inputs)]:
            del found[op.name]


def _is_each(known: KnownNet, op: Op, whole: str, shaped: set[str]) -> bool:
    """Whether each number of a result of the blob's shape is made of one of it."""
    if op.type not in _EACH or op.type not in _SAME_BITS or len(op.outputs) != 1:
        return False
    shape = known.facts[whole].shape or ()
    made = known.facts[op.outputs[0]].shape or ()
    beside = [known.facts[one].shape == () for one in op.inputs if one not in shaped]
    return all(beside) and len(made) == len(shape) and made[-1] == shape[-1]


def _is_row(known: KnownNet, op: Op, whole: str) -> bool:
    """Whether the op makes one number of each row."""
    if op.type not in _LAST_AXIS or op.type not in _SAME_BITS or len(op.inputs) != 2:
        return False
    alone = known.facts[op.inputs[1]].value in (-1, (-1,)) and not op.attributes.get("keep_dims")
    shape, made = known.facts[whole].shape, known.facts[op.outputs[0]].shape
    return alone and shape is not None and made is not None and len(made) == len(shape) - 1


def _is_read_whole(known: KnownNet, op: Op, found: dict[str, Op], shaped: set[str]) -> bool:
    """Whether an op reads what is not seen flat, or makes what somebody reads as it was."""
    net, blob = known.net, op.outputs[0]
    if blob not in shaped:  # a row's op, which reads an axis beside
        return op.inputs[0] not in shaped
    if any(known.facts[one].shape != () and one not in shaped for one in op.inputs):
        return True
    return blob in net.outputs or any(one.name not in found for one in net.readers.get(blob, ()))


def _chain(known: KnownNet, view: Op) -> list[Op]:
    """The ops that make what only a flat view is read of, the last first."""
    net, found, blob = known.net, list[Op](), view.inputs[0]
    while (op := net.producer.get(blob)) is not None:
        wide = [one for one in op.inputs if known.facts[one].shape != ()]
        readers = [one for one in net.readers.get(blob, ()) if one.type not in ASKS_SHAPE]
        if len(readers) != 1 or op.controls or view.controls or not wide:
            break
        if op.type == "OneHot" and op.attributes.get("axis", -1) == -1 and wide == [op.inputs[0]]:
            found.append(op)
            break
        if len(wide) > 1 or not _is_each(known, op, blob, {wide[0]}):
            break
        found.append(op)
        blob = wide[0]
    return found


def _made_flat(
    known: KnownNet, net: Net, view: Op, chain: list[Op], constant: Encode
) -> Net | None:
    """The Net with a chain of ops on the flat view of what it reads; None: it is needed as it is.

    Whoever asks for its shape to tell that of the view does so no more.
    """
    trial = NetEditor(net)
    trial.rename(view.outputs[0], chain[-1].inputs[0])
    left = without_dead_ops(trial.net()).op_by_name
    if any(op.name in left for op in chain):
        return None
    editor = NetEditor(net)
    gone = {op.outputs[0] for op in chain}
    for op in topological(net.ops):  # what asks for shapes of what is gone, for nobody any more
        if op.name not in left and op not in chain and not gone.isdisjoint(op.inputs):
            gone.update(op.outputs)
            editor.remove(op.name)
    first = chain[-1]
    (blob,) = (one for one in first.inputs if known.facts[one].shape != ())
    columns = () if first.type == "OneHot" else (_columns(known, view.outputs[0]),)
    sizes = number(editor, [-1, *columns], constant)
    flat = _reshaped(editor, blob, sizes, (None, *columns), view)
    for op in reversed(chain):
        (result,) = op.outputs
        view_of = editor.new_blob(
            f"{result}/flat", editor.blobs[result].dtype, known.facts[view.outputs[0]].shape
        )
        inputs = tuple(flat if one == blob else one for one in op.inputs)
        editor.ops[op.name] = op.replace(inputs=inputs, outputs=(view_of,))
        blob, flat = result, view_of
    editor.rename(view.outputs[0], flat)
    return editor.net()


def _reshaped(editor: NetEditor, blob: str, sizes: str, shape: Shape, like: Op) -> str:
    """The numbers of a blob in another shape, where an op runs."""
    dtype = editor.blobs[blob].dtype
    kinds = {"T": DType(dtype), "Tshape": DType("int32")}
    results = ((dtype, shape),)
    return editor.add(
        "Reshape", (blob, sizes), results, kinds, name="rnnmem/flat", device=like.device
    ).outputs[0]


class _Flattened:
    """A Net while some ops come to read a flat view."""

    def __init__(self, known: KnownNet, whole: str, flat: str, ops: list[Op], constant: Encode):
        self.known, self.whole, self.ops, self.constant = known, whole, ops, constant
        self.editor = NetEditor(known.net)
        self.flat = {whole: flat}

    def net(self) -> Net:
        """The Net as it becomes."""
        columns = (self.known.facts[self.whole].shape or ())[-1]
        for op in self.ops:
            (blob,) = op.outputs
            each = not _is_row(self.known, op, self.whole)
            dtype = self.editor.blobs[blob].dtype
            view = self.editor.new_blob(f"{blob}/flat", dtype, (None, columns) if each else (None,))
            inputs = tuple(self.flat.get(one, one) for one in op.inputs)
            self.editor.ops[op.name] = op.replace(inputs=inputs, outputs=(view,))
            if each:
                self.flat[blob] = view
            else:
                shape = self.editor.blobs[blob].shape
                self.editor.rename(blob, _reshaped(self.editor, view, self._lead, shape, op))
        return self.editor.net()

    @functools.cached_property
    def _lead(self) -> str:
        """The sizes that together count tokens."""
        rank = len(self.known.facts[self.whole].shape or ())
        dtype = self.editor.blobs[self.whole].dtype
        told = made(
            self.editor,
            "Shape",
            (self.whole,),
            INT,
            (rank,),
            name="rnnmem/lead",
            T=dtype,
            out_type=INT,
        )
        bounds = (number(self.editor, [one], self.constant) for one in (0, -1, 1))
        masks = ("end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
        return made(
            self.editor,
            "StridedSlice",
            (told, *bounds),
            INT,
            (rank - 1,),
            name="rnnmem/lead",
            T=INT,
            Index=INT,
            begin_mask=1,
            **dict.fromkeys(masks, 0),
        )
