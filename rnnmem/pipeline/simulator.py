"""Plays a schedule and verifies it; it shares the terms with the maker of schedules, nothing else.

Every stage follows its own order and waits only where the real one waits: a computation for what
it reads, a free of a sent buffer until it was fetched, an update for all backwards. A fetch starts
once the buffer is offered and asked for, and takes its time beside all computations.
"""

from __future__ import annotations

import dataclasses
from collections import Counter

from rnnmem.errors import ScheduleError
from rnnmem.pipeline import schedule as terms
from rnnmem.pipeline.schedule import Action, Buffer, Schedule


@dataclasses.dataclass(frozen=True)
class Costs:
    """What the parts of a step cost; the defaults count in units of one forward.

    Attributes:
      forward: seconds of one micro-batch's forward, by stage, or one for all.
      backward: the same for backwards.
      transfer: seconds of a fetch.
      update: seconds of an update.
      scope: bytes of a scope, by stage, or one for all.
      value: bytes of what a stage sends on, by stage, or one for all.
    """

    forward: tuple[float, ...] | float = 1.0
    backward: tuple[float, ...] | float = 2.0
    transfer: float = 0.0
    update: float = 1.0
    scope: tuple[int, ...] | int = 1
    value: tuple[int, ...] | int = 0

    def seconds(self, action: Action) -> float:
        """How long a computation takes."""
        if action.kind == terms.UPDATE:
            return self.update
        return _at(getattr(self, action.kind), action.stage)

    def bytes(self, buffer: Buffer) -> int:
        """How large a buffer is."""
        if buffer.kind == terms.SCOPE:
            return _at(self.scope, buffer.stage)
        made_here = buffer.kind in (terms.VALUE_OUT, terms.GRADIENT_IN)
        maker = buffer.stage if made_here else buffer.peer
        return 0 if maker == terms.HOST else _at(self.value, maker)


@dataclasses.dataclass(frozen=True)
class Event:
    """An action in time: it took from ``start`` to ``end`` seconds."""

    action: Action
    start: float
    end: float


@dataclasses.dataclass(frozen=True)
class Timeline:
    """What became of a schedule.

    Attributes:
      schedule: the one played.
      events: all actions by start; a receive lasts until its buffer is there.
      seconds: when the last action ended.
      most_alive: (stage, kind of buffer) -> the most that were alive at once.
      peak_bytes: by stage, the most bytes of buffers alive at once.
    """

    schedule: Schedule
    events: tuple[Event, ...]
    seconds: float
    most_alive: dict[tuple[int, str], int]
    peak_bytes: tuple[int, ...]

    def most(self, stage: int, kind: str) -> int:
        """The most buffers of a kind that a stage held at once."""
        return self.most_alive.get((stage, kind), 0)

    @property
    def bubble(self) -> float:
        """The part of the stages' time, before the update, in which they wait; 0 to 1."""
        busy = [e for e in self.events if e.action.kind in (terms.FORWARD, terms.BACKWARD)]
        span = max(e.end for e in busy) * self.schedule.topology.stages
        return 1 - sum(e.end - e.start for e in busy) / span


def simulate(schedule: Schedule, costs: Costs | None = None) -> Timeline:
    """Plays a schedule and checks it.

    Raises:
      ScheduleError: a buffer is read, sent or freed that is not there, or is held longer or in
        greater number than the schedule's bound; something never happens, happens twice, or waits
        for ever. The text names the action.
    """
    _check_complete(schedule)
    play = _Play(schedule, costs or Costs())
    play.run()
    _check_bounds(schedule, play.most_alive)
    return Timeline(
        schedule,
        tuple(sorted(play.events, key=lambda event: (event.start, event.action.stage))),
        max(play.clock),
        {key: most for key, most in play.most_alive.items() if len(key) == 2},
        tuple(play.peak),
    )


def _at(value, stage: int):
    return value[stage] if isinstance(value, tuple) else value


def _check_complete(schedule: Schedule) -> None:
    """Each stage computes each micro-batch once, sums gradients in rising order, updates last."""
    count = schedule.micro_batches
    training = schedule.name != terms.FORWARD_ONLY
    if len(schedule.orders) != schedule.topology.stages:
        raise ScheduleError(f"{len(schedule.orders)} orders, {schedule.topology.stages} stages")
    for stage, order in enumerate(schedule.orders):
        stray = next((action for action in order if action.stage != stage), None)
        if stray is not None:
            raise ScheduleError(f"{stray}: it stands in the order of stage {stage}")
        for kind in (terms.FORWARD, terms.BACKWARD):
            done = [action.micro_batch for action in order if action.kind == kind]
            wanted = list(range(count)) if training or kind == terms.FORWARD else []
            if done != wanted:
                raise ScheduleError(
                    f"stage {stage}: its {kind}s are {done}, not one of each of {count} "
                    "micro-batches in rising order"
                )
        updates = [i for i, action in enumerate(order) if action.kind == terms.UPDATE]
        if updates != ([len(order) - 1] if training else []):
            raise ScheduleError(f"stage {stage}: its update must be its last action, and once")


class _Play:
    def __init__(self, schedule: Schedule, costs: Costs):
        self.schedule = schedule
        self.costs = costs
        stages = schedule.topology.stages
        self.clock = [0.0] * stages
        self.events: list[Event] = []
        self.offered: dict[Buffer, float] = {}
        self.asked: dict[Buffer, float] = {}
        self.arrived: dict[Buffer, float] = {}
        self.alive: set[Buffer] = set()
        self.ever: set[Buffer] = set()
        self.count: Counter = Counter()
        self.most_alive: Counter = Counter()
        self.held = [0] * stages
        self.peak = [0] * stages
        self.last_backward: dict[int, float] = {}
        self.born: dict[Buffer, int] = {}
        self.done: list[Counter] = [Counter() for _ in range(stages)]

    def run(self) -> None:
        places = [0] * len(self.schedule.orders)
        moved = True
        while moved:
            moved = False
            for stage, order in enumerate(self.schedule.orders):
                while places[stage] < len(order) and self.step(order[places[stage]]):
                    places[stage] += 1
                    moved = True
        waiting = [
            str(order[place])
            for order, place in zip(self.schedule.orders, places, strict=True)
            if place < len(order)
        ]
        if waiting:
            raise ScheduleError(f"these wait for ever: {'; '.join(waiting)}")
        if self.alive:
            raise ScheduleError(f"never freed: {', '.join(map(str, sorted(self.alive)))}")

    def step(self, action: Action) -> bool:
        """Plays an action if what it waits for is known; answers whether it did."""
        return getattr(self, action.kind)(action)

    def create(self, buffer: Buffer, action: Action) -> None:
        if buffer in self.ever:
            raise ScheduleError(f"{action}: {buffer} is made twice")
        self.ever.add(buffer)
        self.alive.add(buffer)
        self.born[buffer] = self.done[buffer.stage][_clock_of(buffer)]
        key = buffer.stage, buffer.kind
        pair = buffer.stage, buffer.kind, buffer.peer
        for each in (key, pair):
            self.count[each] += 1
            self.most_alive[each] = max(self.most_alive[each], self.count[each])
        self.held[buffer.stage] += self.costs.bytes(buffer)
        self.peak[buffer.stage] = max(self.peak[buffer.stage], self.held[buffer.stage])

    def need(self, buffer: Buffer, action: Action) -> None:
        if buffer not in self.alive:
            why = "after its release" if buffer in self.ever else "before it is there"
            raise ScheduleError(f"{action}: reads {buffer} {why}")

    def record(self, action: Action, start: float, end: float) -> None:
        self.events.append(Event(action, start, end))

    def receive(self, action: Action) -> bool:
        buffer = action.its_buffer
        if buffer.kind not in (terms.VALUE_IN, terms.GRADIENT_IN):
            raise ScheduleError(f"{action}: {buffer.kind} is not received")
        now = self.clock[action.stage]
        self.create(buffer, action)
        self.asked[buffer] = now
        if buffer.peer == terms.HOST:
            self.arrive(buffer, now)
        elif buffer.other_end in self.offered:
            self.arrive(buffer, max(now, self.offered[buffer.other_end]))
        return True

    def arrive(self, buffer: Buffer, start: float) -> None:
        if buffer.peer != terms.HOST and buffer.other_end not in self.alive:
            raise ScheduleError(f"{buffer} is fetched after {buffer.other_end} was released")
        self.arrived[buffer] = start + self.costs.transfer
        action = Action(terms.RECEIVE, buffer.stage, buffer.micro_batch, buffer)
        self.record(action, start, self.arrived[buffer])

    def send(self, action: Action) -> bool:
        buffer = action.its_buffer
        self.need(buffer, action)
        if buffer in self.offered:
            raise ScheduleError(f"{action}: sent twice")
        now = self.clock[action.stage]
        self.offered[buffer] = now
        self.record(action, now, now)
        if buffer.other_end in self.asked:
            self.arrive(buffer.other_end, max(now, self.asked[buffer.other_end]))
        return True

    def forward(self, action: Action) -> bool:
        stage, number, topology = action.stage, action.micro_batch, self.schedule.topology
        reads = [Buffer(terms.VALUE_IN, stage, number, p) for p in topology.sources(stage)]
        writes = [Buffer(terms.VALUE_OUT, stage, number, p) for p in topology.targets(stage)]
        if self.schedule.name != terms.FORWARD_ONLY:
            writes.append(Buffer(terms.SCOPE, stage, number, stage))
        return self.compute(action, reads, writes)

    def backward(self, action: Action) -> bool:
        stage, number, topology = action.stage, action.micro_batch, self.schedule.topology
        reads = [Buffer(terms.SCOPE, stage, number, stage)]
        sources = topology.gradient_sources(stage)
        reads += [Buffer(terms.GRADIENT_IN, stage, number, peer) for peer in sources]
        if stage in topology.recompute:
            reads += [Buffer(terms.VALUE_IN, stage, number, p) for p in topology.sources(stage)]
        targets = topology.gradient_targets(stage)
        writes = [Buffer(terms.GRADIENT_OUT, stage, number, peer) for peer in targets]
        if not self.compute(action, reads, writes):
            return False
        self.last_backward[stage] = self.clock[stage]
        return True

    def compute(self, action: Action, reads: list[Buffer], writes: list[Buffer]) -> bool:
        start = self.clock[action.stage]
        for buffer in reads:
            self.need(buffer, action)
            if buffer.kind != terms.SCOPE:
                if buffer not in self.arrived:
                    return False
                start = max(start, self.arrived[buffer])
        for buffer in writes:
            self.create(buffer, action)
        self.done[action.stage][action.kind] += 1
        self.clock[action.stage] = start + self.costs.seconds(action)
        self.record(action, start, self.clock[action.stage])
        return True

    def free(self, action: Action) -> bool:
        buffer = action.buffer
        if buffer not in self.alive:
            why = "twice" if buffer in self.ever else "before it is there"
            raise ScheduleError(f"{action}: freed {why}")
        if buffer.stage != action.stage:
            raise ScheduleError(f"{action}: it belongs to another stage")
        now = self.clock[action.stage]
        if buffer.kind in terms.SENT:
            if buffer.other_end not in self.arrived:
                return False
            now = max(now, self.arrived[buffer.other_end])
        self.check_age(buffer, action)
        self.clock[action.stage] = now
        self.alive.remove(buffer)
        for each in ((buffer.stage, buffer.kind), (buffer.stage, buffer.kind, buffer.peer)):
            self.count[each] -= 1
        self.held[buffer.stage] -= self.costs.bytes(buffer)
        self.record(action, now, now)
        return True

    def check_age(self, buffer: Buffer, action: Action) -> None:
        """A sent buffer is freed before its sender has made more of its kind than the bound."""
        if buffer.kind in terms.SENT:
            since = self.done[buffer.stage][_clock_of(buffer)] - self.born[buffer]
            bound = abs(buffer.peer - buffer.stage) + 1
            if since > bound:
                raise ScheduleError(
                    f"{action}: held while {since - 1} later micro-batches were computed, "
                    f"the bound is {bound - 1}"
                )

    def update(self, action: Action) -> bool:
        if len(self.last_backward) < self.schedule.topology.stages or any(
            done[terms.BACKWARD] < self.schedule.micro_batches for done in self.done
        ):
            return False
        start = max(*self.last_backward.values(), self.clock[action.stage])
        self.clock[action.stage] = start + self.costs.seconds(action)
        self.record(action, start, self.clock[action.stage])
        return True


def _clock_of(buffer: Buffer) -> str:
    """The kind of computation by whose number the age of a sent buffer counts."""
    return terms.BACKWARD if buffer.kind == terms.GRADIENT_OUT else terms.FORWARD


def bound_of(schedule: Schedule, kind: str, stage: int, peer: int) -> int:
    """The most buffers of a kind that a stage may hold for one peer at once."""
    if kind in terms.SENT:
        return abs(peer - stage) + 1
    stages, count = schedule.topology.stages, schedule.micro_batches
    scopes = stages - stage if schedule.name == terms.ONE_FORWARD_ONE_BACKWARD else count
    if kind == terms.SCOPE:
        return scopes
    kept = kind == terms.VALUE_IN and stage in schedule.topology.recompute
    # One that is read, and one that the next computation fetches meanwhile.
    return scopes + 1 if kept else 2


def _check_bounds(schedule: Schedule, most_alive: Counter) -> None:
    for key, most in most_alive.items():
        if len(key) == 2:
            continue
        stage, kind, peer = key
        bound = bound_of(schedule, kind, stage, peer)
        if most > bound:
            raise ScheduleError(
                f"stage {stage} holds {most} buffers of kind {kind} at once, "
                f"the bound of {schedule.name} is {bound}"
            )
