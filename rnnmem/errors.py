"""Errors of ours: each names the argument or construct, its value, and the way out."""

from __future__ import annotations

from collections.abc import Callable


class RnnmemError(Exception):
    """Base of every error that rnnmem raises on purpose."""

    # AutoGraph keeps an error's type on its way out of a tf.function only with this constructor.
    __init__ = Exception.__init__


class OptionError(RnnmemError, ValueError):
    """An argument or an option is unknown, malformed or out of range."""


class UnknownOptionError(OptionError, TypeError):
    """A name that no option has, as Python's TypeError for an unexpected argument."""


class BudgetError(RnnmemError, ValueError):
    """The budget cannot be met; the message names the smallest peak that can.

    Attributes:
      budget: bytes that were asked for; None where no plan was looked for.
      smallest: bytes of the smallest budget that can be met; None where nobody knows.
      of: makes the same refusal of another budget.
    """

    budget: int | None = None
    smallest: int | None = None
    of: Callable[[int], BudgetError] | None = None


class PlanError(RnnmemError, ValueError):
    """A saved plan that is malformed, or made for another function."""


class TensorFlowError(RnnmemError, ImportError):
    """TensorFlow is missing; the message says how to install it."""


class MeasureError(RnnmemError, RuntimeError):
    """Memory cannot be measured as things stand."""


class NetError(RnnmemError, ValueError):
    """A Net that is not well formed."""


class RaceError(NetError):
    """A sum's order is a race in the rewritten Net, and no edge can settle it as it was."""


class CheckError(RnnmemError):
    """A rewritten Net that the checker does not let through; the text starts with the reason."""

    @property
    def reason(self) -> str:
        """The reason in a word, e.g. ``value-changed``."""
        return str(self).partition(":")[0]


class NotUnderstood(RnnmemError):
    """A construct that is left exactly as it was; the message is the reason in the report."""


class VerifyError(RnnmemError):
    """The optimised function's results are not the original's."""


class ConvertError(RnnmemError, RuntimeError):
    """A conversion cannot be done as things stand; unless it says otherwise nothing was changed.

    Attributes:
      rescued: name of a tensor -> its values (NumPy), where no device has room for them any more.
    """

    rescued: dict = {}


class RangeError(RnnmemError, ValueError, OverflowError):
    """Values lie outside the new dtype's range; names the tensors. Nothing was changed."""


class StaleFunctionError(RnnmemError, RuntimeError):
    """A function was traced before a variable that it reads was converted; trace it again."""


class RnnmemWarning(UserWarning):
    """Something was left as TensorFlow runs it; the message says what and why."""


class ScheduleError(RnnmemError, ValueError):
    """A pipeline schedule that does not keep its bounds; the message names the action."""


class PipelineError(RnnmemError, RuntimeError):
    """A stage failed while the pipeline ran; the message names the stage and its device."""
