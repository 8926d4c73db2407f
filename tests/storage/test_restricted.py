"""Sharing within bounds: scopes, devices, gradients that are left; what takes which storage."""

import pytest

from rnnmem.errors import NetError, RnnmemWarning
from rnnmem.storage import (
    Reuse,
    gradient_blobs,
    interference_of_ops,
    share_gradients,
    share_parallel,
    share_sequential,
)
from tests.handmade import make_net, op
from tests.storage.test_topologies import five_layers

F = "f[8,8]"


def renamed(shared):
    return {one.blob for one in shared.reuses}


def test_parameter_gradients_keep_storages_of_their_own():
    net = five_layers().gradients("loss").net("loss")
    weights = [f"fc{number}_w_grad" for number in range(1, 6)]
    free = share_gradients(net, "loss")
    kept = share_gradients(net, "loss", parameter_gradients=weights)
    assert any(set(one.blobs) & set(weights) for one in free.plan.storages if len(one.blobs) > 1)
    for storage in kept.plan.storages:
        assert not set(storage.blobs) & set(weights) or len(storage.blobs) == 1
    with pytest.raises(NetError, match="'nobody'"):
        share_gradients(net, "loss", parameter_gradients="nobody")


def towers():
    """Two chains of ops with their gradients, in a scope and on a device each."""
    ops, outputs = [], []
    for number in range(2):
        fields = {"device": f"/job:a/device:GPU:{number}"}
        blob = "x"
        for step in range(4):
            name = f"tower{number}/h{step}"
            ops.append(op(name, "Sin", blob, F, **fields))
            blob = name
        for step in reversed(range(4)):
            name = f"tower{number}/g{step}"
            source = f"tower{number}/h{step - 1}" if step else "x"
            ops.append(op(name, "Mul", f"{blob} {source}", F, **fields))
            blob = name
        outputs.append(blob)
    return make_net({"x": F}, ops, outputs)


LOSSES = ["tower0/h3", "tower1/h3"]


def test_only_what_is_in_a_scope_or_on_a_device_shares():
    net = towers()
    free = renamed(share_gradients(net, LOSSES))
    assert {name.partition("/")[0] for name in free} == {"tower0", "tower1"}
    for one in (
        share_gradients(net, LOSSES, scopes="tower1"),
        share_gradients(net, LOSSES, scopes=["tower1/"]),
        share_gradients(net, LOSSES, device="GPU:1"),
        share_gradients(net, LOSSES, device="/device:gpu:1"),
        share_gradients(net, LOSSES, device="GPU:1", activations=True),
    ):
        assert renamed(one)
        assert all(name.startswith("tower1/") for name in renamed(one))


def test_a_scope_or_a_device_that_there_is_not_is_told():
    net = towers()
    with pytest.warns(
        RnnmemWarning, match="scopes=.*'tower1', 'tower'.*no op .*'tower', .* tower0, tower1"
    ):
        one = share_gradients(net, LOSSES, scopes=["tower1", "tower"])
    assert renamed(one) == renamed(share_gradients(net, LOSSES, scopes="tower1"))
    with pytest.warns(RnnmemWarning, match="device='GPU:7': no op .*/job:a/device:GPU:0.*leave"):
        assert not renamed(share_gradients(net, LOSSES, device="GPU:7"))
    bare = net.replace(ops=tuple(one.replace(device="") for one in net.ops))
    with pytest.warns(RnnmemWarning, match="device='GPU:0': no op .*its ops name none"):
        share_gradients(bare, LOSSES, device="GPU:0")


@pytest.mark.parametrize("gradients", ["gradient_tape", "gradients"])
def test_gradients_of_what_is_in_a_scope_are_in_it(gradients):
    net = towers()
    ops = tuple(
        one.replace(name=f"{gradients}/{one.name}") if "/g" in one.name else one for one in net.ops
    )
    net = net.replace(ops=ops)
    expected = renamed(share_gradients(towers(), LOSSES, scopes="tower1"))
    assert expected
    for scopes in ("tower1", ["tower1/"], f"{gradients}/tower1"):
        assert renamed(share_gradients(net, LOSSES, scopes=scopes)) == expected
    both = renamed(share_gradients(net, LOSSES, scopes=gradients))
    assert expected < both == renamed(share_gradients(net, LOSSES))


@pytest.mark.parametrize("share", [share_parallel, share_sequential])
def test_gradients_can_be_left_out(share):
    net = five_layers().gradients("loss").net("loss")
    gradients = set(gradient_blobs(net, "loss"))
    assert renamed(share(net)) & gradients
    left = share(net, skip_grads="loss")
    assert all(
        len(one.blobs) == 1 for one in left.plan.storages if gradients.intersection(one.blobs)
    )


def test_each_reuse_is_told():
    net = make_net(
        {"x": F},
        [op("a", "MatMul", "x x", F), op("b", "MatMul", "a a", F), op("c", "MatMul", "b b", F)]
        + [op("d", "MatMul", "c c", F), op("e", "MatMul", "d d", F)],
        ["e"],
    )
    shared = share_sequential(net)
    assert Reuse("c", 256, "a", "a") in shared.reuses
    assert "c (256 B) takes storage a after a" in [str(one) for one in shared.reuses]
    assert {one.blob: one.storage for one in shared.reuses}.items() <= shared.plan.rename.items()


def test_ops_interfere_where_their_order_matters():
    ops = [
        op("a", "Sin", "x", F),
        op("b", "Cos", "a", F),  # reads what a writes
        op("c", "Exp", "x", F),  # reads the same as a
        op("d", "NoOp", controls=("c",)),
    ]
    graph = interference_of_ops(make_net({"x": F}, ops, ["b", "c"]))
    assert graph == {"a": {"b"}, "b": set(), "c": {"d"}, "d": set()}


def test_ops_of_a_shared_net_interfere_by_storage():
    net = make_net(
        {"x": F},
        [op("a", "MatMul", "x x", F), op("b", "MatMul", "a a", F), op("c", "MatMul", "b b", F)]
        + [op("d", "MatMul", "c c", F), op("e", "MatMul", "d d", F)],
        ["e"],
    )
    shared = share_sequential(net).net
    graph = interference_of_ops(shared)
    # c writes a's storage, which b has read: it must wait for b, and for a by that
    assert "c" in graph["b"]
    before = {op.name: place for place, op in enumerate(shared.ops)}
    assert all(before[one] < before[later] for one in graph for later in graph[one])
