"""Attention sequence-to-sequence model: an LSTM encoder and an additive-attention LSTM decoder.

The encoder and the decoder follow Sutskever, Vinyals and Le (2014), "Sequence to Sequence Learning
with Neural Networks"; the attention is that of Bahdanau, Cho and Bengio (2015), "Neural Machine
Translation by Jointly Learning to Align and Translate": the previous decoder state queries the
encoder's outputs and the context found goes into the decoder cell beside the embedded token. Unlike
Bahdanau's, the encoder reads in one direction, and the projection sees the cell's output alone.

Both loops are a plain `tf.while_loop`, as a user would write them: no memory is saved by hand here.

Dimensions: B batch, S source length, T target length, E embedding, H units, V target vocabulary.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from models.nmt.vocabulary import END, PAD, START

HIDDEN_SCORE = -1e9  # the attention score of padding: exp of it is exactly 0 in float32


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The sizes of a model: all that is needed, beside the weights, to build it again."""

    source_vocabulary: int
    target_vocabulary: int
    units: int = 256
    embedding: int = 256
    seed: int = 1

    def __post_init__(self):
        for name in ("source_vocabulary", "target_vocabulary", "units", "embedding"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")


class Translator(tf.Module):
    """Translates token ids to token ids; trained by the gradient of `loss`."""

    def __init__(self, config: ModelConfig):
        """Makes the weights, drawn from `config.seed`.

        Args:
            config: the sizes.
        """
        super().__init__(name="translator")
        self.config = config
        units, embedding = config.units, config.embedding
        new = _WeightMaker(config.seed)
        # An embedding is looked up, not multiplied: in Glorot's bound it would be too small.
        self.source_embedding = new("source_embedding", config.source_vocabulary, embedding, 1.0)
        self.target_embedding = new("target_embedding", config.target_vocabulary, embedding, 1.0)
        self.encoder_kernel = new("encoder_kernel", embedding + units, 4 * units)
        self.encoder_bias = tf.Variable(tf.zeros([4 * units]), name="encoder_bias")
        self.decoder_kernel = new("decoder_kernel", embedding + 2 * units, 4 * units)
        self.decoder_bias = tf.Variable(tf.zeros([4 * units]), name="decoder_bias")
        self.key_kernel = new("key_kernel", units, units)
        self.query_kernel = new("query_kernel", units, units)
        self.attention_vector = new("attention_vector", units, 1)
        self.projection = new("projection", units, config.target_vocabulary)
        self.projection_bias = tf.Variable(
            tf.zeros([config.target_vocabulary]), name="projection_bias"
        )

    def encode(self, source: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Runs the encoder over the source; padding leaves its state as it was.

        Args:
            source: token ids, 0 is padding, int32 [B, S].

        Returns:
            The encoder's outputs [B, S, H] and its last state h and c, each [B, H].
        """
        batch, length = tf.shape(source)[0], tf.shape(source)[1]
        kernel, bias = (
            tf.convert_to_tensor(self.encoder_kernel),
            tf.convert_to_tensor(self.encoder_bias),
        )
        embedded = tf.gather(self.source_embedding, tf.transpose(source))  # [S, B, E]
        inputs = tf.TensorArray(tf.float32, size=length).unstack(embedded)
        present = tf.TensorArray(tf.bool, size=length).unstack(
            tf.transpose(source != PAD)[..., None]
        )
        outputs = tf.TensorArray(tf.float32, size=length)
        zeros = tf.zeros([batch, self.config.units])

        def step(t, h, c, outputs):
            new_h, new_c = lstm_cell(inputs.read(t), h, c, kernel, bias)
            here = present.read(t)  # [B, 1]
            h, c = tf.where(here, new_h, h), tf.where(here, new_c, c)
            return t + 1, h, c, outputs.write(t, h)

        _, h, c, outputs = tf.while_loop(
            lambda t, *_: t < length, step, (0, zeros, zeros, outputs), maximum_iterations=length
        )
        return tf.transpose(outputs.stack(), [1, 0, 2]), h, c

    def decode(self, tokens: tf.Tensor, source: tf.Tensor) -> tf.Tensor:
        """Runs the decoder over given tokens (teacher forcing).

        Args:
            tokens: what the decoder is told at each step, int32 [B, T].
            source: token ids, 0 is padding, int32 [B, S].

        Returns:
            The decoder's outputs, time-major, [T, B, H].
        """
        length = tf.shape(tokens)[1]
        memory, h, c = self.encode(source)
        cell = self._decoder_cell(memory, source != PAD)
        inputs = tf.TensorArray(tf.float32, size=length).unstack(
            tf.gather(self.target_embedding, tf.transpose(tokens))
        )
        outputs = tf.TensorArray(tf.float32, size=length)

        def step(t, h, c, outputs):
            h, c = cell(inputs.read(t), h, c)
            return t + 1, h, c, outputs.write(t, h)

        _, _, _, outputs = tf.while_loop(
            lambda t, *_: t < length, step, (0, h, c, outputs), maximum_iterations=length
        )
        return outputs.stack()

    def loss(self, source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        """Cross entropy of the target given the source, the mean over its real tokens.

        Args:
            source: token ids, 0 is padding, int32 [B, S].
            target: token ids from <s> to </s>, then padding, int32 [B, T + 1].

        Returns:
            A scalar in nats a token.
        """
        labels = tf.transpose(target[:, 1:])  # [T, B]
        logits = self._logits(self.decode(target[:, :-1], source))  # [T, B, V]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        real = tf.cast(labels != PAD, losses.dtype)
        return tf.reduce_sum(losses * real) / tf.maximum(tf.reduce_sum(real), 1.0)

    def translate(self, source: tf.Tensor, max_length: int | tf.Tensor) -> tf.Tensor:
        """Decodes greedily until every sentence has ended or is `max_length` tokens long.

        Args:
            source: token ids, 0 is padding, int32 [B, S].
            max_length: the most tokens of a translation, </s> included.

        Returns:
            Token ids without <s>; after </s> comes padding; int32 [B, at most max_length].
        """
        batch = tf.shape(source)[0]
        memory, h, c = self.encode(source)
        cell = self._decoder_cell(memory, source != PAD)
        written = tf.TensorArray(tf.int32, size=0, dynamic_size=True, element_shape=[None])

        def going(t, token, ended, h, c, written):
            return t < max_length and not tf.reduce_all(ended)

        def step(t, token, ended, h, c, written):
            h, c = cell(tf.gather(self.target_embedding, token), h, c)
            token = tf.argmax(self._logits(h), axis=-1, output_type=tf.int32)
            token = tf.where(ended, PAD, token)
            return t + 1, token, ended | (token == END), h, c, written.write(t, token)

        start = (0, tf.fill([batch], START), tf.fill([batch], False), h, c, written)
        *_, written = tf.while_loop(going, step, start)
        return tf.transpose(written.stack())

    def _decoder_cell(self, memory, present):
        """The attention over `memory` [B, S, H] and the LSTM cell behind it, as one function."""
        kernel, bias = (
            tf.convert_to_tensor(self.decoder_kernel),
            tf.convert_to_tensor(self.decoder_bias),
        )
        query_kernel = tf.convert_to_tensor(self.query_kernel)
        vector = tf.convert_to_tensor(self.attention_vector)[:, 0]
        keys = tf.tensordot(memory, self.key_kernel, 1)  # [B, S, H]
        penalty = tf.where(present, 0.0, HIDDEN_SCORE)  # [B, S]

        def cell(x, h, c):
            query = tf.matmul(h, query_kernel)[:, None, :]  # [B, 1, H]
            scores = tf.reduce_sum(vector * tf.tanh(keys + query), axis=-1)  # [B, S]
            weights = tf.nn.softmax(scores + penalty)
            context = tf.reduce_sum(weights[:, :, None] * memory, axis=1)  # [B, H]
            return lstm_cell(tf.concat([x, context], axis=-1), h, c, kernel, bias)

        return cell

    def _logits(self, outputs):
        """Projects outputs [..., H] onto the target vocabulary, [..., V]."""
        return tf.tensordot(outputs, self.projection, 1) + self.projection_bias


def lstm_cell(
    x: tf.Tensor, h: tf.Tensor, c: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """One step of an LSTM: Hochreiter and Schmidhuber (1997), with the forget gate of Gers (2000).

    Args:
        x: the input, [B, X].
        h: the output of the step before, [B, H].
        c: the cell state of the step before, [B, H].
        kernel: the weights of the gates i, j, f, o side by side, [X + H, 4 H].
        bias: likewise, [4 H].

    Returns:
        The new h and c.
    """
    gates = tf.matmul(tf.concat([x, h], axis=-1), kernel) + bias
    i, j, f, o = tf.split(gates, 4, axis=-1)
    c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)  # + 1: remember from the start
    return tf.sigmoid(o) * tf.tanh(c), c


class _WeightMaker:
    """Draws variables uniformly within a bound, by default that of Glorot and Bengio (2010)."""

    def __init__(self, seed):
        self.random = tf.random.Generator.from_seed(seed)

    def __call__(self, name, rows, columns, bound=None):
        bound = bound or (6.0 / (rows + columns)) ** 0.5
        return tf.Variable(self.random.uniform([rows, columns], -bound, bound), name=name)
