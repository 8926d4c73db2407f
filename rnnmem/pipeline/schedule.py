"""A pipeline's schedule as data: what every stage does, in order, down to each send and free.

Two schedules, both with one optimizer update at the end:

* ``1f1b``: stage s of P starts with P-s-1 forwards, then takes one forward and one backward in
  turn, then the backwards that remain (PipeDream-Flush: Narayanan et al. 2021, "Memory-efficient
  pipeline-parallel DNN training"). At most P-s forward scopes of stage s are alive.
* ``forward-then-backward``: all forwards, then all backwards (GPipe: Huang et al. 2019); each
  micro-batch keeps its scope until then, so memory grows with their number.

Backwards go through the micro-batches in rising order in both, so both sum gradients alike.

A send only offers a buffer; the receiver fetches it while the sender computes on. What proves that
a buffer was fetched frees it: a gradient that comes back from a stage was made after that stage
fetched the values that it needed until then.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rnnmem.errors import OptionError
from rnnmem.sizes import parse_count

HOST = -1
"""The stage number of whoever feeds inputs and labels."""

ONE_FORWARD_ONE_BACKWARD = "1f1b"
FORWARD_THEN_BACKWARD = "forward-then-backward"
FORWARD_ONLY = "forward-only"
TRAINING = (ONE_FORWARD_ONE_BACKWARD, FORWARD_THEN_BACKWARD)

FORWARD, BACKWARD, UPDATE = "forward", "backward", "update"
SEND, RECEIVE, FREE = "send", "receive", "free"

SCOPE = "scope"
VALUE_OUT, VALUE_IN = "value-out", "value-in"
GRADIENT_OUT, GRADIENT_IN = "gradient-out", "gradient-in"
SENT = {VALUE_OUT: VALUE_IN, GRADIENT_OUT: GRADIENT_IN}
RECEIVED = {there: here for here, there in SENT.items()}


@dataclasses.dataclass(frozen=True, order=True)
class Buffer:
    """What a stage holds for one micro-batch.

    Attributes:
      kind: ``scope`` (all that the backward reads of a forward), ``value-out``, ``value-in``,
        ``gradient-out`` or ``gradient-in``.
      stage: the stage in whose memory it is.
      micro_batch: the micro-batch that it belongs to.
      peer: the stage at the other end, ``HOST`` for what is fed; a scope's own stage.
    """

    kind: str
    stage: int
    micro_batch: int
    peer: int

    @property
    def other_end(self) -> Buffer:
        """The buffer at the peer that this one is sent to or received from."""
        kind = SENT.get(self.kind) or RECEIVED[self.kind]
        return Buffer(kind, self.peer, self.micro_batch, self.stage)

    def __str__(self) -> str:
        """Prints e.g. ``value-out 3 of stage 0 for stage 1``."""
        text = f"{self.kind} {self.micro_batch} of stage {self.stage}"
        if self.kind == SCOPE:
            return text
        peer = "the host" if self.peer == HOST else f"stage {self.peer}"
        return f"{text} {'for' if self.kind in SENT else 'from'} {peer}"


@dataclasses.dataclass(frozen=True)
class Action:
    """One thing that a stage does.

    Attributes:
      kind: ``forward``, ``backward``, ``update``, ``send``, ``receive`` or ``free``.
      stage: the stage that does it.
      micro_batch: the micro-batch; -1 for an update.
      buffer: what is sent, received or freed; None for computations.
    """

    kind: str
    stage: int
    micro_batch: int = -1
    buffer: Buffer | None = None

    @property
    def its_buffer(self) -> Buffer:
        """The buffer of what is no computation."""
        assert self.buffer is not None, self.kind
        return self.buffer

    def __str__(self) -> str:
        """Prints e.g. ``stage 1: forward 4`` or ``stage 1: free scope 0 of stage 1``."""
        if self.buffer is not None:
            return f"stage {self.stage}: {self.kind} {self.buffer}"
        number = "" if self.kind == UPDATE else f" {self.micro_batch}"
        return f"stage {self.stage}: {self.kind}{number}"


@dataclasses.dataclass(frozen=True)
class Topology:
    """Who sends what to whom.

    Attributes:
      stages: how many there are.
      values: pairs (from, to) of stages, ``HOST`` included; a later stage may skip others.
      gradients: those of the pairs along which a gradient comes back.
      recompute: stages that keep their inputs, not their scope, and run the forward again.
    """

    stages: int
    values: tuple[tuple[int, int], ...]
    gradients: frozenset[tuple[int, int]]
    recompute: frozenset[int] = frozenset()

    @staticmethod
    def chain(stages: int, recompute: frozenset[int] = frozenset()) -> Topology:
        """Each stage feeds the next; the host feeds inputs to the first, labels to the last."""
        pairs = tuple((stage, stage + 1) for stage in range(stages - 1))
        fed = {(HOST, 0), (HOST, stages - 1)}
        return Topology(stages, (*sorted(fed), *pairs), frozenset(pairs), recompute)

    def sources(self, stage: int) -> list[int]:
        """The stages, and perhaps the host, whose values the stage reads."""
        return sorted(source for source, target in self.values if target == stage)

    def targets(self, stage: int) -> list[int]:
        """The stages that read the stage's values."""
        return sorted(target for source, target in self.values if source == stage)

    def gradient_sources(self, stage: int) -> list[int]:
        """The stages whose gradients the stage reads, the last first: as a tape would sum them."""
        return sorted((to for of, to in self.gradients if of == stage), reverse=True)

    def gradient_targets(self, stage: int) -> list[int]:
        """The stages that read the stage's gradients."""
        return sorted((of for of, to in self.gradients if to == stage), reverse=True)


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The actions of every stage, in the stage's own order.

    Attributes:
      name: ``1f1b``, ``forward-then-backward`` or ``forward-only``.
      topology: who sends what to whom.
      micro_batches: how many there are.
      orders: by stage, its actions.
    """

    name: str
    topology: Topology
    micro_batches: int
    orders: tuple[tuple[Action, ...], ...]

    def __str__(self) -> str:
        """The schedule as a chart of stage against time."""
        from rnnmem.pipeline.charts import chart

        return chart(self)


def make_schedule(
    name: str, topology: Topology | int, micro_batches: int, *, prefetch: bool = False
) -> Schedule:
    """Makes a schedule.

    Args:
      name: ``1f1b``, ``forward-then-backward``, or ``forward-only`` for evaluation.
      topology: who sends what to whom; a number of stages stands for a chain.
      micro_batches: at least as many as stages for ``1f1b``, else at least 1.
      prefetch: whether a stage fetches what its next computation reads while it still computes;
        that costs one more received buffer.

    Raises:
      OptionError: there is no such schedule, or too few micro-batches for it.
    """
    if isinstance(topology, int) and not isinstance(topology, bool) and topology > 0:
        topology = Topology.chain(topology)
    if not isinstance(topology, Topology):
        raise OptionError(f"topology={topology!r} is neither a Topology nor a number of stages")
    known = (*TRAINING, FORWARD_ONLY)
    micro_batches = checked_count(name, topology.stages, micro_batches, known)
    computations = [
        _computations(name, stage, topology.stages, micro_batches)
        for stage in range(topology.stages)
    ]
    orders = [
        _Order(name, topology, computations, stage, prefetch).actions
        for stage in range(topology.stages)
    ]
    return Schedule(name, topology, micro_batches, tuple(tuple(order) for order in orders))


def checked_count(name: str, stages: int, micro_batches: int, known: Sequence[str]) -> int:
    """The number of micro-batches, if it is one and enough for a schedule that is known.

    Raises:
      OptionError: names the schedules, or says how many micro-batches this one needs.
    """
    if name not in known:
        raise OptionError(f"schedule={name!r} is none of {', '.join(TRAINING)}")
    micro_batches = parse_count(micro_batches, "micro_batches")
    if name == ONE_FORWARD_ONE_BACKWARD and micro_batches < stages:
        raise OptionError(
            f"micro_batches={micro_batches} are too few for {stages} stages under schedule='1f1b': "
            f"stage 0 alone starts with {stages - 1} forwards before its first backward; pass at "
            f"least {stages}, or schedule='forward-then-backward'"
        )
    return micro_batches


def _computations(name: str, stage: int, stages: int, count: int) -> list[tuple[str, int]]:
    """The forwards and backwards of a stage, in order."""
    forwards = [(FORWARD, m) for m in range(count)]
    if name == FORWARD_ONLY:
        return forwards
    backwards = [(BACKWARD, m) for m in range(count)]
    if name == FORWARD_THEN_BACKWARD:
        return forwards + backwards
    ahead = stages - stage - 1
    turns = [step for pair in zip(forwards[ahead:], backwards, strict=False) for step in pair]
    return forwards[:ahead] + turns + backwards[count - ahead :]


class _Order:
    """Writes one stage's order: its computations, with every send, receive and free between."""

    def __init__(self, name, topology, computations, stage, prefetch):
        self.stage = stage
        self.topology = topology
        self.training = name != FORWARD_ONLY
        self.place = [{step: i for i, step in enumerate(steps)} for steps in computations]
        self.actions: list[Action] = []
        self.unfreed: list[Buffer] = []
        steps = computations[stage]
        for i, step in enumerate(steps):
            if i == 0 or not prefetch:
                self.receive(step)
            if prefetch and i + 1 < len(steps):
                self.receive(steps[i + 1])
            self.free_overdue(step)
            self.free_fetched(step)
            self.forward(step[1]) if step[0] == FORWARD else self.backward(step[1])
        for buffer in list(self.unfreed):
            self.free(buffer)
        if self.training:
            self.add(UPDATE, -1)

    def add(self, kind: str, micro_batch: int, buffer: Buffer | None = None) -> None:
        self.actions.append(Action(kind, self.stage, micro_batch, buffer))

    def free(self, buffer: Buffer) -> None:
        if buffer in self.unfreed:
            self.unfreed.remove(buffer)
        self.add(FREE, buffer.micro_batch, buffer)

    def send(self, buffer: Buffer) -> None:
        self.add(SEND, buffer.micro_batch, buffer)
        self.unfreed.append(buffer)

    def read(self, step: tuple[str, int]) -> list[Buffer]:
        """What a computation reads of what other stages send."""
        kind, micro_batch = step
        if kind == FORWARD:
            return self.buffers(VALUE_IN, micro_batch, self.topology.sources(self.stage))
        return self.buffers(GRADIENT_IN, micro_batch, self.topology.gradient_sources(self.stage))

    def buffers(self, kind: str, micro_batch: int, peers: list[int]) -> list[Buffer]:
        return [Buffer(kind, self.stage, micro_batch, peer) for peer in peers]

    def receive(self, step: tuple[str, int]) -> None:
        for buffer in self.read(step):
            self.add(RECEIVE, buffer.micro_batch, buffer)

    def free_overdue(self, step: tuple[str, int]) -> None:
        """Frees what a neighbour k stages away must have fetched k+1 micro-batches later."""
        kind, micro_batch = step
        out = VALUE_OUT if kind == FORWARD else GRADIENT_OUT
        for buffer in list(self.unfreed):
            distance = abs(buffer.peer - self.stage)
            if buffer.kind == out and buffer.micro_batch < micro_batch - distance:
                self.free(buffer)

    def free_fetched(self, step: tuple[str, int]) -> None:
        """Frees what the senders of this computation's inputs must have fetched before sending."""
        for arrived in self.read(step):
            if arrived.peer == HOST:
                continue
            place = self.place[arrived.peer]
            for buffer in list(self.unfreed):
                reader = FORWARD if buffer.kind == VALUE_OUT else BACKWARD
                fetched = place.get((reader, buffer.micro_batch))
                if buffer.peer == arrived.peer and fetched is not None and fetched < place[step]:
                    self.free(buffer)

    def forward(self, micro_batch: int) -> None:
        self.add(FORWARD, micro_batch)
        if not (self.training and self.stage in self.topology.recompute):
            for buffer in self.read((FORWARD, micro_batch)):
                self.free(buffer)
        for buffer in self.buffers(VALUE_OUT, micro_batch, self.topology.targets(self.stage)):
            self.send(buffer)

    def backward(self, micro_batch: int) -> None:
        self.add(BACKWARD, micro_batch)
        self.free(Buffer(SCOPE, self.stage, micro_batch, self.stage))
        for buffer in self.read((BACKWARD, micro_batch)):
            self.free(buffer)
        if self.stage in self.topology.recompute:
            for buffer in self.read((FORWARD, micro_batch)):
                self.free(buffer)
        targets = self.topology.gradient_targets(self.stage)
        for buffer in self.buffers(GRADIENT_OUT, micro_batch, targets):
            self.send(buffer)
