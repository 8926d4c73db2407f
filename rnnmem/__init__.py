"""rnnmem: train recurrent networks of TensorFlow in less memory, with the same bits.

Public names are imported when they are first used, so that planning never imports TensorFlow.
"""

import importlib
import importlib.util
import warnings
from typing import TYPE_CHECKING, Any

from rnnmem.errors import (
    BudgetError,
    CheckError,
    ConvertError,
    MeasureError,
    OptionError,
    PipelineError,
    PlanError,
    RangeError,
    RnnmemError,
    RnnmemWarning,
    ScheduleError,
    StaleFunctionError,
    TensorFlowError,
    VerifyError,
)
from rnnmem.version import __version__

if TYPE_CHECKING:
    from rnnmem.api import optimize
    from rnnmem.conversion.api import convert
    from rnnmem.conversion.plan import ConversionPlan
    from rnnmem.ir.graph import Blob, Net, Op
    from rnnmem.keeping import keep, recompute
    from rnnmem.limit_search import largest
    from rnnmem.optimized import Optimized
    from rnnmem.planning.plan import Plan
    from rnnmem.reporting import report
    from rnnmem.reports.memory_log import MemoryLog
    from rnnmem.reports.report import Report
    from rnnmem.saved_model import optimize_saved_model
    from rnnmem.shared import SharedFunction, share
    from rnnmem.tf.calibration_cache import calibrate
    from rnnmem.tf.load import load_net
    from rnnmem.tf.measure import (
        Comparison,
        Measurement,
        enable_cpu_memory_stats,
        measure,
        measure_pair,
    )
    from rnnmem.throughput import Throughput

__all__ = [
    "Blob",
    "BudgetError",
    "CheckError",
    "Comparison",
    "ConversionPlan",
    "ConvertError",
    "MeasureError",
    "Measurement",
    "MemoryLog",
    "Net",
    "Op",
    "Optimized",
    "OptionError",
    "PipelineError",
    "Plan",
    "PlanError",
    "RangeError",
    "Report",
    "RnnmemError",
    "RnnmemWarning",
    "ScheduleError",
    "SharedFunction",
    "StaleFunctionError",
    "TensorFlowError",
    "Throughput",
    "VerifyError",
    "__version__",
    "calibrate",
    "convert",
    "enable_cpu_memory_stats",
    "keep",
    "largest",
    "load_net",
    "measure",
    "measure_pair",
    "optimize",
    "optimize_saved_model",
    "recompute",
    "report",
    "share",
]

_HOME = {
    "Blob": "rnnmem.ir.graph",
    "Comparison": "rnnmem.tf.measure",
    "ConversionPlan": "rnnmem.conversion.plan",
    "Measurement": "rnnmem.tf.measure",
    "MemoryLog": "rnnmem.reports.memory_log",
    "Net": "rnnmem.ir.graph",
    "Op": "rnnmem.ir.graph",
    "Optimized": "rnnmem.optimized",
    "Plan": "rnnmem.planning.plan",
    "Report": "rnnmem.reports.report",
    "SharedFunction": "rnnmem.shared",
    "Throughput": "rnnmem.throughput",
    "calibrate": "rnnmem.tf.calibration_cache",
    "convert": "rnnmem.conversion.api",
    "enable_cpu_memory_stats": "rnnmem.tf.measure",
    "keep": "rnnmem.keeping",
    "largest": "rnnmem.limit_search",
    "load_net": "rnnmem.tf.load",
    "measure": "rnnmem.tf.measure",
    "measure_pair": "rnnmem.tf.measure",
    "optimize": "rnnmem.api",
    "optimize_saved_model": "rnnmem.saved_model",
    "recompute": "rnnmem.keeping",
    "report": "rnnmem.reporting",
    "share": "rnnmem.shared",
}

_ROOMS = frozenset({"keras", "pipeline", "sharing"})
"""Modules with public names of their own, which are not imported with the package."""

_MISSING = (
    "rnnmem needs TensorFlow, which is not installed here: pip install 'rnnmem[tf]', or "
    "'rnnmem[tf-cpu]' for the smaller one without GPUs"
)

if importlib.util.find_spec("tensorflow") is None:
    warnings.warn(_MISSING, RnnmemWarning, stacklevel=2)


def __getattr__(name: str) -> Any:
    """Imports a public name from the module that defines it (PEP 562)."""
    if name in _ROOMS:
        return _imported(f"rnnmem.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'rnnmem' has no attribute {name!r}")
    value = getattr(_imported(_HOME[name]), name)
    globals()[name] = value
    return value


def _imported(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == "tensorflow":
            raise TensorFlowError(_MISSING) from None
        raise


def __dir__() -> list[str]:
    """Lists the public names, those not imported yet included."""
    return sorted(set(globals()) | set(__all__) | _ROOMS)
