"""A Net prepared for simulation: which op allocates what, shares what, waits for whom.

TensorFlow's kernels were read for this: which outputs are the input's own buffer, which ops may
work in place when their input dies with them, which need a buffer of their own while they run.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterator, Mapping

from rnnmem.analysis.cost import CPU
from rnnmem.analysis.liveness import Needed, needed
from rnnmem.analysis.loops import Loop, through_identities
from rnnmem.analysis.segment_lengths import longest_segment, segment_count
from rnnmem.analysis.shape_rules import RESIZES, scattered
from rnnmem.analysis.shapes import KnownNet
from rnnmem.analysis.variable_effects import handle_of, names_a_function, written_by
from rnnmem.grappler.cse import Congruent
from rnnmem.ir.graph import BYTES_PER_ELEMENT, Blob, Constant, Net, Op
from rnnmem.ir.inline import is_compiled_call
from rnnmem.ir.marks import (
    ADVANCES,
    AGAIN,
    ENCODES,
    GROWTH,
    KEEPS,
    KEPT,
    LENGTH,
    SAVES,
    SEGMENTS,
    SLOTS,
)
from rnnmem.ir.op_table import (
    ASKS_SHAPE,
    BROADCASTS,
    LOOPS,
    MAY_RERUN,
    READ,
    REDUCES,
    SAME_BUFFER,
    TABLE,
    VIEWS,
    Work,
    column,
    in_place_slots,
    types,
)
from rnnmem.passes.encode.formats import COPIES
from rnnmem.simulate.buffers import Origin, rounded

SMALL_CONSTANT = 100 * 1024
"""Bytes up to which TensorFlow's graph optimizer computes an op of constants once and for all."""
COMPUTED = 10 * 2**20
"""Bytes up to which it writes equal numbers out."""
ONE_NUMBER = 64
"""Bytes up to which an encoded constant holds one number, repeated."""
STRING_BYTES = 24
"""Bytes of a string in a tensor; its letters are nothing that TensorFlow's allocator counts."""
FEW_STRINGS = 1024
"""Strings up to which they matter little; what more of them take, and how long, a run tells."""
CHEAP_SECONDS = 3e-6
"""An op that takes less runs at once, in the thread that made it ready."""


class Kind(enum.Enum):
    """What a simulated op does to memory."""

    __hash__ = object.__hash__  # each is itself only; Enum's own hash is slow

    ALLOCATE = "allocates its outputs, or takes an input's buffer"
    VIEW = "hands on its first input"
    VIEWS = "hands on each input"
    ROW = "hands on a row of what is resident, allocates one of anything else"
    RESIDENT = "hands out what is resident"
    READ = "hands out the buffer of a variable that soon gets another one"
    EMPTY = "makes an empty list"
    PUSH = "appends to a list"
    POP = "takes the last element of a list"
    SET = "replaces an element of a list"
    GET = "hands out an element of a list"
    COPY = "copies a tensor into a list"
    SCATTER = "copies rows of a tensor to places of a list"
    ZEROS = "makes a list of new elements"
    ADD_LISTS = "adds lists"
    ASSIGN = "gives a variable a new buffer"
    LOOP = "runs a step net many times"
    CALL = "runs a Net once"


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
_SLICES = types("slices") - types("apart")
_CROSS_ENTROPY = types("cross_entropy")
_HANDLES = frozenset({"resource", "variant"})
"""Dtypes of blobs that hold no numbers themselves."""
_NEW_BUFFERS = frozenset({Kind.ALLOCATE, Kind.ROW, Kind.POP, Kind.GET, Kind.READ})
_NEW_ELEMENTS = frozenset({Kind.COPY, Kind.SCATTER, Kind.ZEROS, Kind.ADD_LISTS})
_KINDS_OF_LISTS: Mapping[str, Kind] = {"zeros": Kind.ZEROS, "add": Kind.ADD_LISTS}
_OF_LISTS = {name: _KINDS_OF_LISTS[role] for name, role in column("variant").items()}
_HOLDERS = {
    *(name for name, role in _ROLES.items() if role in _KINDS or role == "none"),
    *_OF_LISTS,
    *VIEWS,
}
"""Types that hand out a list or an optional whose bytes are known to whoever made what it holds."""

_CONSTANT_FILLERS = types("fills")


@dataclasses.dataclass(slots=True, eq=False)
class Step:
    """One op, with slots for blobs.

    Attributes:
      op: the op.
      kind: what it does.
      inputs: slot per input, -1 where the input is resident.
      outputs: slot per output.
      origins: per output.
      sizes: bytes per output, 0 where it is a handle.
      in_place: positions of inputs whose buffer the first output may take.
      scratch: bytes it needs while it runs.
      seconds: estimated time.
      cheap: it runs at once, in the thread that made it ready.
      read: slots of the inputs that are not resident; known once the program is connected.
      element: bytes of an element of the list it makes.
      length: how many elements that list gets, or has in the end where a write may lengthen it, or
        are scattered; None where it is unknown, or no write does.
      trips: iterations of a loop.
      window: iterations of it in flight.
      probe: iterations of it that are simulated before the simulation leaps; 0: ``window + 1``.
      saved: the blob that a push saves for the gradient; empty: it is another list's.
      sums: it adds to a loop variable, and no other op of the iteration waits for it.
      eager: a loop whose ops start as soon as what they read is there.
      inner: programs of its step nets.
      segments: what a branch that segments added does (`rnnmem.analysis.segment_lengths`).
      checkpoints: how many segments there are, where it keeps their states.
      states: for each list of them, where what it keeps comes from.
      positions: of an op that runs step nets, slot -> where it stands among the inputs; known once
        the program is connected.
    """

    op: Op
    kind: Kind
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    origins: tuple[Origin, ...]
    sizes: tuple[int, ...]
    in_place: tuple[int, ...] = ()
    scratch: int = 0
    seconds: float = 0.0
    cheap: bool = True
    read: tuple[int, ...] = ()
    element: int = 0
    length: int | None = None
    trips: int | None = None
    window: int = 1
    probe: int = 0
    saved: str = ""
    sums: bool = False
    eager: bool = False
    inner: tuple[Program, ...] = ()
    segments: bytes = b""
    checkpoints: int = 0
    states: tuple[Origin, ...] = ()
    positions: Mapping[int, list[int]] | None = None


@dataclasses.dataclass
class Program:
    """A Net as steps over slots.

    Attributes:
      inputs: slot per input of the Net.
      outputs: slot per output, -1 where it is resident.
      steps: in an order in which they may run.
      slots: how many slots there are.
      uses: slot -> how many inputs read it.
      readers: slot -> steps that wait for it.
      followers: step -> steps that wait for it by a control edge.
      handed: slot -> positions among the Net's outputs, without those of invariants.
      invariants: positions of inputs that are handed on as they are.
      absent: positions of a body's inputs that no iteration hands on: dead, or resident.
      waits: step -> how many slots and steps it waits for.
      roots: steps that wait for nothing.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    steps: list[Step]
    slots: int
    uses: list[int]
    readers: list[list[int]]
    followers: list[list[int]]
    handed: list[list[int]]
    invariants: frozenset[int]
    absent: tuple[int, ...]
    waits: list[int]
    roots: list[int]


def compile_net(
    known: KnownNet,
    loops: tuple[str, ...],
    unknown: dict[str, None],
    variables: frozenset[int] | None = None,
    around: int | None = None,
    live: Needed | None = None,
) -> Program:
    """Prepares a Net.

    Args:
      known: the Net with its shapes.
      loops: names of the loops around it.
      unknown: takes the names of blobs whose size stays unknown.
      variables: for a loop's body, positions of the variables that are needed.
      around: iterations of the loop around it, or of the segment that it runs again.
      live: what a run needs; None: it is found out.
    """
    return _Compiler(known, loops, unknown, variables, around).run(live)


def spare(program: Program, runs: int) -> None:
    """Lets loops run fewer iterations before they leap, so that a large function takes no longer.

    Args:
      program: of the whole function; changed in place.
      runs: how many steps may be run in all, about.
    """
    steps = list(_all_steps(program))
    probe = max(2, runs // (2 * len(steps) + 1))
    for step in steps:
        if step.inner and step.kind is Kind.LOOP and step.window + 1 > probe:
            step.window, step.probe = min(step.window, probe), probe


def _all_steps(program: Program) -> Iterator[Step]:
    for step in program.steps:
        yield step
        for inner in step.inner:
            yield from _all_steps(inner)


class _Compiler:
    def __init__(self, known, loops, unknown, variables, around):
        self.variables = variables
        self.around = around
        self.known = known
        self.net = known.net
        self.loops = loops
        self.unknown = unknown
        self.constant: set[str] = set()
        self.uniform: set[str] = set()  # constants whose elements are all equal
        self.slot: dict[str, int] = {}
        self.congruent = Congruent()
        self.shown: dict[str, str] = {}  # what an Identity gives -> what it was given
        self.twin: dict[
            str, str
        ] = {}  # an op that is computed once with another: that other's name
        self.changing = _changing(self.net) if variables is not None else frozenset()

    def run(self, live: Needed | None) -> Program:
        net = self.net
        self.needed = needed(net, self.variables) if live is None else live
        ops = []
        for blob in net.inputs:
            self.slot.setdefault(blob, len(self.slot))
        for op in self.needed.ops:
            if self._folds(op):
                self.constant.update(op.outputs)
                continue
            same = self._first_like(op)
            if same is not op:
                self.twin[op.name] = same.name
                for blob, other in zip(op.outputs, same.outputs, strict=True):
                    self.slot[blob] = self.slot[other]
                continue
            ops.append(op)
            for blob in op.outputs:
                self.slot.setdefault(blob, len(self.slot))
        steps = [self._step(op) for op in ops]
        program = Program(
            inputs=tuple(self.slot[blob] for blob in net.inputs),
            outputs=tuple(
                self.slot.get(blob, -1) if self._is_needed(position) else -1
                for position, blob in enumerate(net.outputs)
            ),
            steps=steps,
            slots=(slots := 1 + max(self.slot.values(), default=-1)),
            uses=[0] * slots,
            readers=[[] for _ in range(slots)],
            followers=[[] for _ in steps],
            handed=[[] for _ in range(slots)],
            invariants=self._invariants(),
            absent=(),
            waits=[0] * len(steps),
            roots=[],
        )
        self._connect(program, ops)
        self._mark_sums(program)
        return program

    def _mark_sums(self, program: Program) -> None:
        """Marks what adds up over the iterations, e.g. the gradient of a weight."""
        writer = {slot: step for step in program.steps for slot in step.outputs}

        def behind_views(slot: int) -> int:
            while (step := writer.get(slot)) and step.kind is Kind.VIEW and step.inputs:
                slot = step.inputs[0]
            return slot

        for position, slot in enumerate(program.outputs):
            step = writer.get(behind_views(slot))
            if self.variables is not None and step is not None and step.kind is Kind.ALLOCATE:
                added = [behind_views(one) for one in step.inputs]
                step.sums = not step.cheap and program.inputs[position] in added

    def _is_needed(self, position: int) -> bool:
        return self.variables is None or position in self.variables

    def _invariants(self) -> frozenset[int]:
        return frozenset(
            index
            for index, (blob, result) in enumerate(
                zip(self.net.inputs, self.net.outputs, strict=False)
            )
            if self.variables is not None and through_identities(self.net, result) == blob
        )

    def _connect(self, program: Program, ops: list[Op]) -> None:
        number = {op.name: index for index, op in enumerate(ops)}
        uses, readers = program.uses, program.readers
        for index, step in enumerate(program.steps):
            inputs = step.inputs
            step.read = read = (
                tuple([slot for slot in inputs if slot >= 0]) if -1 in inputs else inputs
            )
            for slot in read:
                uses[slot] += 1
            waited = set(read)
            for slot in waited:
                readers[slot].append(index)
            waits = len(waited)
            if step.op.controls:
                names = {self.twin.get(name, name) for name in step.op.controls}
                before = {number[name] for name in names if name in number}
                for other in before:
                    program.followers[other].append(index)
                waits += len(before)
            program.waits[index] = waits
            if not waits:
                program.roots.append(index)
            if step.inner:
                step.positions = _positions(inputs)
        for position, slot in enumerate(program.outputs):
            if slot >= 0 and position not in program.invariants:
                program.handed[slot].append(position)
        program.absent = tuple(
            position
            for position, slot in enumerate(program.outputs)
            if slot < 0 and position not in program.invariants
        )

    def _first_like(self, op: Op) -> Op:
        """The first of the ops that TensorFlow computes once with this one, perhaps itself."""
        if op.type == "Identity" and COPIES.isdisjoint(op.attributes):
            self.shown[op.outputs[0]] = self.shown.get(op.inputs[0], op.inputs[0])
        if op.type not in MAY_RERUN:
            return op
        read = [self.shown.get(blob, blob) for blob in op.inputs]
        return self.congruent.first(op, [self.slot.get(blob, blob) for blob in read])

    def _folds(self, op: Op) -> bool:
        """Whether TensorFlow computes the op once, when it optimizes the graph."""
        if op.type == "Const":
            held = op.attributes.get("value")
            if isinstance(held, Constant) and len(held.encoded) <= ONE_NUMBER:
                self.uniform.update(op.outputs)
            return True
        if op.nets or op.type not in MAY_RERUN or not op.outputs:
            return False
        if op.type in ASKS_SHAPE or op.type == "ZerosLike":
            read = [self.known.declared[blob].bytes for blob in op.inputs]
            return None not in read or self.constant.issuperset(op.inputs)
        if not op.inputs or not self.constant.issuperset(op.inputs):
            return False
        sizes = [self.known.declared[blob].bytes for blob in op.outputs]
        if None in sizes:
            return False
        if self._is_uniform(op):
            self.uniform.update(op.outputs)
            return True
        return sum(sizes) <= SMALL_CONSTANT

    def _is_uniform(self, op: Op) -> bool:
        """Whether an op of constants writes equal elements only: they are stored as one."""
        if op.type in _CONSTANT_FILLERS:
            return True
        if TABLE[op.type].work is Work.POINTWISE:
            return self.uniform.issuperset(op.inputs)
        if op.controls or (self.known.declared[op.outputs[0]].bytes or 0) > COMPUTED:
            return False
        return (op.type in BROADCASTS or op.type == "Reshape") and op.inputs[0] in self.uniform

    def _size(self, blob: Blob) -> int:
        size = blob.bytes
        if size is not None:
            return rounded(size)
        if blob.dtype == "string" and blob.shape is not None and None not in blob.shape:
            count = math.prod(blob.shape)
            if count <= FEW_STRINGS:
                return rounded(STRING_BYTES * count)
        if blob.dtype not in _HANDLES:
            self.unknown[blob.name] = None
        return 0

    def _note_opaque(self, op: Op) -> None:
        """What an op holds or runs that is not looked into is unknown, not nothing."""
        attributes = op.attributes.items()
        if is_compiled_call(op) or any(
            name[0] != "_" and names_a_function(value) for name, value in attributes
        ):
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
            inputs=tuple([slot.get(blob, -1) for blob in op.inputs]),
            outputs=tuple([slot[blob] for blob in op.outputs]),
            origins=tuple([self._origin(op, blob) for blob in blobs]),
            sizes=tuple([self._size(blob) for blob in blobs]) if makes else (0,) * len(blobs),
            seconds=0.0 if op.nets else CPU.launch_seconds,
        )
        if op.nets:
            self._descend(op, step)
        elif kind in _NEW_ELEMENTS:
            self._list(op, step)
            self._time(op, step)
        elif kind in (Kind.ALLOCATE, Kind.ROW):
            if op.type != "Identity":
                step.in_place = in_place_inputs(op, blobs, self.net)
            step.scratch = self._scratch(op)
            self._time(op, step)
        elif kind in (Kind.EMPTY, Kind.SET):
            self._list(op, step)
        return step

    def _time(self, op: Op, step: Step) -> None:
        step.seconds = CPU.seconds(op, self.net)
        step.cheap = step.seconds - CPU.launch_seconds < CHEAP_SECONDS

    def _origin(self, op: Op, blob: Blob) -> Origin:
        return Origin(op.name, blob.name, op.source, self.loops, "", False, blob.dtype, blob.shape)

    def _kind(self, op: Op) -> Kind:
        if op.type in LOOPS:
            return Kind.LOOP
        if op.nets:
            return Kind.CALL
        if op.type == READ and handle_of(self.net, op.inputs[0]) in self.changing:
            return Kind.READ
        if op.type == READ:
            return Kind.RESIDENT
        if op.type == "AssignVariableOp":
            return Kind.ASSIGN
        if op.type == "IdentityN":
            return Kind.VIEWS
        if _ROLES.get(op.type) in _KINDS:
            return _KINDS[_ROLES[op.type]]
        if op.type == "Identity" and not COPIES.isdisjoint(op.attributes):
            return Kind.ALLOCATE
        of_lists = bool(op.outputs) and self.net.blobs[op.outputs[0]].dtype == "variant"
        if of_lists:
            return _OF_LISTS.get(op.type, Kind.VIEW)
        if op.type in SAME_BUFFER or self._does_nothing(op):
            return Kind.VIEW
        return Kind.ROW if self._is_row(op) else Kind.ALLOCATE

    def _does_nothing(self, op: Op) -> bool:
        """Whether the kernel hands on its input because there is nothing to do."""
        if not op.inputs or not op.outputs:
            return False
        read, written = self.net.blobs[op.inputs[0]], self.net.blobs[op.outputs[0]]
        if read.bytes is None or read.bytes != written.bytes:
            return op.type in _SLICES and self._cuts_rows(op, read, written)
        if op.type == "Cast":
            return read.dtype == written.dtype
        if op.type == "Transpose":
            order = self._value(op.inputs[1])
            return isinstance(order, tuple) and _moves_only_ones(read.shape, order)
        return op.type in _SKIPS

    def _value(self, blob: str):
        fact = self.known.facts.get(blob)
        return None if fact is None else fact.value

    def _cuts_rows(self, op: Op, read: Blob, written: Blob) -> bool:
        """A run of whole rows is a view of its tensor."""
        if not read.shape or written.shape is None or len(read.shape) != len(written.shape):
            return False
        return read.shape[1:] == written.shape[1:] and self._is_contiguous(op, read)

    def _is_row(self, op: Op) -> bool:
        """Whether it cuts one whole row (``x[i]``), which is a view, too."""
        if op.type != "StridedSlice" or op.attributes.get("shrink_axis_mask") != 1:
            return False
        read, written = self.net.blobs[op.inputs[0]], self.net.blobs[op.outputs[0]]
        if not read.shape or read.shape[1:] != written.shape:
            return False
        return self._is_contiguous(op, read)

    def _is_contiguous(self, op: Op, read: Blob) -> bool:
        """Whether rows that follow each other are cut, aligned as TensorFlow aligns buffers."""
        if None in read.shape:
            return False
        if op.type == "StridedSlice":
            stride = self._value(op.inputs[3])
            if not isinstance(stride, tuple) or stride[0] != 1:
                return False
        return math.prod(read.shape[1:]) * BYTES_PER_ELEMENT.get(read.dtype, 1) % 64 == 0

    def _scratch(self, op: Op) -> int:
        """Bytes of a reduction that must first be transposed."""
        if op.type not in REDUCES or not op.inputs:
            return 0
        read = self.net.blobs[op.inputs[0]]
        axes = self._value(op.inputs[1])
        axes = (axes,) if isinstance(axes, int) else axes
        if read.bytes is None or not isinstance(axes, tuple) or None in axes or not read.shape:
            return 0
        dropped = {axis % len(read.shape) for axis in axes}
        runs = []
        for axis, size in enumerate(read.shape):
            if size != 1 and (not runs or runs[-1] != (axis in dropped)):
                runs.append(axis in dropped)
        return rounded(read.bytes) if len(runs) > 3 else 0

    def _list(self, op: Op, step: Step) -> None:
        fact = self.known.facts[op.outputs[0]]
        step.length = fact.length
        if step.kind is Kind.EMPTY:
            step.length = fact.length if op.type == "TensorListReserve" else None
            return
        if step.kind is Kind.SET:
            step.length = self._lengthened(op) if op.attributes.get(RESIZES) else None
            return
        if step.kind is Kind.COPY and self._stays_constant(op):
            return  # a list of constants is a constant
        if step.kind is Kind.COPY and step.length is None:
            self.unknown[op.outputs[0]] = None
            return
        if step.kind is Kind.SCATTER:
            step.length = (self.known.facts[scattered(op)].shape or (None,))[0]
            if step.length is None:
                self.unknown[op.outputs[0]] = None
                return
        dtype = op.attributes.get("element_dtype")
        size = BYTES_PER_ELEMENT.get(getattr(dtype, "name", ""), 4)
        shape = fact.element.shape if fact.element else None
        if shape is None or None in shape:
            self.unknown[op.outputs[0]] = None
            return
        step.element = rounded(size * math.prod(shape))

    def _lengthened(self, op: Op) -> int | None:
        """How many elements a list has in the end that a write may lengthen."""
        blob = op.outputs[0]
        length = self.known.grown.get(blob, self.known.facts[blob].length)
        length = op.attributes.get(SLOTS) if length is None else length
        if length is None:
            self.unknown[blob] = None
        return length

    def _stays_constant(self, op: Op) -> bool:
        """TensorFlow computes a list of constants beforehand, unless some op waits for the list."""
        return op.inputs[0] in self.constant and op.name not in self.net.controlled

    def _descend(self, op: Op, step: Step) -> None:
        if step.kind is Kind.LOOP:
            step.trips = self.known.trips[op.name]
            if op.attributes.get(SEGMENTS) == AGAIN:
                step.trips = self.around
            elif op.attributes.get(SEGMENTS) == ADVANCES:
                step.trips = (
                    0  # the first segment to run again is the last one, whose state is kept
                )
            if step.trips is None:
                self.unknown[f"trip count of {op.name}"] = None
            step.window = max(1, int(op.attributes.get("parallel_iterations", 10)))
            step.eager = not op.controls
            live = self.needed.variables[op.name]
            step.inputs = tuple(
                slot if position in live else -1 for position, slot in enumerate(step.inputs)
            )
            known = self.known.inner[op.name, "body"]
            path = (*self.loops, op.name)
            inside = self.needed.bodies[op.name]
            step.inner = (compile_net(known, path, self.unknown, live, step.trips, inside),)
            self._name_accumulators(op, step.inner[0])
        else:
            around = self._segments(op, step) if SEGMENTS in op.attributes else None
            step.inner = tuple(
                compile_net(self.known.inner[op.name, key], self.loops, self.unknown, around=around)
                for key in op.nets
            )

    def _segments(self, op: Op, step: Step) -> int | None:
        """Notes what the branch does; returns iterations of the longest segment."""
        step.segments = op.attributes[SEGMENTS]
        if step.segments == KEEPS:
            step.states = self._states(op)
        if self.around is None:
            return None
        shape = self.around, op.attributes[LENGTH], op.attributes[GROWTH]
        count = segment_count(*shape)
        step.checkpoints = min(count, op.attributes.get(KEPT) or count)
        return longest_segment(*shape)

    def _states(self, op: Op) -> tuple[Origin, ...]:
        """What the lists hold that the branch keeps states in: it reads as many blobs last."""
        then = op.nets["then_branch"]
        lists = sum(then.blobs[blob].dtype == "variant" for blob in then.outputs)
        return tuple(map(self._state, op.inputs[len(op.inputs) - lists :]))

    def _state(self, blob: str) -> Origin:
        """The argument of a step net as what is kept of it; the op is what makes the next one."""
        net, kind = self.net, self.net.blobs[blob]
        following = net.outputs[net.inputs.index(blob)] if blob in net.inputs else blob
        made = net.producer.get(through_identities(net, following))
        name, source = ("", "") if made is None else (made.name, made.source)
        return Origin(name, blob, source, self.loops, blob, False, kind.dtype, kind.shape)

    def _name_accumulators(self, op: Op, body: Program) -> None:
        """Marks what the loop pushes, so that a report can name it by loop and blob."""
        pushes = {
            push.name: push.attributes.get(SAVES, push.inputs[1].encode()).decode()
            for push in Loop(self.net, op).pushes.values()
        }
        for step in body.steps:
            if step.op.name in pushes:
                step.saved = pushes[step.op.name]


def _positions(slots: tuple[int, ...]) -> Mapping[int, list[int]]:
    """Slot -> where it stands among these."""
    found: dict[int, list[int]] = {}
    for position, slot in enumerate(slots):
        found.setdefault(slot, []).append(position)
    return found


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


def _moves_only_ones(shape, order: tuple[int | None, ...]) -> bool:
    """Whether a transposition leaves the elements where they are."""
    if None in order or shape is None:
        return False
    wide = [axis for axis in order if shape[axis] != 1]
    return wide == sorted(wide)
