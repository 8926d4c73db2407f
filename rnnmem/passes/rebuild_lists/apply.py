"""Lists that a gradient loop is given again, so that nobody holds them between the two loops.

    x ─► Transpose ─► list ─► forward loop ─► ... loss ...
    x ───────────────────────────────────────────┴(waits)─► Transpose ─► list ─► gradient loop

The copies compute what the originals did: they move data, which no fusion changes. They wait for
whatever else the gradient loop starts from, so that they run when it is about to. Rows of a small
variable are looked up in the gradient step net instead, one iteration's at a time:

    variable ─► read ─┐
    indices ──────────┴─► gradient step net   indices[t] ─► rows ─► output barrier
"""

from __future__ import annotations

from collections.abc import Iterable

from rnnmem.errors import NetError
from rnnmem.grappler.barrier import hidden
from rnnmem.ir.builders import number
from rnnmem.ir.editor import LoopEditor, NetEditor
from rnnmem.ir.graph import DType, Net, Op
from rnnmem.ir.op_table import GET, READ
from rnnmem.passes.decision import Context
from rnnmem.passes.rebuild_lists.decision import RebuiltList
from rnnmem.passes.rebuild_lists.select import ASKED


def apply(net: Net, lists: Iterable[RebuiltList], context: Context) -> Net:
    """Gives gradient loops copies of the lists that the plan names.

    Args:
      net: the Net around the loops.
      lists: the decisions.
      context: what they depend on; copies wait for what their gradient loop waits for.

    Raises:
      NetError: the plan names an op that the Net does not have.
    """
    editor = NetEditor(net)
    for made in lists:
        for gradient in made.gradients:
            names = (*made.ops, *made.zeros, gradient)
            missing = [name for name in names if name not in editor.ops]
            if missing:
                raise NetError(f"the plan is for another function: no op {missing[0]!r}")
            if made.blob in editor.ops[gradient].inputs:
                others = [
                    edge.after
                    for edge in context.of("gradient_start")
                    if edge.op == gradient and edge.after not in (*made.ops, *made.zeros)
                ]
                if made.table and _asks_for_rows(editor.ops[gradient], made.blob):
                    _look_up(editor, made, gradient, others, context)
                else:
                    _give(editor, made, gradient, others)
    return editor.net()


def _asks_for_rows(loop: Op, blob: str) -> bool:
    """Whether nothing in the loop needs the list; where iterations run again, a branch does."""
    body = loop.nets["body"]
    readers = body.readers.get(body.inputs[loop.inputs.index(blob)], ())
    return all(reader.type in ASKED for reader in readers)


def _look_up(
    editor: NetEditor, made: RebuiltList, gradient: str, others: list[str], context: Context
) -> None:
    """Lets one gradient loop look up the rows of its iteration, in place of the list of all."""
    lookup = editor.ops[made.ops[0]]
    dtype = editor.blobs[lookup.outputs[0]].dtype
    read = editor.add(
        READ,
        lookup.inputs[:1],
        ((dtype, made.table),),
        {"dtype": DType(dtype)},
        name=f"{gradient}/rnnmem/table",
        controls=(*lookup.controls, *others),
        device=lookup.device,
        source=lookup.source,
    )
    loop = LoopEditor(editor, editor.ops[gradient])
    argument = loop.body.inputs[loop.inputs.index(made.blob)]
    table, indices = loop.invariant(read.outputs[0]), loop.invariant(lookup.inputs[1])
    for op in loop.body.original.readers.get(argument, ()):
        if op.type == GET:
            _look_up_row(loop.body, op, table, indices, context)
            continue
        kind = editor.blobs[made.blob], loop.body.blobs[op.outputs[0]]
        asked = editor.add(
            op.type,
            (kind[0].name,),
            ((kind[1].dtype, kind[1].shape),),
            op.attributes,
            name=f"{gradient}/rnnmem/{op.type}",
            device=op.device,
            source=op.source,
        )
        loop.body.rename(op.outputs[0], loop.invariant(asked.outputs[0]))
        loop.body.remove(op.name)
    loop.remove_variable(argument)
    loop.finish()


def _look_up_row(body: NetEditor, item: Op, table: str, indices: str, context: Context) -> None:
    """Looks up what the op takes out of a list of rows."""
    place, rows = body.blobs[indices], body.blobs[item.outputs[0]]
    wanted = place.dtype, None if place.shape is None else place.shape[1:]
    axis = number(body, 0, context.constant)

    def gathered(params: str, index: str, kind: tuple) -> str:
        dtypes = {"Tparams": kind[0], "Tindices": body.blobs[index].dtype, "Taxis": "int32"}
        attributes = {**{key: DType(one) for key, one in dtypes.items()}, "batch_dims": 0}
        inputs = (params, index, axis)
        made = body.add(
            "GatherV2",
            inputs,
            (kind,),
            attributes,
            name="rnnmem/row",
            device=item.device,
            source=item.source,
        )
        return made.outputs[0]

    row = gathered(table, gathered(indices, item.inputs[1], wanted), (rows.dtype, rows.shape))
    shown = hidden(
        body,
        row,
        rows.shape,
        name="rnnmem/looked_up",
        stands_for=item.name,
        optional=context.keeps_alive,
    )
    body.rename(rows.name, shown)
    body.swap(item.name, shown.rpartition(":")[0])


def _give(editor: NetEditor, made: RebuiltList, gradient: str, others: list[str]) -> None:
    """Copies the ops for one gradient loop; copies that read no other copy wait."""
    copies: dict[str, str] = {}
    for name in made.ops:
        op = editor.ops[name]
        first = copies.keys().isdisjoint(op.inputs)
        copy = editor.add(
            op.type,
            tuple(copies.get(blob, blob) for blob in op.inputs),
            tuple((editor.blobs[blob].dtype, editor.blobs[blob].shape) for blob in op.outputs),
            op.attributes,
            name=f"{gradient}/rnnmem/{name.rsplit('/', 1)[-1]}",
            controls=(*op.controls, *(others if first else ())),
            device=op.device,
            source=op.source,
        )
        copies.update(zip(op.outputs, copy.outputs, strict=True))
    loop = editor.ops[gradient]
    editor.ops[gradient] = loop.replace(
        inputs=tuple(copies.get(blob, blob) for blob in loop.inputs)
    )
    for name in made.zeros:
        editor.ops[name] = editor.ops[name].replace(inputs=(copies[made.blob],))
