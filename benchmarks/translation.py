"""The machine translation model on which Paddle measured its memory_optimize, in TensorFlow.

After Paddle's `book_memory_optimization/test_memopt_machine_translation.py`: a shared embedding, an
LSTM encoder, a decoder whose loop block has two layers (tanh, and softmax over the dictionary),
cross entropy outside the loop, Adagrad. Sentences are drawn at random; they are padded, as
TensorFlow has no sequences of several lengths, and what is padded counts nothing.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

import rnnmem
from rnnmem.sizes import MIB
from rnnmem.storage import share_sequential


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Of the model and of a batch; those of the recorded case.

    Attributes:
      dictionary: words of either language.
      word: numbers that a word is embedded in.
      hidden: numbers of a state.
      batch: sentences.
      length: words of the longest sentence.
    """

    dictionary: int = 30_000
    word: int = 16
    hidden: int = 32
    batch: int = 10
    length: int = 50


class Translation(tf.Module):
    """The model with its optimizer.

    Args:
      sizes: of the model.
      rate: Adagrad's.
      seed: of the weights.
    """

    def __init__(self, sizes: Sizes, rate: float = 1e-2, seed: int = 111):
        super().__init__(name="translation")
        self.sizes, self.rate = sizes, rate
        self._draw = np.random.default_rng(seed)
        hidden, gates = sizes.hidden, 4 * sizes.hidden
        self.embedding = self._matrix("embedding", sizes.dictionary, sizes.word)
        self.project = self._matrix("project", sizes.word, gates)
        self.recurrent = self._matrix("recurrent", hidden, gates)
        self.gate_bias = self._zeros("gate_bias", gates)
        self.from_word = self._matrix("from_word", sizes.word, hidden)
        self.from_state = self._matrix("from_state", hidden, hidden)
        self.bias = self._zeros("bias", hidden)
        self.to_words = self._matrix("to_words", hidden, sizes.dictionary)
        self.word_bias = self._zeros("word_bias", sizes.dictionary)
        self.squares = [
            tf.Variable(tf.fill(v.shape, 0.1), trainable=False) for v in self.trainable_variables
        ]

    def _matrix(self, name: str, rows: int, columns: int) -> tf.Variable:
        most = (6 / (rows + columns)) ** 0.5
        values = self._draw.uniform(-most, most, (rows, columns))
        return tf.Variable(values.astype(np.float32), name=name)

    def _zeros(self, name: str, size: int) -> tf.Variable:
        return tf.Variable(tf.zeros([size]), name=name)

    def train_step(self, source, source_length, target, label, target_length) -> tf.Tensor:
        """Updates the weights; gives the mean loss of a word.

        Args:
          source: words, [length, batch].
          source_length: of each sentence, [batch].
          target: words that the decoder is given, [length, batch].
          label: words that it should say, [length, batch].
          target_length: of each sentence, [batch].
        """
        weights = self.trainable_variables
        with tf.GradientTape() as tape:
            state = self._encode(tf.gather(self.embedding, source), source_length)
            said = self._decode(tf.gather(self.embedding, target), state, target_length)
            right = tf.gather(said, label, batch_dims=2)
            counts = tf.transpose(tf.sequence_mask(target_length, target.shape[0], tf.float32))
            loss = -tf.reduce_sum(tf.math.log(right) * counts) / tf.reduce_sum(counts)
        for weight, square, gradient in zip(
            weights, self.squares, tape.gradient(loss, weights), strict=True
        ):
            self._update(weight, square, gradient)
        return loss

    def _encode(self, words, length):
        steps = words.shape[0]
        given = tf.TensorArray(tf.float32, steps).unstack(tf.tanh(words @ self.project))

        def step(time, state, cell):
            gates = given.read(time) + state @ self.recurrent + self.gate_bias
            enter, forget, leave, fresh = tf.split(gates, 4, axis=1)
            new = tf.sigmoid(forget) * cell + tf.sigmoid(enter) * tf.tanh(fresh)
            goes_on = tf.expand_dims(time < length, 1)
            state = tf.where(goes_on, tf.sigmoid(leave) * tf.tanh(new), state)
            return time + 1, state, tf.where(goes_on, new, cell)

        start = tf.zeros([words.shape[1], self.sizes.hidden])
        return tf.while_loop(lambda time, *_: time < steps, step, (0, start, start))[1]

    def _decode(self, words, state, length):
        steps = words.shape[0]
        given = tf.TensorArray(tf.float32, steps).unstack(words)

        def step(time, state, said):
            hidden = given.read(time) @ self.from_word + state @ self.from_state + self.bias
            new = tf.tanh(hidden)
            said = said.write(time, tf.nn.softmax(new @ self.to_words + self.word_bias))
            return time + 1, tf.where(tf.expand_dims(time < length, 1), new, state), said

        said = tf.TensorArray(tf.float32, steps)
        return tf.while_loop(lambda time, *_: time < steps, step, (0, state, said))[2].stack()

    def _update(self, weight, square, gradient) -> None:
        """Adagrad, sparse where the gradient is, as in the recorded case."""
        given = {"var": weight.handle, "accum": square.handle, "lr": self.rate, "epsilon": 1e-7}
        if isinstance(gradient, tf.IndexedSlices):
            rows = {"grad": gradient.values, "indices": gradient.indices}
            tf.raw_ops.ResourceSparseApplyAdagradV2(**given, **rows)
        else:
            tf.raw_ops.ResourceApplyAdagradV2(**given, grad=gradient)


def sentences(sizes: Sizes, seed: int = 0) -> tuple[tf.Tensor, ...]:
    """A batch: what :meth:`Translation.train_step` is given."""
    draw = np.random.default_rng(seed)

    def words():
        shape = (sizes.length, sizes.batch)
        return tf.constant(draw.integers(0, sizes.dictionary, shape), tf.int32)

    def lengths():
        shortest = max(1, sizes.length // 4)
        return tf.constant(draw.integers(shortest, sizes.length + 1, sizes.batch), tf.int32)

    return words(), lengths(), words(), words(), lengths()


def compare(sizes: Sizes, steps: int, max_slowdown: float = 1.2) -> dict:
    """Bytes of all storages, measured peaks, and the curve of the loss, plain and under rnnmem.

    TensorFlow must count memory (:func:`rnnmem.enable_cpu_memory_stats`) and be deterministic.

    Args:
      sizes: of the model and of the batches.
      steps: of training, on four batches in turn.
      max_slowdown: for :func:`rnnmem.optimize`; the softmax over the dictionary, almost all of the
        work and of the memory, runs twice only if it may cost this much.
    """
    row = {}
    batch = sentences(sizes)
    curves = {}
    for name in ("TensorFlow", "rnnmem"):
        model = Translation(sizes)
        step = tf.function(model.train_step)
        if name == "TensorFlow":
            net = rnnmem.load_net(step.get_concrete_function(*batch))
            shared = share_sequential(net, algorithm="exact", order="peak")
            row |= {
                "storages MiB before": round(shared.before.bytes / MIB, 2),
                "storages MiB after": round(shared.after.bytes / MIB, 2),
                "storages saved %": round(100 * shared.saving, 2),
            }
        else:
            step = rnnmem.optimize(step, max_slowdown=max_slowdown)
        curves[name] = [
            step(*sentences(sizes, seed % 4)).numpy().tobytes() for seed in range(steps)
        ]
        found = rnnmem.measure(step, *batch, repeats=3)
        row[f"{name} MiB"] = round(found.peak_bytes / MIB, 2)
        row[f"{name} MiB with what is resident"] = round(
            (found.peak_bytes + found.resident_bytes) / MIB, 2
        )
    saved = (
        1 - row["rnnmem MiB with what is resident"] / row["TensorFlow MiB with what is resident"]
    )
    return {
        **row,
        "max slowdown": max_slowdown,
        "peak saved %, with what is resident": round(100 * saved, 2),
        "steps": steps,
        "same loss curve": curves["TensorFlow"] == curves["rnnmem"],
    }
