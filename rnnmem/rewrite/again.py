"""Lists that a gradient loop is given anew, so that nobody holds them between the two loops.

    x ─► Transpose ─► list ─► forward loop ─► ... loss ...
    x ───────────────────────────────────────────┴(waits)─► Transpose ─► list ─► gradient loop

The copies compute what the originals did: they move data, which no fusion changes. They wait for
whatever else the gradient loop starts from, so that they run when it is about to.
"""

from __future__ import annotations

from rnnmem.errors import NetError
from rnnmem.plan import MadeAgain, Plan
from rnnmem.rewrite.editor import NetEditor


def make_again(editor: NetEditor, plan: Plan) -> None:
    """Gives gradient loops copies of the lists that the plan names; edits the Net in place.

    Raises:
      NetError: the plan names an op that the Net does not have.
    """
    for made in plan.made_again:
        for gradient in made.gradients:
            names = (*made.ops, *made.zeros, gradient)
            missing = [name for name in names if name not in editor.ops]
            if missing:
                raise NetError(f"the plan is for another function: no op {missing[0]!r}")
            if made.blob in editor.ops[gradient].inputs:
                others = [
                    after
                    for waiting, after in plan.waits
                    if waiting == gradient and after not in (*made.ops, *made.zeros)
                ]
                _give(editor, made, gradient, others)


def _give(editor: NetEditor, made: MadeAgain, gradient: str, others: list[str]) -> None:
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
