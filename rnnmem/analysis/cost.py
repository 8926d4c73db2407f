"""The old name of :mod:`rnnmem.analysis.machine`."""

from rnnmem.analysis.machine import CPU, GPU, Machine

__all__ = ["CPU", "GPU", "Machine"]
