"""Kernels of many kinds inside a loop: they run again in the gradient, and every bit stays."""

import numpy as np
import pytest
import tensorflow as tf

import rnnmem

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("deterministic"),
    pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning"),
]

STEPS, SIZE = 6, 8
ROWS = tf.constant([[1], [3], [4]])


def positive(h):
    """A matrix that has all factors."""
    return h @ tf.transpose(h) + SIZE * tf.eye(SIZE)


def diagonals(h):
    return tf.stack([h[0], h[1] + 4.0, h[2]])


def image(h):
    return tf.sigmoid(h)[None, :, :, None]


KERNELS = {
    "factors": {
        "Cholesky": lambda h: tf.linalg.cholesky(positive(h)),
        "Qr": lambda h: tf.linalg.qr(positive(h))[1],
        "SelfAdjointEigV2": lambda h: tf.linalg.eigh(positive(h))[0],
        "Svd": lambda h: tf.linalg.svd(positive(h), compute_uv=False),
        "LogMatrixDeterminant": lambda h: tf.linalg.slogdet(positive(h))[1],
    },
    "solutions": {
        "MatrixInverse": lambda h: tf.linalg.inv(positive(h)),
        "MatrixSolve": lambda h: tf.linalg.solve(positive(h), h),
        "MatrixTriangularSolve": lambda h: tf.linalg.triangular_solve(positive(h), h),
        "MatrixDeterminant": lambda h: tf.linalg.det(positive(h) / SIZE),
        "TridiagonalSolve": lambda h: tf.linalg.tridiagonal_solve(diagonals(h), h[3]),
    },
    "frequencies": {
        "FFT": lambda h: tf.abs(tf.signal.fft(tf.complex(h, h))),
        "RFFT": lambda h: tf.abs(tf.signal.rfft(h)),
        "IRFFT2D": lambda h: tf.signal.irfft2d(tf.complex(h, h)),
        "CumulativeLogsumexp": lambda h: tf.math.cumulative_logsumexp(h, 1),
    },
    "scattered": {
        "TensorScatterUpdate": lambda h: tf.tensor_scatter_nd_update(h, ROWS, 2.0 * h[:3]),
        "TensorScatterMax": lambda h: tf.tensor_scatter_nd_max(h, ROWS, h[:3]),
        "TensorScatterAdd": lambda h: tf.tensor_scatter_nd_add(h, ROWS, h[:3]),
        "UnsortedSegmentMax": lambda h: tf.math.unsorted_segment_max(h, [0, 1, 2, 3] * 2, 4),
        "SegmentMin": lambda h: tf.math.segment_min(h, [0, 0, 1, 1, 2, 2, 3, 3]),
    },
    "drawn and rounded": {
        "StatelessRandomGammaV3": lambda h: h[0] * tf.random.stateless_gamma([SIZE], (1, 2), 2.0),
        "StatelessMultinomial": lambda h: tf.one_hot(
            tf.random.stateless_categorical(h, 1, (1, 2))[:, 0], SIZE
        ),
        "FakeQuantWithMinMaxVars": lambda h: tf.quantization.fake_quant_with_min_max_vars(
            h, -2.0, 2.0
        ),
        "QuantizeAndDequantizeV4": lambda h: tf.quantization.quantize_and_dequantize_v2(
            h, -2.0, 2.0
        ),
        "Bucketize": lambda h: (
            h * tf.cast(tf.raw_ops.Bucketize(input=h, boundaries=[0.0]), h.dtype)
        ),
    },
    "pictures": {
        "ResizeBilinear": lambda h: tf.image.resize(image(h), (12, 12)),
        "ResizeNearestNeighbor": lambda h: tf.image.resize(image(h), (12, 12), "nearest"),
        "CropAndResize": lambda h: tf.image.crop_and_resize(
            image(h), [[0.1, 0.1, 0.7, 0.8]], [0], (5, 5)
        ),
        "Spence": lambda h: tf.math.special.spence(tf.exp(h)),
    },
}


def step_of(kernels, weight):
    def step(start):
        def body(i, h):
            made = [tf.reduce_mean(tf.sin(kernel(h) * 0.3)) for kernel in kernels]
            return i + 1, tf.tanh(h @ weight + sum(made[1:], made[0]))

        with tf.GradientTape() as tape:
            last = tf.while_loop(lambda i, h: i < STEPS, body, (0, start))[1]
            loss = tf.reduce_sum(last**2)
        return loss, last, tape.gradient(loss, weight)

    return step


@pytest.mark.parametrize("kind", KERNELS)
def test_every_bit_is_the_same(kind):
    random = np.random.RandomState(3)
    weight = tf.Variable(random.standard_normal([SIZE, SIZE]).astype("float32") / 3)
    start = tf.constant(random.standard_normal([SIZE, SIZE]).astype("float32"))
    original = tf.function(step_of(KERNELS[kind].values(), weight))
    expected = [one.numpy().tobytes() for one in original(start)]
    optimised = rnnmem.optimize(original, max_slowdown=float("inf"), allow={"rematerialise"})
    assert [one.numpy().tobytes() for one in optimised(start)] == expected
    net = optimised.inspect(start).rewritten
    again = {
        op.type for _, inner in net.walk() for op in inner.ops if op.name.startswith("rnnmem/again")
    }
    assert {one for one in KERNELS[kind] if one != "TensorScatterAdd"} <= again
