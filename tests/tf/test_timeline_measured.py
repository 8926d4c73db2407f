"""The simulated peak against what TensorFlow's allocator is asked for, on real programs.

The allocator's own figure (``get_memory_info``) counts whole chunks: a buffer takes a free chunk
that is less than twice its size as it is, so the same step counts 82 or 99 MiB, as the free chunks
happen to lie. What it was asked for is in its events; the simulation must meet both within 10 %.

Which of two ready ops runs first is a race, and each CPU decides it otherwise: one of the orders
that are simulated must be met, and no run may hold less, or ask for more, than the interval says.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from rnnmem.analysis.machine import CPU
from rnnmem.ir.inline import inline
from rnnmem.ir.order import without_dead_ops
from rnnmem.planning.apply import apply_plan
from rnnmem.planning.pareto import plan_net
from rnnmem.simulate.interval import peak_interval, simulated_interval
from rnnmem.simulate.timeline import peaks
from rnnmem.sizes import MIB
from rnnmem.tf.attributes import constant
from rnnmem.tf.functions import function_of, net_of
from tests.allocations import asked_for

ALIVE = []  # models and variables of the programs: a function does not keep its variables alive
PROGRAMS = {}


def program(build):
    PROGRAMS[build.__name__] = build
    return build


def numbers(*shape):
    return tf.constant(np.random.default_rng(0).standard_normal(shape) * 0.05, tf.float32)


def variable(*shape):
    ALIVE.append(tf.Variable(numbers(*shape)))
    return ALIVE[-1]


def train_step(loss, variables):
    def step(*inputs):
        with tf.GradientTape() as tape:
            value = loss(*inputs)
        return value, tape.gradient(value, variables)

    return tf.function(step)


def over_keras(*layers, batch=64, time=200, features=16, classes=32):
    """The layers below a classifier of each element of the sequence."""
    top = keras.layers.Dense(classes)
    model = keras.Sequential([keras.Input((time, features), batch_size=batch), *layers, top])
    ALIVE.append(model)
    labels = np.random.default_rng(0).integers(0, classes, (batch, time))

    def loss(x, y):
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x, training=True))
        )

    step = train_step(loss, model.trainable_variables)
    return step, (numbers(batch, time, features), tf.constant(labels, tf.int32))


@program
def keras_lstm():
    return over_keras(keras.layers.LSTM(32, return_sequences=True))


@program
def keras_gru():
    return over_keras(keras.layers.GRU(32, return_sequences=True))


@program
def keras_two_lstm_with_dropout():
    drop = {"dropout": 0.1, "recurrent_dropout": 0.1, "return_sequences": True}
    return over_keras(keras.layers.LSTM(32, **drop), keras.layers.LSTM(32, **drop), time=100)


@program
def lstm_by_hand():
    """Variables are read in the body, time comes first."""
    kernel, bias = variable(96, 256), variable(256)

    def loss(x):
        steps = tf.shape(x)[0]
        inputs = tf.TensorArray(tf.float32, steps).unstack(x)
        zeros = tf.zeros([64, 64])

        def body(t, h, c):
            gates = tf.matmul(tf.concat([inputs.read(t), h], 1), kernel) + bias
            i, j, f, o = tf.split(gates, 4, 1)
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(j)
            return t + 1, tf.sigmoid(o) * tf.tanh(c), c

        _, h, _ = tf.while_loop(lambda t, *_: t < steps, body, (0, zeros, zeros))
        return tf.reduce_mean(h * h)

    return train_step(loss, [kernel, bias]), (numbers(150, 64, 32),)


@program
def mapped():
    weight = variable(64, 256)

    def loss(x):
        return tf.reduce_mean(tf.map_fn(lambda row: tf.tanh(tf.matmul(row, weight)), x))

    return train_step(loss, [weight]), (numbers(60, 64, 64),)


@program
def loop_without_gradient():
    weight = variable(256, 256)

    def run(x):
        states = tf.TensorArray(tf.float32, 100, element_shape=[64, 256])
        _, _, states = tf.while_loop(
            lambda t, *_: t < 100,
            lambda t, h, states: (t + 1, tf.tanh(h @ weight), states.write(t, h)),
            (0, x, states),
        )
        return tf.reduce_sum(states.stack() * 2.0)

    return tf.function(run), (numbers(64, 256),)


@program
def mlp():
    weights = [variable(256, 1024), variable(1024, 1024), variable(1024, 256)]

    def loss(x):
        for weight in weights:
            x = tf.nn.relu(x @ weight)
        return tf.reduce_mean(x * x)

    return train_step(loss, weights), (numbers(1024, 256),)


@program
def logits():
    weight = variable(128, 4000)
    labels = tf.constant(np.random.default_rng(0).integers(0, 4000, 1000), tf.int32)

    def loss(x, y):
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, x @ weight))

    return train_step(loss, [weight]), (numbers(1000, 128), labels)


@program
def translation():
    from models.nmt.model import ModelConfig, Translator

    model = Translator(ModelConfig(1000, 1000, 128, 128))
    ALIVE.append(model)
    draw = np.random.default_rng(0).integers
    batch = tuple(tf.constant(draw(4, 1000, (16, n)), tf.int32) for n in (40, 41))
    return train_step(model.loss, model.trainable_variables), batch


def counted(fn, args) -> int:
    """The peak as the allocator counts it."""
    result = fn(*args)
    del result
    tf.config.experimental.reset_memory_stats("CPU:0")
    before = tf.config.experimental.get_memory_info("CPU:0")["current"]
    result = fn(*args)
    most = tf.config.experimental.get_memory_info("CPU:0")["peak"] - before
    del result
    return most


def variants(step, args):
    """The function as it is, and with everything recomputed that can be."""
    original = step.get_concrete_function(*args)
    net = without_dead_ops(inline(net_of(original)))
    yield "original", net, original
    plan = plan_net(net, CPU, 1e9)
    if not plan.changes_nothing:
        rewritten = apply_plan(net, plan, constant)
        yield "rewritten", rewritten, function_of(rewritten, original)


MOST_RUNS = 16


def met(predicted, measured) -> bool:
    """Whether a prediction lies in the range of what the runs held, within 10 %.

    Which of two ready ops runs first is a race, so a step has a range of peaks, predicted for each
    order; under load a peak may be rare. Whole chunks are never fewer bytes than what that run
    asked for.
    """
    return any(0.9 * min(measured) <= one <= 1.1 * max(measured) for one in predicted)


def within(interval, asked, chunks) -> bool:
    """Whether no run held less, or asked for more, than an interval says, within 5 %.

    What chunks take beyond what was asked for depends on all that ran here before.
    """
    low, high = interval
    return 0.95 * low <= min(asked + chunks) and max(asked) <= 1.05 * high


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_predicted_peak_is_the_measured_one(name, tmp_path):
    step, args = PROGRAMS[name]()
    rows = []
    for variant, net, fn in variants(step, args):
        if (name, variant) == ("mapped", "rewritten"):
            continue  # its peak is 8 or 16 MiB, as the race for a list of constants goes
        low, _ = simulated_interval(net)
        predicted = (*peaks(net), low)
        asked, chunks = [], []
        for run in range(MOST_RUNS):
            chunks.append(counted(fn, args))
            asked.append(asked_for(fn, args, tmp_path / f"{variant}{run}"))
            if run >= 3 and met(predicted, asked + chunks):
                break
        interval = peak_interval(net)
        rows.append((variant, predicted, interval, asked, chunks))
        print(
            f"{name:28}{variant:10} predicted {figures(predicted)} in {figures(interval)}, "
            f"asked for {figures((min(asked), max(asked)))}, "
            f"counted by chunks {figures((min(chunks), max(chunks)))} MiB"
        )
    for variant, predicted, interval, asked, chunks in rows:
        assert met(predicted, asked + chunks), variant
        assert within(interval, asked, chunks), variant


def figures(sizes) -> str:
    return ", ".join(f"{size / MIB:.2f}" for size in sizes)
