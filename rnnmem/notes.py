"""What a plan says of what was left, of what is not known, and of what the user asked for."""

from __future__ import annotations

import dataclasses

from rnnmem.ir.graph import Net
from rnnmem.ir.op_table import RUNS_PYTHON
from rnnmem.ir.requests import without_a_name
from rnnmem.passes.encode.decision import BFLOAT16, BITS, OFFLOAD
from rnnmem.planning.options import Options
from rnnmem.planning.plan import Plan, without_peaks
from rnnmem.planning.requests import request_notes

_ENCODED = "XLA compiles the function: what its loops save is kept as it is"
_NOT_PREDICTED = "XLA compiles the function and lays out buffers of its own: no peak is predicted"
_NOT_HELD = "the budget was not held against a prediction: XLA lays out buffers of its own"
_IN_A_PIPELINE = (
    "the body of a loop over a dataset runs in the input pipeline and is not looked into; take the "
    "elements with next(iterator) in a loop over tf.range"
)
_IN_PYTHON = (
    "the budget is held against a prediction that knows nothing of what Python functions take"
)
_SLOWER = "what you asked to recompute takes {:.2f}x the step time, more than max_slowdown={:g}"
_NO_NAME = "the pattern {!r} names no op and no name scope of the function"


def with_notes(plan: Plan, net: Net, options: Options, left: str, by_xla: bool) -> Plan:
    """The plan, with notes.

    Args:
      plan: the decisions.
      net: the Net that they are for.
      options: what the user asks for.
      left: why nothing was to be changed; empty where something was.
      by_xla: whether XLA compiles the function.
    """
    notes = plan.notes
    if by_xla and not options.passes.isdisjoint({BITS, BFLOAT16, OFFLOAD}):
        notes += (_ENCODED,)
    if not any(True for _ in plan.every_loop()) and _trains_in_a_pipeline(net):
        notes += (_IN_A_PIPELINE,)
    if options.plan is None:
        notes += tuple(map(_NO_NAME.format, without_a_name(net, options.patterns)))
        notes += request_notes(net, plan, options.passes)
        held = options.budget is None and not options.profile  # else the bound is another one
        # What is printed is compared, or the note would say that 1.10x is more than 1.1.
        slower = round(plan.slowdown, 2) > options.max_slowdown
        if held and plan.must_recompute and slower:
            notes += (_SLOWER.format(plan.slowdown, options.max_slowdown),)
    if left:
        notes = (left,)
    if options.budget is not None and _calls_python(net):
        notes += (_IN_PYTHON,)
    if by_xla:
        notes += (_NOT_PREDICTED,) if options.budget is None else (_NOT_HELD,)
        plan = without_peaks(plan)
    return dataclasses.replace(plan, notes=notes)


def _calls_python(net: Net) -> bool:
    """Whether ops run Python functions; only what these hand back is counted."""
    return any(op.type in RUNS_PYTHON for _, inner in net.walk() for op in inner.ops)


def _trains_in_a_pipeline(net: Net) -> bool:
    """Whether a dataset is reduced here, which is what becomes of ``for x in dataset``."""
    return any(op.type == "ReduceDataset" for _, inner in net.walk() for op in inner.ops)
