"""Runs regions of straight-line code again near the gradient that reads them.

    x ─► ops ─► y ─► loss                          x is held, y and what lies between is not
    x ─► barrier ─► clones ─► gradient ops
             ▲
    incoming gradient ─► completion proxy

What clones read of others comes through an optimization barrier, which waits for the gradient
that arrives at the region; so no clone is merged with its op, and none runs early. A clone sees
clones of the neighbours that its op saw, and is named after its op, for names decide how sums and
products are sorted. A blob that loses readers gets a keep-alive use where its last reader might be
fused with it.

Where a dimension is unknown, the graph optimizer takes two shapes for equal that the same sizes go
into, and behind a barrier it sees none: it would add up a sum of clones in another order. So what
comes through one, or begins such sizes among the clones, is broadcast to the shape that it has,
which copies nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from rnnmem.analysis.tape import given_ops, is_float
from rnnmem.analysis.training_regions import NestedStep
from rnnmem.errors import NetError
from rnnmem.grappler.barrier import hidden
from rnnmem.grappler.cse import fan_out
from rnnmem.grappler.summation_order import merged_sums
from rnnmem.grappler.unknown_sizes import makes_new_sizes
from rnnmem.ir.builders import INT, Encode, empty_list, made, number, pop, push
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import BYTES_PER_ELEMENT, DType, Net, Op, Shape
from rnnmem.ir.marks import OWN_SHAPE
from rnnmem.ir.op_table import may_fuse
from rnnmem.ir.order import topological, without_dead_ops
from rnnmem.passes.rematerialise.clone import INLINED
from rnnmem.passes.schedule.apply import completion_proxy, with_edges
from rnnmem.passes.straight_line.decision import Region

CLONE = "rnnmem/clone"
"""Behind an op's name: its clone, which is sorted among others as the op is."""
ADDEND = "rnnmem/addend"
"""Behind an op's name: what it gives a sum, which is sorted as the op is."""
SUM = "rnnmem/sum"
"""Behind the name of a sum: what shows its shape to those who read it."""
BEHIND, SHAPE = "rnnmem/behind", "rnnmem/shape"
"""A blob behind its barrier that is not as large yet as it is known to be, and how large it is."""
LAST = "zfunc/"
"""Before the names of arguments of a step net where ``INLINED`` stands behind other names."""
EXPECTED = 200 * 2**20
"""Bytes that a function may have in all before TensorFlow's memory optimizer changes its sums.

It does where it expects four fifths of 256 MiB at once (``memory_optimizer.cc``)."""


def with_regions(
    net: Net,
    regions: Collection[Region],
    constant: Encode,
    nested_step: NestedStep | None = None,
) -> Net:
    """The Net with the regions of a plan run again.

    Args:
      net: the whole step, its loops rewritten.
      regions: the decisions.
      constant: encodes a number as the exporter wants it: (value, dtype) -> Constant.
      nested_step: where the Net is a step net; None for an outermost one.

    Raises:
      NetError: a region names an op or a blob that the Net does not have.
    """
    editor = NetEditor(net)
    proxies: dict[str, str] = {}
    given = given_ops(net)
    for region in regions:
        _check(net, region)
        waits = []
        for blob in region.after:
            if blob not in proxies:
                proxies[blob] = completion_proxy(editor, net.producer[blob])
            waits.append(proxies[blob])
        _run_again(editor, region, given, tuple(waits), nested_step)
    sizes = (blob.bytes or 0 for blob in net.blobs.values())
    if (sum(sizes) if nested_step is None else nested_step.bytes) > EXPECTED:
        _keep_sums_whole(editor)
    edges = dict.fromkeys(edge for region in regions for edge in region.edges)
    return with_edges(
        _kept_alive(net, without_dead_ops(editor.net()), constant, nested_step), edges
    )


def _check(net: Net, region: Region) -> None:
    names = net.op_by_name
    missing = [one for one in (*region.ops, *region.readers) if one not in names]
    missing += [one for one in region.after if one not in net.producer]
    if missing:
        raise NetError(f"the plan is for another function: no op {missing[0]!r}")


def _run_again(
    editor: NetEditor,
    region: Region,
    given: frozenset[str],
    waits: tuple[str, ...],
    nested_step: NestedStep | None,
) -> None:
    """Adds the clones of a region, and gives them to its readers."""
    net = editor.original
    clones: dict[str, str] = {}
    addends, new_sizes = merged_sums(net).addends, makes_new_sizes(net)
    for name in region.ops:
        op = net.op_by_name[name]
        inputs = []
        for blob in op.inputs:
            if blob not in clones:
                producer = net.producer.get(blob)
                plain = producer is not None and producer.name in given
                clones[blob] = (
                    blob if plain else _hidden(editor, blob, _name(net, blob, nested_step), waits)
                )
            inputs.append(clones[blob])
        # An addend's buffer gets no further reader.
        may_be = (op.type == "Reshape" or op.name in new_sizes) and addends.isdisjoint(op.outputs)
        sized = may_be and _has_unknown_sizes(editor, op.outputs[0])
        clone = editor.add(
            op.type,
            inputs,
            ((editor.blobs[blob].dtype, editor.blobs[blob].shape) for blob in op.outputs),
            {key: value for key, value in op.attributes.items() if key != "_class"},
            name=BEHIND if sized else f"{name}/{CLONE}",
            nets=op.nets,
            device=op.device,
            source=op.source,
        )
        clones.update(zip(op.outputs, clone.outputs, strict=True))
        if sized:
            (blob,) = op.outputs
            clones[blob] = _as_large_as(editor, clones[blob], blob, f"{name}/{CLONE}")
    made = {blob for name in region.ops for blob in net.op_by_name[name].outputs}
    for name in region.readers:
        op = editor.ops[name]
        given_now = tuple(clones[blob] if blob in made else blob for blob in op.inputs)
        editor.ops[name] = op.replace(inputs=given_now)


def _name(net: Net, blob: str, nested_step: NestedStep | None) -> str:
    """The name of what stands for a blob, sorted as its op is, or as an argument once inlined."""
    producer = net.producer.get(blob)
    if producer is not None:
        return f"{producer.name}/{CLONE}"
    if nested_step is None:
        return f"{blob.partition(':')[0]}/{CLONE}"
    first = nested_step.path[0] > INLINED
    return f"{INLINED if first else LAST}{net.inputs.index(blob):04}/{CLONE}"


def _hidden(editor: NetEditor, blob: str, name: str, waits: tuple[str, ...]) -> str:
    """The blob behind a barrier that waits for the gradient."""
    kind = editor.blobs[blob]
    sized = _has_unknown_sizes(editor, blob)
    value = hidden(
        editor,
        blob,
        kind.shape,
        name=BEHIND if sized else name,
        stands_for=blob,
        optional=True,
        controls=waits,
    )
    return _as_large_as(editor, value, blob, name) if sized else value


def _has_unknown_sizes(editor: NetEditor, blob: str) -> bool:
    """Whether only a run tells some sizes, which the graph optimizer must see to be the blob's."""
    kind = editor.blobs[blob]
    return kind.dtype in BYTES_PER_ELEMENT and None in (kind.shape or ())


def _as_large_as(editor: NetEditor, value: str, blob: str, name: str) -> str:
    """A value whose sizes the graph optimizer sees to be those of the blob that it stands for."""
    kind, shape = editor.blobs[blob], _shape_of(editor, blob)
    kinds = {"T": kind.dtype, "Tidx": INT, OWN_SHAPE: True}
    return made(editor, "BroadcastTo", (value, shape), kind.dtype, kind.shape, name, **kinds)


def _shape_of(editor: NetEditor, blob: str) -> str:
    """The sizes of a blob, asked once."""
    net = editor.original
    for op in net.readers.get(blob, ()):
        if op.type == "Shape" and not op.controls and net.blobs[op.outputs[0]].dtype == INT:
            return op.outputs[0]
    kind = editor.blobs[blob]
    rank = (len(kind.shape or ()),)
    return made(editor, "Shape", (blob,), INT, rank, SHAPE, T=kind.dtype, out_type=INT)


def _keep_sums_whole(editor: NetEditor) -> None:
    """Hides the shapes of explicit sums, where TensorFlow might add up what comes first.

    Its memory optimizer does so to sums of known shapes at the peak that it expects, which stands
    elsewhere now: sums that had one order would have any. Whoever reads a sum sees its shape, by
    which TensorFlow groups the factors of a product (``MinimizeBroadcasts``).
    """
    net = editor.original
    read = {op.name: editor.ops[op.name].inputs for op in net.ops if op.type == "AddN"}
    sums = {name: blobs for name, blobs in read.items() if 2 < len(blobs) == len(set(blobs))}
    for name, blobs in sums.items():
        op, inputs = net.op_by_name[name], []
        for blob, given in zip(blobs, op.inputs, strict=True):
            stem = net.producer[given].name if given in net.producer else given.partition(":")[0]
            inputs.append(_passed_on(editor, blob, None, f"{stem}/{ADDEND}", given))
        editor.ops[name] = editor.ops[name].replace(inputs=tuple(inputs))
        (total,) = op.outputs
        readers = [one.name for one in net.readers.get(total, ()) if one.name not in sums]
        shape = editor.blobs[total].shape
        if readers and shape is not None:
            shown = _passed_on(editor, total, shape, f"{name}/{SUM}", total)
            _redirect(editor, total, shown, readers)


def _redirect(editor: NetEditor, blob: str, shown: str, readers: Iterable[str]) -> None:
    """Lets ops read what stands for a blob."""
    for name in readers:
        op = editor.ops[name]
        now = tuple(shown if one == blob else one for one in op.inputs)
        editor.ops[name] = op.replace(inputs=now)


def _passed_on(editor: NetEditor, blob: str, shape: Shape, name: str, stands_for: str) -> str:
    """The blob behind a barrier through which a shape is seen, or none."""
    return hidden(editor, blob, shape, name=name, stands_for=stands_for, optional=True)


def _kept_alive(before: Net, after: Net, constant: Encode, nested_step: NestedStep | None) -> Net:
    """The Net in which blobs that lost all readers but one, which might be fused, have another.

    Who asks for the shape of one, which a clone is to have, is gone where TensorFlow finds the two
    shapes alike.
    """
    editor = NetEditor(after)
    lonely = []
    for op in topological(after.ops):
        for blob in op.outputs:
            if after.blobs[blob].dtype not in BYTES_PER_ELEMENT:
                continue
            readers = after.readers.get(blob, ())
            left = [one for one in readers if one.type != "Shape" or one.name in before.op_by_name]
            asked = len(left) < len(readers)
            alone = fan_out(after, blob) - asked == 1 < fan_out(before, _original(before, op, blob))
            if alone and all(may_fuse(op, reader) for reader in left):
                lonely.append(blob)
    dtypes: dict[str, list[str]] = {}
    for blob in lonely:
        dtypes.setdefault(after.blobs[blob].dtype, []).append(blob)
    held = ""
    for dtype, blobs in dtypes.items():
        held = _passed(editor, dtype, blobs, constant, held if nested_step else "")[0]
        if nested_step is None:
            kept = editor.add(
                "Identity",
                (held,),
                (("variant", ()),),
                {"T": DType("variant")},
                name="rnnmem/hold",
            )
            editor.control_outputs.append(kept.name)
    if held and nested_step is not None:
        place = _passing_output(after, nested_step)
        result = after.outputs[place]
        _, outputs = _passed(editor, after.blobs[result].dtype, [result], constant, held)
        editor.outputs[place] = outputs[0]
    return editor.net()


def _passed(
    editor: NetEditor, dtype: str, blobs: Iterable[str], constant: Encode, after: str
) -> tuple[str, list[str]]:
    """A list into which blobs are put and taken out again, one by one; and what is taken out.

    Args:
      editor: where it is added.
      dtype: of the blobs.
      blobs: of one dtype.
      constant: encodes a number.
      after: another such list, by which a graph optimizer sees that it is needed; empty: none.
    """
    held = empty_list(editor, dtype, None, constant, name="rnnmem/keepalive", behind=after)
    unknown = number(editor, -1, constant)
    taken = []
    for blob in blobs:
        held = push(editor, held, blob, name="rnnmem/keepalive_push")
        shape = editor.blobs[blob].shape
        held, one = pop(editor, held, dtype, shape, unknown, name="rnnmem/keepalive_pop")
        taken.append(one)
    return held, taken


def _passing_output(net: Net, nested_step: NestedStep) -> int:
    """The place of a step net's smallest needed result, of the floats if there are any."""
    kinds = {place: net.blobs[net.outputs[place]] for place in sorted(nested_step.results)}
    if not kinds:
        raise NetError(f"nobody needs a number of {net.name}, which would keep others alive")
    return min(kinds, key=lambda at: (not is_float(kinds[at]), kinds[at].bytes or math.inf))


def _original(before: Net, op: Op, blob: str) -> str:
    """The blob that a clone's stands for; itself, where it is no clone's."""
    name = op.name.removesuffix(f"/{CLONE}")
    known = before.op_by_name.get(name)
    return blob if known is None else known.outputs[op.outputs.index(blob)]
