"""Nets run op by op over storages that really overwrite each other; results by their bits."""

import os

import keras
import numpy as np
import pytest
import tensorflow as tf

from rnnmem.analysis.versions import ssa
from rnnmem.errors import NetError
from rnnmem.ir.graph import Blob, Net, Op
from rnnmem.ir.inline import inline
from rnnmem.ir.order import without_dead_ops
from rnnmem.storage import estimate, share_gradients, share_parallel, share_sequential
from rnnmem.tf.attributes import constant
from rnnmem.tf.functions import net_of
from rnnmem.tf.workspace import POISON, Storage, Workspace, collect_sizes
from tests.random_kernel_nets import random_kernel_net

CASES = int(os.environ.get("RNNMEM_FUZZ_CASES") or 300)
FIRST = int(os.environ.get("RNNMEM_FUZZ_FIRST") or 0)

WAYS = {
    "parallel": share_parallel,
    "parallel, no sizes": lambda net: share_parallel(net, sizes=None),
    "parallel, level 1": lambda net: share_parallel(net, level=1),
    "greedy": share_sequential,
    "exact, lowest peak": lambda net: share_sequential(net, algorithm="exact", order="peak"),
    "best fit, longest path": lambda net: share_sequential(
        net, algorithm="best_fit", order="longest_path"
    ),
    "gradients": lambda net: share_gradients(net, net.outputs[:1], activations=True),
}


def bits(results) -> list[bytes]:
    return [np.asarray(one).tobytes() for one in results]


def hold(seed: int, ways) -> int:
    """Fails unless the Net gives the same bits however it is shared; blobs that were renamed."""
    net, inputs = random_kernel_net(seed, constant)
    expected = bits(Workspace(net).run(inputs))
    renamed = 0
    for name in ways:
        shared = WAYS[name](net)
        assert bits(Workspace(shared.net).run(inputs)) == expected, (seed, name)
        renamed += sum(
            blob != storage
            for _, step in shared.plan.walk()
            for blob, storage in step.rename.items()
        )
    return renamed


@pytest.mark.slow
@pytest.mark.fuzz
def test_random_nets_give_the_same_bits_shared_and_unshared():
    names = list(WAYS)
    renamed = [hold(seed, [names[seed % len(names)]]) for seed in range(FIRST, FIRST + CASES)]
    assert sum(map(bool, renamed)) > CASES // 2  # the Nets leave something to share


def merged_while_alive(net: Net) -> Net | None:
    """The Net with some blob in the storage of another that is still to be read."""
    past = ssa(net)
    for version, name in enumerate(past.name):
        last = max(past.readers[version], default=-1)
        for index in range(past.writer[version] + 1, last):
            for blob in past.ops[index].outputs:
                same = net.blobs[blob].shape == net.blobs[name].shape
                if same and net.blobs[blob].dtype == net.blobs[name].dtype == "float32":
                    return renamed(net.replace(ops=past.ops), blob, name)
    return None


def renamed(net: Net, old: str, new: str) -> Net:
    def instead(blobs):
        return tuple(new if blob == old else blob for blob in blobs)

    ops = tuple(
        op.replace(inputs=instead(op.inputs), outputs=instead(op.outputs)) for op in net.ops
    )
    return net.replace(ops=ops, outputs=instead(net.outputs))


@pytest.mark.slow
def test_a_wrong_plan_gives_other_bits():
    """Two blobs that are alive together in one storage: the workspace shows it."""
    tried = found = 0
    for seed in range(40):
        net, inputs = random_kernel_net(seed, constant)
        wrong = merged_while_alive(net)
        if wrong is not None:
            tried += 1
            found += bits(Workspace(wrong).run(inputs)) != bits(Workspace(net).run(inputs))
    assert found > tried / 3 > 5  # what no output depends on shows nowhere


def two_layer_lstm():
    """T 5, B 4, D 10, sequence lengths, four initial states, a softmax loss, gradients."""
    layers = [keras.layers.LSTM(10, return_sequences=True, return_state=True) for _ in range(2)]
    top = keras.layers.Dense(3)
    draw = np.random.default_rng(0).standard_normal
    inputs = [tf.constant(draw(shape), tf.float32) for shape in [(4, 5, 10), *[(4, 10)] * 4]]
    lengths = tf.constant([5, 2, 3, 4])

    def loss(x, *states):
        mask = tf.sequence_mask(lengths, 5)
        x, *_ = layers[0](x, initial_state=states[:2], mask=mask)
        _, last, _ = layers[1](x, initial_state=states[2:], mask=mask)
        labels = tf.constant([0, 1, 2, 1])
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels, top(tf.reshape(last, [4, -1])))
        )

    loss(*inputs)
    weights = [weight for layer in (*layers, top) for weight in layer.trainable_variables]

    @tf.function
    def step(*given):
        with tf.GradientTape() as tape:
            value = loss(*given)
        return value, tape.gradient(value, weights)

    concrete = step.get_concrete_function(*inputs)
    net = without_dead_ops(inline(net_of(concrete)))
    return step, net, [*inputs, *concrete.captured_inputs], inputs


@pytest.mark.slow
def test_12_two_layer_lstm_step_nets():
    step, net, given, inputs = two_layer_lstm()
    expected = bits(Workspace(net).run(given))
    for name in ("parallel", "greedy", "exact, lowest peak"):
        shared = WAYS[name](net)
        assert shared.after.blobs < shared.before.blobs
        assert shared.after.bytes < shared.before.bytes
        assert bits(Workspace(shared.net).run(given)) == expected
    close = [np.asarray(one) for one in tf.nest.flatten(step(*inputs))]
    for one, other in zip(Workspace(net).run(given), close, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def small() -> tuple[Net, list[np.ndarray]]:
    f = ("float32", (2, 3))
    blobs = {name: Blob(name, *f) for name in "xabcd"}
    line = zip("xabc", "abcd", strict=True)
    ops = [Op(f"o{i}", "Tanh", (one,), (two,)) for i, (one, two) in enumerate(line)]
    return Net("small", ("x",), ("d",), tuple(ops), blobs), [np.ones((2, 3), np.float32)]


@pytest.mark.slow
def test_what_is_dead_is_poisoned():
    for kind, wrong in (("float32", np.isnan), ("int32", lambda x: x == -1), ("bool", lambda x: x)):
        storage = Storage(None)
        storage.write(tf.cast(tf.zeros([2, 3]), kind), "s")
        storage.poison()
        assert wrong(np.asarray(storage.read())).all()
    found = 0
    for seed in range(30):
        net, inputs = random_kernel_net(seed, constant)
        workspace = Workspace(share_parallel(net).net)
        workspace.run(inputs)
        for storage in workspace._shared.values():
            found += 1
            assert (storage.memory == POISON).all()
    assert found


def test_time_and_bytes_are_told_per_op():
    net, inputs = small()
    workspace = Workspace(net)
    workspace.run(inputs)
    assert set(workspace.spent) == {"o0", "o1", "o2", "o3"}
    assert all(
        one.runs == 1 and one.bytes == 24 and one.seconds > 0 for one in workspace.spent.values()
    )


def with_an_op(kind: str):
    for seed in range(200):
        net, inputs = random_kernel_net(seed, constant)
        if any(op.type == kind for op in net.ops):
            return net, inputs
    raise AssertionError(kind)


def test_sizes_are_collected_by_running_once():
    net, inputs = with_an_op("While")
    nowhere = net.replace(blobs={name: Blob(name, blob.dtype) for name, blob in net.blobs.items()})
    sizes = collect_sizes(nowhere, inputs)
    assert all(sizes[b] == net.blobs[b].bytes for b in sizes if "/" not in b and net.blobs[b].bytes)
    shared = share_parallel(nowhere, sizes=sizes)
    assert shared.after.bytes <= shared.before.bytes
    assert shared.before.bytes == estimate(nowhere, sizes).bytes > 0


def test_what_cannot_be_fetched_counts_0_with_a_warning():
    net, inputs = with_an_op("EmptyTensorList")
    with pytest.warns(UserWarning, match="cannot be fetched"):
        sizes = collect_sizes(net, inputs)
    lists = [op.outputs[0] for op in net.ops if op.type == "EmptyTensorList"]
    assert all(sizes[one] == 0 for one in lists)


def test_bad_input():
    net, inputs = small()
    with pytest.raises(NetError, match="1 inputs, not 2"):
        Workspace(net).run([*inputs, *inputs])
    ops = (Op("o", "MatMul", ("x", "x"), ("d",)),)
    with pytest.raises(NetError, match="op o .MatMul. failed"):
        Workspace(net.replace(ops=ops)).run(inputs)
    shared = share_parallel(net).net
    tight = shared.replace(blobs={name: Blob(name, "float32", (1, 1)) for name in shared.blobs})
    with pytest.raises(NetError, match="planned with 4 bytes and is given 24"):
        Workspace(tight).run(inputs)
