"""Runs a schedule: each stage follows its own order in a thread, and waits where it must.

A second thread for each stage fetches what other stages send. On a worker, TensorFlow runs what
both threads ask for in two queues side by side, so a fetch does not wait for a computation.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rnnmem.errors import PipelineError
from rnnmem.pipeline import devices
from rnnmem.pipeline import schedule as terms
from rnnmem.pipeline.heartbeat import Heartbeats
from rnnmem.pipeline.schedule import HOST, Action, Buffer, Schedule
from rnnmem.pipeline.states import Scope, StageState, land
from rnnmem.pipeline.tracing import Program
from rnnmem.tf import private

POLL_SECONDS = 2.0
"""How often the workers are asked whether they live, while a step runs."""
GRACE_SECONDS = 5.0
"""How long, after a failure, the other stages may take to come to an end."""


class _Stopped(Exception):
    """Another stage failed."""


class Queues:
    """A stage's queues of eager ops: one for computations, one for fetches."""

    def __init__(self, device: str):
        self.device = device
        local = devices.is_local(device)
        self._executors = [None if local else private.new_executor() for _ in range(2)]

    @contextlib.contextmanager
    def scope(self, fetching: bool):
        """Ops of this thread go to the stage's device, through one of its queues."""
        executor = self._executors[fetching]
        with contextlib.ExitStack() as stack:
            if executor is not None:
                stack.enter_context(private.executor_scope(executor))
            stack.enter_context(tf.device(self.device))
            yield

    def retire(self) -> None:
        """Forgets errors, so that nothing is raised when the pipeline is deleted."""
        for executor in self._executors:
            if executor is not None:
                private.retire(executor)


class Exchange:
    """What is offered, what was fetched, and whether anybody failed; for all threads of a step."""

    def __init__(self):
        self.changed = threading.Condition()
        self.offered: dict[Buffer, list[tf.Tensor]] = {}
        self.fetched: set[Buffer] = set()
        self.failure: tuple[int, BaseException] | None = None
        self.stopped = False

    def offer(self, buffer: Buffer, tensors: list[tf.Tensor]) -> None:
        """Makes a buffer available to its receiver."""
        with self.changed:
            self.offered[buffer] = tensors
            self.changed.notify_all()

    def take_back(self, buffer: Buffer) -> None:
        """Forgets a buffer that was fetched."""
        with self.changed:
            self.fetched.discard(buffer)
            del self.offered[buffer]

    def mark_fetched(self, buffer: Buffer) -> None:
        """Says that a receiver has the buffer."""
        with self.changed:
            self.fetched.add(buffer)
            self.changed.notify_all()

    def notify(self) -> None:
        """Wakes whoever waits for a store to change."""
        with self.changed:
            self.changed.notify_all()

    def fail(self, stage: int, error: BaseException) -> None:
        """Stops all threads; the first failure is the one to report."""
        with self.changed:
            if self.failure is None and not isinstance(error, _Stopped):
                self.failure = stage, error
            self.stopped = True
            self.changed.notify_all()

    def wait(self, ready: Callable[[], bool]) -> None:
        """Waits until something is so."""
        with self.changed:
            self.changed.wait_for(lambda: self.stopped or ready())
            if self.stopped:
                raise _Stopped


class Step:
    """One run of a schedule: what all of its stages share.

    Attributes:
      is_stuck: whether a thread still waits for something that will not come.
    """

    def __init__(
        self,
        schedule: Schedule,
        program: Program,
        states: list[StageState],
        queues: list[Queues],
        feed: Callable[[int, int], Any],
        copy: bool = False,
        timeout: float | None = None,
    ):
        """Prepares a run.

        Args:
          schedule: the order of things.
          program: the traced stages.
          states: by stage.
          queues: by stage.
          feed: (place of a leaf of x and y, micro-batch) -> that part of the batch.
          copy: whether stages that share memory copy what goes between them, so that it can be
            told which stage holds what.
          timeout: seconds that a worker may leave a question unanswered; None: any time.
        """
        self.schedule = schedule
        self.program = program
        self.exchange = Exchange()
        self.feed = feed
        self.copy = copy
        self.timeout = timeout
        self.is_stuck = False
        self.runners = [
            Runner(self, state, queues[i], schedule.orders[i]) for i, state in enumerate(states)
        ]

    @property
    def most_scopes(self) -> list[int]:
        """By stage, the most forward scopes that were alive at once."""
        return [runner.scopes.most for runner in self.runners]

    def run(self) -> None:
        """Runs all stages, each in threads of its own.

        Raises:
          PipelineError: a stage failed; the text names it and its device.
        """
        threads = [
            threading.Thread(target=run, name=f"stage {i}{what}", daemon=True)
            for i, runner in enumerate(self.runners)
            for what, run in ((" computes", runner.compute_all), (" fetches", runner.fetch_all))
        ]
        for thread in threads:
            thread.start()
        workers = workers_of([runner.state for runner in self.runners])
        try:
            self._watch(threads, workers)
        except BaseException as error:  # the user's own interrupt
            self.exchange.fail(0, error)
            self._watch(threads, workers)
            raise
        finally:
            self.is_stuck = any(thread.is_alive() for thread in threads)
        if self.exchange.failure is not None:
            self._raise()

    def _watch(self, threads: list[threading.Thread], workers: set[str]) -> None:
        """Waits for the threads; after a failure, or where a worker died, not for long."""
        with Heartbeats(workers, self.timeout) as heartbeats:
            self._wait(threads, workers, heartbeats)

    def _wait(
        self, threads: list[threading.Thread], workers: set[str], heartbeats: Heartbeats
    ) -> None:
        asked = time.monotonic()
        ending: float | None = None
        while any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(0.05 if thread.is_alive() else 0)
                if thread.is_alive():
                    break
            now = time.monotonic()
            if self.exchange.stopped and ending is None:
                ending = now + GRACE_SECONDS
            if ending is not None and now > ending:
                return
            if ending is None and now > asked + POLL_SECONDS:
                asked = now
                for worker in workers:
                    if not devices.listens(worker):
                        self._lose(worker, ConnectionError(f"{worker} is gone"))
            silent = heartbeats.silent()
            if ending is None and silent is not None:
                text = f"{silent} did not answer for {self.timeout:g} s"
                self._lose(silent, TimeoutError(text))

    def _lose(self, worker: str, error: Exception) -> None:
        states = _stages_on(worker, [runner.state for runner in self.runners])
        self.exchange.fail(states[0].index, error)

    def _raise(self) -> None:
        assert self.exchange.failure is not None
        stage, error = self.exchange.failure
        states = [runner.state for runner in self.runners]
        gone = worker_gone(states)
        for runner in self.runners:
            runner.queues.retire()
        if gone is not None:
            raise gone from error
        state = states[stage]
        raise PipelineError(
            f"stage {stage} ({state.name}) on {state.device} failed: "
            f"{type(error).__name__}: {error}"
        ) from error

    def run_in_turn(self, around: Callable[[int], contextlib.AbstractContextManager]) -> None:
        """Runs all stages in this thread, one action at a time.

        Args:
          around: stage -> a context in which an action or a fetch of that stage runs.
        """
        while any(runner.left for runner in self.runners):
            moved = False
            for i, runner in enumerate(self.runners):
                while runner.can_move():
                    with around(i):
                        runner.move()
                    moved = True
            if not moved:
                left = "; ".join(str(runner.left[0]) for runner in self.runners if runner.left)
                raise PipelineError(f"these wait for ever: {left}")


class WorkerGone(PipelineError):
    """A worker died; what its stages held is lost."""


def worker_gone(states: list[StageState]) -> WorkerGone | None:
    """The error that names the stages whose workers no longer answer; None where all do."""
    gone = [worker for worker in sorted(workers_of(states)) if not devices.is_alive(worker)]
    if not gone:
        return None
    lost = [state for worker in gone for state in _stages_on(worker, states)]
    names = ", ".join(f"stage {s.index} ({s.name}) on {s.device}" for s in lost)
    return WorkerGone(
        f"lost {names}: its worker no longer answers. Start the worker again, call "
        "rnnmem.pipeline.connect, make a new pipeline and restore a checkpoint"
    )


def workers_of(states: list[StageState]) -> set[str]:
    """The workers that stages run on."""
    return {devices.worker_of(one.device) for one in states if not devices.is_local(one.device)}


def _stages_on(worker: str, states: list[StageState]) -> list[StageState]:
    return [state for state in states if devices.worker_of(state.device) == worker]


class _Alive:
    """Counts the scopes that really exist, whoever holds them."""

    def __init__(self):
        self.now = self.most = 0

    def add(self, scope: Any) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        weakref.finalize(scope, self._gone).atexit = False

    def _gone(self) -> None:
        self.now -= 1


class Runner:
    """Runs one stage's order."""

    def __init__(self, step: Step, state: StageState, queues: Queues, order: tuple[Action, ...]):
        self.step = step
        self.state = state
        self.queues = queues
        self.traced = step.program.stages[state.index]
        self.training = step.schedule.name != terms.FORWARD_ONLY
        self.left = collections.deque(order)
        self.store: dict[Buffer, Any] = {}
        self.pending: list[Buffer] = []
        self.requests: queue.SimpleQueue[Buffer | None] = queue.SimpleQueue()
        self.scopes = _Alive()
        self.results: list[list[tf.Tensor]] = []
        self.backwards = 0

    def compute_all(self) -> None:
        """Does all actions but the fetches; for a thread."""
        try:
            with self.queues.scope(fetching=False):
                while self.left:
                    action = self.left[0]
                    self.step.exchange.wait(functools.partial(self.is_ready, action))
                    self.do(self.left.popleft())
        except BaseException as error:
            self.step.exchange.fail(self.state.index, error)
        finally:
            self.requests.put(None)

    def fetch_all(self) -> None:
        """Does the fetches; for a thread."""
        exchange = self.step.exchange
        try:
            with self.queues.scope(fetching=True):
                while (buffer := self.requests.get()) is not None:
                    exchange.wait(functools.partial(self.is_offered, buffer))
                    self.fetch(buffer)
        except BaseException as error:
            exchange.fail(self.state.index, error)

    def can_move(self) -> bool:
        """Whether a fetch or the next action can be done now."""
        if any(self.is_offered(buffer) for buffer in self.pending):
            return True
        return bool(self.left) and self.is_ready(self.left[0])

    def move(self) -> None:
        """Does a fetch that is possible, else the next action."""
        for buffer in self.pending:
            if self.is_offered(buffer):
                self.pending.remove(buffer)
                with self.queues.scope(fetching=True):
                    self.fetch(buffer)
                return
        action = self.left.popleft()
        if action.kind == terms.RECEIVE:
            self.pending.append(action.its_buffer)
            return
        with self.queues.scope(fetching=False):
            self.do(action)

    def is_offered(self, buffer: Buffer) -> bool:
        """Whether what a buffer receives is there to be fetched."""
        return buffer.peer == HOST or buffer.other_end in self.step.exchange.offered

    def is_ready(self, action: Action) -> bool:
        """Whether the action need not wait."""
        if action.kind in (terms.FORWARD, terms.BACKWARD):
            return all(buffer in self.store for buffer in self.reads(action))
        if action.kind == terms.FREE and action.its_buffer.kind in terms.SENT:
            return action.buffer in self.step.exchange.fetched
        if action.kind == terms.UPDATE:
            count = self.step.schedule.micro_batches
            return all(runner.backwards == count for runner in self.step.runners)
        return True

    def reads(self, action: Action) -> list[Buffer]:
        """What other stages or the host send for a computation."""
        topology, stage = self.step.schedule.topology, self.state.index
        if action.kind == terms.FORWARD:
            kind, peers = terms.VALUE_IN, topology.sources(stage)
        else:
            kind, peers = terms.GRADIENT_IN, topology.gradient_sources(stage)
        return [Buffer(kind, stage, action.micro_batch, peer) for peer in peers]

    def do(self, action: Action) -> None:
        """Does an action that need not wait."""
        getattr(self, action.kind)(action)

    def receive(self, action: Action) -> None:
        """Asks the other thread to fetch."""
        self.requests.put(action.buffer)

    def fetch(self, buffer: Buffer) -> None:
        """Brings a buffer to the stage's device."""
        step, number = self.step, buffer.micro_batch
        if buffer.peer == HOST:
            leaves = step.program.bundles[HOST, buffer.stage]
            tensors = [tf.convert_to_tensor(step.feed(leaf.place, number)) for leaf in leaves]
        else:
            tensors = step.exchange.offered[buffer.other_end]
        there = [tensor for tensor in tensors if tensor is not None]
        landed = iter(land(there, self.state.device, step.copy))
        self.store[buffer] = [None if tensor is None else next(landed) for tensor in tensors]
        del tensors, there, landed
        if buffer.peer == HOST:
            step.exchange.notify()
        else:
            step.exchange.mark_fetched(buffer.other_end)

    def send(self, action: Action) -> None:
        """Lets the receiver fetch."""
        self.step.exchange.offer(action.its_buffer, self.store[action.its_buffer])

    def free(self, action: Action) -> None:
        """Drops a buffer."""
        buffer = action.its_buffer
        if buffer.kind in terms.SENT:
            self.step.exchange.take_back(buffer)
        del self.store[buffer]

    def inputs(self, number: int) -> list[tf.Tensor]:
        """What the stage reads for a micro-batch, in its own order."""
        stage, bundles = self.state.index, self.step.program.bundles
        return [
            self.store[Buffer(terms.VALUE_IN, stage, number, leaf.stage)][
                bundles[leaf.stage, stage].index(leaf)
            ]
            for leaf in self.traced.reads
        ]

    def forward(self, action: Action) -> None:
        """Runs the forward, and sorts its results by who reads them."""
        number, stage = action.micro_batch, self.state.index
        if self.training:
            kept, results = self.state.forward(self.traced, self.inputs(number))
            self.scopes.add(kept)
            self.store[Buffer(terms.SCOPE, stage, number, stage)] = kept
        else:
            results = self.forward_only(number)
        for target in self.step.schedule.topology.targets(stage):
            bundle = self.step.program.bundles[stage, target]
            buffer = Buffer(terms.VALUE_OUT, stage, number, target)
            self.store[buffer] = [results[leaf.place] for leaf in bundle]

    def forward_only(self, number: int) -> list[tf.Tensor]:
        """Runs a forward without gradient; the last stage's results are for the caller."""
        results = self.state.forward_only(self.traced, self.inputs(number))
        if self.traced.has_loss:
            self.state.add_loss(results.pop())
        if self.state.index == len(self.step.runners) - 1:
            self.results.append([result.numpy() for result in results])
        return results

    def backward(self, action: Action) -> None:
        """Runs the backward, and sorts the gradients of its inputs by who made those."""
        number, stage = action.micro_batch, self.state.index
        scope = self.store[Buffer(terms.SCOPE, stage, number, stage)]
        inputs = None if isinstance(scope, Scope) else self.inputs(number)
        found = self.state.backward(
            self.traced, scope, inputs, self.upstream(number), first=self.backwards == 0
        )
        for target in self.step.schedule.topology.gradient_targets(stage):
            bundle = self.step.program.bundles[target, stage]
            buffer = Buffer(terms.GRADIENT_OUT, stage, number, target)
            self.store[buffer] = [found[self.traced.reads.index(leaf)] for leaf in bundle]
        self.backwards += 1
        self.step.exchange.notify()

    def upstream(self, number: int) -> list[list[tf.Tensor]]:
        """By result, the gradients that came back for it, the last reader's first."""
        stage, bundles = self.state.index, self.step.program.bundles
        found: list[list[tf.Tensor]] = [[] for _ in range(self.traced.results)]
        for source in self.step.schedule.topology.gradient_sources(stage):
            gradients = self.store[Buffer(terms.GRADIENT_IN, stage, number, source)]
            for leaf, gradient in zip(bundles[stage, source], gradients, strict=True):
                if gradient is not None:
                    found[leaf.place].append(gradient)
        return found

    def update(self, action: Action) -> None:
        """Updates the stage's variables."""
        self.state.update(self.step.schedule.micro_batches)
