"""What each technique rewrote, taken back for the comparison with the original.

A module that has a function ``lower_original`` changes the original instead, to what computes the
same in the rewritten Net's way; such modules are found by being here.
"""

import functools
import importlib
import pkgutil
from collections.abc import Callable

from rnnmem.ir.graph import Net


def lowered_original(original: Net, rewritten: Net) -> Net:
    """The original as if it got values in the ways in which the rewritten Net gets them."""
    for lower in _lowerings():
        original = lower(original, rewritten)
    return original


@functools.cache
def _lowerings() -> tuple[Callable[[Net, Net], Net], ...]:
    """Those of the modules here, in the order of their names."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = (importlib.import_module(f"{__name__}.{name}") for name in names)
    return tuple(one.lower_original for one in modules if hasattr(one, "lower_original"))
