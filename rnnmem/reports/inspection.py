"""What a report is made of: one traced function, before and after."""

from __future__ import annotations

import dataclasses
from typing import Any

from rnnmem.ir.graph import Net
from rnnmem.planning.options import Options
from rnnmem.planning.plan import Plan


@dataclasses.dataclass(frozen=True)
class Inspection:
    """One traced function, laid open for a report.

    Attributes:
      name: the function's name.
      original: the ConcreteFunction as TensorFlow traced it.
      function: the one that runs instead; ``original`` itself where nothing was gained.
      plan: the decisions.
      net: the original as a Net, inlined; None where an error of ours stands in the way.
      rewritten: what runs instead; None where nothing was changed.
      joint: whether the Nets are the function and its gradient together.
      options: what the user asked for.
    """

    name: str
    original: Any
    function: Any
    plan: Plan
    net: Net | None
    rewritten: Net | None
    joint: bool
    options: Options
