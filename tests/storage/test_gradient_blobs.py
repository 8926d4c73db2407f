"""Which blobs of a Net are gradients."""

import pytest

from rnnmem.errors import RnnmemWarning
from rnnmem.ir.graph import Blob, Net, Op
from rnnmem.storage import gradient_blobs, share_gradients

UNITS = 8


def traced_net(name: str = "step") -> Net:
    """As TensorFlow traces it: the gradient starts from a constant and never reads the loss.

    x ─► a ─► b ─► loss         one ─► db ─► da ─► dw
    """
    ops = (
        Op("a", "Tanh", ("x",), ("a",)),
        Op("b", "Tanh", ("a",), ("b",)),
        Op("loss", "Sum", ("b",), ("loss",)),
        Op("one", "Const", (), ("one",)),
        Op("db", "TanhGrad", ("b", "one"), ("db",)),
        Op("da", "TanhGrad", ("a", "db"), ("da",)),
        Op("dw", "MatMul", ("x", "da"), ("dw",)),
    )
    names = {blob for op in ops for blob in op.outputs} | {"x"}
    shape = {"loss": ()}
    blobs = {one: Blob(one, "float32", shape.get(one, (UNITS, UNITS))) for one in sorted(names)}
    return Net(name, ("x",), ("loss", "dw"), ops, blobs)


def test_a_gradient_that_starts_from_a_constant_is_what_the_loss_does_not_need():
    assert set(gradient_blobs(traced_net(), "loss")) == {"one", "db", "da", "dw"}


def test_a_forward_net_has_no_gradient_and_says_so():
    whole = traced_net()
    forward = Net("eval", ("x",), ("loss",), whole.ops[:3], whole.blobs)
    assert gradient_blobs(forward, ["loss"]) == ()
    with pytest.warns(RnnmemWarning, match=r"losses=\('loss',\): no gradient was found in .*eval"):
        shared = share_gradients(forward, "loss")
    assert shared.before == shared.after


def test_what_is_done_with_a_loss_is_no_gradient():
    whole = traced_net()
    ops = (*whole.ops, Op("shown", "Identity", ("loss",), ("shown",)))
    blobs = {**whole.blobs, "shown": Blob("shown", "float32", ())}
    found = gradient_blobs(Net("step", ("x",), ("shown", "dw"), ops, blobs), ["loss"])
    assert {"db", "da", "dw"} <= set(found)
    assert not {"a", "b", "loss"}.intersection(found)
