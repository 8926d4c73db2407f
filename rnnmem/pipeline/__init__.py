"""Pipelines: a model in stages on several devices, in memory that does not grow with the batch.

Public names are imported when they are first used, so that planning never imports TensorFlow. No
module here has the name of one: an import of it would take that name's place.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rnnmem.pipeline.balancing import Balance, balance
    from rnnmem.pipeline.calling import Chain
    from rnnmem.pipeline.charts import chart, picture
    from rnnmem.pipeline.devices import connect
    from rnnmem.pipeline.memory import StageMemory
    from rnnmem.pipeline.pipeline import Pipeline
    from rnnmem.pipeline.schedule import Schedule, Topology, make_schedule
    from rnnmem.pipeline.simulator import Costs, Timeline, simulate
    from rnnmem.pipeline.wiring import Stage
    from rnnmem.pipeline.worker import serve

_HOME = {
    "Balance": "balancing",
    "Chain": "calling",
    "Costs": "simulator",
    "Pipeline": "pipeline",
    "Schedule": "schedule",
    "Stage": "wiring",
    "StageMemory": "memory",
    "Timeline": "simulator",
    "Topology": "schedule",
    "balance": "balancing",
    "chart": "charts",
    "connect": "devices",
    "make_schedule": "schedule",
    "picture": "charts",
    "serve": "worker",
    "simulate": "simulator",
}

__all__ = [  # noqa: F822 - they are imported when first used
    "Balance",
    "Chain",
    "Costs",
    "Pipeline",
    "Schedule",
    "Stage",
    "StageMemory",
    "Timeline",
    "Topology",
    "balance",
    "chart",
    "connect",
    "make_schedule",
    "picture",
    "serve",
    "simulate",
]


def __getattr__(name: str) -> Any:
    """Imports a public name from the module that defines it (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'rnnmem.pipeline' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"rnnmem.pipeline.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Lists the public names, those not imported yet included."""
    return sorted(set(globals()) | set(__all__))
