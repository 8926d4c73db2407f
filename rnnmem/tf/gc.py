"""Python's garbage collector, out of the way while a function is planned.

Planning makes hundreds of thousands of small objects that live on; the collector would walk all of
them again and again and find nothing.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Stops collecting until the block is left."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
