"""The toolkit's model: deep recurrent encoder and decoder with attention, in many shapes.

    encoder    GRU or LSTM layers, the lowest ones bidirectional (Schuster and Paliwal, 1997)
    residual   from the third layer up, as in GNMT: Wu et al. (2016), "Google's Neural Machine
               Translation System"
    attention  "luong" (behind the decoder) or "bahdanau" (in front of it)
    feeding    the decoder's last output goes into its next step: Luong et al. (2015)
    coverage   the attention knows what was looked at, and is fined for looking again: See, Liu and
               Manning (2017), "Get To The Point"
    tied       the projection is the target embedding (Press and Wolf, 2017), and the source's

Where nothing is fed back, attention and read-out of all target positions are a few large products
behind the decoder's loops, and so is the projection always.

The model is ordinary TensorFlow and knows nothing of rnnmem. `models/nmt/model.py` is the smaller
model that the benchmark of the README measures.

Dimensions: B batch, S source length, T target length, E embedding, H units, V target vocabulary.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from models.nmt.attention import HIDDEN_SCORE, Memory, bahdanau, luong
from models.nmt.cells import CELLS, GATES, STATES, run_layer
from models.nmt.vocabulary import PAD

RESIDUAL_FROM = 2  # the first layer whose input is added to its output
SITE = 1000003  # dropouts of one step differ by multiples of this in their seed

CHOICES = {
    "cell": ("gru", "lstm"),
    "attention": ("luong", "bahdanau"),
    "tied": ("none", "target", "all"),
    "precision": ("float32", "bfloat16", "float16"),
}


@dataclasses.dataclass(frozen=True)
class Seq2SeqConfig:
    """The shape of a model: all that is needed, beside the weights, to build it again.

    Attributes:
        source_vocabulary: tokens of the source.
        target_vocabulary: tokens of the target.
        embedding: size of embeddings and of the read-out.
        units: units of each layer and direction.
        cell: "gru" or "lstm".
        encoder_layers: how many.
        bidirectional_layers: how many of them, from the lowest, read both ways.
        decoder_layers: how many.
        residual: whether layers from the third on add their input to their output.
        attention: "luong" or "bahdanau".
        input_feeding: whether the read-out goes into the decoder's next step.
        coverage: weight of the coverage loss; 0 is no coverage.
        tied: "none", "target" or "all".
        dropout: rate on embeddings, between layers, on the encoder's outputs and on the read-out.
        recurrent_dropout: rate on the states; one mask for all iterations.
        variational: whether `dropout` too has one mask for all positions of a sentence.
        label_smoothing: what is taken from the right word and given to all alike, 0 to 1.
        precision: what is computed in; weights and losses are float32 always.
        seed: of the first weights.
    """

    source_vocabulary: int
    target_vocabulary: int
    embedding: int = 256
    units: int = 256
    cell: str = "gru"
    encoder_layers: int = 1
    bidirectional_layers: int = 1
    decoder_layers: int = 1
    residual: bool = False
    attention: str = "luong"
    input_feeding: bool = False
    coverage: float = 0.0
    tied: str = "none"
    dropout: float = 0.0
    recurrent_dropout: float = 0.0
    variational: bool = False
    label_smoothing: float = 0.0
    precision: str = "float32"
    seed: int = 1

    def __post_init__(self):
        sizes = "source_vocabulary target_vocabulary embedding units encoder_layers decoder_layers"
        for name in sizes.split():
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}"
                )
        for name in ("dropout", "recurrent_dropout", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be from 0 to below 1, got {getattr(self, name)}")
        if not 0 <= self.bidirectional_layers <= self.encoder_layers:
            raise ValueError(
                f"bidirectional_layers must be from 0 to encoder_layers={self.encoder_layers}, "
                f"got {self.bidirectional_layers}"
            )
        if self.coverage < 0:
            raise ValueError(f"coverage must be at least 0, got {self.coverage}")
        if self.tied == "all" and self.source_vocabulary != self.target_vocabulary:
            raise ValueError(
                "tied='all' needs one vocabulary for both languages, got "
                f"{self.source_vocabulary} and {self.target_vocabulary} tokens"
            )

    @property
    def feeds_back(self) -> bool:
        """Whether the decoder's next step depends on the attention of this one."""
        return self.attention == "bahdanau" or self.input_feeding or self.coverage > 0


class Seq2Seq(tf.Module):
    """Translates token ids to token ids; trained by the gradient of `loss`."""

    def __init__(self, config: Seq2SeqConfig):
        """Makes the weights, drawn from `config.seed`."""
        super().__init__(name="seq2seq")
        self.config = config
        self.dtype = tf.dtypes.as_dtype(config.precision)
        new = _WeightMaker(config.seed)
        embedding, units, gates = config.embedding, config.units, GATES[config.cell]

        self.target_embedding = new.embedding(config.target_vocabulary, embedding)
        self.source_embedding = self.target_embedding
        if config.tied != "all":
            self.source_embedding = new.embedding(config.source_vocabulary, embedding)
        self.encoder = []
        size = embedding
        for layer in range(config.encoder_layers):
            directions = 2 if layer < config.bidirectional_layers else 1
            self.encoder.append(new.layer(size, units, gates, directions))
            size = directions * units
        self.decoder = [
            new.layer(units if layer else embedding, units, gates, 1)
            for layer in range(config.decoder_layers)
        ]
        self.bridge = [new(size, STATES[config.cell] * units) for _ in self.decoder]
        self.key_kernel = new(size, units)
        if config.attention == "bahdanau":
            self.query_kernel = new(units, units)
            self.attention_vector = new(units, 1)
        if config.coverage:
            self.coverage_kernel = new(1, units if config.attention == "bahdanau" else 1)
        self.feed_kernel = None
        if config.attention == "bahdanau":
            self.feed_kernel = new(size, gates * units)
        elif config.input_feeding:
            self.feed_kernel = new(embedding, gates * units)
        self.readout_kernel = new(units + size, embedding)
        self.readout_bias = tf.Variable(tf.zeros([embedding]))
        self.projection = self.target_embedding
        if config.tied == "none":
            self.projection = new.embedding(config.target_vocabulary, embedding)
        self.projection_bias = tf.Variable(tf.zeros([config.target_vocabulary]))

    def encode(self, source: tf.Tensor, seed: tf.Tensor | None = None) -> Memory:
        """Runs the encoder over the source; padding leaves its states as they were.

        Args:
            source: token ids, 0 is padding, int32 [B, S].
            seed: of the dropout, int32 [2]; None is for inference.
        """
        drop = _Dropout(self.config, seed)
        present = tf.transpose(source != PAD)[..., None]  # [S, B, 1]
        outputs = drop(self._embed(self.source_embedding, tf.transpose(source)), 1)
        for i, layer in enumerate(self.encoder):
            inputs = drop(outputs, 2 + i) if i else outputs
            outputs = self._encoder_layer(layer, inputs, present, drop, i)
            if self.config.residual and i >= RESIDUAL_FROM:
                outputs += inputs
        values = tf.transpose(drop(outputs, 50), [1, 0, 2])  # [B, S, M]
        keys = self._dense(values, self.key_kernel)
        return Memory(values, keys, tf.where(source != PAD, 0.0, HIDDEN_SCORE))

    def loss(
        self, source: tf.Tensor, target: tf.Tensor, seed: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Cross entropy of the target given the source, with what the configuration adds to it.

        Args:
            source: token ids, 0 is padding, int32 [B, S].
            target: token ids from <s> to </s>, then padding, int32 [B, T + 1].
            seed: of the dropout, int32 [2]; None is for inference: without dropout, smoothing and
                coverage loss, so that what is left is nats.

        Returns:
            The sum over the real tokens of the target and their number, float32 scalars.
        """
        labels = tf.reshape(tf.transpose(target[:, 1:]), [-1])  # [T B]
        memory = self.encode(source, seed)
        readouts, fine = self._decode(target[:, :-1], memory, seed)
        readouts = tf.reshape(readouts, [-1, self.config.embedding])
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=labels, logits=self._logits(readouts)
        )
        if seed is not None and self.config.label_smoothing:
            losses += self.config.label_smoothing * self._above_mean(readouts, labels)
        if seed is not None and self.config.coverage:
            losses += self.config.coverage * tf.reshape(fine, [-1])
        real = tf.cast(labels != PAD, tf.float32)
        return tf.reduce_sum(losses * real), tf.reduce_sum(real)

    def start(self, memory: Memory) -> tuple:
        """What the decoder carries into its first step."""
        batch = tf.shape(memory.values)[0]
        present = tf.cast(memory.penalty == 0, self.dtype)[..., None]  # [B, S, 1]
        words = tf.maximum(tf.reduce_sum(present, axis=1), 1.0)
        mean = tf.reduce_sum(memory.values * present, axis=1) / words  # [B, M]
        states = tuple(
            tuple(tf.split(tf.tanh(self._dense(mean, kernel)), STATES[self.config.cell], axis=-1))
            for kernel in self.bridge
        )
        fed, seen = (), ()
        if self.config.input_feeding:
            fed = tf.zeros([batch, self.config.embedding], self.dtype)
        if self.config.coverage:
            seen = tf.zeros(tf.shape(memory.penalty))
        return states, fed, seen

    def advance(
        self, token: tf.Tensor, carried: tuple, memory: Memory
    ) -> tuple[tf.Tensor, tuple, tf.Tensor]:
        """One step of inference.

        Args:
            token: the token before, int32 [B].
            carried: what `start` or the step before returned.
            memory: what `encode` returned.

        Returns:
            Logits float32 [B, V], what is carried on, and the attention's weights [B, S].
        """
        projected = self._layer_input(self.decoder[0], self._embed(self.target_embedding, token))
        no_drop = _Dropout(self.config, None)
        top, context, weights, carried, _ = self._step(projected, carried, memory, no_drop, 0)
        readout = self._readout(top, context)
        if self.config.input_feeding:
            carried = (carried[0], readout, carried[2])
        return self._logits(readout), carried, weights

    def _decode(self, tokens, memory, seed):
        """Read-outs of given tokens (teacher forcing), [T, B, E], and their coverage fines."""
        drop = _Dropout(self.config, seed, first=100)
        embedded = drop(self._embed(self.target_embedding, tf.transpose(tokens)), 1)
        if self.config.feeds_back:
            readouts, fine = self._decode_in_a_loop(embedded, memory, drop)
        else:
            readouts, fine = self._decode_in_layers(embedded, memory, drop), 0.0
        return drop(readouts, 60), fine

    def _decode_in_layers(self, embedded, memory, drop):
        """Nothing is fed back: a loop a layer, and attention over all positions at once."""
        states, _, _ = self.start(memory)
        outputs = embedded
        for i, (layer, state) in enumerate(zip(self.decoder, states, strict=True)):
            inputs = drop(outputs, 2 + i) if i else outputs
            mask = drop.state_mask(tf.shape(state[0]), 20 + i)
            outputs = run_layer(
                self.config.cell,
                self._layer_input(layer, inputs),
                layer["recurrent"],
                state,
                mask=mask,
            )
            if self.config.residual and i >= RESIDUAL_FROM:
                outputs += inputs
        contexts, _ = luong(memory, tf.transpose(outputs, [1, 0, 2]))
        return self._readout(outputs, tf.transpose(contexts, [1, 0, 2]))

    def _decode_in_a_loop(self, embedded, memory, drop):
        """Attention within the loop, because the next step depends on it."""
        length = tf.shape(embedded)[0]
        feeding = self.config.input_feeding
        projected = self._layer_input(self.decoder[0], embedded)
        inputs = tf.TensorArray(self.dtype, size=length).unstack(projected)
        # With input feeding the read-out is made within, else behind the loop, in one product.
        written = tuple(tf.TensorArray(self.dtype, size=length) for _ in range(1 if feeding else 2))
        fines = (tf.TensorArray(tf.float32, size=length),) if self.config.coverage else ()
        batch = tf.shape(embedded)[1]
        masks = [
            drop.state_mask([batch, self.config.units], 20 + i) for i in range(len(self.decoder))
        ]

        def step(t, carried, written, fines):
            top, context, _, carried, fine = self._step(
                inputs.read(t), carried, memory, drop, t, masks
            )
            results = (top, context)
            if feeding:
                results = (self._readout(top, context),)
                carried = (carried[0], results[0], carried[2])
            written = tuple(a.write(t, r) for a, r in zip(written, results, strict=True))
            fines = tuple(a.write(t, fine) for a in fines)
            return t + 1, carried, written, fines

        _, _, written, fines = tf.while_loop(
            lambda t, *_: t < length,
            step,
            (0, self.start(memory), written, fines),
            maximum_iterations=length,
        )
        results = [array.stack() for array in written]
        readouts = results[0] if feeding else self._readout(*results)
        return readouts, fines[0].stack() if fines else 0.0

    def _step(self, projected, carried, memory, drop, t, masks=None):
        """One step of the decoder, up to the read-out.

        Returns:
            The top layer's output [B, H], the context [B, M], the weights [B, S], what is carried
            on, and the fine for looking where was looked before, [B].
        """
        states, fed, seen = carried
        config = self.config
        context = None
        if config.attention == "bahdanau":
            context, weights = self._attend(states[-1][0], memory, seen)
            projected += self._dense(context, self.feed_kernel)
        if config.input_feeding and config.attention == "luong":
            projected += self._dense(fed, self.feed_kernel)
        new_states, output = [], None
        for i, (layer, state) in enumerate(zip(self.decoder, states, strict=True)):
            below = output
            if i:
                below = drop.within_loop(output, 30 + i, t)
                projected = self._layer_input(layer, below)
            mask = masks[i] if masks else None
            h = None if mask is None else state[0] * mask
            new = CELLS[config.cell](projected, state, layer["recurrent"], h)
            new_states.append(new)
            output = new[0]
            if config.residual and i >= RESIDUAL_FROM:
                output += below
        if config.attention == "luong":
            context, weights = self._attend(output, memory, seen)
        fine = None
        if config.coverage:
            fine = tf.reduce_sum(tf.minimum(weights, seen), axis=-1)
            seen += weights
        return output, context, weights, (tuple(new_states), fed, seen), fine

    def _attend(self, query, memory, seen):
        """The attention of one query [B, H]: context [B, M] and weights [B, S]."""
        coverage = None
        if self.config.attention == "bahdanau":
            if self.config.coverage:
                seen = tf.cast(seen, self.dtype)
                coverage = seen[..., None] * tf.cast(self.coverage_kernel[0], self.dtype)
            vector = tf.cast(self.attention_vector, self.dtype)[:, 0]
            return bahdanau(memory, self._dense(query, self.query_kernel), vector, coverage)
        if self.config.coverage:
            coverage = (seen * self.coverage_kernel[0, 0])[:, None, :]
        contexts, weights = luong(memory, query[:, None, :], coverage)
        return contexts[:, 0], weights[:, 0]

    def _encoder_layer(self, layer, inputs, present, drop, i):
        """One layer over [S, B, X]: [S, B, H], or [S, B, 2 H] where it reads both ways."""
        projected = self._layer_input(layer, inputs)
        batch = tf.shape(inputs)[1]
        shape = [batch, self.config.units]
        both = layer["recurrent"].shape.rank == 3
        if both:
            onward, backward = tf.split(projected, 2, axis=-1)
            projected = tf.stack([onward, tf.reverse(backward, [0])], axis=1)  # [S, 2, B, G H]
            present = tf.stack([present, tf.reverse(present, [0])], axis=1)
            shape = [2, *shape]
        state = (tf.zeros(shape, self.dtype),) * STATES[self.config.cell]
        mask = drop.state_mask(shape, 20 + i)
        outputs = run_layer(self.config.cell, projected, layer["recurrent"], state, present, mask)
        if both:
            outputs = tf.concat([outputs[:, 0], tf.reverse(outputs[:, 1], [0])], axis=-1)
        return outputs

    def _embed(self, embedding, tokens):
        """Embeds tokens [...] as [..., E], at unit variance."""
        scale = self.config.embedding**0.5
        return tf.cast(tf.gather(embedding, tokens), self.dtype) * scale

    def _layer_input(self, layer, inputs):
        """What the inputs [..., X] contribute to the gates of a layer."""
        return self._dense(inputs, layer["kernel"]) + tf.cast(layer["bias"], self.dtype)

    def _readout(self, top, context):
        """Merges the decoder's outputs [..., H] with the contexts [..., M] to [..., E]."""
        merged = self._dense(tf.concat([top, context], axis=-1), self.readout_kernel)
        return tf.tanh(merged + tf.cast(self.readout_bias, self.dtype))

    def _logits(self, readouts):
        """Projects read-outs [N, E] onto the target vocabulary, float32 [N, V]."""
        kernel = tf.cast(self.projection, self.dtype)
        logits = tf.matmul(readouts, kernel, transpose_b=True)
        return tf.cast(logits, tf.float32) + self.projection_bias

    def _above_mean(self, readouts, labels):
        """How far the label's logit lies above the mean of all, [N], without the logits.

        Smoothing mixes the cross entropy, lse - logit, with that of the even distribution, lse -
        mean logit (Szegedy et al., 2016); a logit and a mean of logits are products by themselves.
        """
        readouts = tf.cast(readouts, tf.float32)
        chosen = tf.reduce_sum(readouts * tf.gather(self.projection, labels), axis=-1)
        chosen += tf.gather(self.projection_bias, labels)
        mean = tf.linalg.matvec(readouts, tf.reduce_mean(self.projection, axis=0))
        return chosen - mean - tf.reduce_mean(self.projection_bias)

    def _dense(self, x, kernel):
        """Multiplies the last dimension of x, as one product of matrices."""
        kernel = tf.cast(kernel, x.dtype)
        return tf.matmul(x, kernel) if x.shape.rank == 2 else tf.tensordot(x, kernel, 1)


class _Dropout:
    """The dropouts of one step: masks are a function of the seed and the site, and of nothing else.

    So no random state hides in the graph, and a training that is resumed draws what it would have
    drawn.
    """

    def __init__(self, config, seed, first=0):
        self.config = config
        self.seed = seed
        self.first = first

    def __call__(self, x, site):
        """Drops of [T, B, X]; with variational masks the same in every iteration."""
        if self.seed is None or not self.config.dropout:
            return x
        shape = tf.shape(x)
        if self.config.variational:
            shape = tf.concat([[1], shape[1:]], axis=0)
        return x * self._mask(shape, self.config.dropout, self._seed(site), x.dtype)

    def within_loop(self, x, site, t):
        """Drops of [B, X] in iteration t."""
        if self.seed is None or not self.config.dropout:
            return x
        t = 0 if self.config.variational else t
        seed = self._seed(site) + tf.stack([t, 0])
        return x * self._mask(tf.shape(x), self.config.dropout, seed, x.dtype)

    def state_mask(self, shape, site):
        """The mask of a layer's states, None where there is none."""
        rate = self.config.recurrent_dropout
        if self.seed is None or not rate:
            return None
        return self._mask(shape, rate, self._seed(site), tf.dtypes.as_dtype(self.config.precision))

    def _mask(self, shape, rate, seed, dtype):
        """0 where something is dropped, else what makes up for it."""
        kept = tf.random.stateless_uniform(shape, seed) >= rate
        return tf.where(kept, tf.constant(1 / (1 - rate), dtype), tf.constant(0, dtype))

    def _seed(self, site):
        return self.seed + tf.constant([(self.first + site) * SITE, 0])


class _WeightMaker:
    """Draws variables, uniformly within the bound of Glorot and Bengio (2010)."""

    def __init__(self, seed):
        self.seed = seed
        self.made = 0

    def __call__(self, rows, columns, directions=1, fan_out=None):
        bound = (6.0 / (rows + (fan_out or columns))) ** 0.5
        shape = [rows, columns] if directions == 1 else [directions, rows, columns]
        return tf.Variable(tf.random.stateless_uniform(shape, self._next(), -bound, bound))

    def layer(self, size, units, gates, directions):
        """The weights of one recurrent layer; its directions stand side by side."""
        # The gates are matrices of their own that stand side by side.
        return {
            "kernel": self(size, directions * gates * units, fan_out=units),
            "bias": tf.Variable(tf.zeros([directions * gates * units])),
            "recurrent": self(units, gates * units, directions, fan_out=units),
        }

    def embedding(self, rows, columns):
        """Small, because it is a projection, too; looked up it is scaled to unit variance."""
        values = tf.random.stateless_normal([rows, columns], self._next(), stddev=columns**-0.5)
        return tf.Variable(values)

    def _next(self):
        self.made += 1
        return [self.seed, self.made]
