"""Applies a Plan to a whole Net."""

from __future__ import annotations

from collections.abc import Callable

from rnnmem.errors import NetError
from rnnmem.net.loops import LoopPair, loop_pairs
from rnnmem.net.nouns import Constant, DType, Net
from rnnmem.net.order import without_dead_ops
from rnnmem.plan import LoopPlan, Plan
from rnnmem.rewrite.editor import NetEditor
from rnnmem.rewrite.hoisted import HoistedReads
from rnnmem.rewrite.pair import Surroundings, rewrite_pair
from rnnmem.rewrite.segments import rewrite_segments


def apply_plan(
    net: Net, plan: Plan, constant: Callable[[object, str], Constant], *, anchored: bool = True
) -> Net:
    """The Net with every open loop of the plan rewritten.

    Args:
      net: the Net that the plan was made for, inlined and without dead ops.
      plan: the decisions.
      constant: encodes a number as the exporter wants it: (value, dtype) -> Constant.
      anchored: whether a graph optimizer that fuses by neighbourhood runs afterwards.

    Raises:
      NetError: the plan names a loop, an op or a blob that the Net does not have.
    """
    pairs = {pair.path: pair for pair in loop_pairs(net, net, {})}
    editor = NetEditor(net)
    reads = HoistedReads(editor)
    held: list[str] = []
    for loop in plan.loops:
        if loop.closed:
            continue
        if loop.path not in pairs:
            raise NetError(
                f"the plan is for another function: no loop pair {'/'.join(loop.path)!r}"
            )
        pair = pairs[loop.path]
        _check_names(pair, loop)
        left = rewrite_pair(
            pair,
            loop,
            Surroundings(
                forward=editor,
                gradients=(editor,) * len(pair.gradients),
                bring=lambda _, blob: blob,
                carry=lambda _, blob: blob,
                read=lambda _, one, handle, pair=pair: reads.beside(pair.forward.op, one, handle),
                constant=constant,
                anchored=anchored,
            ),
        )
        held += [*left.forward, *(blob for lists in left.gradients for blob in lists)]
    held += _cut_into_segments(editor, plan, reads, constant, anchored)
    for waiting, waited_for in plan.waits:
        if not {waiting, waited_for} <= set(editor.ops):
            raise NetError(f"the plan is for another function: no op {waiting!r} or {waited_for!r}")
        op = editor.ops[waiting]
        editor.ops[waiting] = op.replace(controls=(*op.controls, waited_for))
    for blob in held:
        _hold(editor, blob)
    reads.put_in_turn()
    return without_dead_ops(editor.net())


def _cut_into_segments(
    editor: NetEditor, plan: Plan, reads: HoistedReads, constant, anchored: bool
) -> list[str]:
    """Rewrites the pairs that have segments, as they stand now; what must not be pruned."""
    chosen = [loop for loop in plan.loops if loop.segments is not None and not loop.closed]
    if not chosen:
        return []
    now = editor.net()
    pairs = {pair.path: pair for pair in loop_pairs(now, now, {})}
    held = []
    for loop in chosen:
        pair = pairs[loop.path]
        held += rewrite_segments(
            editor,
            pair,
            loop.segments,
            lambda one, handle, pair=pair: reads.beside(pair.forward.op, one, handle),
            constant,
            anchored,
        )
    return held


def _check_names(pair: LoopPair, plan: LoopPlan) -> None:
    """Refuses a plan whose loop has the pair's name and is another."""
    body = pair.forward.body
    known = {gradient.loop.op.name for gradient in pair.gradients}
    strange = [
        *(name for name in plan.gradients if name not in known),
        *(blob for blob in plan.saved if blob not in body.blobs),
        *(name for name in plan.recomputed if name not in body.op_by_name),
    ]
    if strange:
        raise NetError(
            f"the plan is for another function: loop pair {'/'.join(plan.path)!r} has no "
            f"{strange[0]!r}"
        )


def _hold(editor: NetEditor, blob: str) -> None:
    """Makes the function wait for a blob that nobody reads, so that it is not pruned."""
    held = editor.add(
        "Identity", (blob,), (("variant", ()),), {"T": DType("variant")}, name="rnnmem/hold"
    )
    editor.control_outputs.append(held.name)
