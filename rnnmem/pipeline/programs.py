"""What calls of a pipeline need: traced stages, schedules, optimizers; each is made once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras

from rnnmem.errors import OptionError
from rnnmem.pipeline import checkpoint
from rnnmem.pipeline.batches import Batch
from rnnmem.pipeline.schedule import Schedule
from rnnmem.pipeline.simulator import simulate
from rnnmem.pipeline.states import StageState
from rnnmem.pipeline.tracing import Program, Purpose, differentiated, trace
from rnnmem.tf import private

TRAIN = Purpose(training=True, loss=True)
TEST = Purpose(training=False, loss=True)
PREDICT = Purpose(training=False, loss=False)


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A program and the schedule that it runs by."""

    program: Program
    schedule: Schedule


class Programs:
    """The programs of one pipeline, by purpose and signature of the batch.

    Attributes:
      to_restore: a checkpoint that is read once there are variables and optimizers.
    """

    def __init__(
        self,
        states: Sequence[StageState],
        loss: Callable[[Any, Any], Any] | None,
        make_optimizer: Callable[[], Any],
        make_schedule: Callable[[bool, Any], Schedule],
    ):
        """``make_schedule`` takes whether it is for training, and the stages' topology."""
        self._states = states
        self._loss = loss
        self._make_optimizer = make_optimizer
        self._make_schedule = make_schedule
        self._prepared: dict[Any, Prepared] = {}
        self._made = False
        self.to_restore: str | None = None

    @property
    def training_schedule(self) -> Schedule | None:
        """The schedule of a training step, once there was one."""
        found = (one.schedule for (purpose, _), one in self._prepared.items() if purpose == TRAIN)
        return next(found, None)

    def of(self, purpose: Purpose, batch: Batch) -> Prepared:
        """What a call needs, made at the first such call."""
        key = purpose, batch.signature
        if key not in self._prepared:
            if not self._made:
                for state in self._states:
                    state.make()
                self._made = True
            program = self._trace(purpose, batch)
            training = purpose == TRAIN
            schedule = self._make_schedule(training, program.topology)
            simulate(schedule)
            if training:
                trained = [state.trainable_variables for state in self._states]
                program = differentiated(program, trained)
            self._finish(program, purpose)
            self._prepared[key] = Prepared(program, schedule)
        return self._prepared[key]

    def _trace(self, purpose: Purpose, batch: Batch) -> Program:
        """Traces all stages, with their variables on their devices."""
        moved: list[tuple[Any, Any]] = []

        def move(used: list[Sequence[Any]]) -> bool:
            before = len(moved)
            for state, refs in zip(self._states, used, strict=True):
                moved.extend(state.fetch_variables(refs))
            return len(moved) > before

        try:
            move([()] * len(self._states))
            program = self._traced(purpose, batch)
            reads = [one.function.graph.variables for one in program.stages]
            if move([[variable.ref() for variable in read] for read in reads]):
                program = self._traced(purpose, batch)
            self._check_unshared(program)
            for state, one in zip(self._states, program.stages, strict=True):
                state.adopt([one.function])
        except BaseException:
            for variable, old in moved:
                private.put_back(variable, old)
            raise
        return program

    def _traced(self, purpose: Purpose, batch: Batch) -> Program:
        stages = [state.stage for state in self._states]
        loss = None if purpose == PREDICT and self._loss is None else self._loss
        return trace(
            stages,
            [state.device for state in self._states],
            batch.feeds,
            batch.specs,
            loss,
            purpose,
        )

    def _check_unshared(self, program: Program) -> None:
        owner: dict[Any, int] = {}
        for i, one in enumerate(program.stages):
            for variable in one.function.graph.trainable_variables:
                first = owner.setdefault(variable.ref(), i)
                if first != i:
                    raise OptionError(
                        f"stages[{first}] and stages[{i}] share the variable {variable.name}: each "
                        "stage trains its own; put both uses into one stage"
                    )

    def _finish(self, program: Program, purpose: Purpose) -> None:
        """Makes optimizers and sums, and restores what waited for them."""
        first = all(state.optimizer is None for state in self._states)
        for state, one in zip(self._states, program.stages, strict=True):
            # Once differentiated, the graph returns more after the loss.
            dtype = one.function.outputs[one.results].dtype if one.has_loss else None
            state.prepare(self._make_optimizer, dtype)
        if first:
            for state in self._states:
                state.warn_of_strays()
        if self.to_restore is not None:
            checkpoint.read(self._states, self.to_restore)
            self.to_restore = None


def loss_of(loss: Any) -> Callable[[Any, Any], Any] | None:
    """A checked loss: a callable, or one that Keras knows by its name."""
    if loss is None:
        return None
    if isinstance(loss, str):
        try:
            return keras.losses.get(loss)
        except (TypeError, ValueError) as error:
            raise OptionError(f"loss={loss!r}: Keras knows no such loss") from error
    if not callable(loss):
        raise OptionError(
            f"loss={loss!r} is neither a callable of labels and predictions nor a name"
        )
    return loss
