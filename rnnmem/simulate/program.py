"""A Net prepared for simulation: which op allocates what, shares what, waits for whom.

TensorFlow's kernels were read for this: which outputs are the input's own buffer, which ops may
work in place when their input dies with them, which need a buffer of their own while they run.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping

from rnnmem.analysis.copied_reads import copied_inside, copied_when_read
from rnnmem.analysis.layouts import moves_only_ones
from rnnmem.analysis.liveness import Needed, needed
from rnnmem.analysis.loops import Loop
from rnnmem.analysis.machine import (
    CHEAP_SECONDS,
    FEW_STRINGS,
    STRING_BYTES,
    Machine,
    rounded,
)
from rnnmem.analysis.segment_lengths import longest_segment, segment_count
from rnnmem.analysis.shapes import KnownNet
from rnnmem.analysis.shared_rows import source_of_rows
from rnnmem.analysis.variable_effects import handle_of, written_by
from rnnmem.grappler.constant_products import constants_moved
from rnnmem.ir.graph import Blob, Net, Op, static
from rnnmem.ir.inline import is_compiled_call
from rnnmem.ir.marks import (
    ADVANCES,
    AGAIN,
    ENCODES,
    END,
    GROWTH,
    KEEPS,
    KEPT,
    LENGTH,
    ON_GPU,
    SAVES,
    SAVES_TAIL,
    SEGMENTS,
)
from rnnmem.ir.op_table import (
    ASKS_SHAPE,
    BRANCHES,
    LOOPS,
    READ,
    SAME_BUFFER,
    SAME_NUMBERS,
    VIEWS,
    column,
    in_place_slots,
    types,
)
from rnnmem.ir.order import popped_at_once, through_identities
from rnnmem.simulate.buffers import Origin
from rnnmem.simulate.folding import PLAIN, Folding, Simplified, copies
from rnnmem.simulate.lists import fill_in, kept_states
from rnnmem.simulate.scratch import scratch_bytes
from rnnmem.simulate.steps import Kind, Program, Step, connect
from rnnmem.simulate.traits import names_functions

_KINDS: Mapping[str, Kind] = {
    "cut": Kind.COPY,
    "empty": Kind.EMPTY,
    "get": Kind.GET,
    "place": Kind.SCATTER,
    "pop": Kind.POP,
    "push": Kind.PUSH,
    "reserve": Kind.EMPTY,
    "resize": Kind.VIEW,
    "scatter": Kind.SCATTER,
    "set": Kind.SET,
}
"""What an op does with a list -> what it does to memory."""
_ROLES = column("list")

_SKIPS = types("skips")
_CROSS_ENTROPY = types("cross_entropy")
_HANDLES = frozenset({"resource", "variant"})
"""Dtypes of blobs that hold no numbers themselves."""
_NEW_BUFFERS = frozenset({Kind.ALLOCATE, Kind.POP, Kind.GET, Kind.READ})
_NEW_ELEMENTS = frozenset({Kind.COPY, Kind.SCATTER, Kind.ZEROS, Kind.ADD_LISTS})
_TOLD_LENGTHS = frozenset({Kind.EMPTY, Kind.SET})
_KINDS_OF_LISTS: Mapping[str, Kind] = {"zeros": Kind.ZEROS, "add": Kind.ADD_LISTS}
_OF_LISTS = {name: _KINDS_OF_LISTS[role] for name, role in column("variant").items()}
_HOLDERS = {
    *(name for name, role in _ROLES.items() if role in _KINDS or role == "none"),
    *_OF_LISTS,
    *VIEWS,
}
"""Types that hand out a list or an optional whose bytes are known to whoever made what it holds."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a Net runs.

    Attributes:
      loops: names of the loops around it.
      variables: for a loop's body, positions of the variables that are needed.
      around: iterations of the loop around it, or of the segment that it runs again.
      copied: inputs with handles of variables of which each read is a copy; None: as the Net tells.
    """

    loops: tuple[str, ...] = ()
    variables: frozenset[int] | None = None
    around: int | None = None
    copied: frozenset[str] | None = None


WHOLE = Place()
"""A whole function."""


def compile_net(
    known: KnownNet,
    machine: Machine,
    simplified: Simplified = PLAIN,
    place: Place = WHOLE,
    live: Needed | None = None,
) -> Program:
    """Prepares a Net; one program serves all who ask for the same.

    Args:
      known: the Net with its shapes.
      machine: whose times are assumed.
      simplified: what TensorFlow is taken to have left out.
      place: where it runs.
      live: what a run needs; None: it is found out.
    """
    asked = machine, simplified, place, id(live), tuple(known.grown.items())
    compiled = known.net.once(_compiled)
    if asked not in compiled:
        compiled[asked] = _Compiler(known, machine, simplified, place).run(live), live
    return compiled[asked][0]


def is_cheap(step: Step, seconds: float, machine: Machine) -> bool:
    """Whether an op that takes so long runs at once, in the thread that made it ready."""
    if step.kind is not Kind.ALLOCATE and step.kind not in _NEW_ELEMENTS:
        return True
    fast = seconds - machine.launch_seconds < CHEAP_SECONDS
    return fast and not step.scratch  # to lay that out takes longer


def _compiled(net: Net) -> dict[tuple, tuple[Program, Needed | None]]:
    """The programs of a Net by what was asked for, and what keeps `id` to one object."""
    return {}


class _Compiler:
    def __init__(self, known: KnownNet, machine: Machine, simplified: Simplified, place: Place):
        copied = place.copied
        self.copied = known.net.once(copied_when_read) if copied is None else copied
        self.simplified = simplified
        self.machine = machine
        self.variables = place.variables
        self.around = place.around
        self.known = known
        self.net = known.net
        self.loops = place.loops
        self.unknown: dict[str, None] = {}  # names of blobs whose size stays unknown, and of loops
        self.folding = Folding(known, simplified)
        self.slot: dict[str, int] = {}
        self.unread: dict[str, int] = {}  # handle behind a loop -> the slot that nobody reads
        self.congruent_op: dict[
            str, str
        ] = {}  # op that is computed once with another -> that other's name
        self.changing = _changing(self.net) if self.variables is not None else frozenset()

    def run(self, live: Needed | None) -> Program:
        net = self.net
        self.needed = needed(net, self.variables) if live is None else live
        self.awaited = {name for op in self.needed.ops for name in op.controls}
        ops = []
        for blob in net.inputs:
            self.slot.setdefault(blob, len(self.slot))
        moved = net.once(constants_moved)
        for found in self.needed.ops:
            op = moved.as_it_runs(found)
            if op.outputs and op.outputs[0] in moved.gone:
                self.slot[op.outputs[0]] = self.slot[moved.gone[op.outputs[0]]]
                continue
            if self.folding.folds(op):
                continue
            if given := self._hands_on(op):
                self.slot.update((blob, self.slot[one]) for blob, one in given if one in self.slot)
                continue
            same = self.folding.first_like(op, self.slot)
            if same is not op:
                self.congruent_op[op.name] = same.name
                for blob, other in zip(op.outputs, same.outputs, strict=True):
                    self.slot[blob] = self.slot[other]
                continue
            ops.append(op)
            for blob in op.outputs:
                self.slot.setdefault(blob, len(self.slot))
            if op.type in LOOPS:
                self._lead_past(op)
        steps = [self._step(op) for op in ops]
        program = Program(
            net=net,
            inputs=tuple(self.slot[blob] for blob in net.inputs),
            outputs=tuple(
                self.slot.get(blob, -1) if self._is_needed(position) else -1
                for position, blob in enumerate(net.outputs)
            ),
            steps=steps,
            slots=(slots := 1 + max((*self.slot.values(), *self.unread.values()), default=-1)),
            uses=[0] * slots,
            readers=[[] for _ in range(slots)],
            followers=[[] for _ in steps],
            handed=[[] for _ in range(slots)],
            invariants=self._invariants(),
            absent=(),
            waits=[0] * len(steps),
            roots=[],
            unknown=tuple(self.unknown),
        )
        connect(program, self.congruent_op, self.variables is not None)
        return program

    def _lead_past(self, loop: Op) -> None:
        """Who reads a variable's handle behind a loop need not wait for it (``lower_while_op.cc``).

        So what has the shape of a weight, such as where its gradient begins, is made before.
        """
        for given, blob in zip(loop.inputs, loop.outputs, strict=True):
            if self.net.blobs[blob].dtype == "resource" and given in self.slot:
                self.unread[blob], self.slot[blob] = self.slot[blob], self.slot[given]

    def _is_needed(self, position: int) -> bool:
        return self.variables is None or position in self.variables

    def _invariants(self) -> frozenset[int]:
        pairs = enumerate(zip(self.net.inputs, self.net.outputs, strict=False))
        return frozenset(
            index
            for index, (blob, result) in pairs
            if self.variables is not None and through_identities(self.net, result) == blob
        )

    def _hands_on(self, op: Op) -> Iterable[tuple[str, str]]:
        """What an op writes, and the blob that TensorFlow hands on instead, as each is there.

        A Keras optimizer hands all gradients through one op; each update waits for its own alone.
        """
        if op.name in self.awaited or op.controls:
            return ()
        if op.type == "IdentityN":
            return zip(op.outputs, op.inputs, strict=True)
        blob = self.folding.stands_for(op)
        return () if blob is None else ((op.outputs[0], blob),)

    def _inputs(self, op: Op) -> tuple[int, ...]:
        """The slots that an op reads; -1 where it holds nothing.

        A GPU's ops start in turn, so a shape was asked for before a softmax takes the buffer.
        """
        if op.type not in ASKS_SHAPE:
            return tuple([self.slot.get(blob, -1) for blob in op.inputs])
        return tuple(
            [-1 if self._is_taken_on_gpu(blob) else self.slot.get(blob, -1) for blob in op.inputs]
        )

    def _is_taken_on_gpu(self, blob: str) -> bool:
        return any(reader.attributes.get(ON_GPU) for reader in self.net.readers.get(blob, ()))

    def _size(self, blob: Blob) -> int:
        size = blob.bytes
        if size is not None:
            return rounded(size)
        shape = static(blob.shape)
        if blob.dtype == "string" and shape is not None:
            count = math.prod(shape)
            if count <= FEW_STRINGS:
                return rounded(STRING_BYTES * count)
        if blob.dtype not in _HANDLES:
            self.unknown[blob.name] = None
        return 0

    def _note_opaque(self, op: Op) -> None:
        """What an op holds or runs that is not looked into is unknown, not nothing."""
        if is_compiled_call(op) or names_functions(op):
            self.unknown[f"what {op.name} runs"] = None
        elif not op.nets and op.type not in _HOLDERS:
            for blob in op.outputs:
                if self.net.blobs[blob].dtype == "variant":
                    self.unknown[blob] = None

    def _step(self, op: Op) -> Step:
        slot, blobs = self.slot, [self.net.blobs[blob] for blob in op.outputs]
        kind = self._kind(op)
        self._note_opaque(op)
        makes = kind in _NEW_BUFFERS
        if makes and op.type == "Identity":
            makes = ENCODES not in op.attributes  # what goes to the host takes nothing here
        step = Step(
            op,
            kind,
            inputs=self._inputs(op),
            outputs=tuple([self.unread.get(blob, slot[blob]) for blob in op.outputs]),
            origins=tuple([self._origin(op, blob) for blob in blobs]),
            sizes=tuple([self._size(blob) for blob in blobs]) if makes else (0,) * len(blobs),
            seconds=0.0 if op.nets else self.machine.least_seconds(op, self.net),
            keepalive=self.variables is not None and popped_at_once(self.net, op) is not None,
        )
        if op.nets:
            self._descend(op, step)
        elif kind in _NEW_ELEMENTS:
            fill_in(step, self.known, self.folding.constant, self.unknown)
            self._time(op, step)
        elif kind is Kind.ALLOCATE:
            if op.type != "Identity":
                step.in_place = in_place_inputs(op, blobs, self.net)
            step.scratch = scratch_bytes(op, self.net, self._value, self.machine.threads)
            self._time(op, step)
        elif kind in _TOLD_LENGTHS:
            fill_in(step, self.known, self.folding.constant, self.unknown)
        return step

    def _time(self, op: Op, step: Step) -> None:
        step.seconds = self.machine.seconds(op, self.net)
        step.cheap = is_cheap(step, step.seconds, self.machine)

    def _origin(self, op: Op, blob: Blob) -> Origin:
        return Origin(op.name, blob.name, op.source, self.loops, "", False, blob.dtype, blob.shape)

    def _kind(self, op: Op) -> Kind:
        if op.type in LOOPS:
            return Kind.LOOP
        if op.nets:
            return Kind.CALL
        if op.type == READ:
            return self._kind_of_read(handle_of(self.net, op.inputs[0]))
        if op.type == "AssignVariableOp":
            return Kind.ASSIGN
        if op.type == "IdentityN":
            return Kind.VIEWS
        if _ROLES.get(op.type) in _KINDS:
            return _KINDS[_ROLES[op.type]]
        if op.type == "Identity" and (copies(op) or self._casts_again(op)):
            return Kind.ALLOCATE  # a copy to another device, or back; or a second cast
        of_lists = bool(op.outputs) and self.net.blobs[op.outputs[0]].dtype == "variant"
        if of_lists:
            return _OF_LISTS.get(op.type, Kind.VIEW)
        if op.type in SAME_BUFFER or self._does_nothing(op):
            return Kind.VIEW
        return Kind.ALLOCATE if source_of_rows(self.net, op, self._value) is None else Kind.PARTS

    def _kind_of_read(self, handle: str) -> Kind:
        if handle in self.copied:
            return Kind.ALLOCATE
        return Kind.READ if handle in self.changing else Kind.RESIDENT

    def _casts_again(self, op: Op) -> bool:
        """Whether a body hands on a wider copy of small numbers that others read as well.

        TensorFlow hands on the small ones and casts those (``arithmetic_optimizer.cc``,
        ``ReorderCastLikeAndValuePreserving``), so that the cast is done twice.
        """
        if self.variables is None or op.outputs[0] not in self.net.outputs:
            return False
        blob, alone = op.inputs[0], True
        while (source := self.net.producer.get(blob)) is not None:
            alone = alone and self.net.fan_out(blob) == 1
            if source.type == "Cast":
                small, wide = (self.net.blobs[one].bytes for one in (source.inputs[0], blob))
                return not alone and small is not None and wide is not None and small < wide
            if source.type not in SAME_NUMBERS and source.type != "IdentityN":
                return False
            blob = source.inputs[source.outputs.index(blob)]
        return False

    def _does_nothing(self, op: Op) -> bool:
        """Whether the kernel hands on its input because there is nothing to do."""
        if not op.inputs or not op.outputs:
            return False
        read, written = self.net.blobs[op.inputs[0]], self.net.blobs[op.outputs[0]]
        if read.bytes is None or read.bytes != written.bytes:
            return False
        if op.type == "Cast":
            return read.dtype == written.dtype
        if op.type == "Transpose":
            order = self._value(op.inputs[1])
            return isinstance(order, tuple) and moves_only_ones(read.shape, order)
        return op.type in _SKIPS

    def _value(self, blob: str):
        fact = self.known.facts.get(blob)
        return None if fact is None else fact.value

    def _descend(self, op: Op, step: Step) -> None:
        if step.kind is Kind.LOOP:
            step.trips = self.known.trips[op.name]
            if op.attributes.get(SEGMENTS) == AGAIN:
                step.trips = self.around
            elif op.attributes.get(SEGMENTS) == ADVANCES:
                step.trips = 0  # the last segment runs again first, and its state is kept
            if step.trips is None:
                self.unknown[f"trip count of {op.name}"] = None
            step.window = max(1, int(op.attributes.get("parallel_iterations", 10)))
            step.eager = not op.controls
            live = self.needed.variables[op.name]
            step.variables = len(live)
            step.inputs = tuple(
                slot if position in live else -1 for position, slot in enumerate(step.inputs)
            )
            known = self.known.inner[op.name, "body"]
            path = (*self.loops, op.name)
            inside = self.needed.bodies[op.name]
            step.inner = (self._compiled(op, known, path, live, step.trips, inside),)
            self._name_accumulators(op, step.inner[0])
        else:
            around = self._segments(op, step) if SEGMENTS in op.attributes else None
            inner = [self.known.inner[op.name, key] for key in op.nets]
            step.inner = tuple(
                self._compiled(op, one, self.loops, None, around, self._needed_of(op, one))
                for one in inner
            )

    def _needed_of(self, op: Op, inner: KnownNet) -> Needed | None:
        """What a branch needs to compute of it; None: all that is handed out."""
        if not self.simplified.dead_in_branches or op.type not in BRANCHES:
            return None
        read = {blob for one in self.needed.ops for blob in one.inputs} | {*self.net.outputs}
        handed = zip(op.outputs, inner.net.outputs, strict=True)
        return needed(inner.net.replace(outputs=tuple(one for blob, one in handed if blob in read)))

    def _compiled(
        self,
        op: Op,
        known: KnownNet,
        loops: tuple[str, ...],
        variables: frozenset[int] | None,
        around: int | None,
        live: Needed | None,
    ) -> Program:
        place = Place(loops, variables, around, copied_inside(self.net, op, known.net, self.copied))
        program = compile_net(known, self.machine, self.simplified, place, live)
        self.unknown.update(dict.fromkeys(program.unknown))
        return program

    def _segments(self, op: Op, step: Step) -> int | None:
        """Notes what the branch does; returns iterations of the longest segment."""
        step.segments = op.attributes[SEGMENTS]
        if step.segments in (KEEPS, SAVES_TAIL):
            step.states = kept_states(op, self.net, self.loops)
        if self.around is None:
            return None
        end = op.attributes.get(END) or self.around
        if step.segments == SAVES_TAIL:
            step.checkpoints = self.around - end
            return None
        shape = end, op.attributes[LENGTH], op.attributes[GROWTH]
        count = segment_count(*shape)
        step.checkpoints = min(count, op.attributes.get(KEPT) or count)
        return longest_segment(*shape)

    def _name_accumulators(self, op: Op, body: Program) -> None:
        """Marks what the loop pushes, so that a report can name it by loop and blob."""
        pushes = {
            push.name: push.attributes.get(SAVES, push.inputs[1].encode()).decode()
            for push in Loop(self.net, op).pushes.values()
        }
        for step in body.steps:
            if step.op.name in pushes:
                step.saved, step.saved_loops = pushes[step.op.name], (*self.loops, op.name)


def _changing(net: Net) -> frozenset[str]:
    """Handles of variables that an op of the Net itself writes."""
    return frozenset(
        handle
        for op in net.ops
        if not op.nets
        for handle in written_by(net, op, lambda blob: handle_of(net, blob))
    )


def in_place_inputs(op: Op, written: list[Blob], net) -> tuple[int, ...]:
    """Inputs whose buffer the op may take, those of the same size as what it writes."""
    if op.type in _CROSS_ENTROPY:
        return (0,)
    positions = in_place_slots(op)
    if not positions or not written or written[0].bytes is None:
        return ()
    dtype, size = written[0].dtype, written[0].bytes
    read = [net.blobs[blob] for blob in op.inputs]
    return tuple(
        [
            position
            for position in positions
            if read[position].dtype == dtype and read[position].bytes == size
        ]
    )
