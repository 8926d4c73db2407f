"""Sharing in step nets: loop pairs together, carried values and saved ones safe."""

import dataclasses

import pytest

from rnnmem.errors import CheckError
from rnnmem.ir.graph import Net
from rnnmem.storage import share_parallel, share_sequential, verify
from rnnmem.storage.plan import FORWARD_RENAME_MAP, RENAME_MAP
from tests.handmade import const, empty_list, make_net, op, pop, push, while_op

F = "f[8,8]"


def pair(limit: int = 5) -> Net:
    """A forward loop whose body has room to share, and its gradient loop, which has too."""
    body = make_net(
        {"i": "i[]", "h": F, "w": F, "acc": "v[]"},
        [
            const("one", 1),
            op("next", "AddV2", "i one", "i[]"),
            op("m", "MatMul", "h w", F),
            op("a", "Tanh", "m", F),
            op("b", "Sin", "a", F),
            op("c", "Cos", "b", F),
            op("new", "AddV2", "c a", F),
            push("push_a", "acc", "a"),
        ],
        ["next", "new", "w", "push_a"],
        name="body",
    )
    gradient = make_net(
        {"i": "i[]", "g": F, "w": F, "acc": "v[]"},
        [
            const("one", 1),
            const("any", (-1, -1)),
            op("next", "AddV2", "i one", "i[]"),
            pop("pop", "acc", F),
            op("d", "TanhGrad", "pop:1 g", F),
            op("e", "Sin", "d", F),
            op("k", "Cos", "e", F),
            op("l", "Sin", "k", F),
            op("back", "MatMul", "l w", F),
        ],
        ["next", "back", "w", "pop:0"],
        name="gradient_body",
    )
    return make_net(
        {"x": F, "w": F},
        [
            const("zero", 0),
            const("any", (-1, -1)),
            empty_list("list"),
            while_op("loop", "zero x w list", body, limit=limit),
            op("t", "Tanh", "loop:1", F),
            op("u", "Tanh", "t", F),
            op("s", "Sin", "u", F),
            while_op("gradient", "zero s w loop:3", gradient, limit=limit),
        ],
        ["loop:1", "gradient:1"],
    )


@pytest.mark.parametrize("share", [share_parallel, share_sequential])
def test_a_loop_pair_is_planned_together(share):
    shared = share(pair())
    plans = dict(shared.plan.walk())
    forward, gradient = plans["loop", "body"], plans["gradient", "body"]
    assert {one.name for one in gradient.storages} & {one.name for one in forward.storages}
    assert len(gradient.storages) < len(gradient.rename)
    assert all(one.name.startswith("//loop/body/") for one in forward.storages)
    assert shared.after.bytes < shared.before.bytes


@pytest.mark.parametrize("share", [share_parallel, share_sequential])
def test_carried_and_saved_values_are_never_pooled(share):
    plans = dict(share(pair()).plan.walk())
    # a is pushed for the gradient, new is carried to the next iteration
    assert set(plans["loop", "body"].rename) == {"m", "b", "c"}
    assert not {"back", "next", "pop:0"} & set(plans["gradient", "body"].rename)


def test_the_gradient_op_is_told_the_rename_map():
    net = share_parallel(pair()).net
    forward, gradient = net.op_by_name["loop"], net.op_by_name["gradient"]
    names = dict(forward.attributes[RENAME_MAP])
    assert names["body/m"].startswith("//loop/body/")
    assert gradient.attributes[FORWARD_RENAME_MAP] == forward.attributes[RENAME_MAP]
    assert dict(gradient.attributes[RENAME_MAP])["body/d"].startswith("//")


def test_a_missing_rename_map_is_found():
    shared = share_parallel(pair())
    ops = tuple(
        op.replace(attributes={k: v for k, v in op.attributes.items() if k != FORWARD_RENAME_MAP})
        for op in shared.net.ops
    )
    with pytest.raises(CheckError, match="rename-map-missing: 'gradient'"):
        verify(shared.original, shared.net.replace(ops=ops), parallel=True)


def nested() -> Net:
    """A loop in a loop, both with room to share."""
    inner = make_net(
        {"j": "i[]", "y": F},
        [
            const("one", 1),
            op("next", "AddV2", "j one", "i[]"),
            op("p", "Tanh", "y", F),
            op("q", "Sin", "p", F),
            op("r", "Cos", "q", F),
            op("out", "Sin", "r", F),
        ],
        ["next", "out"],
        name="inner",
    )
    body = make_net(
        {"i": "i[]", "h": F},
        [
            const("one", 1),
            const("zero", 0),
            op("next", "AddV2", "i one", "i[]"),
            op("a", "Tanh", "h", F),
            while_op("deep", "zero a", inner),
            op("b", "Sin", "deep:1", F),
            op("c", "Cos", "b", F),
            op("d", "Cos", "c", F),
        ],
        ["next", "d"],
        name="body",
    )
    return make_net({"x": F}, [const("zero", 0), while_op("loop", "zero x", body)], ["loop:1"])


def test_step_nets_at_any_depth_are_shared_and_verified():
    shared = share_sequential(nested(), algorithm="exact")
    plans = dict(shared.plan.walk())
    deep = plans["loop", "body", "deep", "body"]
    assert len(deep.storages) < len(deep.rename)
    assert shared.after.bytes < shared.before.bytes
    flat = share_sequential(nested(), descend=False)
    assert flat.after.bytes > shared.after.bytes


def test_a_wrong_plan_inside_a_step_net_is_found():
    shared = share_sequential(nested())
    body = shared.net.op_by_name["loop"].nets["body"]
    ops = tuple(
        op.replace(inputs=tuple("h" if one.startswith("//") else one for one in op.inputs))
        for op in body.ops
    )
    loop = shared.net.op_by_name["loop"]
    wrong = loop.replace(nets={**loop.nets, "body": dataclasses.replace(body, ops=ops)})
    net = shared.net.replace(ops=tuple(wrong if op.name == "loop" else op for op in shared.net.ops))
    with pytest.raises(CheckError, match="producer-changed"):
        verify(shared.original, net)
