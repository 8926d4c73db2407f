"""What a loop only hands on, a later loop reads from where the first one has it from.

TensorFlow's gradient loops do that by themselves, but not in a function that XLA compiles.
"""

from __future__ import annotations

from rnnmem.analysis.loops import loops_of
from rnnmem.ir.graph import Net
from rnnmem.ir.op_table import LOOPS


def past_loops(net: Net) -> Net:
    """The Net whose loops are given what an earlier loop does not change as that was given it."""
    given = {
        loop.op.outputs[position]: loop.op.inputs[position]
        for loop in loops_of(net)
        for position in loop.invariants.values()
    }
    ops = tuple(
        op.replace(inputs=tuple(given.get(blob, blob) for blob in op.inputs))
        if op.type in LOOPS
        else op
        for op in net.ops
    )
    return net if ops == net.ops else net.replace(ops=ops)
