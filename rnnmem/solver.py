"""HiGHS, without a word on the user's terminal.

HiGHS prints some remarks of its own from C, whatever its options say. While it runs, what the
process writes to its standard output is held back: remarks of HiGHS are dropped, and the rest, of
other threads, is written behind it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

_STDOUT = 1
_REMARK = re.compile(rb"highs|tmpsolver", re.IGNORECASE)
_one_at_a_time = threading.RLock()


def milp(*args: Any, **kwargs: Any) -> Any:
    """``scipy.optimize.milp``, quiet."""
    from scipy.optimize import milp as solve

    with _quiet():
        return solve(*args, **kwargs)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Holds back what is written to the standard output, and lets through all but the remarks."""
    with _one_at_a_time, contextlib.ExitStack() as stack:
        try:
            stdout = os.dup(_STDOUT)
            stack.callback(os.close, stdout)
            held = stack.enter_context(_memory())
        except OSError:  # nothing can be held back
            yield
            return
        _flush()
        os.dup2(held.fileno(), _STDOUT)
        try:
            yield
        finally:
            _flush()
            os.dup2(stdout, _STDOUT)
            _let_through(held, stdout)


def _memory() -> Any:
    """A file that needs no room on a disk, where there is such a thing."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("rnnmem"), "w+b")
    return tempfile.TemporaryFile()


def _flush() -> None:
    """Writes out what Python and C hold for the standard output."""
    with contextlib.suppress(Exception):  # a closed one, or one that is no file
        sys.stdout.flush()
    with contextlib.suppress(Exception):
        _libc().fflush(None)


def _let_through(held: Any, stdout: int) -> None:
    held.seek(0)
    lines = held.read().splitlines(keepends=True)
    kept = b"".join(line for line in lines if not _REMARK.search(line))
    with contextlib.suppress(OSError):
        while kept:
            kept = kept[os.write(stdout, kept) :]


@functools.cache
def _libc() -> Any:
    return ctypes.CDLL(None)
