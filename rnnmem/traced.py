"""Traced functions, and what runs instead of each; the Nets go once they run."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Sequence
from typing import Any

from rnnmem.analysis.shape_rules import Fact
from rnnmem.analysis.training_regions import nested_steps
from rnnmem.compiled import waits_for_gradient
from rnnmem.errors import BudgetError
from rnnmem.planning.choice import met_when_asked
from rnnmem.planning.options import Options
from rnnmem.planning.plan import Plan
from rnnmem.tf import private
from rnnmem.tf.device import check_budget
from rnnmem.tf.functions import function_of
from rnnmem.tf.gc import paused
from rnnmem.tf.inlined_calls import shapes_of_call
from rnnmem.work import Work

DISABLE = "RNNMEM_DISABLE"
"""Set to 1 in the environment, every function runs as TensorFlow runs it."""


@dataclasses.dataclass(frozen=True)
class Trace:
    """What became of one traced function.

    Attributes:
      original: the function as TensorFlow traced it.
      function: the function that runs instead; ``original`` itself where nothing was gained.
      work: what planned it.
      gradient_only: whether only the function's gradient, once somebody asks for it, is rewritten.
      taped_as_it_was: whether the original runs under a tape: what was rewritten holds a gradient,
        or delayed inputs in the way of one, and its own gradient would be another.
      untaped: what runs instead of ``function`` where no tape records it: a softmax loss by chunks
        of tokens is not differentiated, nor a training loop.
    """

    original: Any
    function: Any
    work: Work
    gradient_only: bool = False
    taped_as_it_was: bool = False
    untaped: Any = None

    @property
    def without_tape(self) -> Any:
        """What runs where no tape records it."""
        return self.function if self.untaped is None else self.untaped

    def called_with(self, given: Sequence[Any]) -> Any:
        """What runs where a graph calls the function with the tensors."""
        if self.function is self.original or self.gradient_only:
            return self.function
        shapes = shapes_of_call(self.original, given)
        return self.original if self.work.differs_called(self.function, shapes) else self.function

    def plan(self) -> Plan:
        """The decisions; a gradient is built for them if nobody did yet."""
        if self.gradient_only and self.untaped is None:
            return self.work.plan_gradient(self.function)
        return self.work.plan


def trace_of(
    concrete: Any, options: Options, where: str = "", given: tuple[Fact, ...] = ()
) -> Trace:
    """Compiles one traced function; whatever fails, the original runs.

    Args:
      concrete: the function as TensorFlow traced it.
      options: what the user asks for.
      where: the user's line, in brackets, for warnings.
      given: what is known of its inputs in a call, whose sizes choose the plan where the function
        tells none; empty: nobody calls it yet.

    Raises:
      BudgetError: no plan is predicted to stay within the budget.
      OptionError: an option asks for what the device cannot do.
      PlanError: the plan given is for another function.
    """
    if os.environ.get(DISABLE, "") not in ("", "0"):
        return left_as_it_was(concrete, options, where, f"{DISABLE} is set")
    check_budget(options.budget)
    work, began = Work(concrete, options, where, given=given), time.perf_counter()
    with paused():
        try:
            made = _exported(work)
        except BudgetError as error:

            def try_within(budget: int) -> None:
                _exported(work.asked(dataclasses.replace(options, budget=budget)))

            raise met_when_asked(error, try_within) from error.__cause__
    if not made.gradient_only or made.untaped is not None:
        work.log_since(began)
    return made


def left_as_it_was(concrete: Any, options: Options, where: str, reason: str) -> Trace:
    """What becomes of a function that is not looked into; its plan tells the reason."""
    work = Work(concrete, options, where)
    work.plan, work.make_again = Plan(notes=(reason,)), None
    return Trace(concrete, concrete, work)


def _exported(work: Work) -> Trace:
    """What runs instead of a function: as a whole, or of its gradient once somebody asks for it."""
    as_it_was = Trace(work.concrete, work.concrete, work)
    try:
        found = _as_planned(work)
        if isinstance(found, Trace):
            return found
        for fewer in work.simpler(found):
            made = _as_planned(fewer)
            if isinstance(made, Trace):
                return made
        work.compile(found)
    except Exception as error:
        work.give_up(error)
    return as_it_was


def _as_planned(work: Work) -> Trace | str:
    """The same by one plan; a text: why last bits would be others."""
    concrete, made = work.concrete, work.compile()
    as_it_was = Trace(concrete, concrete, work)
    if made.rewritten is not None:
        # A gradient that is asked for without a tape, of a graph, is the original's too.
        function = private.differentiate_as(function_of(made.rewritten, concrete), concrete)
        if reason := work.reordered(concrete.graph, function.graph) or work.differs(function):
            return reason
        if waits_for_gradient(made.net):
            return _apart(as_it_was, function)
        if work.plan.writes_rows:
            return dataclasses.replace(as_it_was, taped_as_it_was=True, untaped=function)
        return dataclasses.replace(as_it_was, function=function, taped_as_it_was=True)
    if not work.plan.loops and waits_for_gradient(made.net):
        if nested_steps(made.net):
            return _apart(as_it_was, concrete)
        function = private.with_gradient(concrete, work.gradient, work.accept, work.leave)
        return dataclasses.replace(as_it_was, function=function, gradient_only=True)
    return as_it_was


def _apart(as_it_was: Trace, function: Any) -> Trace:
    """What becomes of a function that is rewritten in one way, and its gradient in another."""
    work = as_it_was.work
    of_gradient = Work(work.concrete, work.options, work.where)
    callbacks = of_gradient.gradient, of_gradient.accept, of_gradient.leave
    taped = private.with_gradient(work.concrete, *callbacks)
    return dataclasses.replace(as_it_was, function=taped, gradient_only=True, untaped=function)
