"""Named workloads: train steps that everybody measures alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from models.nmt.model import ModelConfig, Translator
from models.nmt.seq2seq import Seq2Seq, Seq2SeqConfig
from models.nmt.vocabulary import CONTROL


@dataclasses.dataclass(frozen=True)
class Workload:
    """A model, and how large its batches are.

    Attributes:
        config: of the benchmark model (`ModelConfig`) or of the toolkit's (`Seq2SeqConfig`).
        batch: sentence pairs.
        source_length: tokens of every source.
        target_length: tokens of every target.
    """

    config: ModelConfig | Seq2SeqConfig
    batch: int
    source_length: int
    target_length: int


def _attention(length, vocabulary=1000):
    return Workload(ModelConfig(vocabulary, vocabulary), 32, length, length)


def _gnmt(layers, units, batch, length):
    config = Seq2SeqConfig(
        32000,
        32000,
        embedding=units,
        units=units,
        cell="lstm",
        encoder_layers=layers,
        bidirectional_layers=1,
        decoder_layers=layers,
        residual=True,
        attention="bahdanau",
        tied="all",
        dropout=0.2,
        label_smoothing=0.1,
    )
    return Workload(config, batch, length, length)


_MULTI30K = Seq2SeqConfig(6000, 6000, tied="all", dropout=0.3, label_smoothing=0.1)

WORKLOADS = {
    # The benchmark model: LSTM, attention in front of the decoder, 256 units.
    "attention-50": _attention(50),
    "attention-150": _attention(150),
    "attention-150-vocabulary-32000": _attention(150, 32000),
    # The toolkit's, as the flagfiles have them.
    "multi30k": Workload(_MULTI30K, 104, 19, 19),
    "multi30k-fed": Workload(
        dataclasses.replace(_MULTI30K, input_feeding=True, coverage=1.0), 104, 19, 19
    ),
    "gnmt-4": _gnmt(4, 1024, 64, 50),
    "gnmt-8": _gnmt(8, 1024, 64, 50),
    "gnmt-4-small": _gnmt(4, 256, 16, 30),
    "tiny": Workload(Seq2SeqConfig(50, 50, embedding=8, units=8, dropout=0.1), 4, 6, 7),
}


def make_step(config: ModelConfig | Seq2SeqConfig) -> Callable:
    """A train step as a plain Python function: (source, target) -> loss, all gradients."""
    if isinstance(config, ModelConfig):
        model = Translator(config)
        loss_of = model.loss
    else:
        model = Seq2Seq(config)

        def loss_of(source, target):
            total, tokens = model.loss(source, target, tf.constant([1, 2]))
            return total / tokens

    variables = model.trainable_variables

    def train_step(source, target):
        with tf.GradientTape() as tape:
            loss = loss_of(source, target)
        gradients = tape.gradient(loss, variables)
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]

    return train_step


def make_batch(workload: Workload) -> tuple[tf.Tensor, tf.Tensor]:
    """A batch of random words: source int32 [B, S], target int32 [B, T + 1]."""
    random, config = np.random.default_rng(0), workload.config
    first = len(CONTROL)
    source = random.integers(
        first, config.source_vocabulary, [workload.batch, workload.source_length]
    )
    target = random.integers(
        first, config.target_vocabulary, [workload.batch, workload.target_length + 1]
    )
    return tf.constant(source, tf.int32), tf.constant(target, tf.int32)
