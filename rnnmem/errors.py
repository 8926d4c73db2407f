"""The errors of rnnmem: each names the argument, its value and the way out."""


class RnnmemError(Exception):
    """Base of every error that rnnmem raises on purpose."""

    # AutoGraph keeps an error's type on its way out of a tf.function only with this constructor.
    __init__ = Exception.__init__


class OptionError(RnnmemError, ValueError):
    """An argument or an option is unknown, malformed or out of range."""


class BudgetError(RnnmemError, ValueError):
    """The budget cannot be met; the message names the smallest peak that can."""


class MeasureError(RnnmemError, RuntimeError):
    """Memory cannot be measured as things stand."""
