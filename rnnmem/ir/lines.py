"""The user's lines, which are looked up once somebody reads them."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable


class Line(collections.UserString):
    """Text that is looked up when it is first read: what TensorFlow tells of an op, it keeps."""

    def __init__(self, find: Callable[[], str]):
        self._find = find

    @functools.cached_property
    def data(self) -> str:  # type: ignore[override]
        """The text."""
        return self._find()


class Written(str):
    """A line of the user's, and the Python function that it stands in.

    Args:
      text: the line, ``train.py:88``.
      function: finds the function's name; asked where somebody wants to know it.
    """

    def __new__(cls, text: str, function: Callable[[], str]) -> Written:
        """The text."""
        made = super().__new__(cls, text)
        made._function = function
        return made

    _function: Callable[[], str]

    @functools.cached_property
    def function(self) -> str:
        """The function's name; empty where it is not known."""
        return self._function()


def function_of(line: str | Line) -> str:
    """The user's Python function that an op was made in; empty where it is not known."""
    text = _text(line)
    return text.function if isinstance(text, Written) else ""


def either(line: str | Line, other: str | Line) -> str | Line:
    """The first of two lines that is known."""
    if isinstance(line, str):
        return line or other
    return Line(lambda: _text(line) or _text(other))


def _text(line: str | Line) -> str:
    return line.data if isinstance(line, Line) else line
