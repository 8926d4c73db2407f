"""The kinds of instruction that random step nets of the second generation have besides.

A kind is a function ``(built, one, pool, around, x) -> value``: the step that is being built, the
instruction, the values so far, what the body sees from outside, and the value that ``a`` names.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

ANY_SHAPES = (None, [None, None], [None, 4])
"""What little may be known of a value's shape."""


def any_shape(built, one, pool, around, x):
    """Nothing of the shape is known behind it, or the rank alone, or all but the rows."""
    shape = ANY_SHAPES[one.n % len(ANY_SHAPES)]
    return tf.sin(tf.compat.v1.placeholder_with_default(tf.tanh(x), shape)) * 0.9


def array_of_rows(built, one, pool, around, x):
    """A TensorArray made of the rows that the step is given, outside of the loop; one is read."""
    return tf.tanh(around.array.read((around.i + one.n) % 7) * 0.5 + x)


def array_gathered(built, one, pool, around, x):
    """Columns scattered into a TensorArray, some of them gathered."""
    array = tf.TensorArray(x.dtype, 6, element_shape=[built.rows])
    array = array.scatter([4, 0, 5, 2], tf.transpose(x))
    array = array.write(1, tf.reduce_sum(x, axis=1) * 0.25).write(3, tf.sin(x[:, 0]))
    return tf.transpose(tf.tanh(array.gather([one.n % 6, 3, 1, 4])))


def complex_wave(built, one, pool, around, x):
    """Complex numbers, multiplied and conjugated."""
    z = _complex(x)
    z = z * tf.exp(tf.complex(0.0, 0.5)) + tf.math.conj(z) * tf.complex(0.25, -0.5)
    return built._cast(tf.math.real(z) * 0.5 + tf.math.imag(z) * 0.25)


def complex_loop(built, one, pool, around, x):
    """An inner loop whose state is complex."""

    def body(j, z):
        return j + 1, z * tf.complex(0.6, 0.3) / tf.cast(1.0 + tf.abs(z), z.dtype)

    shapes = tf.TensorShape([]), tf.TensorShape([built.rows, x.shape[1]])
    start = 0, _complex(x)
    z = tf.while_loop(lambda j, _: j < one.n % 4, body, start, shape_invariants=shapes)[1]
    return built._cast(tf.math.real(z) + tf.abs(z) * 0.5)


def custom_gradient(built, one, pool, around, x):
    """A function with a gradient of its own, which reads what the function computed."""

    @tf.custom_gradient
    def bounded(v):
        s = tf.sin(v)
        return s * v, lambda d: d * tf.clip_by_value(s + tf.cos(v), -0.75, 0.75)

    return bounded(x) * 0.5


def strings(built, one, pool, around, x):
    """Numbers written as text, joined, and looked up by the text's hash."""
    ids = tf.cast(tf.abs(x[:, 0]) * 3.0, tf.int32)
    text = tf.strings.join([tf.strings.as_string(ids), "of", tf.strings.as_string(around.i)])
    words = tf.strings.to_hash_bucket_fast(text, 5)
    length = tf.cast(tf.strings.length(text), x.dtype)
    return tf.gather(built.table, words) * x + length[:, tf.newaxis] * 0.01


def switch_by_data(built, one, pool, around, x):
    """Which of three branches runs depends on the data."""
    chosen = tf.cast(tf.abs(tf.reduce_sum(x)) * 2.0, tf.int32) % 3
    branches = [
        built._branch(one.inner, pool, around),
        built._branch(one.other, pool, around),
        lambda: tf.cos(x),
    ]
    return tf.switch_case(chosen, branches)


def loop_by_data(built, one, pool, around, x):
    """An inner loop that runs until its value is small, at most four times."""

    def going(j, value):
        return tf.logical_and(j < 4, tf.reduce_sum(tf.abs(value)) > 0.5 * (one.n + 1))

    def body(j, value):
        inner = [*pool, value]
        built._run(one.inner, inner, dataclasses.replace(around, i=j))
        return j + 1, tf.tanh(inner[-1]) * 0.75

    shapes = tf.TensorShape([]), tf.TensorShape([built.rows, x.shape[1]])
    return tf.while_loop(going, body, (0, x), shape_invariants=shapes)[1]


def loop_of_arrays(built, one, pool, around, x):
    """An inner loop that writes a TensorArray; what was written is gathered in another order."""
    array = tf.TensorArray(x.dtype, 3, element_shape=[built.rows, x.shape[1]])

    def body(j, value, array):
        inner = [*pool, value]
        built._run(one.inner, inner, dataclasses.replace(around, i=j))
        value = tf.tanh(inner[-1])
        return j + 1, value, array.write(2 - j, value)

    shapes = (tf.TensorShape([]), tf.TensorShape([built.rows, x.shape[1]]), tf.TensorShape(None))
    start = 0, x, array
    _, _, array = tf.while_loop(lambda j, *_: j < 3, body, start, shape_invariants=shapes)
    return tf.reduce_sum(array.gather([0, one.n % 3]), axis=0) * 0.5


def update(built, one, pool, around, x):
    """A step of an optimizer inside: the gradient of a small loss, and momentum or Adam."""
    inner, slots = built.trained_inside, built.slots
    with around.in_turn() as finish:
        weight = tf.identity(inner.read_value())
        with tf.GradientTape() as tape:
            tape.watch(weight)
            value = tf.tanh(tf.stop_gradient(x) @ weight)
            loss = tf.reduce_mean(tf.square(value))
        gradient = tape.gradient(loss, weight)
        with tf.control_dependencies([gradient, weight]):
            applied = _momentum(inner, slots, gradient) if one.n % 2 else _adam(built, gradient)
        with tf.control_dependencies([applied]):
            finish(inner.read_value())
    return x @ weight * 0.5


def _momentum(variable, slots, gradient):
    rate = tf.constant(0.1, gradient.dtype)
    return tf.raw_ops.ResourceApplyMomentum(
        var=variable.handle, accum=slots[0].handle, lr=rate, grad=gradient, momentum=rate * 9.0
    )


def _adam(built, gradient):
    one = tf.constant(1.0, gradient.dtype)
    m, v = (slot.handle for slot in built.slots)
    return tf.raw_ops.ResourceApplyAdam(
        var=built.trained_inside.handle,
        m=m,
        v=v,
        beta1_power=one * 0.5,
        beta2_power=one * 0.5,
        lr=one * 0.05,
        beta1=one * 0.9,
        beta2=one * 0.99,
        epsilon=one * 0.01,
        grad=gradient,
    )


def _complex(x):
    wide = x if x.dtype == tf.float64 else tf.cast(x, tf.float32)
    return tf.cast(tf.complex(wide, tf.sin(wide)), tf.complex64)


def read_outside(built, one, pool, around, x):
    """A branch that decides by data whether a TensorArray's row or a string's hash is taken."""
    return tf.cond(
        tf.reduce_sum(x) > 0,
        lambda: array_of_rows(built, one, pool, around, x),
        lambda: strings(built, one, pool, around, x),
    )


PLAIN = {
    "any_shape": any_shape,
    "array_gathered": array_gathered,
    "array_of_rows": array_of_rows,
    "complex_loop": complex_loop,
    "complex_wave": complex_wave,
    "custom_gradient": custom_gradient,
    "read_outside": read_outside,
    "strings": strings,
}
NESTING = {
    "loop_by_data": loop_by_data,
    "loop_of_arrays": loop_of_arrays,
    "switch_by_data": switch_by_data,
}
EFFECTS = {"update": update}
KINDS = {**PLAIN, **NESTING, **EFFECTS}
BRANCHING = ("switch_by_data",)
