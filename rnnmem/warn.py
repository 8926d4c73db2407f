"""Warnings that point at the user's line."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from types import FrameType

from rnnmem.errors import RnnmemWarning

_OWN = os.path.dirname(os.path.abspath(__file__))
_INSTALLED = f"{os.sep}site-packages{os.sep}"
_IMPORTING = "<frozen importlib."
"""Starts the files of frames that ``warnings`` does not count."""


def warn_user(text: str) -> None:
    """Warns at the innermost line that stands neither here, nor in a package, nor in made code."""
    level = 2
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_library(frame.f_code.co_filename):
        level += not frame.f_code.co_filename.startswith(_IMPORTING)
        frame = frame.f_back
    warnings.warn(text, RnnmemWarning, stacklevel=level)


def _is_library(filename: str) -> bool:
    made = os.path.basename(filename).startswith("__autograph_generated_file")
    imports = filename.startswith((_IMPORTING, os.path.dirname(importlib.__file__)))
    return made or imports or filename.startswith(_OWN) or _INSTALLED in filename
