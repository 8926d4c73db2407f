"""Names of sizes against those of a run: what has one name has one size, also where that is one."""

import pytest
import tensorflow as tf

from rnnmem.analysis.facts import Fact
from rnnmem.analysis.shapes import known_net
from rnnmem.analysis.symbolic_sizes import SymbolicSizes
from rnnmem.ir.inline import inline
from rnnmem.tf.functions import net_of
from tests.cases import weights


def step():
    """A train step of many ops on sizes that only a run tells."""
    table, query, key, scale = made = weights((50, 16), (16, 32), (16, 32), (1, 32))

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2)
    def run(x, y):
        with tf.GradientTape() as tape:
            a, b = tf.gather(table, x), tf.gather(table, y[:, 1:])
            both = tf.tanh((b @ query)[:, :, tf.newaxis] + (a @ key)[:, None])
            scores = tf.where((x > 3)[:, None], tf.reduce_sum(scale[0] * both, -1), -1e9)
            weight = tf.nn.softmax(scores)
            context = tf.reduce_sum(weight[..., None] * a[:, None], 2)
            flat = tf.reshape(context, [tf.shape(y)[0], -1])
            wide = tf.tile(tf.expand_dims(context, 1), [1, 3, 1, 1])
            last = tf.reduce_max(wide[:, ::2, :, 2:5], [1, -1], keepdims=True)
            loss = tf.reduce_mean(flat**2) + tf.reduce_mean(last)
        return loss, *tape.gradient(loss, made)

    return run


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("source", "target"), [(1, 2), (5, 2), (1, 6), (5, 6)])
def test_what_has_one_name_has_one_size(batch, source, target):
    net = inline(net_of(step().get_concrete_function()))
    named = SymbolicSizes(known_net(net))
    told = {"x": (batch, source), "y": (batch, target)}
    facts = tuple(Fact(told.get(one.partition(":")[0], net.blobs[one].shape)) for one in net.inputs)
    run = known_net(net, facts).facts
    compared = 0
    for blob, fact in run.items():
        if fact.shape is None or None in fact.shape or named.of(blob) is None:
            continue
        for size, seen in zip(named.of(blob), fact.shape, strict=True):
            if isinstance(size, int):
                assert size == seen, (blob, size)
                continue
            of = run[size[0]].shape
            if of is not None and of[size[1]] is not None:
                assert of[size[1]] == seen, (blob, size)
                compared += size[0] != blob
    assert compared > 60
