"""A program to be simulated: steps over slots, what each does to memory, and who waits for whom."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Iterator, Mapping

from rnnmem.ir.graph import Net, Op
from rnnmem.simulate.buffers import Origin


class Kind(enum.Enum):
    """What a simulated op does to memory."""

    __hash__ = object.__hash__  # each is itself only; Enum's own hash is slow

    ALLOCATE = "allocates its outputs, or takes an input's buffer"
    VIEW = "hands on its first input"
    VIEWS = "hands on each input"
    PARTS = "hands out rows of what it reads"
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
      window: iterations of it under way.
      variables: loop variables that somebody needs.
      saved: the blob that a push saves for the gradient; empty: it is another list's.
      saved_loops: names of the loops around such a push.
      sums: it adds to a loop variable, and no other op of the iteration waits for it.
      lags: it adds to a loop variable that nothing else in the iteration reads.
      keepalive: a loop's push of what is popped at once (`rnnmem.grappler.keepalive`).
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
    variables: int = 0
    saved: str = ""
    saved_loops: tuple[str, ...] = ()
    sums: bool = False
    lags: bool = False
    keepalive: bool = False
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
      net: the Net, with its shapes.
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
      unknown: names of blobs of unknown size, and of loops of unknown trips, here and inside.
      peaks_alone: bytes that it takes where its inputs are resident, by threads and the iterations
        that are simulated; filled when asked.
    """

    net: Net
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
    unknown: tuple[str, ...] = ()
    peaks_alone: dict[tuple[int, int], int] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def size(self) -> int:
        """Steps of it and of those inside."""
        return sum(1 + sum(inner.size for inner in step.inner) for step in self.steps)

    @functools.cached_property
    def has_several_loops(self) -> bool:
        """Whether one loop may run before what another one reads is made."""
        return sum(step.kind is Kind.LOOP for step in self.steps) > 1


def connect(program: Program, congruent_op: Mapping[str, str], is_body: bool) -> None:
    """Finds who waits for whom in a program whose steps and slots are known.

    Args:
      program: changed in place.
      congruent_op: op that is computed once with another -> that other's name.
      is_body: whether it is a loop's body.
    """
    number = {step.op.name: index for index, step in enumerate(program.steps)}
    uses, readers = program.uses, program.readers
    for index, step in enumerate(program.steps):
        inputs = step.inputs
        step.read = read = tuple([slot for slot in inputs if slot >= 0]) if -1 in inputs else inputs
        for slot in read:
            uses[slot] += 1
        waited = set(read)
        for slot in waited:
            readers[slot].append(index)
        waits = len(waited)
        if step.op.controls:
            names = {congruent_op.get(name, name) for name in step.op.controls}
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
    if is_body:
        _mark_sums(program)


def _mark_sums(program: Program) -> None:
    """Marks what adds up over the iterations, e.g. the gradient of a weight."""
    writer = {slot: step for step in program.steps for slot in step.outputs}

    def behind_views(slot: int) -> int:
        while (step := writer.get(slot)) and step.kind is Kind.VIEW and step.inputs:
            slot = step.inputs[0]
        return slot

    for position, slot in enumerate(program.outputs):
        step = writer.get(behind_views(slot))
        if step is not None and step.kind is Kind.ALLOCATE:
            added = [behind_views(one) for one in step.inputs]
            given = program.inputs[position]
            step.sums = not step.cheap and given in added
            step.lags = step.sums and _readers(program, given) == {id(step)}


def _readers(program: Program, slot: int) -> set[int]:
    """Identities of the steps that read a slot, or a view of it."""
    found: set[int] = set()
    for index in program.readers[slot]:
        step = program.steps[index]
        views = step.outputs if step.kind in (Kind.VIEW, Kind.PARTS) else ()
        found |= set().union(*(_readers(program, view) for view in views)) if views else {id(step)}
    return found


def _positions(slots: tuple[int, ...]) -> Mapping[int, list[int]]:
    """Slot -> where it stands among these."""
    found: dict[int, list[int]] = {}
    for position, slot in enumerate(slots):
        found.setdefault(slot, []).append(position)
    return found


def all_steps(program: Program) -> Iterator[Step]:
    """The steps of a program and of those inside."""
    for step in program.steps:
        yield step
        for inner in step.inner:
            yield from all_steps(inner)
