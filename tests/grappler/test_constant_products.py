"""Constants move down products: in hand-made Nets, and as TensorFlow holds what gradients read."""

import numpy as np
import pytest
import tensorflow as tf

from rnnmem.grappler.constant_products import constants_moved
from rnnmem.simulate.timeline import simulate
from rnnmem.tf.functions import net_of
from tests.allocations import asked_for
from tests.handmade import make_net, op

F = "f[512,512]"


def step(*ops, **inputs):
    return make_net({"x": F, "y": F, **inputs}, list(ops), ["p"])


def half(name="c"):
    return op(name, "Const", "", "f[]")


def reads(moved, net):
    ops = [moved.as_it_runs(one) for one in net.ops if one.outputs[0] not in moved.gone]
    return {one.name: (one.type, *one.inputs) for one in ops if one.type != "Const"}


@pytest.mark.parametrize("by", ["m c", "c m"])
@pytest.mark.parametrize("factors", ["x y", "y x"])
def test_the_factor_that_sorts_first_takes_the_constant(by, factors):
    net = step(half(), op("m", "Mul", factors, F), op("p", "Mul", by, F))
    moved = constants_moved(net)
    assert reads(moved, net) == {"m": ("Mul", "c", "x"), "p": ("Mul", "y", "m")}
    assert moved.factors == {"m": factors.split().index("x")}


def test_a_division_by_a_constant_is_a_product():
    net = step(half(), op("m", "Mul", "x y", F), op("p", "RealDiv", "m c", F))
    assert reads(constants_moved(net), net)["p"] == ("Mul", "y", "m")
    net = step(half(), op("m", "Mul", "x y", F), op("p", "RealDiv", "c m", F))
    assert reads(constants_moved(net), net)["p"] == ("RealDiv", "c", "m")


def test_constants_on_the_way_are_one_and_who_waited_waits_no_more():
    net = step(
        *(half("c"), half("d")),
        op("g", "Mul", "x y", F),
        op("r", "Mul", "g d", F),
        op("e", "Square", "y", F, controls=("g",)),
        op("m", "Mul", "r e", F),
        op("p", "Mul", "m c", F),
    )
    found = reads(constants_moved(net), net)
    assert found["m"] == ("Mul", "c", "e")
    assert found["p"] == ("Mul", "g", "m")
    assert "r" not in found
    (square,) = [one for one in net.ops if one.name == "e"]
    assert not constants_moved(net).as_it_runs(square).controls


@pytest.mark.parametrize(
    "ops",
    [
        [op("m", "Mul", "x y", F), op("p", "Mul", "m c", F), op("q", "Neg", "m", F)],
        [op("m", "AddV2", "x y", F), op("p", "Mul", "m c", F)],
        [op("m", "Mul", "x y", F), op("p", "Mul", "m z", F)],
    ],
    ids=["read twice", "a sum", "no constant"],
)
def test_other_products_stay(ops):
    outputs = ["p", *(one.op.outputs[0] for one in ops if one.op.name == "q")]
    net = make_net({"x": F, "y": F, "z": F}, [half(), *ops], outputs)
    assert not constants_moved(net).ops


def test_the_factor_is_held_twice_from_when_it_is_there():
    ops = [half(), op("a", "Sin", "x", F), op("g", "MatMul", "a y", F)]
    late = [op("h", "MatMul", "g a", F), op("m", "Mul", "h a", F)]
    net = step(*ops, *late, op("p", "Mul", "m c", F))
    plain = step(*ops, *late, op("p", "Neg", "m", F))
    assert simulate(net).peak_bytes >= simulate(plain).peak_bytes + 512 * 512 * 4


def attended(x):
    return tf.nn.softmax(x @ tf.transpose(x) / 8.0) @ x


def scaled(x):
    return tf.tanh(x * 0.3) * 0.7


@pytest.mark.parametrize("forward", [attended, tf.nn.gelu, scaled])
def test_gradients_hold_what_was_predicted(forward, tmp_path):
    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            h = x
            for _ in range(6):
                h = forward(h @ x)
            loss = tf.reduce_mean(tf.square(h))
        return tape.gradient(loss, x)

    x = tf.constant(np.random.default_rng(0).normal(size=(384, 384)) / 20, tf.float32)
    concrete = step.get_concrete_function(x)
    predicted = simulate(net_of(concrete)).peak_bytes
    step(x)
    runs = [asked_for(step, (x,), tmp_path / str(number)) for number in range(3)]
    assert 0.9 * min(runs) <= predicted <= 1.1 * max(runs)
