"""The models that every framework computes: their weights and one batch, as numpy arrays.

What a model computes stands once in each of `in_tensorflow`, `in_jax` and `in_torch`, under its
kind; the sizes are those of the arrays. Random masks of dropout are inputs, so that all agree.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from models.nmt.vocabulary import CONTROL

Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Model:
    """Arrays of one model.

    Attributes:
      kind: what computes it, in each framework.
      weights: what the gradient is taken of.
      inputs: one batch.
    """

    kind: str
    weights: Arrays
    inputs: Arrays


def _normal(*shape: int, seed: int, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def _uniform(*shape: int, seed: int, bound: float | None = None) -> np.ndarray:
    """Within the bound of Glorot and Bengio (2010), or another."""
    bound = bound or (6.0 / sum(shape)) ** 0.5
    return np.random.default_rng(seed).uniform(-bound, bound, shape).astype(np.float32)


def nmt(length: int, batch: int = 32, units: int = 256, words: int = 1000) -> Model:
    """`models.nmt.model.Translator`: LSTM encoder, additive attention, LSTM decoder."""
    weights = {
        "source_embedding": _uniform(words, units, seed=1, bound=1.0),
        "target_embedding": _uniform(words, units, seed=2, bound=1.0),
        "encoder_kernel": _uniform(2 * units, 4 * units, seed=3),
        "encoder_bias": np.zeros(4 * units, np.float32),
        "decoder_kernel": _uniform(3 * units, 4 * units, seed=4),
        "decoder_bias": np.zeros(4 * units, np.float32),
        "key_kernel": _uniform(units, units, seed=5),
        "query_kernel": _uniform(units, units, seed=6),
        "attention_vector": _uniform(units, 1, seed=7),
        "projection": _uniform(units, words, seed=8),
        "projection_bias": np.zeros(words, np.float32),
    }
    draw = np.random.default_rng(0)

    def sentences(tokens):
        return draw.integers(len(CONTROL), words, [batch, tokens]).astype(np.int32)

    return Model("nmt", weights, {"source": sentences(length), "target": sentences(length + 1)})


def lstm(steps: int, batch: int = 16, features: int = 256, units: int = 256) -> Model:
    """An LSTM, its loss on the last h: `hand_lstm` of `benchmarks.recurrent`, of half the units."""
    weights = {
        "kernel": _normal(features, 4 * units, seed=0, scale=0.05),
        "recurrent": _normal(units, 4 * units, seed=1, scale=0.05),
        "bias": np.zeros(4 * units, np.float32),
    }
    return Model("lstm", weights, {"x": _normal(steps, batch, features, seed=2)})


def recurrent_dropout(steps: int, batch: int = 16, units: int = 256, rate: float = 0.1) -> Model:
    """Two LSTM layers with recurrent dropout, a mask for the whole sequence as Keras has it."""
    weights = {}
    for layer in (0, 1):
        weights[f"kernel_{layer}"] = _uniform(units, 4 * units, seed=3 * layer)
        weights[f"recurrent_{layer}"] = _uniform(units, 4 * units, seed=3 * layer + 1)
        weights[f"bias_{layer}"] = np.zeros(4 * units, np.float32)
    kept = np.random.default_rng(8).random((2, batch, units)) >= rate
    masks = (kept / (1 - rate)).astype(np.float32)
    x = _normal(steps, batch, units, seed=9)
    return Model("recurrent_dropout", weights, {"x": x, "masks": masks})


def language_model(steps: int, batch: int = 20, units: int = 200, words: int = 10000) -> Model:
    """A GRU with tied embeddings and label smoothing, of Penn Treebank's sizes."""
    weights = {
        "table": _normal(words, units, seed=0, scale=0.08),
        "kernel": _normal(units, 3 * units, seed=1, scale=0.08),
        "recurrent": _normal(units, 3 * units, seed=2, scale=0.08),
        "bias": np.zeros(3 * units, np.float32),
        "words_bias": np.zeros(words, np.float32),
    }
    draw = np.random.default_rng(0)
    tokens, labels = (draw.integers(0, words, [steps, batch]).astype(np.int32) for _ in range(2))
    return Model("language_model", weights, {"tokens": tokens, "labels": labels})


def transformer(layers: int, batch: int = 4, length: int = 160, width: int = 128) -> Model:
    """Pre-norm Transformer blocks of 8 heads, without a loop over time; weights [layers, ...]."""
    weights = {
        "qkv": _normal(layers, width, 3 * width, seed=0, scale=0.08),
        "out": _normal(layers, width, width, seed=1, scale=0.08),
        "grow": _normal(layers, width, 4 * width, seed=2, scale=0.08),
        "shrink": _normal(layers, 4 * width, width, seed=3, scale=0.08),
    }
    return Model("transformer", weights, {"x": _normal(batch, length, width, seed=99)})


MODELS: dict[str, Callable[[], Model]] = {
    "nmt-50": functools.partial(nmt, 50),
    "nmt-150": functools.partial(nmt, 150),
    "lstm-1000": functools.partial(lstm, 1000),
    "lstm-4000": functools.partial(lstm, 4000),
    "recurrent-dropout": functools.partial(recurrent_dropout, 1000),
    "language-model": functools.partial(language_model, 35),
    "transformer": functools.partial(transformer, 6),
}
"""What makes each; its docstring is its description."""

SMALL: dict[str, Callable[[], Model]] = {
    "nmt-50": functools.partial(nmt, 12, 4, 16, 50),
    "nmt-150": functools.partial(nmt, 24, 4, 16, 50),
    "lstm-1000": functools.partial(lstm, 24, 2, 8, 16),
    "lstm-4000": functools.partial(lstm, 48, 2, 8, 16),
    "recurrent-dropout": functools.partial(recurrent_dropout, 24, 2, 16),
    "language-model": functools.partial(language_model, 12, 4, 16, 100),
    "transformer": functools.partial(transformer, 4, 2, 16, 32),
}
"""The same for tests."""
