"""Rewrites one loop pair into segments: the forward loop keeps states, the gradient runs again.

Both loops stay flat, so nothing around them changes and weight gradients are summed in their order:

    forward step net:   if i == next:   push i and the states; next = i + length
    gradient step net:  if j == start:  pop start and the states; run j - start iterations again,
                                        which push what the gradient reads
                        pop it as before;  j = j - 1

``i`` counts up from 0; ``j`` starts as the last ``i``, whatever the trip count turned out to be, so
loops whose length only a run can tell need nothing else (Chen et al. 2016, "Training deep nets with
sublinear memory cost", here per loop; growing segments keep the same bound without a trip count).
Where the last iterations are not to run again, they push what the gradient reads (``if i >= end``),
and the gradient loop begins with these lists and with ``start = end``.
Where a schedule over the segments keeps the states of some only, what runs again goes on to its
segment first, and keeps states again on the way (`rnnmem.passes.checkpoint.replay`); where only the
run can tell the trip count they are in slots (`rnnmem.passes.checkpoint.storage`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rnnmem.analysis.branches import reads_of
from rnnmem.analysis.lookups import read_in_step
from rnnmem.analysis.loops import Link, LoopPair
from rnnmem.errors import NetError
from rnnmem.grappler.keepalive import Keepalives
from rnnmem.grappler.summation_order import sums_of
from rnnmem.ir.builders import Encode, empty_list, integer, number
from rnnmem.ir.control_flow import add_input, branch_at, branch_like
from rnnmem.ir.editor import LoopEditor, NetEditor
from rnnmem.ir.graph import Blob, Op
from rnnmem.ir.marks import END, GROWTH, KEEPS, KEPT, LENGTH, REFILLS, SAVES_TAIL, SEGMENTS
from rnnmem.ir.order import through_identities
from rnnmem.ir.residuals import (
    CHECKPOINTED,
    COUNTED,
    COUNTER,
    REPLAYED,
    START,
    Residual,
    rename_map,
    residuals_of,
)
from rnnmem.passes.checkpoint.decision import Segments
from rnnmem.passes.checkpoint.replay import ReplayWriter
from rnnmem.passes.checkpoint.storage import checkpoints
from rnnmem.passes.rematerialise.hoisted_reads import InnerRead


def rewrite_segments(
    editor: NetEditor,
    pair: LoopPair,
    segments: Segments,
    encoded: Mapping[str, str],
    read: Callable[[InnerRead, str], str],
    constant: Encode,
    keeps_alive: bool,
) -> list[str]:
    """Cuts the loops of a pair into segments; edits the Net in place.

    Args:
      editor: the Net that holds the pair, with each loop's own rewrite done.
      pair: the pair as it stands in that Net now.
      segments: the decisions.
      encoded: saved blob of the forward step net -> the blob that is pushed for it.
      read: (read op, blob of the Net that holds the handle) -> what one read beside the loop gives.
      constant: encodes a number: (value, dtype) -> Constant.
      keeps_alive: whether a graph optimizer that fuses by neighbourhood runs afterwards.

    Returns:
      Blobs of the Net that must not be pruned.
    """
    return _SegmentRewrite(editor, pair, segments, encoded, read, constant, keeps_alive).run()


class _SegmentRewrite:
    def __init__(self, editor, pair, segments, encoded, read, constant, keeps_alive):
        (gradient,) = pair.gradients
        self.editor = editor
        self.pair = pair
        self.segments = segments
        self.read = read
        self.constant = constant
        self.keeps_alive = keeps_alive
        wanted = {encoded.get(blob, blob) for blob in segments.wanted}
        self.saved = {pushed: blob for blob, pushed in encoded.items()}
        self.links = [link for link in gradient.links if link.pushed in wanted]
        if not self.links:
            raise NetError(f"loop pair {'/'.join(pair.path)!r} saves nothing for its segments")
        self.pops = [gradient.loop.pops[link.popped_by] for link in self.links]
        self.forward = LoopEditor(editor, editor.ops[pair.forward.op.name])
        self.gradient = LoopEditor(editor, editor.ops[gradient.loop.op.name])
        body = pair.forward.body
        self.held: list[str] = []
        self.checkpoints = checkpoints(segments, constant)
        self.kept = [Blob("", "int32", ()), *(body.blobs[name] for name in segments.states)]

    def run(self) -> list[str]:
        dropped = self._drop_pushes()
        index, count, lists, ends = self._keep_states()
        if self.segments.end:
            self._push_at_the_end(index, dropped)
        left, start, taken = self._run_again(count, ends)
        states = zip((index, *self.segments.states), lists, taken, strict=True)
        residuals = [
            *self._residuals(),
            Residual(index, COUNTER, popped=left),
            Residual(index, START, popped=start),
            *(Residual(state, CHECKPOINTED, *lists) for state, *lists in states),
        ]
        self.forward.finish(**rename_map(dataclasses.replace(one, popped="") for one in residuals))
        self.gradient.finish(**rename_map(residuals))
        return self.held

    def _residuals(self) -> Iterator[Residual]:
        """The rename map as it was, less the lists of the forward loop that are gone."""
        for one in residuals_of(self.gradient.op):
            in_segments = one.blob in self.segments.wanted and one.becomes != COUNTED
            yield Residual(one.blob, REPLAYED, popped=one.popped) if in_segments else one

    def _drop_pushes(self) -> list[Op]:
        """Takes the pushes out of the forward loop, and lists that stay empty; the pushes."""
        keepalives = Keepalives(self.forward, self.constant)
        dropped = []
        for accumulator in sorted({link.accumulator for link in self.links}):
            pushing = self.pair.forward.pushes[accumulator]
            self.forward.body.remove(pushing.name)
            dropped.append(pushing)
            if not self.segments.end:
                self.forward.remove_variable(pushing.inputs[0])
            blob = self.saved.get(pushing.inputs[1], pushing.inputs[1])
            keepalives.replace_push(blob, sums_of(self.pair.forward.body).addends)
        if self.keeps_alive:
            self.held += keepalives.write()
        return dropped

    def _push_at_the_end(self, index: str, dropped: Sequence[Op]) -> None:
        """The iterations behind the last segment save what was pushed in all of them."""
        loop, body = self.forward, self.forward.body
        lists = [pushing.inputs[0] for pushing in dropped]
        values = [body.resolve(pushing.inputs[1]) for pushing in dropped]
        given = [*lists, *values]
        then = branch_like(body, "rnnmem_tail", given)
        pairs = zip(dropped, then.inputs[: len(lists)], then.inputs[len(lists) :], strict=True)
        then.outputs = [
            then.add(
                pushing.type,
                (held, value),
                (("variant", ()),),
                pushing.attributes,
                name="rnnmem/tail",
                device=pushing.device,
                source=pushing.source,
            ).outputs[0]
            for pushing, held, value in pairs
        ]
        end = number(body, self.segments.end, self.constant)
        reached = integer(body, "Maximum", index, end)
        marks = _marks(self.segments, SAVES_TAIL)
        results = branch_at(body, (reached, index), given, then, lists, marks)
        for argument, result in zip(lists, results, strict=True):
            loop.set_next(argument, result)

    def _keep_states(self) -> tuple[str, str, list[str], list[str]]:
        """The forward loop's side.

        Returns:
          Its counter, inside and behind the loop; the lists of starts and states, the same.
        """
        loop, body = self.forward, self.forward.body
        zero = number(self.editor, 0, self.constant)
        index, count = loop.add_variable(zero, "iteration")
        loop.set_next(index, integer(body, "AddV2", index, number(body, 1, self.constant)))
        following, _ = loop.add_variable(zero, "next_segment")
        cursor = [
            loop.add_variable(start, "segment_course")[0]
            for start in self.checkpoints.cursor(self.editor)
        ]
        lists, ends = [], []
        for kind in self.kept:
            start = empty_list(
                self.editor, kind.dtype, kind.shape, self.constant, name="rnnmem/checkpoints"
            )
            argument, outer = loop.add_variable(start, "checkpoints")
            lists.append(argument)
            ends.append(outer)
        changing = [following, *cursor, *lists]
        given = [*changing, index, *self.segments.states]
        keep = branch_like(body, "rnnmem_keep", given)
        inside = keep.inputs[1:]
        first, behind = len(cursor), len(cursor) + len(lists)
        following_then, cursor_then, lists_then = self.checkpoints.keep(
            keep, inside[:first], inside[first:behind], inside[behind:]
        )
        keep.outputs = [following_then, *cursor_then, *lists_then]
        results = branch_at(
            body, (index, following), given, keep, changing, _marks(self.segments, KEEPS)
        )
        for argument, result in zip(changing, results, strict=True):
            loop.set_next(argument, result)
        return index, count, lists, ends

    def _run_again(self, count: str, lists: Sequence[str]) -> tuple[str, str, list[str]]:
        """The gradient loop's side: segments are run again where their iterations begin.

        Returns:
          Its variables: the iterations left, the start of the segment, the lists.
        """
        loop, body = self.gradient, self.gradient.body
        left, _ = loop.add_variable(count, "iterations_left")
        loop.set_next(left, integer(body, "Sub", left, number(body, 1, self.constant)))
        end = number(self.editor, self.segments.end, self.constant) if self.segments.end else count
        start, _ = loop.add_variable(end, "segment_start")
        kept = [loop.add_variable(outer, "checkpoints")[0] for outer in lists]
        saved = [self._filled(link) for link in self.links]
        reads = [self._carried_read(blob) for blob in self.segments.reads]
        invariants = [self._carried(blob) for blob in self.segments.invariants]
        changing, given = [start, *kept, *saved], [left, *reads, *invariants]
        again = branch_like(body, "rnnmem_again", [*changing, *given])
        writer = ReplayWriter(
            again, self.pair.forward, self.segments, self.constant, self._popped_for_nothing()
        )
        keepalives = writer.write(self.kept, [link.pushed for link in self.links], self.keeps_alive)
        for dtype in keepalives:
            outer = empty_list(self.editor, dtype, None, self.constant, name="rnnmem/keepalive")
            argument, held = loop.add_variable(outer, "keepalive")
            self.held.append(held)
            changing.append(argument)
            given.append(argument)
            add_input(again, body.blobs[argument])
        given = [*changing[: 1 + len(kept) + len(saved)], *given]
        results = branch_at(
            body, (left, start), given, again, changing, _marks(self.segments, REFILLS)
        )
        popped = dict(zip(saved, self.pops, strict=True))
        for argument, result in zip(changing, results, strict=True):
            if argument in popped:
                pop = body.ops[popped[argument].name]
                body.ops[pop.name] = pop.replace(inputs=(result, *pop.inputs[1:]))
            else:
                loop.set_next(argument, result)
        return left, start, kept

    def _popped_for_nothing(self) -> set[str]:
        """Pushed blobs that only branches of the gradient are given, which do not read them."""
        body = self.pair.gradients[0].loop.body
        reads = reads_of(body)
        return {link.pushed for link in self.links if not reads[link.popped]}

    def _filled(self, link: Link) -> str:
        """The gradient loop's list of a link: a segment fills it when it is empty, as at first."""
        argument = self.pair.gradients[0].loop.body.inputs[link.popped_by]
        if self.segments.end:
            return argument
        position = self.gradient.body.inputs.index(argument)
        self.gradient.inputs[position] = self.pair.forward.op.inputs[link.accumulator]
        return argument

    def _carried(self, blob: str) -> str:
        """The gradient loop's variable for an invariant of the forward loop."""
        forward = self.pair.forward
        return self.gradient.invariant(forward.op.inputs[forward.invariants[blob]])

    def _carried_read(self, blob: str) -> str:
        """The gradient loop's variable for what one read beside the loops gives."""
        forward = self.pair.forward
        if forward.body.blobs[blob].dtype == "resource":
            found = read_in_step(forward, blob)
            read, handle = InnerRead(found.op, found.blob), blob
        else:
            op = forward.body.producer[blob]
            read, handle = InnerRead(op, forward.body.blobs[blob]), op.inputs[0]
        outer = forward.op.inputs[forward.invariants[through_identities(forward.body, handle)]]
        return self.gradient.invariant(self.read(read, outer))


def _marks(segments: Segments, does: bytes) -> dict[str, Any]:
    """The attributes of a branch that segments add."""
    return {
        SEGMENTS: does,
        LENGTH: segments.length,
        GROWTH: segments.growth,
        KEPT: segments.most_kept,
        END: segments.end,
    }
