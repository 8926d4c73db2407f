"""Lines of ops whose names tell nothing, and numbers that were asked for."""

import copy
import pickle

import keras
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.names import Names
from rnnmem.ir.origins import numbered, origins_of
from rnnmem.planning.plan import Plan

IN_LOOP = "gradient_tape/while/gradients/while/mul_1_grad/Sum"


def op(name, source="", **nets):
    return Op(name, "Mul", source=source, nets=nets)


def net(*ops):
    return Net("net", (), (), ops, {})


BODY = net(op("while/mul_1", "model.py:7"))
GRADIENT = net(op(IN_LOOP, "train.py:9"))
TRACED = net(
    op("while", "model.py:5", body=BODY),
    op("gradient_tape/while/while_grad", "train.py:9", body=GRADIENT),
    op("stack/List", "model.py:8"),
    op("gradient_tape/stack/Row", "train.py:9"),
    op("gradient_tape/Tile", "train.py:9"),
    op("zeros_8", "train.py:9"),
    op("bare"),
    op("rnnmem_backward/zeros", "asks.py:3"),
    op("rnnmem_backward/gradients/stack/List_grad/Row", "asks.py:3"),
)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("zeros_8", "train.py:9"),
        ("zeros_8:1", "train.py:9"),
        ("gradient_tape/Tile", "train.py:9"),
        ("gradient_tape/stack/Row", "model.py:8"),
        (IN_LOOP, "model.py:7"),
        ("bare", ""),
        ("rnnmem_backward/zeros", ""),
        ("rnnmem_backward/gradients/stack/List_grad/Row", "model.py:8"),
        ("waits", ""),
    ],
)
def test_an_op_has_its_line_and_one_of_a_gradient_that_of_what_is_differentiated(name, line):
    found = origins_of(TRACED, [name], ()).lines
    assert found == ({name.partition(":")[0]: line} if line else {})


@pytest.mark.parametrize(
    ("name", "in_use", "told"),
    [
        ("m/encoder_1/Tanh", {"m", "m/encoder_1"}, {("m", "encoder_1")}),
        ("m/encoder_1/Tanh", {"m", "m/encoder_1", "m/encoder"}, set()),
        ("m/lstm_1_1/Tanh", {"m", "m/lstm_1", "m/lstm_1_1"}, set()),
        ("m/encoder_1/Tanh", set(), set()),  # imported: nobody knows
        ("Call/Encoder/block_4/x", {"encoder", "encoder/block_4"}, {("block_4",)}),
        ("gradient_tape/m/encoder_1/Tanh", {"m/encoder_1"}, set()),
        ("while_1/Tanh", {"while_1"}, set()),
    ],
)
def test_a_number_was_asked_for_where_the_name_without_it_was_free(name, in_use, told):
    assert numbered([name], in_use) == told


def trained(states, weight):
    """The plan of a step whose loop the user named, and what becomes of it is read."""

    @rnnmem.optimize
    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            state = states(x)
        return tape.gradient(state, weight)

    return step.plan(tf.zeros((8, 60, 16)))


def rolled(x):
    state = tf.zeros((8, 96))
    with tf.name_scope("encoder_1"):
        for _ in tf.range(60):
            state = tf.tanh(state @ WEIGHT)
    return tf.reduce_sum(state) + tf.reduce_sum(x)


WEIGHT = tf.Variable(tf.random.normal((96, 96), stddev=0.1, seed=1))


def test_a_plan_tells_names_with_numbers_as_they_were_given_and_lines_of_ops():
    plan = trained(rolled, WEIGHT)
    assert [loop.path for loop in plan.loops] == [("encoder_1/while",)]
    text = " ".join(str(plan).split())
    assert "loop encoder_1 (test_origins.py:" in text
    assert "gradient of encoder_1" in text
    named = set(plan.origins.lines)
    assert named and all(
        line.startswith("test_origins.py:") for line in plan.origins.lines.values()
    )
    assert named <= {name for edge in plan.of("gradient_start") for name in (edge.op, edge.after)}
    state = next(line for line in str(plan).splitlines() if " state float32" in line)
    assert " test_origins.py:" in state
    assert pickle.loads(pickle.dumps(plan)) == copy.deepcopy(plan) == plan
    read = Plan.from_json(plan.to_json())
    assert read == plan and not read.origins.lines


def test_a_layer_is_told_as_keras_calls_it():
    layer = keras.layers.LSTM(96, name="encoder_1")
    layer.build((8, 60, 16))
    plan = trained(lambda x: tf.reduce_sum(layer(x)), layer.trainable_weights)
    assert "loop encoder_1 (test_origins.py:" in str(plan)


def test_names_in_a_gradient_loop_are_told_behind_it_with_their_line():
    lines = origins_of(TRACED, [IN_LOOP, "gradient_tape/Tile", "zeros_8"], ())
    names = Names(("while",), {"while": "decode"}, (), lines)
    assert names.told(f"{IN_LOOP} waits") == "gradient of decode/mul_1_grad/Sum (model.py:7) waits"
    assert names.told("gradient_tape/Tile waits") == "gradient of Tile (train.py:9) waits"
    assert names.told("zeros_8 waits for while") == "zeros_8 (train.py:9) waits for decode"
    assert names.told("zeros_8 (train.py:9): made late") == "zeros_8 (train.py:9): made late"
