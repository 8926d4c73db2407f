"""Applies a Plan to a whole Net."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping

from rnnmem.analysis.branch_pairs import branch_pairs
from rnnmem.analysis.loops import LoopPair, loop_pairs, own_loop_pairs
from rnnmem.analysis.training_regions import NestedStep, nested_steps, step_net, with_step_net
from rnnmem.errors import NetError
from rnnmem.ir.awaited import with_gates
from rnnmem.ir.builders import handed_on
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import Constant, Net, Op
from rnnmem.ir.joint import await_in_gradient, hand_on, is_joint
from rnnmem.ir.order import all_needed_by, without_dead_ops
from rnnmem.passes.checkpoint.apply import rewrite_segments
from rnnmem.passes.decision import Context
from rnnmem.passes.elementwise_chunks.apply import by_chunks
from rnnmem.passes.registry import AROUND_LOOPS
from rnnmem.passes.rematerialise.across_branches import rewrite_branch_pair
from rnnmem.passes.rematerialise.apply import Surroundings, rewrite_pair
from rnnmem.passes.rematerialise.decision import LoopPlan
from rnnmem.passes.rematerialise.hoisted_reads import HoistedReads, InnerRead
from rnnmem.passes.schedule.apply import with_edges
from rnnmem.passes.schedule.leads import with_leads
from rnnmem.passes.straight_line.apply import with_regions
from rnnmem.planning.plan import Plan


def apply_plan(
    net: Net,
    plan: Plan,
    constant: Callable[[object, str], Constant],
    *,
    keeps_alive: bool = True,
    nested_step: NestedStep | None = None,
) -> Net:
    """The Net with every open loop of the plan rewritten.

    Args:
      net: the Net that the plan was made for, inlined and without dead ops.
      plan: the decisions.
      constant: encodes a number as the exporter wants it: (value, dtype) -> Constant.
      keeps_alive: whether a graph optimizer that fuses by neighbourhood runs afterwards.
      nested_step: where the Net is a step net; None for an outermost one.

    Raises:
      NetError: the plan names a loop, an op or a blob that the Net does not have.
    """
    net = _with_nested(net, plan, constant, keeps_alive)
    variables = None if nested_step is None else nested_step.variables
    pairs = {pair.path: pair for pair in own_loop_pairs(net)}
    in_branches = {one.pair.path: one for one in branch_pairs(net)}
    editor = NetEditor(net)
    reads = HoistedReads(editor, variables)
    held: list[str] = []
    unread: list[str] = []
    hands_on = is_joint(net)
    encoded: dict[tuple[str, ...], dict[str, str]] = {}
    alive = _alive(net)
    for loop in plan.loops:
        if loop.closed:
            continue
        if loop.path in in_branches:
            branched = in_branches[loop.path]
            _check_names(branched.pair, loop)
            held += rewrite_branch_pair(
                editor,
                branched,
                loop,
                functools.partial(reads.beside, branched.forward),
                constant,
                keeps_alive,
            )
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
                read=functools.partial(_beside, reads, pair.forward.op),
                constant=constant,
                keeps_alive=keeps_alive,
                hands_on=hands_on,
            ),
        )
        held += left.forward
        unread += left.unread
        held += itertools.chain(*left.gradients)
        encoded[loop.path] = left.encoded
    context = Context(plan.of, constant, keeps_alive)
    for one in AROUND_LOOPS:
        if one.before_segments and (decided := plan.of(one.name)):
            editor.go_on_with(one.apply(editor.net(), decided, context))
    held += _cut_into_segments(editor, plan, encoded, reads, constant, keeps_alive)
    # Who waited for a list of a loop that does not run would make it run.
    runs = {blob for op in editor.ops.values() if op.name in alive for blob in op.outputs}
    held = [blob for blob in held if blob in runs]
    if hands_on:
        held = await_in_gradient(editor, held)
    names = [_hold(editor, blob) for blob in held]
    if nested_step is None:
        editor.control_outputs += names
        editor.control_outputs += [hand_on(editor, blob) for blob in unread if blob in runs]
    elif names:
        _await_in_step_net(editor, names)
    reads.put_in_turn()
    rewritten = editor.net()
    for one in AROUND_LOOPS:
        if not one.before_segments and (decided := plan.of(one.name)):
            rewritten = one.apply(rewritten, decided, context)
    rewritten = without_dead_ops(rewritten)
    if not keeps_alive:
        return rewritten
    rewritten = with_leads(net, rewritten)
    if regions := plan.of("straight_line"):
        rewritten = with_regions(rewritten, regions, constant, nested_step)
    if chains := plan.of("elementwise_chunks"):
        rewritten = by_chunks(rewritten, chains, constant)
    rewritten = with_edges(rewritten, plan.of("readers_in_turn"))
    return rewritten if nested_step is not None else with_gates(rewritten, net)


def _alive(net: Net) -> set[str]:
    """Names of the ops that run: those that an output or a control output needs."""
    makers = [net.producer[blob].name for blob in net.outputs if blob in net.producer]
    return all_needed_by(net, [*net.control_outputs, *makers])


def _with_nested(net: Net, plan: Plan, constant, keeps_alive: bool) -> Net:
    """The Net with the step nets rewritten that are steps by themselves."""
    known = (
        {nested_step.path: nested_step for nested_step in nested_steps(net)} if plan.nested else {}
    )
    for one in plan.nested:
        if one.path not in known:
            raise NetError(
                f"the plan is for another function: no nested step {'/'.join(one.path)!r}"
            )
        if one.plan.changes_nothing:
            continue
        inner = step_net(net, one.path)
        inner = apply_plan(
            inner, one.plan, constant, keeps_alive=keeps_alive, nested_step=known[one.path]
        )
        net = with_step_net(net, one.path, inner)
    return net


def _cut_into_segments(
    editor: NetEditor,
    plan: Plan,
    encoded: Mapping[tuple[str, ...], Mapping[str, str]],
    reads: HoistedReads,
    constant,
    keeps_alive: bool,
) -> list[str]:
    """Rewrites the pairs that have segments, as they stand now; what must not be pruned."""
    chosen = [(loop, loop.segments) for loop in plan.loops if loop.segments and not loop.closed]
    if not chosen:
        return []
    now = editor.net()
    pairs = {pair.path: pair for pair in loop_pairs(now, now, {})}
    held = []
    for loop, segments in chosen:
        pair = pairs[loop.path]
        held += rewrite_segments(
            editor,
            pair,
            segments,
            encoded[loop.path],
            functools.partial(reads.beside, pair.forward.op),
            constant,
            keeps_alive,
        )
    return held


def _beside(reads: HoistedReads, loop: Op, _: int, read: InnerRead, handle: str) -> str:
    return reads.beside(loop, read, handle)


def _check_names(pair: LoopPair, plan: LoopPlan) -> None:
    """Refuses a plan whose loop has the pair's name and is another."""
    body = pair.forward.body
    known = {gradient.loop.op.name for gradient in pair.gradients}
    strange = [
        *(name for name in plan.gradients if name not in known),
        *(blob for blob in plan.saved if blob not in body.blobs),
        *(name for name in plan.recomputed if name not in body.op_by_name),
        *(one.blob for one in plan.encodings if one.blob not in plan.saved),
    ]
    if strange:
        raise NetError(
            f"the plan is for another function: loop pair {'/'.join(plan.path)!r} has no "
            f"{strange[0]!r}"
        )


def _hold(editor: NetEditor, blob: str) -> str:
    """An op that stands for a blob that nobody reads: where it is waited for, none is pruned."""
    return handed_on(editor, blob, "rnnmem/hold").name


def _await_in_step_net(editor: NetEditor, names: list[str]) -> None:
    """An output of a step net waits for the ops: what only its control outputs need is pruned."""
    index = next(
        index for index, blob in enumerate(editor.outputs) if blob not in editor.original.inputs
    )
    awaiting = handed_on(editor, editor.outputs[index], "rnnmem/awaiting", names)
    editor.outputs[index] = awaiting.outputs[0]
