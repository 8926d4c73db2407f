"""An order in which TensorFlow's executor may run ops, and the memory they hold in that order.

The model: some threads, and either order of ops that become ready together. An op that is ready and
cheap runs at once in the thread that made it ready; of the others the thread keeps one and leaves
the rest to whoever is idle, who takes the oldest. A loop starts when nothing else can run, for it
takes longest. Iterations of a loop overlap as far as their data allows, up to
``parallel_iterations``; so gradients of weights may queue up:

    chain     h149 ─► h148 ─► h147 ─► ...          each iteration makes one partial, [D, 4H]
    partials  p149    p148    p147                 alive until the sum gets to it
    sum              └► s149 ─► s148 ...           slower than the chain: up to a window of partials

A long loop is not run to its end: after some iterations the lists are as they will be, only longer.
"""

from __future__ import annotations

import collections
import dataclasses
from heapq import heappop, heappush

from rnnmem.analysis.machine import PAUSE
from rnnmem.ir.marks import REFILLS
from rnnmem.simulate.actions import ACTIONS
from rnnmem.simulate.buffers import Buffer, Ledger, ListValue, Span, Value
from rnnmem.simulate.dealing import asks, makes, take_least
from rnnmem.simulate.extrapolation import Made, extrapolation, lists_of, states_of
from rnnmem.simulate.setting import Deals, Setting
from rnnmem.simulate.steps import Kind, Program, Step


class Frame:
    """One iteration of a step net (or the one run of a Net)."""

    __slots__ = ("left", "number", "program", "uses", "values", "waits")

    def __init__(self, program: Program, number: int):
        self.program = program
        self.number = number
        self.values: list[Value] = [None] * program.slots
        self.uses = list(program.uses)
        self.waits = list(program.waits)
        self.left = len(program.steps) + len(program.inputs)


class Run:
    """Runs a program for some iterations."""

    def __init__(
        self,
        program: Program,
        setting: Setting,
        iterations: int = 1,
        window: int = 1,
        *,
        eager: bool = False,
    ):
        """Nothing has run yet.

        Args:
          program: what runs.
          setting: what it shares with the others.
          iterations: how often it runs.
          window: parallel iterations.
          eager: whether loops start on what they have got, before all of their inputs are there.
        """
        self.program = program
        self.setting = setting
        self.ledger, self.events = setting.ledger, setting.events
        threads = range(setting.threads)
        self.iterations = iterations
        self.window = window
        self.frames: dict[int, Frame] = {}
        self.arrived: dict[int, list[tuple[int, Value]]] = {}
        self.oldest = 0
        self.results: list[Value] = [None] * len(program.outputs)
        self.ready: collections.deque = collections.deque()  # made ready by the op just finished
        self.late: collections.deque = collections.deque()  # loops, and what lags
        self.held: list = []  # sums of the first iteration, until all inputs are there
        self.missing = len(program.inputs)
        self.busy: list = []  # heap of (time, order, thread, frame, step index, scratch)
        self.own: list[collections.deque] = [collections.deque() for _ in threads]
        self.inline: list[collections.deque] = [collections.deque() for _ in threads]
        self.idle = list(threads)
        self.order = 0
        self.now = 0.0
        self.paused_until = 0.0
        self.eager = eager
        self.fed: list[tuple[Frame, int, int]] = []  # loops that have got another input
        self.begun: dict[tuple[int, int], _Begun] = {}
        self.constant: dict[int, Value] = {}
        self.made: Made = {}
        self.begins = self.ends = True  # whether it has its loop's first iteration, and the last
        self.least = setting.deals is Deals.LEAST and not eager
        self.loops_early = setting.deals is Deals.LEAST and eager and program.has_several_loops
        if iterations:
            self._open(0)

    def execute(self, inputs: list[Value]) -> list[Value]:
        """Runs all iterations; takes over references of ``inputs``, hands out those of results."""
        for position, value in enumerate(inputs):
            self.give(position, value)
        return self.finish()

    def give(self, position: int, value: Value) -> None:
        """An input is there; ops that wait for nothing else run when `pump` is called."""
        self.missing -= 1
        if not self.iterations:
            self.results[position] = value
        elif position in self.program.invariants:
            self.constant[position] = value
            for frame in list(self.frames.values()):
                self._give_constant(frame, position, value)
                self._close_if_done(frame)
        else:
            self._arrive(self.frames[0], position, value)
            self._close_if_done(self.frames[0])

    def pump(self) -> None:
        """Runs what can run."""
        self._pause()
        self._spread(0)
        self._loop()

    def finish(self) -> list[Value]:
        """Runs to the end, once all inputs are there."""
        self.pump()
        for position, value in self.constant.items():
            self.results[position] = value
        return self.results

    # --- frames

    def _open(self, number: int) -> None:
        frame = Frame(self.program, number)
        self.frames[number] = frame
        for position, value in self.constant.items():
            self._give_constant(frame, position, value)
        self.ready.extend((frame, index) for index in self.program.roots)
        if number:
            for position in self.program.absent:
                self._arrive(frame, position, None)
        for position, value in self.arrived.pop(number, ()):
            self._arrive(frame, position, value)
        self._close_if_done(frame)

    def _give_constant(self, frame: Frame, position: int, value: Value) -> None:
        slot = self.program.inputs[position]
        frame.uses[slot] += 1  # the loop itself holds it, so it is never dropped or taken
        frame.left -= 1
        self._put(frame, slot, value)

    def _arrive(self, frame: Frame, position: int, value: Value) -> None:
        """An input of the iteration is there; its reference comes with it."""
        slot = self.program.inputs[position]
        frame.left -= 1
        self._put(frame, slot, value)
        if not frame.uses[slot] and value is not None:
            value.drop()

    def _put(self, frame: Frame, slot: int, value: Value) -> None:
        """Writes a slot: hands it on where it is an output, and wakes who waits for it."""
        frame.values[slot] = value
        program = self.program
        for position in program.handed[slot]:
            self._hand(frame.number + 1, position, value)
        waits = frame.waits
        for index in program.readers[slot]:
            left = waits[index] - 1
            waits[index] = left
            if not left:
                self.ready.append((frame, index))
            elif self.eager and program.steps[index].eager:
                self.fed.append((frame, index, slot))

    def _hand(self, number: int, position: int, value: Value) -> None:
        if value is not None:
            value.refs += 1
        if number == self.iterations:
            self.results[position] = value
        elif number in self.frames:
            self._arrive(self.frames[number], position, value)
            self._close_if_done(self.frames[number])
        elif number < self.oldest + self.window:
            self.arrived.setdefault(number, []).append((position, value))
            self._open(number)
        else:
            self.arrived.setdefault(number, []).append((position, value))

    def _close_if_done(self, frame: Frame) -> None:
        if frame.left or self.frames.get(frame.number) is not frame:
            return
        while self.oldest in self.frames and not self.frames[self.oldest].left:
            del self.frames[self.oldest]
            self.oldest += 1
            number = self.oldest + self.window - 1
            if number in self.arrived and number not in self.frames:
                self._open(number)

    # --- threads

    def _loop(self) -> None:
        busy = self.busy
        while True:
            if busy:
                self.now, _, thread, frame, index, scratch = heappop(busy)
                if thread < 0:
                    self.own[0].append((frame, index))
                    self._spread(0)
                    continue
                self._finish(frame, index, scratch)
                if self.ready:  # else an idle thread has nothing to take that it had not before
                    self._spread(thread)
                self._next(thread)
                if self.fed:
                    self._feed()
            elif self.late:
                frame, index = self.late.popleft()
                self._start(0, frame, index)
                self.idle.remove(0)
            else:
                return

    def _spread(self, thread: int) -> None:
        """Deals out what has become ready, as the executor does."""
        ready = self.ready
        if ready:
            steps = self.program.steps
            inline = self.inline[thread]
            kept, lag = None, self.setting.sums_lag
            deal = ready.pop if self.setting.deals is Deals.NEWEST else ready.popleft
            while ready:
                task = deal()
                step = steps[task[1]]
                if step.keepalive and self.setting.keepalives_lag:
                    self.late.append(task)
                elif step.cheap and not ((self.least or self.loops_early) and makes(step)):
                    loop = step.inner and step.kind is Kind.LOOP
                    (self.late if loop else inline).append(task)
                elif (step.lags if lag else step.sums) and self._pauses(task[0]):
                    self.held.append(task)
                    self._pause()
                else:
                    if kept is not None:
                        self.own[thread].append(kept)
                    kept = task
            if kept is not None:
                (self.own[thread] if inline or self.least else inline).append(kept)
        if idle := self.idle:
            if thread in idle:
                idle.remove(thread)
                self._next(thread)
            for other in list(idle):
                if any(self.own):
                    idle.remove(other)
                    self._next(other)

    def _pauses(self, frame: Frame) -> bool:
        """Whether the sums of the first iteration are held up, so that others run ahead of them."""
        if self.window == 1 or frame.number or self.setting.is_good:
            return False
        return not self.paused_until or self.now < self.paused_until

    def _pause(self) -> None:
        """Holds sums up for a while, from when the others have all inputs to run ahead with."""
        if self.missing or not self.held:
            return
        if not self.paused_until:
            self.paused_until = self.now + PAUSE
        for task in self.held:
            self.order += 1
            heappush(self.busy, (self.paused_until, self.order, -1, *task, None))
        self.held.clear()

    def _next(self, thread: int) -> None:
        """The thread's next op: its own cheap ones, its own newest, then the oldest of another."""
        if inline := self.inline[thread]:
            frame, index = inline.popleft()
        elif own := self.own[thread]:
            if self.late and self.loops_early and asks(*own[-1]) > 0:
                own = self.late
            frame, index = take_least(own) if self.least else own.pop()
        else:
            queue = next(filter(None, self.own), None)
            if queue is None:
                self.idle.append(thread)
                return
            frame, index = queue.popleft()
        self._start(thread, frame, index)

    # --- ops

    def _start(self, thread: int, frame: Frame, index: int) -> None:
        step = self.program.steps[index]
        asks = step.scratch and self.setting.scratch
        scratch = Buffer(self.ledger, step.scratch, step.origins[0]) if asks else None
        if step.inner:
            is_loop = step.kind is Kind.LOOP
            made = self._all_iterations(frame, index) if is_loop else self._call(frame, step)
        else:
            made = ACTIONS[step.kind](self, step, frame)
        values, outputs = frame.values, step.outputs
        if len(outputs) == 1:  # nearly always
            (values[outputs[0]],) = made
        else:
            for slot, value in zip(outputs, made, strict=True):
                values[slot] = value
        if self.events is not None:
            self.events.append((step.op.name, self.ledger.live))
        self.order += 1
        entry = (self.now + self.setting.seconds(step), self.order, thread, frame, index, scratch)
        heappush(self.busy, entry)

    def _finish(self, frame: Frame, index: int, scratch: Buffer | None) -> None:
        step = self.program.steps[index]
        if scratch is not None:
            scratch.drop()
        uses, values = frame.uses, frame.values
        for slot in step.read:
            left = uses[slot] - 1
            uses[slot] = left
            if not left and (value := values[slot]) is not None:
                value.drop()
                values[slot] = None
        for slot in step.outputs:
            value = values[slot]
            self._put(frame, slot, value)
            if not uses[slot] and value is not None:
                value.drop()
        if followers := self.program.followers[index]:
            waits = frame.waits
            for follower in followers:
                waits[follower] -= 1
                if not waits[follower]:
                    self.ready.append((frame, follower))
        frame.left -= 1
        if not frame.left:
            self._close_if_done(frame)

    def value(self, step: Step, frame: Frame, position: int) -> Value:
        """What an input holds."""
        slot = step.inputs[position]
        return frame.values[slot] if slot >= 0 else None

    def own_list(self, step: Step, frame: Frame, position: int) -> ListValue:
        """The list of an input, to be changed: itself where nobody else has it, else a copy."""
        held = self.value(step, frame, position)
        if not isinstance(held, ListValue):
            return ListValue(self.ledger, None)
        if held.refs == 1 and frame.uses[step.inputs[position]] == 1:
            held.refs += 1  # the input lets go of it when the op ends
            return held
        return held.clone()

    # --- step nets

    def _call(self, frame: Frame, step: Step) -> list[Value]:
        """Runs one of the Nets that may be run."""
        body = self._chosen(step, frame.number)
        first = len(step.inputs) - len(body.inputs)
        inner = Run(body, self.setting)
        for position in range(len(body.inputs)):
            inner.give(position, _held(self.value(step, frame, first + position)))
        results = inner.finish()
        step.seconds = inner.now
        if step.segments:
            self._know_segments(step, frame.number, lists_of(results))
        return results

    def _chosen(self, step: Step, iteration: int) -> Program:
        """The Net that a call or branch runs: of those that it may, the one of the highest peak.

        Of the lowest, where the run is to be a good one.

        A segment begins in the first iteration that is looked at. States are kept of that one, and
        of one more which stands for all later ones.
        """
        if step.segments:
            begins = not iteration and (self.begins or step.segments == REFILLS)
            taken = begins or self._keeps_later(step, iteration)
            return step.inner[list(step.op.nets).index("then_branch" if taken else "else_branch")]
        if len(step.inner) == 1:
            return step.inner[0]
        chosen = min if self.setting.is_good else max
        return chosen(step.inner, key=self._peak_alone)

    def _peak_alone(self, program: Program) -> int:
        how = self.setting.threads, self.setting.steady_state
        if how not in program.peaks_alone:
            ledger = Ledger()
            Run(program, Setting(ledger, *how)).execute([None] * len(program.inputs))
            program.peaks_alone[how] = ledger.peak
        return program.peaks_alone[how]

    def _keeps_later(self, step: Step, iteration: int) -> bool:
        """Whether the states of all segments but the first are kept here.

        They stand behind the iterations that are not simulated; where all are, in the second one.
        """
        if step.segments == REFILLS or step.checkpoints < 2 or not self.ends:
            return False
        return iteration == (1 if self.begins else 0)

    def _know_segments(self, step: Step, iteration: int, lists: list[ListValue]) -> None:
        """Tells of kept states whose they are; no list grows in other iterations."""
        for held, origin in zip(lists, step.states, strict=False):
            element = held.new[-1] if held.new else None
            if element is not None and self._keeps_later(step, iteration):
                held.extend(states_of(element, origin, self.made), step.checkpoints - 2)
            if isinstance(element, Buffer) and element.origin.saved_loops != origin.loops:
                element.origin = origin
        for held in lists:
            held.forget()

    def _begin(self, frame: Frame, index: int) -> _Begun:
        """A loop whose first iterations may start; constants are given at once."""
        key = (frame.number, index)
        if key not in self.begun:
            step = self.program.steps[index]
            trips = 1 if step.trips is None else step.trips
            steady_state = self.setting.iterations(step)
            iterations = trips if trips <= 2 * steady_state + 1 else steady_state
            run = Run(step.inner[0], self.setting, iterations, self.setting.window(step))
            run.ends = iterations == trips
            self.begun[key] = _Begun(run, trips, len(self.ledger.log))
            for position, slot in enumerate(step.inputs):
                if slot < 0:
                    run.give(position, None)
        return self.begun[key]

    def _feed(self) -> None:
        """Lets loops that wait for inputs do with the others what they can."""
        fed, self.fed = self.fed, []
        for frame, index, slot in fed:
            if frame.waits[index]:
                begun = self._begin(frame, index)
                self._give(frame, index, slot, begun)
                begun.run.pump()

    def _give(self, frame: Frame, index: int, slot: int, begun: _Begun) -> None:
        """Gives a loop one of its inputs, which is its own then, if nobody else reads it."""
        if slot in begun.given:
            return
        begun.given.add(slot)
        step = self.program.steps[index]
        value = frame.values[slot]
        positions = step.positions[slot]
        held = [_held(value) for _ in positions]
        if frame.uses[slot] == len(positions) and value is not None:
            value.drop()
            frame.values[slot] = None
        if isinstance(value, ListValue):
            value.forget()
        for position, one in zip(positions, held, strict=True):
            begun.run.give(position, one)

    def _all_iterations(self, frame: Frame, index: int) -> list[Value]:
        """Runs the first and the last iterations; in between, the lists only grow or shrink."""
        step = self.program.steps[index]
        begun = self._begin(frame, index)
        for slot in step.inputs:
            if slot >= 0:
                self._give(frame, index, slot, begun)
        state = begun.run.finish()
        loops = (*step.origins[0].loops, step.op.name) if step.origins else (step.op.name,)
        log = self.ledger.log
        if begun.run.iterations < begun.trips:
            steady_state = begun.run.iterations
            skipped, before = begun.trips - 2 * steady_state, len(log)
            extrapolation(state, steady_state, skipped, begun.run.made)
            leapt = before, len(log)
            last = Run(step.inner[0], self.setting, steady_state, self.setting.window(step))
            last.begins, last.made = False, begun.run.made
            state = last.execute(state)
            span = Span(loops, begun.entries, len(log), begun.trips, leapt, skipped, steady_state)
        else:
            span = Span(loops, begun.entries, len(log), begun.trips)
        self.ledger.spans.append(span)
        return state


@dataclasses.dataclass(slots=True)
class _Begun:
    """A loop that has some of its inputs."""

    run: Run
    trips: int
    entries: int  # length of the log when it began
    given: set[int] = dataclasses.field(default_factory=set)


def _held(value: Value) -> Value:
    """The value, with one reference more."""
    if value is not None:
        value.refs += 1
    return value
