"""Chains of elementwise ops by chunks of rows have the bits that TensorFlow gives them whole."""

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
import rnnmem.planning.elementwise_chunks as planning
from rnnmem.analysis.machine import CPU
from rnnmem.errors import NetError
from rnnmem.passes.elementwise_chunks.apply import by_chunks
from rnnmem.passes.elementwise_chunks.select import chains_of
from rnnmem.passes.registry import DEFAULTS
from rnnmem.planning.plan import Plan
from rnnmem.simulate.timeline import counted_peak
from rnnmem.tf import private
from rnnmem.verify import check
from tests.cases import Case, assert_same_bits, numbers, train, values, weights
from tests.drawing import encoded
from tests.handmade import make_net, op
from tests.passes.elementwise_chunks.test_select import F, gradient, layer, net_of

pytestmark = [
    pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning"),
    pytest.mark.usefixtures("deterministic"),
]


def both(n=0):
    return net_of(*layer(n), *gradient(n), outputs=("out", f"dx{n}"))


def chunked(net):
    chains = [chain for family in chains_of(net, CPU) for chain in family]
    return by_chunks(net, chains, encoded)


def test_what_lies_between_is_no_longer_made_whole():
    net = both()
    made = chunked(net)
    check(net, made)
    names = {one.name for one in made.ops}
    assert names.isdisjoint(["a0", "b0", "y0", "p0", "q0", "dz0"])
    assert {"z0", "d0", "out", "dx0"} <= names
    assert counted_peak(made) < 0.9 * counted_peak(net)


def test_a_keepalive_use_of_what_never_exists_whole_goes():
    held = [
        op("list", "EmptyTensorList", "shape most", "v[]"),
        op("push", "TensorListPushBack", "list a0", "v[]"),
        op("pop", "TensorListPopBack", "push shape", f"v[] {F}"),
        op("hold", "Identity", "pop:0", "v[]"),
    ]
    inputs = {"x": F, "g": F, "w": F, "shape": "i[3]", "most": "i[]"}
    ops = [*layer(), *held, op("out", "Einsum", "y0 w", F)]
    net = make_net(inputs, ops, ["out", "hold"])
    made = chunked(net)
    check(net, made)
    assert not [one for one in made.ops if one.type.startswith("TensorListP")]


def test_a_plan_for_another_function_is_refused():
    ((chain, *_),) = chains_of(both(), CPU)
    with pytest.raises(NetError, match="no chain of 'y0'"):
        by_chunks(both(1), [chain], encoded)


def convolutions(activation=tf.nn.gelu, frames=32, size=40, channels=32, dtype=tf.float32):
    """Layers over frames of which each blob has 6 MiB, and a mean."""
    made = weights((3, 3, 3, channels), (3, 3, channels, channels), (channels, 1))

    def loss(x):
        for kernel in made[:-1]:
            x = activation(tf.nn.conv2d(tf.cast(x, dtype), tf.cast(kernel, dtype), 1, "SAME"))
        mean = tf.cast(tf.reduce_mean(x, [1, 2]), tf.float32)
        return tf.reduce_mean(tf.square(mean @ made[-1] - 1.0))

    return Case(train(loss, made), [((numbers(frames, size, size, 3),), {})] * 2, values(*made))


def dense(activation=tf.nn.gelu, rows=2048, width=768):
    """Layers over rows of which each blob has 6 MiB."""
    made = weights((64, width), (width, width), (width, 1))

    def loss(x):
        for weight in made[:-1]:
            x = activation(x @ weight)
        return tf.reduce_mean(tf.square(x @ made[-1] - 1.0))

    return Case(train(loss, made), [((numbers(rows, 64),), {})] * 2, values(*made))


def tanh_gelu(x):
    return tf.nn.gelu(x, approximate=True)


def halved(x):
    return 0.3 * x * tf.sigmoid(1.7 * x) / 1.1


@pytest.mark.slow
@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("make", [convolutions, dense], ids=["convolutions", "dense"])
def test_bits_are_the_same_and_less_is_held(make):
    assert_same_bits(make, max_slowdown=2.0)
    case = make()
    plan = rnnmem.optimize(case.fn, max_slowdown=2.0).plan(*case.calls[0][0])
    assert plan.of("elementwise_chunks")
    assert plan.predicted_peak < 0.75 * plan.original_peak
    assert Plan.from_json(plan.to_json()).decisions == plan.decisions


@pytest.mark.slow
@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize(
    "make",
    [
        lambda: dense(tanh_gelu),
        lambda: dense(tf.nn.silu),
        lambda: dense(halved),
        lambda: dense(lambda x: tf.nn.selu(x) * tf.nn.softsign(x)),
        lambda: convolutions(dtype=tf.bfloat16, size=56),
        lambda: convolutions(tf.nn.silu),
    ],
    ids=["tanh", "silu", "constants", "selected", "bfloat16", "conv-silu"],
)
def test_bits_are_the_same_where_nothing_is_gained(make, monkeypatch):
    monkeypatch.setattr(planning, "LEAST_GAIN", -1.0)
    monkeypatch.setattr(planning, "MOST_LEFT_OUT", 0)
    assert_same_bits(make, max_slowdown=3.0)
    case = make()
    plan = rnnmem.optimize(case.fn, max_slowdown=3.0).plan(*case.calls[0][0])
    assert plan.of("elementwise_chunks") or any("elementwise_chunks" in one for one in plan.notes)


@pytest.mark.slow
def test_a_saved_plan_makes_the_same(tmp_path):
    case = dense()
    plan = rnnmem.optimize(case.fn, max_slowdown=2.0).plan(*case.calls[0][0])
    file = tmp_path / "plan.json"
    file.write_text(plan.to_json())
    assert_same_bits(dense, plan=file)


@pytest.mark.skipif(
    not private.has_onednn(), reason="TensorFlow's own convolution kernels make the peak here"
)
def test_peaks_are_lower_in_tensorflows_own_count():
    case = convolutions()
    (args, _), _ = case.calls
    fewer = [name for name in DEFAULTS if name != "elementwise_chunks"]
    taken = []
    for allow in ("default", fewer):
        after = rnnmem.optimize(case.fn, max_slowdown=2.0, allow=allow)
        taken.append(rnnmem.measure(after, *args).peak_bytes)
    assert taken[0] < 0.9 * taken[1]


def test_a_tape_outside_gets_the_gradient_of_the_original():
    x = numbers(2048, 768)
    plain = tf.function(lambda x: tf.reduce_sum(tf.nn.gelu(x) ** 2.0, 1))
    after = rnnmem.optimize(plain, max_slowdown=2.0)
    found = []
    for fn in (plain, after):
        with tf.GradientTape() as tape:
            tape.watch(x)
            result = fn(x)
        found.append((np.asarray(result), np.asarray(tape.gradient(result, x))))
    for one, other in zip(*found, strict=True):
        assert one.tobytes() == other.tobytes()
