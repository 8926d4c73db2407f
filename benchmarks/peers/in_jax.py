"""The models in JAX, and what JAX and equinox offer to save the memory of their loops."""

from __future__ import annotations

import math
from collections.abc import Callable

import equinox
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.peers.models import Model
from benchmarks.peers.step import Step

# --- loops: (step, state, xs) -> state, ys, as jax.lax.scan


def checkpointed(step, state, xs):
    """Every iteration keeps its state alone."""
    return jax.lax.scan(jax.checkpoint(step), state, xs)


def nested(step, state, xs):
    """Every segment of about sqrt(T) iterations keeps its state alone, and an iteration all."""
    return _in_segments(step, state, xs)


def nested_checkpointed(step, state, xs):
    """Every segment keeps its state alone, and within it every iteration: three times forward."""
    return _in_segments(jax.checkpoint(step), state, xs)


def _in_segments(step, state, xs):
    count = len(jax.tree.leaves(xs)[0])
    length = min(
        (n for n in range(1, count + 1) if count % n == 0), key=lambda n: abs(n - math.sqrt(count))
    )
    segments = jax.tree.map(lambda x: x.reshape(count // length, length, *x.shape[1:]), xs)

    @jax.checkpoint
    def segment(state, xs):
        return jax.lax.scan(step, state, xs)

    state, ys = jax.lax.scan(segment, state, segments)
    return state, jax.tree.map(lambda y: y.reshape(count, *y.shape[2:]), ys)


def equinox_checkpointed(step, state, xs):
    """Treeverse with equinox's own number of checkpoints, which is O(sqrt(T))."""
    return equinox.internal.scan(step, state, xs, kind="checkpointed")


LOOPS: dict[str, Callable] = {
    "scan": jax.lax.scan,
    "checkpoint": checkpointed,
    "nested": nested,
    "nested, checkpoint": nested_checkpointed,
    "equinox": equinox_checkpointed,
}

# --- models: (loop, weights, inputs) -> loss


def _lstm(gates, c):
    i, j, f, o = jnp.split(gates, 4, axis=-1)
    c = jax.nn.sigmoid(f + 1.0) * c + jax.nn.sigmoid(i) * jnp.tanh(j)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def nmt(loop, w, source, target):
    """As `models.nmt.model.Translator.loss`."""
    batch, units = source.shape[0], w["key_kernel"].shape[0]

    def encode(state, given):
        (h, c), (x, here) = state, given
        new_h, new_c = _lstm(
            jnp.concatenate([x, h], -1) @ w["encoder_kernel"] + w["encoder_bias"], c
        )
        h, c = jnp.where(here, new_h, h), jnp.where(here, new_c, c)
        return (h, c), h

    zeros = jnp.zeros([batch, units])
    given = w["source_embedding"][source.T], (source != 0).T[..., None]
    state, outputs = loop(encode, (zeros, zeros), given)
    memory = jnp.transpose(outputs, [1, 0, 2])
    keys = memory @ w["key_kernel"]
    penalty = jnp.where(source != 0, 0.0, -1e9)
    vector = w["attention_vector"][:, 0]

    def decode(state, x):
        h, c = state
        query = (h @ w["query_kernel"])[:, None, :]
        scores = jnp.sum(vector * jnp.tanh(keys + query), axis=-1)
        shares = jax.nn.softmax(scores + penalty)
        context = jnp.sum(shares[:, :, None] * memory, axis=1)
        gates = jnp.concatenate([x, context, h], -1) @ w["decoder_kernel"] + w["decoder_bias"]
        h, c = _lstm(gates, c)
        return (h, c), h

    _, outputs = loop(decode, state, w["target_embedding"][target[:, :-1].T])
    labels = target[:, 1:].T
    logits = outputs @ w["projection"] + w["projection_bias"]
    losses = -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)[..., 0]
    real = (labels != 0).astype(losses.dtype)
    return jnp.sum(losses * real) / jnp.maximum(jnp.sum(real), 1.0)


def lstm(loop, w, x):
    """As `hand_lstm` of `benchmarks.recurrent`."""

    def step(state, x):
        h, c = state
        i, f, g, o = jnp.split(x @ w["kernel"] + h @ w["recurrent"] + w["bias"], 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    zeros = jnp.zeros([x.shape[1], w["recurrent"].shape[0]])
    (h, _), _ = loop(step, (zeros, zeros), x)
    return jnp.mean(jnp.square(h))


def recurrent_dropout(loop, w, x, masks):
    """Two layers, a loop each."""
    zeros = jnp.zeros_like(masks[0])
    for layer in (0, 1):
        kernel, recurrent = w[f"kernel_{layer}"], w[f"recurrent_{layer}"]
        bias, mask = w[f"bias_{layer}"], masks[layer]

        def step(state, x, kernel=kernel, recurrent=recurrent, bias=bias, mask=mask):
            h, c = state
            i, f, g, o = jnp.split(x @ kernel + (h * mask) @ recurrent + bias, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        _, x = loop(step, (zeros, zeros), x)
    return jnp.mean(jnp.square(x))


def language_model(loop, w, tokens, labels):
    """As `language_model_smoothed` of `benchmarks.whole_step`."""

    def step(h, x):
        update, reset, new = jnp.split(x @ w["kernel"] + w["bias"], 3, 1)
        update_h, reset_h, new_h = jnp.split(h @ w["recurrent"], 3, 1)
        gate = jax.nn.sigmoid(update + update_h)
        h = gate * h + (1 - gate) * jnp.tanh(new + jax.nn.sigmoid(reset + reset_h) * new_h)
        return h, h

    zeros = jnp.zeros([tokens.shape[1], w["recurrent"].shape[0]])
    _, states = loop(step, zeros, w["table"][tokens])
    logits = states.reshape(-1, zeros.shape[1]) @ w["table"].T + w["words_bias"]
    logs = jax.nn.log_softmax(logits)
    picked = jnp.take_along_axis(logs, labels.reshape(-1)[:, None], 1)[:, 0]
    return -jnp.mean(0.9 * picked + 0.1 * jnp.mean(logs, 1))


def transformer(loop, w, x):
    """Blocks as iterations over their stacked weights."""
    (batch, length, width), heads = x.shape, 8

    def norm(x):
        mean = jnp.mean(x, -1, keepdims=True)
        variance = jnp.mean(jnp.square(x - mean), -1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-6)

    def block(x, b):
        split = (norm(x) @ b["qkv"]).reshape(batch, length, 3, heads, width // heads)
        q, k, v = jnp.transpose(split, [2, 0, 3, 1, 4])
        scores = jax.nn.softmax(q @ jnp.transpose(k, [0, 1, 3, 2]) / (width // heads) ** 0.5)
        mixed = jnp.transpose(scores @ v, [0, 2, 1, 3])
        x = x + mixed.reshape(batch, length, width) @ b["out"]
        return x + jax.nn.gelu(norm(x) @ b["grow"], approximate=False) @ b["shrink"], None

    return jnp.mean(jnp.square(loop(block, x, w)[0]))


LOSSES = {one.__name__: one for one in (nmt, lstm, recurrent_dropout, language_model, transformer)}


def make_step(model: Model, variant: str) -> Step:
    """The compiled step of a model under one of `LOOPS`."""
    loss, loop = LOSSES[model.kind], LOOPS[variant]
    weights = {name: jnp.asarray(value) for name, value in sorted(model.weights.items())}
    inputs = [jnp.asarray(value) for value in model.inputs.values()]
    differentiated = jax.value_and_grad(lambda w, *given: loss(loop, w, *given))
    compiled = jax.jit(differentiated).lower(weights, *inputs).compile()

    def call():
        return jax.block_until_ready(compiled(weights, *inputs))

    def counted() -> int:
        found = compiled.memory_analysis()
        return found.temp_size_in_bytes + found.output_size_in_bytes

    def arrays(results):
        value, gradients = results
        return {"loss": np.asarray(value), **{n: np.asarray(g) for n, g in gradients.items()}}

    return Step(call, arrays, counted)
