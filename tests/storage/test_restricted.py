"""Sharing within bounds: scopes, devices, gradients that are left; what takes which storage."""

import warnings

import pytest

from rnnmem.errors import NetError, OptionError, RnnmemWarning
from rnnmem.storage import (
    Reuse,
    estimate,
    gradient_blobs,
    interference_of_ops,
    order,
    release,
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
        share_gradients(net, LOSSES, device="/job:a/device:GPU:1"),
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
    with pytest.raises(OptionError, match="device=0 must be the name"):
        share_gradients(net, LOSSES, device=0)


def test_a_device_without_a_number_is_any_of_its_kind():
    net = towers()
    assert renamed(share_gradients(net, LOSSES, device="gpu")) == renamed(
        share_gradients(net, LOSSES)
    )
    with pytest.warns(RnnmemWarning, match="device='CPU': no op"):
        share_gradients(net, LOSSES, device="CPU")


def without_forward_scopes_and_devices_in_gradients():
    """As TensorFlow traces it where the tape is asked outside of the towers."""
    net = towers()
    gradients = {one.name for one in net.ops if "/g" in one.name}
    ops = tuple(
        one.replace(device="", name=f"back/{one.name}") if one.name in gradients else one
        for one in net.ops
    )
    return net.replace(ops=ops)


@pytest.mark.parametrize(
    ("bound", "told"),
    [({"device": "GPU:1"}, "call it within"), ({"scopes": "tower1"}, "activations")],
)
def test_a_scope_or_a_device_of_the_forward_part_alone_is_told(bound, told):
    net = without_forward_scopes_and_devices_in_gradients()
    with pytest.warns(RnnmemWarning, match=f"no gradient of the Net .*{told}"):
        assert not renamed(share_gradients(net, LOSSES, **bound))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        share_gradients(net, LOSSES, activations=True, **bound)  # the forward part may share


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


@pytest.mark.parametrize("share", [share_parallel, share_sequential])
def test_gradients_that_there_are_not_cannot_be_left_out(share):
    net = five_layers().gradients("loss").net("loss")
    with pytest.raises(NetError, match="skip_grads: .* no blob 'weights'; its outputs are"):
        share(net, skip_grads=["weights"])
    forward = five_layers().net("loss")
    with pytest.warns(RnnmemWarning, match="skip_grads=.'loss',.: no gradient"):
        share(forward, skip_grads="loss")


class NoName:
    """What somebody holds who means the name of it, as a variable is."""

    __hash__ = None


@pytest.mark.parametrize("given", [True, NoName(), [NoName()]], ids=["flag", "one", "several"])
@pytest.mark.parametrize(
    "argument", ["losses", "gradients", "parameter_gradients", "scopes", "skip_grads", "keep"]
)
def test_what_is_no_name_is_refused(argument, given):
    net = five_layers().gradients("loss").net("loss")
    with pytest.raises(OptionError, match=f"{argument}: (bool|NoName) is no name"):
        share_gradients(net, **{"losses": "loss", argument: given})
    with pytest.raises(OptionError, match="blobs: (bool|NoName) is no name"):
        share_parallel(net, blobs=given)


@pytest.mark.parametrize(
    "takes_a_net",
    [
        *(share_parallel, share_sequential, interference_of_ops, estimate, order, release),
        lambda net: share_gradients(net, "loss"),
        lambda net: gradient_blobs(net, "loss"),
    ],
)
def test_what_is_no_net_is_refused(takes_a_net):
    with pytest.raises(OptionError, match="net=int is no Net: rnnmem.load_net makes one"):
        takes_a_net(3)


def test_what_was_shared_is_told_in_a_line():
    net = five_layers().gradients("loss").net("loss")
    shared = share_parallel(net)
    assert repr(shared) == str(shared)


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
