"""Sums in branches that a clone would add up otherwise."""

import pytest

from rnnmem.grappler.lowering import sums_what_is_given
from tests.handmade import const, make_net, op


def branch_of(*ops, inputs=("h", "t")):
    """An If whose then-branch has these ops and hands out the last one's result."""
    inner = make_net({"h": "f[4]", "t": "f[4]", "v": "r[]"}, ops, [ops[-1].op.outputs[0]])
    other = make_net({"h": "f[4]", "t": "f[4]", "v": "r[]"}, [], ["t"])
    nets = {"then_branch": inner, "else_branch": other}
    return op("cond", "If", "p h t v", "f[4]", nets=nets).op


SIN = op("a", "Sin", "h", "f[4]")
COS = op("b", "Cos", "t", "f[4]")
READ = op("w", "ReadVariableOp", "v", "f[4]")
HALF = const("half", 0.5)


@pytest.mark.parametrize(
    "ops, sorts",
    [
        ([SIN, COS, op("s", "AddN", "t a b", "f[4]")], True),
        ([SIN, op("s", "AddV2", "h a", "f[4]"), op("r", "AddV2", "s t", "f[4]")], True),
        ([SIN, COS, op("i", "Identity", "t", "f[4]"), op("s", "AddN", "i a b", "f[4]")], True),
        ([SIN, COS, READ, op("s", "AddN", "w a b", "f[4]")], True),
        # of names of one kind the order stays
        ([op("s", "AddN", "h t t", "f[4]")], False),
        ([SIN, COS, op("s", "AddN", "a b a", "f[4]")], False),
        # a sum of two has no order
        ([SIN, op("s", "AddV2", "t a", "f[4]")], False),
        # 0.5 (t a) = t (0.5 a), unless somebody else reads the product
        ([SIN, HALF, op("m", "Mul", "t a", "f[4]"), op("r", "Mul", "m half", "f[4]")], True),
        (
            [
                *(SIN, HALF, op("m", "Mul", "t a", "f[4]")),
                *(op("o", "OptionalFromValue", "m", "v[]"), op("r", "Mul", "m half", "f[4]")),
            ],
            False,
        ),
        ([SIN, op("m", "Mul", "t a", "f[4]"), op("r", "Mul", "m h", "f[4]")], False),
    ],
)
def test_a_branch_that_sorts_its_inputs_among_what_it_computes_keeps_its_place(ops, sorts):
    assert sums_what_is_given(branch_of(*ops)) == sorts


def test_a_branch_inside_a_branch_counts():
    inside = branch_of(SIN, COS, op("s", "AddN", "t a b", "f[4]"))
    assert not sums_what_is_given(SIN.op)
    net = make_net({"p": "z[]", "h": "f[4]", "t": "f[4]", "v": "r[]"}, [], ["t"])
    kinds = {**net.blobs, "cond": net.blobs["t"].__class__("cond", "float32", (4,))}
    net = net.replace(ops=(inside,), blobs=kinds)
    nets = {"then_branch": net, "else_branch": net}
    assert sums_what_is_given(op("outer", "If", "p p h t v", "f[4]", nets=nets).op)
