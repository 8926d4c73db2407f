"""Sums that add up otherwise in a clone of a branch, by the names of what the branch is given.

TensorFlow lowers branches and inlines calls under names of its own (``lower_functional_ops.cc``,
``inline_function_utils.cc``), and a sum sorts its addends by name.
"""

from __future__ import annotations

from collections.abc import Sequence

from rnnmem.grappler.summation_order import addends_of, summation_trees
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import BRANCHES, READ
from rnnmem.ir.order import through_identities


def sums_what_is_given(op: Op) -> bool:
    """Whether a branch sorts what it is given among what it computes, in the op or inside it.

    Inside, an op is named ``IF/then/_3/OP`` and an input ``IF/SOURCE/_4``, after the op outside
    that gives it: ``while/body/_1/OP`` in a forward loop, ``gradient_tape/while/...`` in the
    gradient loop. So an input that comes behind the other addends of a sum comes in front of them
    there, or the other way round. What a branch reads of a variable is an input there too.
    """
    inner = op.nets.values()
    if op.type in BRANCHES and any(map(_sorts_inputs, inner)):
        return True
    return any(sums_what_is_given(one) for net in inner for one in net.ops)


def _sorts_inputs(net: Net) -> bool:
    given = {*net.inputs, *(op.outputs[0] for op in net.ops if op.type == READ)}
    groups: list[Sequence[str]] = [addends_of(net, tree) for tree in summation_trees(net)]
    groups += [op.inputs for op in net.ops if op.type == "Mul" and _takes_a_constant(net, op)]
    return any(
        len({through_identities(net, blob) in given for blob in blobs}) == 2 for blobs in groups
    )


def _takes_a_constant(net: Net, product: Op) -> bool:
    """Whether the optimizer multiplies one factor, by the order of their names, with a constant."""
    readers = net.readers.get(product.outputs[0], ())
    return (
        net.fan_out(product.outputs[0]) == 1
        and len(readers) == 1
        and readers[0].type == "Mul"
        and any(
            source.type == "Const"
            for blob in readers[0].inputs
            if (source := net.producer.get(through_identities(net, blob))) is not None
        )
    )
