"""Writes the branch in which a gradient loop runs one segment of the forward loop again.

It is given ``[start, lists of starts and states, lists to fill, j, reads, invariants]`` and makes

    start, states = popped from their lists, or read from a slot of theirs
    While r < j - start:  states = step(states), pushing what the gradient reads

and hands out ``[start, the shorter lists, the filled lists, lists of keep-alive uses]``. The step
is the forward step net as it is, without what nobody needs here. Its neighbourhoods are kept as in
`rnnmem.passes.rematerialise.apply`: keep-alive uses where a blob has lost all readers but one,
barriers that know the shapes of the states.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence

from rnnmem.analysis.lookups import read_in_step, reads_in_step
from rnnmem.analysis.loops import Loop
from rnnmem.errors import NetError
from rnnmem.grappler.cse import fan_out
from rnnmem.grappler.keepalive import NEVER_FUSED, Keepalives, missed_results, results_read
from rnnmem.grappler.summation_order import sums_of
from rnnmem.ir.builders import Encode, element, integer, made, number, push
from rnnmem.ir.control_flow import add_input, branch_at, branch_like, counted_loop
from rnnmem.ir.editor import LoopEditor, NetEditor
from rnnmem.ir.graph import BYTES_PER_ELEMENT, Blob, Net, Op, ShapeValue
from rnnmem.ir.marks import ADVANCES, AGAIN, GROWTH, KEEPS, KEPT, LENGTH, SEGMENTS
from rnnmem.ir.op_table import POP, PUSH
from rnnmem.ir.order import reached
from rnnmem.passes.checkpoint.decision import Segments
from rnnmem.passes.checkpoint.revolve import split_table
from rnnmem.passes.checkpoint.storage import Taken, checkpoints
from rnnmem.passes.rematerialise.branches import kinds_with_values, with_values

BARRIER = "EnsureShape"
"""Between a step net that runs again and what it starts from: shows the shape, stops fusions."""


class ReplayWriter:
    """Writes the branch into a Net that has its inputs.

    Args:
      net: the Net.
      forward: the forward loop.
      segments: the decisions.
      constant: encodes a number: (value, dtype) -> Constant.
      for_nothing: blobs whose lists TensorFlow prunes, and with them what pushes.
    """

    def __init__(
        self,
        net: NetEditor,
        forward: Loop,
        segments: Segments,
        constant: Encode,
        for_nothing: Collection[str] = (),
    ):
        self.net = net
        self.forward = forward
        self.segments = segments
        self.constant = constant
        self.for_nothing = for_nothing
        self.checkpoints = checkpoints(segments, constant)

    def write(self, kept: Sequence[Blob], pushed: Sequence[str], keeps_alive: bool) -> list[str]:
        """Writes the ops and the outputs.

        Args:
          kept: what the lists of starts and states hold.
          pushed: blob of the forward step net for each list to fill.
          keeps_alive: whether a graph optimizer that fuses by neighbourhood runs afterwards.

        Returns:
          The dtypes of the lists of keep-alive uses, which are the last outputs.
        """
        given = iter(self.net.inputs[1:])
        states_kept = list(itertools.islice(given, len(kept)))
        lists = list(itertools.islice(given, len(pushed)))
        left, *loop_invariant = given
        taken = self.checkpoints.take(self.net, states_kept, kept, left)
        values = [barrier(self.net, *pair) for pair in zip(taken.values, kept, strict=True)]
        (start, *states), left_over = values, taken.lists
        dtypes: list[str] = []
        held: list[str] = []
        if self.segments.slots:
            advance = SegmentAdvance(self, left, kept, loop_invariant)
            begun = Taken(left_over, values, taken.free)
            (start, *states), left_over, dtypes, held = advance.write(begun, keeps_alive)
        trips = integer(self.net, "Sub", left, start, name="rnnmem/trips")
        zero = number(self.net, 0, self.constant)
        starts = [zero, trips, *states, *lists, *loop_invariant]
        loop = LoopEditor(self.net, self._loop(starts, pushed))
        keepalives = self.keepalives(loop) if keeps_alive else Keepalives(loop, self.constant)
        held += keepalives.write()
        filled = loop.finish().outputs[2 + len(states) :]
        self.net.outputs = [start, *left_over, *filled[: len(lists)], *held]
        return [*dtypes, *keepalives.dtypes]

    def _loop(self, starts: Sequence[str], pushed: Sequence[str]) -> Op:
        """The loop that runs the segment's iterations."""
        body = self.body(pushed)
        return counted_loop(
            self.net,
            starts,
            body,
            (0, 1),
            {SEGMENTS: AGAIN},
            name="rnnmem/again",
            source=self.forward.op.source,
        )

    def body(self, pushed: Sequence[str]) -> NetEditor:
        """The forward step net over ``[r, trips, states, lists, reads, invariants]``."""
        forward, segments = self.forward.body, self.segments
        net = NetEditor(forward.replace(name="rnnmem_step", control_outputs=(), attributes={}))
        net.ops = {op.name: self._given_values(net, op) for op in self._needed(pushed)}
        net.inputs, net.outputs = [], []
        count = add_input(net, Blob("", "int32", ()))
        trips = add_input(net, Blob("", "int32", ()))
        net.inputs += segments.states
        lists = [add_input(net, Blob("", "variant", ())) for _ in pushed]
        reads = [add_input(net, self._read(blob)) for blob in segments.reads]
        net.inputs += segments.invariants
        one = number(net, 1, self.constant)
        following = integer(net, "AddV2", count, one)
        following_states = [forward.outputs[forward.inputs.index(one)] for one in segments.states]
        wanted = {
            *pushed,
            *following_states,
            *(one for op in net.ops.values() for one in op.inputs),
        }
        for blob, given in zip(segments.reads, reads, strict=True):
            if blob not in wanted:
                continue
            # Sums sort their addends by name: what stands for the read keeps the read's.
            producer = forward.producer.get(blob)
            name = producer.name if producer is not None else "rnnmem/barrier"
            net.rename(blob, barrier(net, given, self._read(blob), name))
        net.outputs = [
            following,
            trips,
            *following_states,
            *(
                push(net, held, blob, name="rnnmem/push")
                for held, blob in zip(lists, pushed, strict=True)
            ),
            *reads,
            *segments.invariants,
        ]
        return net

    def _needed(self, pushed: Sequence[str]) -> list[Op]:
        """The forward step net's ops that the pushed blobs and the states take."""
        body, segments = self.forward.body, self.segments
        given = {*segments.states, *segments.reads, *segments.invariants}
        following = (body.outputs[body.inputs.index(blob)] for blob in segments.states)

        def needs(blob: str) -> Iterable[str]:
            if blob in given:
                return ()
            if blob not in body.producer:
                raise NetError(f"the plan does not keep the state {blob!r} of its segments")
            return body.producer[blob].inputs

        found = set(reached([*pushed, *following], needs)) - given
        needed = {body.producer[blob].name for blob in found}
        return [op for op in body.ops if op.name in needed]

    def _read(self, blob: str) -> Blob:
        """What one read beside the loop gives in place of a blob of the forward step net."""
        kind = self.forward.body.blobs[blob]
        return read_in_step(self.forward, blob).blob if kind.dtype == "resource" else kind

    def _given_values(self, net: NetEditor, op: Op) -> Op:
        """The op, given what it reads where it is a branch, loop or lookup that reads variables."""
        found = reads_in_step(self.forward, op) or {}
        reads = {blob: read for blob, read in found.items() if blob in self.segments.reads}
        if not reads:
            return op
        kinds = kinds_with_values(op, self.forward.body, reads)
        for blob, kind in zip(op.outputs, kinds, strict=True):
            net.blobs[blob] = Blob(blob, kind.dtype, kind.shape)
        return with_values(op, reads)

    def keepalives(self, loop: LoopEditor) -> Keepalives:
        """Anchors for blobs that have one reader here and more in the forward step net."""
        keepalives = Keepalives(loop, self.constant)
        net, forward = loop.body.net(), self.forward.body
        keepalives.add(
            blob
            for blob, kind in net.blobs.items()
            if kind.dtype in BYTES_PER_ELEMENT
            and blob in forward.blobs
            and fan_out(net, blob) == 1 < fan_out(forward, blob)
            and (blob not in forward.producer or forward.producer[blob].type not in NEVER_FUSED)
        )
        for op in net.ops:
            read = {
                place
                for place, blob in enumerate(op.outputs)
                if net.fan_out(blob) > (blob in self.for_nothing)
            }
            before = results_read(forward, forward.op_by_name.get(op.name))
            keepalives.add(op.outputs[place] for place in sorted(missed_results(op, read, before)))
        keepalives.extend_lifetime(
            blob
            for blob in sums_of(self.forward.body).addends
            if blob in net.blobs and _keepers(forward, blob) and not _keepers(net, blob)
        )
        return keepalives


class SegmentAdvance:
    """Writes the loop that goes on from a state to the segment whose turn it is.

    It follows a binomial schedule: from the start of segment r, with d segments left up to the one
    that runs again and s slots free, the next state is kept ``split(d, s)`` segments later.

        while i < last:   if i == next:  keep i and the states; next += length * table[d, s]; s -= 1
                          states = step(states);  i += 1

    Args:
      writer: of the branch.
      left: iterations left for the gradient; the segment that ends there runs again.
      kept: what the lists of starts and states hold.
      loop_invariant: what the step reads that is the same in all iterations.
    """

    def __init__(
        self, writer: ReplayWriter, left: str, kept: Sequence[Blob], loop_invariant: Sequence[str]
    ):
        self.writer = writer
        self.net, self.segments = writer.net, writer.segments
        self.left, self.kept, self.loop_invariant = left, kept, loop_invariant

    def write(
        self, begun: Taken, keeps_alive: bool
    ) -> tuple[list[str], list[str], list[str], list[str]]:
        """Writes the loop.

        Args:
          begun: what the way begins with.
          keeps_alive: whether a graph optimizer that fuses by neighbourhood runs afterwards.

        Returns:
          The iteration and the states to run again from, the lists, and the dtypes and the lists of
          keep-alive uses.
        """
        net, constant = self.net, self.writer.constant
        lists, (begin, *states) = begun.lists, begun.values
        starts = [begin, self._last(), *states, *self.loop_invariant, begin, begun.free, *lists]
        made = counted_loop(
            net,
            starts,
            self._body(len(states)),
            (0, 1),
            {SEGMENTS: ADVANCES},
            name="rnnmem/way",
            source=self.writer.forward.op.source,
        )
        loop = LoopEditor(net, made)
        keepalives = self.writer.keepalives(loop) if keeps_alive else Keepalives(loop, constant)
        left_behind = keepalives.write()
        results = loop.finish().outputs
        ends = [results[0], *results[2 : 2 + len(states)]]
        first = 2 + len(states) + len(self.loop_invariant) + 2
        ready = [barrier(net, blob, kind) for blob, kind in zip(ends, self.kept, strict=True)]
        return ready, list(results[first : first + len(lists)]), keepalives.dtypes, left_behind

    def _last(self) -> str:
        """The iteration at which the segment begins that runs again."""
        net, constant = self.net, self.writer.constant
        length = number(net, self.segments.length, constant)
        end = integer(net, "Sub", self.left, number(net, 1, constant))
        return integer(net, "Sub", end, integer(net, "FloorMod", end, length))

    def _body(self, states: int) -> NetEditor:
        """The step over ``[i, last, states, steady, next, free, lists]``."""
        body = self.writer.body(())
        index, last, *values = body.inputs[: 2 + states]
        following = add_input(body, Blob("", "int32", ()))
        free = add_input(body, Blob("", "int32", ()))
        lists = [add_input(body, Blob("", "variant", ())) for _ in self.kept]
        changing = [following, free, *lists]
        given = [*changing, index, last, *values]
        keep = branch_like(body, "rnnmem_keep", given)
        self._keep(keep)
        marks = {
            SEGMENTS: KEEPS,
            LENGTH: self.segments.length,
            GROWTH: 0,
            KEPT: self.segments.slots,
        }
        body.outputs += branch_at(body, (index, following), given, keep, changing, marks)
        return body

    def _keep(self, keep: NetEditor) -> None:
        """What is done at an iteration whose state is kept."""
        constant, segments = self.writer.constant, self.segments
        following, free, *rest = keep.inputs
        lists, (index, last, *values) = rest[: len(self.kept)], rest[len(self.kept) :]
        length, one = number(keep, segments.length, constant), number(keep, 1, constant)
        before = integer(keep, "FloorDiv", integer(keep, "Sub", last, index), length)
        left = integer(keep, "AddV2", before, one)
        # Beyond the table, so many segments count as one that it reaches.
        together = self._parts(keep, left, number(keep, segments.count, constant))
        columns = number(keep, segments.slots + 1, constant)
        begin = integer(keep, "Mul", self._parts(keep, left, together), columns)
        rows = enumerate(split_table(segments.count, segments.slots))
        # In the last free slot goes the last state of the way.
        table = [whole if room < 2 else far for whole, row in rows for room, far in enumerate(row)]
        place = integer(keep, "AddV2", begin, integer(keep, "Maximum", free, one))
        far = element(keep, number(keep, table, constant), place, constant)
        far = integer(keep, "Mul", far, integer(keep, "Mul", together, length))
        keep.outputs = [
            integer(keep, "AddV2", following, far),
            integer(keep, "Sub", free, one),
            *self.writer.checkpoints.put(keep, lists, (index, *values)),
        ]

    def _parts(self, keep: NetEditor, whole: str, size: str) -> str:
        """How many parts of a size a whole has, the last one perhaps smaller."""
        rest = integer(keep, "Sub", size, number(keep, 1, self.writer.constant))
        return integer(keep, "FloorDiv", integer(keep, "AddV2", whole, rest), size)


def _keepers(net: Net, blob: str) -> list[Op]:
    """Ops that put the blob into a list where it stays, so that no sum adds to it in place."""
    return [
        op
        for op in net.readers.get(blob, ())
        if op.type == "TensorListSetItem"
        or (op.type == PUSH and all(one.type != POP for one in net.readers.get(op.outputs[0], ())))
    ]


def barrier(net: NetEditor, blob: str, kind: Blob, name: str = "rnnmem/barrier") -> str:
    """The blob behind an op that the graph optimizer neither removes nor looks through."""
    if kind.dtype not in BYTES_PER_ELEMENT:
        return blob
    seen = ShapeValue(kind.shape)
    return made(net, BARRIER, (blob,), kind.dtype, kind.shape, name, T=kind.dtype, shape=seen)
