"""Errors of ours: each names the argument or construct, its value, and the way out."""


class RnnmemError(Exception):
    """Base of every error that rnnmem raises on purpose."""


class NetError(RnnmemError, ValueError):
    """A Net that is not well formed."""


class CheckError(RnnmemError):
    """A rewritten Net that the checker does not let through; the text starts with the reason."""

    @property
    def reason(self) -> str:
        """The reason in a word, e.g. ``value-changed``."""
        return str(self).partition(":")[0]


class NotUnderstood(RnnmemError):
    """A construct that is left exactly as it was; the message is the reason in the report."""
