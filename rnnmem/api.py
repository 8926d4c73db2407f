"""``optimize``, the decorator."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import textwrap
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypedDict, TypeVar, Unpack, overload

from rnnmem.errors import OptionError
from rnnmem.optimized import Optimized
from rnnmem.planning.options import Options, with_known_names
from rnnmem.planning.plan import Plan

P = ParamSpec("P")
R = TypeVar("R")

_LONGEST = 100
"""Characters of what is told of something that is no function."""


class Choices(TypedDict, total=False):
    """The options of ``optimize``, for type checkers."""

    budget: int | str | None
    max_slowdown: float
    allow: tuple[str, ...] | None
    verify: bool
    plan: Plan | str | os.PathLike | None
    profile: bool | float
    keep: str | Iterable[str]
    recompute: str | Iterable[str]


@overload
def optimize(fn: Callable[P, R], **choices: Unpack[Choices]) -> Optimized[P, R]: ...


@overload
def optimize(
    **choices: Unpack[Choices],
) -> Callable[[Callable[P, R]], Optimized[P, R]]: ...


@with_known_names
def optimize(
    fn: Callable[..., Any] | None = None,
    *,
    budget: int | str | None = None,
    max_slowdown: float = 1.1,
    allow: tuple[str, ...] | None = None,
    verify: bool = False,
    plan: Plan | str | os.PathLike | None = None,
    profile: bool | float = False,
    keep: str | Iterable[str] = (),
    recompute: str | Iterable[str] = (),
) -> Any:
    """Makes a train step with loops run in less memory, with the same results bit for bit.

    Use it as a decorator, with or without arguments, above or below ``@tf.function``::

        @rnnmem.optimize
        def train_step(inputs, targets): ...

    Args:
      fn: a Python function (it is traced as ``tf.function`` does), a ``tf.function`` or a
        ``ConcreteFunction``; a whole train step or any part of one that holds loops with their
        gradients.
      budget: bytes as an int or ``"512MiB"``: the peak above the resident state to stay under, at
        the least time. Where no plan can, the first call raises ``BudgetError``.
      max_slowdown: without a budget, spend at most this factor of step time for the least memory.
      allow: names of the passes that may be used (docs/passes.md); None: "default", which is all
        of them but four, used only where they are named: ``allow=("default", "bits")``.
        "chunked_loss", a projection with its softmax loss by chunks of tokens, adds gradients up
        in another order, so their last bits differ. "bits" keeps saved booleans, and numbers that
        are only asked for their sign, as bits; all bits stay the same. "bfloat16" rounds what loops
        save, so gradients differ by about 1 %; what the forward part computes keeps its bits.
        "offload" keeps what loops save in host memory, on a GPU.
      verify: on the first call of each signature also run the original and raise if any bit of an
        output or a variable differs (with "chunked_loss": by more than float tolerance; with
        "bfloat16": by more than 5 % of the largest element). Both runs start from the same
        variables, tables, seeds and elements of iterators; where that cannot be had, nothing is
        compared, and a warning says so. An error in planning is raised then, not warned of. With
        a budget the peak is measured too, and a smaller plan is taken from the next call on where
        it is above the budget; where TensorFlow counts no memory, a warning says so.
      plan: decisions to apply instead of making any: a ``Plan``, its JSON text, or the path of a
        file that holds it. One that does not fit the function is refused on the first call.
      profile: measure times instead of estimating them, for at most so many seconds (True: 10).
        Kernels are timed at the shapes of the first call (kept below ``$XDG_CACHE_HOME/rnnmem``).
        Where that call runs the whole step eagerly, the step is then timed beside the original,
        and the plan is that of the least memory that was measured within ``max_slowdown``;
        variables, tables, seeds and iterators are put back. ``plan(...)`` tells what was measured.
      keep: patterns (``"*/gates"``) of names of ops, or of the name scopes around them, or else of
        what ``explain`` calls these (``"encoder"``): what they compute is not computed again.
        :func:`rnnmem.keep` asks the same of one value.
      recompute: the same of what is not saved but computed again, whatever time that takes; see
        :func:`rnnmem.recompute`. What cannot be had as it is asked, the plan's notes tell.

    Returns:
      A callable like ``fn``, with ``plan(*args)``, ``explain(*args)`` and
      ``get_concrete_function(*args)``.

    Raises:
      OptionError: an option is unknown or malformed, or ``fn`` is no function; on the first call,
        "offload" is allowed where the step runs on the host.
      PlanError: ``plan`` holds no plan.
    """
    options = Options.of(budget, max_slowdown, allow, verify, plan, profile, keep, recompute)
    if fn is None:
        return functools.partial(
            optimize,
            budget=budget,
            max_slowdown=max_slowdown,
            allow=allow,
            verify=verify,
            plan=plan,
            profile=profile,
            keep=keep,
            recompute=recompute,
        )
    if isinstance(fn, Optimized):
        return Optimized(fn.__wrapped__, options)
    _check_is_function(fn)
    return Optimized(fn, options)


def _check_is_function(fn: Any) -> None:
    """Refuses what can never be traced to a step."""
    if not callable(fn):
        told = textwrap.shorten(repr(fn), _LONGEST, placeholder=" ...")
        raise OptionError(f"fn={told} is not callable: pass the step itself")
    if inspect.isclass(fn):
        raise OptionError(f"fn={fn!r} is a class: pass the step itself, a function or a method")
    keras = sys.modules.get("keras")  # nobody has a model who did not import it
    if keras is not None and isinstance(fn, keras.Model):
        raise OptionError(
            f"fn={type(fn).__name__} is a Keras model, not its train step: call "
            "rnnmem.keras.optimize(model), or decorate a train step of your own"
        )
