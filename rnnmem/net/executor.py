"""An order in which TensorFlow's executor may run ops, and the memory they hold in that order.

The model: two threads. An op that is ready and cheap runs at once in the thread that made it ready;
of the others the thread keeps one and leaves the rest to whoever is idle, who takes the oldest. A
loop starts when nothing else can run, for it takes longest. Iterations of a loop overlap as far as
their data allows, up to ``parallel_iterations``; so gradients of weights may queue up:

    chain     h149 ─► h148 ─► h147 ─► ...          each iteration makes one partial, [D, 4H]
    partials  p149    p148    p147                 alive until the sum gets to it
    sum              └► s149 ─► s148 ...           slower than the chain: up to a window of partials

A long loop is not run to its end: after some iterations the lists are as they will be, only longer.
"""

from __future__ import annotations

import collections
import heapq

from rnnmem.net.buffers import Account, Buffer, ListValue, Series, series_like
from rnnmem.net.program import Kind, Program, Step

THREADS = 2
Value = Buffer | ListValue | None


class Frame:
    """One iteration of a step net (or the one run of a Net)."""

    __slots__ = ("left", "number", "uses", "values", "waits")

    def __init__(self, program: Program, number: int):
        self.number = number
        self.values: list[Value] = [None] * program.slots
        self.uses = list(program.uses)
        self.waits = list(program.waits)
        self.left = len(program.steps) + len(program.inputs)


class Run:
    """Runs a program for some iterations on one account."""

    def __init__(
        self, program: Program, account: Account, events: list, iterations: int, window: int
    ):
        self.program = program
        self.account = account
        self.events = events
        self.iterations = iterations
        self.window = window
        self.frames: dict[int, Frame] = {}
        self.arrived: dict[int, list[tuple[int, Value]]] = {}
        self.oldest = 0
        self.results: list[Value] = [None] * len(program.outputs)
        self.ready: collections.deque = collections.deque()  # made ready by the op just finished
        self.late: collections.deque = collections.deque()  # loops
        self.busy: list = []  # heap of (time, order, thread, frame, step index, scratch)
        self.own: list[collections.deque] = [collections.deque() for _ in range(THREADS)]
        self.inline: list[collections.deque] = [collections.deque() for _ in range(THREADS)]
        self.idle = list(range(THREADS))
        self.order = 0
        self.now = 0.0

    def execute(self, inputs: list[Value]) -> list[Value]:
        """Runs all iterations; takes over the references of ``inputs``, hands out those of results."""
        if not self.iterations:
            return list(inputs)
        kept = self.program.invariants
        self.constant = {position: inputs[position] for position in kept}
        self.arrived[0] = [(i, value) for i, value in enumerate(inputs) if i not in kept]
        self._open(0)
        self._spread(0)
        self._loop()
        for position, value in self.constant.items():
            self.results[position] = value
        return self.results

    # --- frames

    def _open(self, number: int) -> None:
        frame = Frame(self.program, number)
        self.frames[number] = frame
        for position, value in self.constant.items():
            slot = self.program.inputs[position]
            frame.uses[slot] += 1  # the loop itself holds it, so it is never dropped or taken
            self._put(frame, slot, value)
            frame.left -= 1
        self.ready.extend((frame, index) for index in self.program.roots)
        for position, value in self.arrived.pop(number):
            self._arrive(frame, position, value)
        self._close_if_done(frame)

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
        for position in self.program.handed.get(slot, ()):
            if position not in self.constant:
                self._hand(frame.number + 1, position, value)
        waits = frame.waits
        for index in self.program.readers[slot]:
            waits[index] -= 1
            if not waits[index]:
                self.ready.append((frame, index))

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
        while True:
            if self.busy:
                self.now, _, thread, frame, index, scratch = heapq.heappop(self.busy)
                self._finish(frame, index, scratch)
                self._spread(thread)
                self._next(thread)
            elif self.late:
                frame, index = self.late.popleft()
                self._start(0, frame, index)
                self.idle.remove(0)
            else:
                return

    def _spread(self, thread: int) -> None:
        """Deals out what has become ready, as the executor does."""
        steps = self.program.steps
        kept = None
        while self.ready:
            task = self.ready.popleft()
            step = steps[task[1]]
            if step.kind is Kind.LOOP:
                self.late.append(task)
            elif step.cheap:
                self.inline[thread].append(task)
            else:
                if kept is not None:
                    self.own[thread].append(kept)
                kept = task
        if kept is not None:
            (self.own if self.inline[thread] else self.inline)[thread].append(kept)
        if thread in self.idle:
            self.idle.remove(thread)
            self._next(thread)
        for other in list(self.idle):
            if any(self.own):
                self.idle.remove(other)
                self._next(other)

    def _next(self, thread: int) -> None:
        """The thread's next op: its own cheap ones, its own newest, then the oldest of another."""
        if self.inline[thread]:
            self._start(thread, *self.inline[thread].popleft())
        elif self.own[thread]:
            self._start(thread, *self.own[thread].pop())
        else:
            for other in range(THREADS):
                if self.own[other]:
                    self._start(thread, *self.own[other].popleft())
                    return
            self.idle.append(thread)

    # --- ops

    def _start(self, thread: int, frame: Frame, index: int) -> None:
        step = self.program.steps[index]
        scratch = Buffer(self.account, step.scratch, step.origins[0]) if step.scratch else None
        step_outputs = _ACTIONS[step.kind](self, step, frame)
        for slot, value in zip(step.outputs, step_outputs, strict=True):
            frame.values[slot] = value
        self.events.append((step.op.name, self.account.live))
        self.order += 1
        entry = (self.now + step.seconds, self.order, thread, frame, index, scratch)
        heapq.heappush(self.busy, entry)

    def _finish(self, frame: Frame, index: int, scratch: Buffer | None) -> None:
        step = self.program.steps[index]
        if scratch is not None:
            scratch.drop()
        uses, values = frame.uses, frame.values
        for slot in step.inputs:
            if slot >= 0:
                uses[slot] -= 1
                if not uses[slot]:
                    value = values[slot]
                    if value is not None:
                        value.drop()
                        values[slot] = None
        for slot in step.outputs:
            value = values[slot]
            self._put(frame, slot, value)
            if not uses[slot] and value is not None:
                value.drop()
        for follower in self.program.followers[index]:
            frame.waits[follower] -= 1
            if not frame.waits[follower]:
                self.ready.append((frame, follower))
        frame.left -= 1
        self._close_if_done(frame)

    def value(self, step: Step, frame: Frame, position: int) -> Value:
        """What an input holds."""
        slot = step.inputs[position]
        return frame.values[slot] if slot >= 0 else None

    def own_list(self, step: Step, frame: Frame, position: int) -> ListValue:
        """The list of an input, to be changed: itself where nobody else has it, else a copy."""
        held = self.value(step, frame, position)
        if not isinstance(held, ListValue):
            return ListValue(self.account, None)
        if held.refs == 1 and frame.uses[step.inputs[position]] == 1:
            held.refs += 1  # the input lets go of it when the op ends
            return held
        return held.clone()


def _allocate(run: Run, step: Step, frame: Frame) -> list[Value]:
    results: list[Value] = []
    taken = None
    for number, (size, origin) in enumerate(zip(step.sizes, step.origins, strict=True)):
        if size and taken is None and number == (len(step.sizes) - 1 if step.in_place else 0):
            for position in step.in_place:
                slot = step.inputs[position]
                held = frame.values[slot] if slot >= 0 else None
                if (
                    isinstance(held, Buffer)
                    and held.refs == 1
                    and frame.uses[slot] == 1
                    and held.bytes == size
                ):
                    taken = held
                    break
            if taken is not None:
                taken.refs += 1
                results.append(taken)
                continue
        results.append(Buffer(run.account, size, origin) if size else None)
    return results


def _view(run: Run, step: Step, frame: Frame) -> list[Value]:
    held = run.value(step, frame, 0) if step.inputs else None
    if held is not None:
        held.refs += 1
    return [held, *[None] * (len(step.outputs) - 1)] if step.outputs else []


def _views(run: Run, step: Step, frame: Frame) -> list[Value]:
    held = [run.value(step, frame, position) for position in range(len(step.inputs))]
    for one in held:
        if one is not None:
            one.refs += 1
    return held


def _resident(run: Run, step: Step, frame: Frame) -> list[Value]:
    return [None] * len(step.outputs)


def _empty(run: Run, step: Step, frame: Frame) -> list[Value]:
    return [ListValue(run.account, step.length)]


def _push(run: Run, step: Step, frame: Frame) -> list[Value]:
    changed = run.own_list(step, frame, 0)
    item = run.value(step, frame, 1)
    changed.append(item)
    if item is not None and step.saved and not item.origin.saved_in:
        item.origin.saved_in = step.saved
    return [changed]


def _pop(run: Run, step: Step, frame: Frame) -> list[Value]:
    changed = run.own_list(step, frame, 0)
    return [changed, changed.pop()]


def _set(run: Run, step: Step, frame: Frame) -> list[Value]:
    changed = run.own_list(step, frame, 0)
    item = run.value(step, frame, 2)
    if changed.length is not None and changed.size >= changed.length:
        changed.pop_many(1)
        changed.place(item)
    else:
        changed.append(item)
    return [changed]


def _copy(run: Run, step: Step, frame: Frame) -> list[Value]:
    made = ListValue(run.account, step.length)
    if step.element and step.length:
        made.extend(Series(run.account, step.element, step.origins[0]), step.length)
    return [made]


def _zeros(run: Run, step: Step, frame: Frame) -> list[Value]:
    held = run.value(step, frame, 0)
    made = ListValue(run.account, held.length if isinstance(held, ListValue) else step.length)
    count = held.size if isinstance(held, ListValue) else step.length or 0
    if step.element and count:
        made.extend(Series(run.account, step.element, step.origins[0]), count)
    return [made]


def _add_lists(run: Run, step: Step, frame: Frame) -> list[Value]:
    sizes = [
        held.size if isinstance(held := run.value(step, frame, i), ListValue) else 0
        for i in range(len(step.inputs))
    ]
    largest = sizes.index(max(sizes))
    changed = run.own_list(step, frame, largest)
    both = max((size for i, size in enumerate(sizes) if i != largest), default=0)
    if both and step.element:
        changed.pop_many(both)
        made: Buffer | Series = Buffer(run.account, step.element, step.origins[0])
        if both > 1:
            made.drop()
            made = Series(run.account, step.element, step.origins[0])
        changed.place(made, both)
        if both == 1:
            made.drop()
    return [changed]


def _assign(run: Run, step: Step, frame: Frame) -> list[Value]:
    held = run.value(step, frame, 1)
    if isinstance(held, Buffer):
        held.refs += 1  # the variable keeps it
        run.account.book(held, -held.bytes)  # and lets go of as much
    return []


def _call(run: Run, step: Step, frame: Frame) -> list[Value]:
    """Runs the Net with the highest peak of those that may be run."""
    body = max(step.inner, key=_peak_alone) if len(step.inner) > 1 else step.inner[0]
    first = len(step.inputs) - len(body.inputs)
    given = [run.value(step, frame, first + i) for i in range(len(body.inputs))]
    for one in given:
        if one is not None:
            one.refs += 1
    inner = Run(body, run.account, run.events, 1, 1)
    results = inner.execute(given)
    step.seconds = inner.now
    return results


def _peak_alone(program: Program) -> int:
    account = Account()
    Run(program, account, [], 1, 1).execute([None] * len(program.inputs))
    return account.peak


def _run_loop(run: Run, step: Step, frame: Frame) -> list[Value]:
    """Runs the first and the last iterations; in between, the lists only grow or shrink."""
    body = step.inner[0]
    trips = step.trips if step.trips is not None else 1
    state = [run.value(step, frame, i) for i in range(len(step.inputs))]
    for one in state:
        if one is not None:
            one.refs += 1
    _let_go(step, frame)
    window = max(1, step.window)
    probe = window + 1
    if trips <= 2 * probe + 1:
        return Run(body, run.account, run.events, trips, window).execute(state)
    for held in _lists(state):
        held.forget()
    state = Run(body, run.account, run.events, probe, window).execute(state)
    _leap(state, probe, trips - 2 * probe)
    return Run(body, run.account, run.events, probe, window).execute(state)


def _let_go(step: Step, frame: Frame) -> None:
    """Gives up the inputs that nobody else reads, so that the loop alone has them."""
    for slot in {slot for slot in step.inputs if slot >= 0}:
        value = frame.values[slot]
        if frame.uses[slot] == step.inputs.count(slot) and value is not None:
            value.drop()
            frame.values[slot] = None


def _lists(values: list[Value]) -> list[ListValue]:
    return list({id(one): one for one in values if isinstance(one, ListValue)}.values())


def _leap(state: list[Value], probe: int, skipped: int) -> None:
    """Changes the lists as the skipped iterations would."""
    series: dict[int, Series] = {}

    def of(element) -> Series | None:
        if element is None:
            return None
        if id(element) not in series:
            series[id(element)] = series_like(element)
        return series[id(element)]

    lists = _lists(state)
    for held in lists:
        held.pop_many(held.gone * skipped // probe)
    for held in lists:
        per_iteration = len(held.new) // probe
        for element in held.new[len(held.new) - per_iteration :]:
            held.extend(of(element), skipped)
        per_iteration = len(held.placed) // probe
        for element in held.placed[len(held.placed) - per_iteration :]:
            held.extend_front(of(element), skipped)


_ACTIONS = {
    Kind.ALLOCATE: _allocate,
    Kind.VIEW: _view,
    Kind.VIEWS: _views,
    Kind.RESIDENT: _resident,
    Kind.EMPTY: _empty,
    Kind.PUSH: _push,
    Kind.POP: _pop,
    Kind.SET: _set,
    Kind.GET: _resident,
    Kind.COPY: _copy,
    Kind.ZEROS: _zeros,
    Kind.ADD_LISTS: _add_lists,
    Kind.ASSIGN: _assign,
    Kind.LOOP: _run_loop,
    Kind.CALL: _call,
}
