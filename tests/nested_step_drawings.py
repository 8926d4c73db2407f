"""A training loop drawn by hand: its step net holds a loop, its gradient loop and the update."""

from __future__ import annotations

from rnnmem.ir.graph import Net
from tests.drawing import with_more
from tests.handmade import const, make_net, op, while_op
from tests.read_drawings import reading, with_shapes

TRAIN = ("train", "body")
"""The way to the step net."""


def training(*, paced: bool = True, same: bool = False, beside: str = "") -> Net:
    """train { before ─► forward { read v } ─► gradient ─► after; n' = n - 1 }

    Args:
      paced: whether n, on which the next iteration waits, waits for the update.
      same: whether both handles of the step net are one variable's.
      beside: "unordered" or "late": a write of v around the loop, in no order or after it.
    """
    step = reading(updated=True)
    given = step.op_by_name["forward"].outputs[2]

    def draw(net):
        net.op("Sub", "n", net.const(1), gives="int32", name="less")
        net.op("Identity", given, name="state")

    step = with_shapes(with_more(step, draw))
    ops = tuple(
        one.replace(controls=("after", "before") if paced else ()) if one.name == "less" else one
        for one in step.ops
    )
    step = step.replace(ops=ops, outputs=("state:0", "less:0", "v", "other"), name="step")
    cond = make_net(
        {"x": "f[64,64]", "n": "i[]", "v": "r[]", "other": "r[]"},
        [const("none", 0), op("more", "Greater", "n none", "z[]")],
        ["more"],
    )
    writes = [op("write", "AssignVariableOp", "v x", "", stateful=True)] if beside else []
    ops = [while_op("train", "x n v v" if same else "x n v w", step, cond), *writes]
    net = make_net(
        {"x": "f[64,64]", "n": "i[]", "v": "r[]", "w": "r[]"},
        ops,
        ["train:0"],
        control_outputs=("train", *(one.op.name for one in writes)),
    )
    if beside == "late":
        late = net.op_by_name["write"].replace(controls=("train",))
        net = net.replace(ops=(*net.ops[:-1], late))
    return net
