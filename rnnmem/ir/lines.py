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


def either(line: str | Line, other: str | Line) -> str | Line:
    """The first of two lines that is known."""
    if isinstance(line, str):
        return line or other
    return Line(lambda: str(line) or str(other))
