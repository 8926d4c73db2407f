"""Losses whose logits stay [batch, time, words], held bit for bit against the function as it is."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import config

import rnnmem
import rnnmem.keras
from rnnmem.analysis.machine import CPU
from rnnmem.errors import CheckError
from rnnmem.ir.marks import CHUNKS, LEAD
from rnnmem.passes.chunked_loss import select
from rnnmem.passes.chunked_loss.apply import apply_chunks
from rnnmem.planning.plan import Plan
from rnnmem.tf.attributes import constant
from rnnmem.tf.functions import net_of
from rnnmem.verify import check
from tests.passes.chunked_loss.test_exact_losses import assert_same

BATCH, TIME, UNITS, WORDS = 16, 9, 8, 48


@pytest.fixture(autouse=True)
def _deterministic():
    tf.config.experimental.enable_op_determinism()
    yield
    config.disable_op_determinism()


@pytest.fixture
def _small(monkeypatch):
    """Small logits are worth a loop here, and a chunk has as few tokens as it may."""
    monkeypatch.setattr(select, "CHUNK_BYTES", 1)


def cross_entropy(y, logits):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)


def picked(values, y):
    return tf.gather(values, y, axis=2, batch_dims=2)


def focal(x, y, w):
    chance = picked(tf.nn.softmax(x), y)
    return -tf.reduce_mean((1 - chance) ** 2 * tf.math.log(chance))


def focal_of_losses(x, y, w):
    losses = cross_entropy(y, x)
    return tf.reduce_mean((1 - tf.exp(-losses)) ** 2 * losses)


def ratio(x, y, w):
    change = tf.exp(picked(tf.nn.log_softmax(x), y) + 4.0)
    return -tf.reduce_mean(tf.minimum(change * w, tf.clip_by_value(change, 0.8, 1.2) * w))


def by_hand(x, y, w):
    picks = tf.reduce_sum(x * tf.one_hot(y, x.shape[-1]), -1)
    return tf.reduce_mean((tf.reduce_logsumexp(x, -1) - picks) * w)


def smooth(x, y, w):
    labels = tf.one_hot(y, x.shape[-1]) * 0.9 + 0.1 / x.shape[-1]
    return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels, x) * w)


def entropy(x, y, w):
    log = tf.nn.log_softmax(x)
    return tf.reduce_mean(cross_entropy(y, x)) + tf.reduce_mean(tf.reduce_sum(tf.exp(log) * log, 2))


def z_loss(x, y, w):
    total = tf.reduce_logsumexp(x, -1)
    return tf.reduce_mean(cross_entropy(y, x) + 1e-4 * tf.square(total))


LOSSES = {
    "a gather": lambda x, y, w: -tf.reduce_mean(picked(tf.nn.log_softmax(x), y) * w),
    "one hot": lambda x, y, w: (
        -tf.reduce_mean(tf.reduce_sum(tf.nn.log_softmax(x) * tf.one_hot(y, x.shape[-1]), -1) * w)
    ),
    "temperature": lambda x, y, w: tf.reduce_mean(cross_entropy(y, x / 2.5)),
    "a cap": lambda x, y, w: tf.reduce_mean(cross_entropy(y, tf.tanh(x / 30.0) * 30.0)),
    "z": z_loss,
    "focal": focal,
    "focal of losses": focal_of_losses,
    "ratio": ratio,
    "entropy": entropy,
    "by hand": by_hand,
    "smooth": smooth,
    "perplexity": lambda x, y, w: tf.exp(tf.reduce_mean(cross_entropy(y, x / 1.5))),
    "an ignored class": lambda x, y, w: tf.keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, ignore_class=0
    )(y, x),
    "weights": lambda x, y, w: tf.keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="sum"
    )(y, x, sample_weight=w),
}
TWICE = {"focal", "focal of losses", "z", "perplexity"}
"""Losses whose gradient takes a loop of its own."""
FAST = {"a gather", "temperature", "z", "an ignored class"}


def weights(words):
    random = np.random.default_rng(0)

    def new(*shape):
        return tf.Variable(random.normal(size=shape) * 0.3, dtype=tf.float32)

    return [new(UNITS, UNITS), new(UNITS, words), new(words)]


def step_of(loss, words=WORDS, half=False):
    kernel, projection, bias = variables = weights(words)

    def step(x, y, w):
        with tf.GradientTape() as tape:
            hidden = tf.tanh(tf.tensordot(x, kernel, 1))
            if half:
                hidden, table, row = (tf.cast(one, half) for one in (hidden, projection, bias))
                logits = tf.cast(tf.tensordot(hidden, table, 1) + row, tf.float32)
            else:
                logits = tf.tensordot(hidden, projection, 1) + bias
            value = loss(logits, y, w)
        gradients = tape.gradient(value, variables)
        return value, [tf.convert_to_tensor(one) for one in gradients]

    return step


def data(words=WORDS, batch=BATCH, time=TIME):
    random = np.random.default_rng(1)
    x = tf.constant(random.normal(size=[batch, time, UNITS]), tf.float32)
    y = tf.constant(random.integers(1, words, [batch, time]), tf.int32)
    return x, y, tf.constant(random.uniform(0.5, 2, size=[batch, time]), tf.float32)


def held(step, *args):
    """The decisions on a step whose results were compared."""
    optimized = rnnmem.optimize(max_slowdown=100.0)(tf.function(step))
    plan = optimized.plan(*args)
    assert_same(optimized(*args), tf.function(step)(*args))
    assert plan.losses, plan.notes
    assert not any(one.closed for one in plan.losses), plan.losses
    return plan.losses


@pytest.mark.parametrize(
    "name", [one if one in FAST else pytest.param(one, marks=pytest.mark.slow) for one in LOSSES]
)
def test_every_form_of_the_loss_keeps_its_bits(name, _small):
    (loss,) = held(step_of(LOSSES[name]), *data())
    assert loss.loops == (2 if name in TWICE else 1)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [True, False])
@pytest.mark.parametrize("name", ["a gather", "z"])
def test_a_vocabulary_that_is_no_multiple_of_what_kernels_take_at_once(name, optimizer, _small):
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": not optimizer})
    try:
        held(step_of(LOSSES[name], 41), *data(41))
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


@pytest.mark.slow
def test_logits_of_half_precision_are_written_over_as_they_are(_small):
    step = step_of(LOSSES["temperature"], half=tf.bfloat16)
    (loss,) = held(step, *data())
    assert loss.dtype == "bfloat16" and loss.source == "add:0"


@pytest.mark.slow
def test_two_losses_of_one_function(_small):
    kernel, first, _ = weights(512)
    second = tf.Variable(first[:, ::-1])

    def step(x, y, w):
        with tf.GradientTape() as tape:
            hidden = tf.tanh(tf.tensordot(x, kernel, 1))
            one = entropy(tf.tensordot(hidden, first, 1), y, w)
            two = smooth(tf.tensordot(hidden, second, 1), y, w)
        return one, two, tape.gradient(one + two, [kernel, first, second])

    assert len(held(step, *data(512, time=65))) == 2


@pytest.mark.slow
def test_an_einsum_and_a_top_five(_small):
    kernel, projection, _ = weights(WORDS)

    def step(x, y, w):
        with tf.GradientTape() as tape:
            hidden = tf.tanh(tf.tensordot(x, kernel, 1))
            logits = tf.einsum("bth,hv->btv", hidden, projection)
            loss = tf.reduce_mean(cross_entropy(y, logits) * w)
        hits = tf.keras.metrics.sparse_top_k_categorical_accuracy(y, logits, 5)
        return loss, hits, tape.gradient(loss, [kernel, projection])

    held(step, *data())


@pytest.mark.slow
def test_a_keras_model_with_an_accuracy_needs_one_blob_of_logits():
    words, batch, time = 4096, 9, 64

    def trained(optimize):
        tf.keras.utils.set_random_seed(3)
        layers = [tf.keras.layers.Embedding(words, UNITS), tf.keras.layers.Dense(words)]
        model = tf.keras.Sequential(layers)
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss, metrics=["accuracy"], jit_compile=False)
        if optimize:
            rnnmem.keras.optimize(model, max_slowdown=1.35)  # the projection is tiny
        tokens = np.random.default_rng(0).integers(0, words, [batch, time])
        model.train_on_batch(tokens, tokens)
        after = model.get_weights()
        return after, rnnmem.measure(model.train_on_batch, tokens, tokens, repeats=3).peak_bytes

    (before, plain), (after, cut) = trained(False), trained(True)
    assert_same(after, before)
    whole = batch * time * words * 4
    assert plain > 4 * whole and cut < 2.7 * whole


def cut_net(name):
    """The Net of a step, and the same by chunks."""
    concrete = tf.function(step_of(LOSSES[name])).get_concrete_function(*data())
    net = net_of(concrete)
    (loss,) = select.losses_of(net, CPU, exact=True)
    assert loss.lead == (BATCH, TIME)
    return net, loss, apply_chunks(net, (loss,), constant)


def changed(net, name, change):
    return net.replace(ops=tuple(change(op) if op.name == name else op for op in net.ops))


def test_the_verifier_believes_no_mark_and_no_axis(_small):
    net, _, cut = cut_net("one hot")
    check(net, cut)
    (loop,) = (op for op in cut.ops if CHUNKS in op.attributes)

    def marked(mark):
        attributes = {**loop.attributes, LEAD: mark}
        return changed(cut, loop.name, lambda op: op.replace(attributes=attributes))

    for mark in (b"9,16", b"nonsense", b""):
        with pytest.raises(CheckError):
            check(net, marked(mark))

    body = loop.nets["body"]
    total = body.op_by_name["Sum"]
    axis = body.producer[total.inputs[1]]
    other = axis.replace(attributes={**axis.attributes, "value": constant(1, "int32")})
    wrong = changed(body, axis.name, lambda op: other)
    nets = {**loop.nets, "body": wrong}
    with pytest.raises(CheckError):
        check(net, changed(cut, loop.name, lambda op: op.replace(nets=nets)))


def test_a_plan_with_such_a_loss_is_kept_and_applied_again(_small):
    net, loss, cut = cut_net("a gather")
    plan = Plan().having(row_chunks=(loss,))
    (again,) = Plan.from_json(plan.to_json()).losses
    assert again == loss and "tokens of" in loss.sentence
    assert apply_chunks(net, (dataclasses.replace(again),), constant).ops == cut.ops
