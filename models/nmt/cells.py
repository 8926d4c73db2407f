"""Recurrent cells and layers: GRU and LSTM whose inputs are projected outside of the loop.

What an input contributes to the gates does not depend on the state, so it is one large product for
all iterations; the loop multiplies the state alone. Both loops are a plain `tf.while_loop`, as a
user would write them: no memory is saved by hand here.

Dimensions: T time, D directions (there or not), B batch, H units, G gates (GRU 3, LSTM 4).
"""

from __future__ import annotations

import tensorflow as tf

GATES = {"gru": 3, "lstm": 4}
STATES = {"gru": 1, "lstm": 2}  # tensors that a cell carries from step to step


def gru_cell(
    projected: tf.Tensor, state: tuple[tf.Tensor], kernel: tf.Tensor, h: tf.Tensor | None = None
) -> tuple[tf.Tensor]:
    """One step of a GRU: Cho et al. (2014), with the reset gate behind the product, as cuDNN's.

    Args:
        projected: input times its kernel plus bias, gates r, z, n side by side, [..., B, 3 H].
        state: (h,), [..., B, H].
        kernel: the recurrent weights, [..., H, 3 H].
        h: what is multiplied by the kernel, if not the state's h: a copy with dropout.

    Returns:
        The new state.
    """
    (old,) = state
    recurrent = tf.matmul(old if h is None else h, tf.cast(kernel, projected.dtype))
    x_r, x_z, x_n = tf.split(projected, 3, axis=-1)
    h_r, h_z, h_n = tf.split(recurrent, 3, axis=-1)
    z = tf.sigmoid(x_z + h_z)
    n = tf.tanh(x_n + tf.sigmoid(x_r + h_r) * h_n)
    return (n + z * (old - n),)


def lstm_cell(
    projected: tf.Tensor,
    state: tuple[tf.Tensor, tf.Tensor],
    kernel: tf.Tensor,
    h: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """One step of an LSTM: Hochreiter and Schmidhuber (1997), with the forget gate of Gers (2000).

    Args:
        projected: input times its kernel plus bias, gates i, j, f, o side by side, [..., B, 4 H].
        state: (h, c), each [..., B, H].
        kernel: the recurrent weights, [..., H, 4 H].
        h: what is multiplied by the kernel, if not the state's h: a copy with dropout.

    Returns:
        The new state.
    """
    old, c = state
    recurrent = tf.matmul(old if h is None else h, tf.cast(kernel, projected.dtype))
    i, j, f, o = tf.split(projected + recurrent, 4, axis=-1)
    c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)  # + 1: remember from the start
    return tf.sigmoid(o) * tf.tanh(c), c


CELLS = {"gru": gru_cell, "lstm": lstm_cell}


def run_layer(
    kind: str,
    projected: tf.Tensor,
    kernel: tf.Tensor,
    state: tuple[tf.Tensor, ...],
    present: tf.Tensor | None = None,
    mask: tf.Tensor | None = None,
) -> tf.Tensor:
    """Runs a cell over time; where nothing is present the state stays as it was.

    Args:
        kind: "gru" or "lstm".
        projected: [T, D, B, G H] or [T, B, G H].
        kernel: [D, H, G H] or [H, G H].
        state: the first state, each [D, B, H] or [B, H].
        present: bool [T, D, B, 1] or [T, B, 1], or None where there is no padding to skip.
        mask: a dropout mask of the state, the same in every iteration (Gal and Ghahramani, 2016,
            "A Theoretically Grounded Application of Dropout in Recurrent Neural Networks").

    Returns:
        h of every iteration, [T, D, B, H] or [T, B, H].
    """
    length, cell = tf.shape(projected)[0], CELLS[kind]
    inputs = tf.TensorArray(projected.dtype, size=length).unstack(projected)
    outputs = tf.TensorArray(projected.dtype, size=length)
    there = None
    if present is not None:
        there = tf.TensorArray(tf.bool, size=length).unstack(present)

    def step(t, state, outputs):
        h = None if mask is None else state[0] * mask
        new = cell(inputs.read(t), state, kernel, h)
        if there is not None:
            here = there.read(t)
            new = tuple(tf.where(here, n, s) for n, s in zip(new, state, strict=True))
        return t + 1, new, outputs.write(t, new[0])

    *_, outputs = tf.while_loop(
        lambda t, *_: t < length, step, (0, state, outputs), maximum_iterations=length
    )
    return outputs.stack()
