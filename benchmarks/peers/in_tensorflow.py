"""The models in TensorFlow: as it runs them, under rnnmem, and with its own means."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import rnnmem
from benchmarks.peers.models import Model
from benchmarks.peers.step import Step
from models.nmt.model import HIDDEN_SCORE, ModelConfig, Translator, lstm_cell
from rnnmem.tf.measure import run_measured


def _as_it_is(cell: Callable) -> Callable:
    return cell


@dataclasses.dataclass(frozen=True)
class Variant:
    """How a step runs.

    Attributes:
      options: of `rnnmem.optimize`; None: without rnnmem.
      compiled: by XLA.
      remat: wraps what is to be computed again, a cell or a block.
    """

    options: dict[str, Any] | None = None
    compiled: bool = False
    remat: Callable[[Callable], Callable] = _as_it_is


VARIANTS = {
    "plain": Variant(),
    "XLA": Variant(compiled=True),
    "default": Variant({}),
    "max_slowdown=1.35": Variant({"max_slowdown": 1.35}),
    "default, XLA": Variant({}, compiled=True),
    "tf.recompute_grad": Variant(remat=tf.recompute_grad),
    "keras.remat": Variant(remat=keras.remat),
}

# --- models: (remat, weights, inputs) -> loss. What is wrapped is given all that it reads, as
# tf.recompute_grad has no gradient of a tensor that a function captures.


class _Translator(Translator):
    """The benchmark model with given weights, and its decoder's cell wrapped if it is to be."""

    def __init__(self, weights, remat):
        tf.Module.__init__(self, "translator")  # the model's own would draw weights
        units, words = weights["projection"].shape
        self.config = ModelConfig(words, words, units, units)
        vars(self).update(weights)
        self._remat = remat

    def _decoder_cell(self, memory, present):
        if self._remat is _as_it_is:
            return super()._decoder_cell(memory, present)

        def cell(x, h, c, memory, keys, penalty, vector, query_kernel, kernel, bias):
            query = tf.matmul(h, query_kernel)[:, None, :]
            scores = tf.reduce_sum(vector * tf.tanh(keys + query), axis=-1)
            shares = tf.nn.softmax(scores + penalty)
            context = tf.reduce_sum(shares[:, :, None] * memory, axis=1)
            return lstm_cell(tf.concat([x, context], axis=-1), h, c, kernel, bias)

        wrapped = self._remat(cell)
        given = (
            memory,
            tf.tensordot(memory, self.key_kernel, 1),
            tf.where(present, 0.0, HIDDEN_SCORE),
            tf.convert_to_tensor(self.attention_vector)[:, 0],
            tf.convert_to_tensor(self.query_kernel),
            tf.convert_to_tensor(self.decoder_kernel),
            tf.convert_to_tensor(self.decoder_bias),
        )
        return lambda x, h, c: wrapped(x, h, c, *given)


def nmt(remat, w, source, target):
    """As `models.nmt.model.Translator.loss`."""
    return _Translator(w, remat).loss(source, target)


def _loop(steps, step, state):
    # XLA takes a gradient of a loop whose iterations are bounded.
    return tf.while_loop(lambda t, *_: t < steps, step, (0, *state), maximum_iterations=steps)


def _lstm(gates, c):
    i, f, g, o = tf.split(gates, 4, axis=-1)
    c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
    return tf.sigmoid(o) * tf.tanh(c), c


def lstm(remat, w, x):
    """As `hand_lstm` of `benchmarks.recurrent`."""
    steps, batch, _ = x.shape

    def cell(x, h, c, kernel, recurrent, bias):
        return _lstm(x @ kernel + h @ recurrent + bias, c)

    wrapped = remat(cell)

    def step(t, h, c):
        return t + 1, *wrapped(x[t], h, c, *map(tf.convert_to_tensor, w.values()))

    zeros = tf.zeros([batch, w["recurrent"].shape[0]])
    _, h, _ = _loop(steps, step, (zeros, zeros))
    return tf.reduce_mean(tf.square(h))


def recurrent_dropout(remat, w, x, masks):
    """Two layers, a loop each."""
    steps = x.shape[0]

    def cell(x, h, c, mask, kernel, recurrent, bias):
        return _lstm(x @ kernel + (h * mask) @ recurrent + bias, c)

    wrapped = remat(cell)

    def layer(x, mask, *weights):
        given = tf.TensorArray(tf.float32, steps).unstack(x)

        def step(t, h, c, states):
            h, c = wrapped(given.read(t), h, c, mask, *map(tf.convert_to_tensor, weights))
            return t + 1, h, c, states.write(t, h)

        zeros = tf.zeros_like(mask)
        return _loop(steps, step, (zeros, zeros, tf.TensorArray(tf.float32, steps)))[3].stack()

    for one in (0, 1):
        weights = (w[f"{name}_{one}"] for name in ("kernel", "recurrent", "bias"))
        x = layer(x, masks[one], *weights)
    return tf.reduce_mean(tf.square(x))


def language_model(remat, w, tokens, labels):
    """As `language_model_smoothed` of `benchmarks.whole_step`."""
    steps, batch = tokens.shape
    x, units = tf.gather(w["table"], tokens), w["recurrent"].shape[0]

    def cell(x, h, kernel, recurrent, bias):
        update, reset, new = tf.split(x @ kernel + bias, 3, 1)
        update_h, reset_h, new_h = tf.split(h @ recurrent, 3, 1)
        gate = tf.sigmoid(update + update_h)
        return gate * h + (1 - gate) * tf.tanh(new + tf.sigmoid(reset + reset_h) * new_h)

    wrapped = remat(cell)
    weights = [w[name] for name in ("kernel", "recurrent", "bias")]

    def step(t, h, states):
        h = wrapped(x[t], h, *map(tf.convert_to_tensor, weights))
        return t + 1, h, states.write(t, h)

    start = tf.zeros([batch, units]), tf.TensorArray(tf.float32, steps)
    *_, states = _loop(steps, step, start)
    hidden = tf.reshape(states.stack(), [-1, units])
    logits = tf.matmul(hidden, w["table"], transpose_b=True) + w["words_bias"]
    logs = tf.nn.log_softmax(logits)
    picked = tf.gather(logs, tf.reshape(labels, [-1]), batch_dims=1)
    return -tf.reduce_mean(0.9 * picked + 0.1 * tf.reduce_mean(logs, 1))


def transformer(remat, w, x):
    """As `small_transformer` of `benchmarks.whole_step`."""
    (batch, length, width), heads = x.shape, 8

    def norm(x):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-6)

    def block(x, qkv, out, grow, shrink):
        split = tf.reshape(norm(x) @ qkv, [batch, length, 3, heads, width // heads])
        q, k, v = tf.unstack(tf.transpose(split, [2, 0, 3, 1, 4]))
        scores = tf.nn.softmax(q @ tf.transpose(k, [0, 1, 3, 2]) / (width // heads) ** 0.5)
        mixed = tf.transpose(scores @ v, [0, 2, 1, 3])
        x = x + tf.reshape(mixed, [batch, length, width]) @ out
        return x + tf.nn.gelu(norm(x) @ grow) @ shrink

    wrapped = remat(block)
    for weights in zip(w["qkv"], w["out"], w["grow"], w["shrink"], strict=True):
        x = wrapped(x, *map(tf.convert_to_tensor, weights))
    return tf.reduce_mean(tf.square(x))


LOSSES = {one.__name__: one for one in (nmt, lstm, recurrent_dropout, language_model, transformer)}


def make_step(model: Model, name: str) -> Step:
    """The traced step of a model in one of `VARIANTS`; op determinism must be on."""
    loss, variant = LOSSES[model.kind], VARIANTS[name]
    by_layer = model.kind == "transformer"
    weights = {
        name: [tf.Variable(one) for one in value] if by_layer else tf.Variable(value)
        for name, value in model.weights.items()
    }
    inputs = [tf.constant(value) for value in model.inputs.values()]

    def step(*inputs):
        with tf.GradientTape() as tape:
            value = loss(variant.remat, weights, *inputs)
        gradients = tape.gradient(value, weights)
        return value, tf.nest.map_structure(tf.convert_to_tensor, gradients)

    function = tf.function(step, jit_compile=variant.compiled or None)
    if variant.options is not None:
        function = rnnmem.optimize(function, **variant.options)

    def call():
        results = function(*inputs)
        tf.test.experimental.sync_devices()
        return results

    def counted() -> int | None:
        return max(filter(None, (run_measured(call)[1] for _ in range(3))), default=None)

    def arrays(results):
        value, gradients = results
        flat = {n: np.asarray(tf.nest.map_structure(np.asarray, g)) for n, g in gradients.items()}
        return {"loss": value.numpy(), **flat}

    return Step(call, arrays, counted)
