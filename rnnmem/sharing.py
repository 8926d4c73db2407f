"""The earlier name of :mod:`rnnmem.storage`."""

from rnnmem.storage import *  # noqa: F403
from rnnmem.storage import __all__ as __all__
