"""Windows are what TensorFlow's kernels leave between zeros; layers and holes of hand-made ones."""

import numpy as np
import pytest
import tensorflow as tf

from rnnmem.analysis.shapes import known_net
from rnnmem.analysis.slice_windows import Window, holes, layers, window
from tests.verify.test_traced import imported

SIZES = (5, 6, 7)
CUTS = {
    "row of the first axis": lambda x: x[2],
    "row of an axis": lambda x: x[:, 3],
    "last row": lambda x: x[:, -1],
    "row and all of the others": lambda x: x[:, 3, :],
    "part": lambda x: x[:, 1:4],
    "part from the first": lambda x: x[:, :4],
    "part to the last": lambda x: x[:, 4:],
    "from behind": lambda x: x[:, -3:-1],
    "further than there are": lambda x: x[:, 3:99],
    "last axis": lambda x: x[..., 2:5],
    "row of the last axis": lambda x: x[..., -2],
    "behind an ellipsis": lambda x: x[..., 1:3, :],
    "slice": lambda x: tf.slice(x, [0, 1, 0], [5, 3, 7]),
    "slice to the end": lambda x: tf.slice(x, [0, 0, 4], [5, 6, -1]),
}
OTHERS = {
    "two axes": lambda x: x[1:, 2],
    "two rows": lambda x: x[1, 2],
    "with steps": lambda x: x[:, ::2],
    "backwards": lambda x: x[:, ::-1],
    "a new axis": lambda x: x[:, tf.newaxis, 2:3],
    "all": lambda x: x[:, :],
    "nothing": lambda x: x[:, 3:3],
}


def gradient_of(cut, sizes=SIZES):
    """The function that puts a gradient between zeros, and what it is given."""

    @tf.function(input_signature=[tf.TensorSpec(sizes), tf.TensorSpec(None)])
    def back(x, d):
        with tf.GradientTape() as tape:
            tape.watch(x)
            made = cut(x)
        return tape.gradient(made, x, output_gradients=tf.ensure_shape(d, made.shape))

    d = np.random.default_rng(1).normal(size=cut(tf.zeros(SIZES)).shape)
    return back.get_concrete_function(), d.astype(np.float32)


def found_in(cut, sizes=SIZES):
    concrete, d = gradient_of(cut, sizes)
    net = imported(concrete)
    known = known_net(net)
    (op,) = (one for one in net.ops if one.type in ("StridedSliceGrad", "Pad"))
    return window(known, op), concrete(tf.zeros(SIZES), d).numpy(), d


@pytest.mark.parametrize("sizes", [SIZES, (None, 6, 7)])
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_a_window_is_what_the_kernel_leaves_between_zeros(cut, sizes):
    found, whole, d = found_in(cut, sizes)
    if found is None:
        assert sizes[0] is None, "of an unknown number of rows one may be cut out"
        return
    expected = np.zeros(SIZES, np.float32)
    part = expected.swapaxes(0, found.axis)
    given = np.expand_dims(d, found.axis) if found.dropped else d
    part[found.start : found.end] = given.swapaxes(0, found.axis)
    assert found.size == SIZES[found.axis]
    assert expected.tobytes() == whole.tobytes()


@pytest.mark.parametrize("cut", OTHERS.values(), ids=OTHERS)
def test_what_is_no_window_on_one_axis(cut):
    assert found_in(cut)[0] is None


def test_windows_of_a_batch_of_any_size_are_known():
    for name in ("row of an axis", "from behind", "last axis", "behind an ellipsis"):
        assert found_in(CUTS[name], (None, 6, 7))[0] is not None


def windows(*bounds):
    return [Window("d", 0, start, end, 10) for start, end in bounds]


@pytest.mark.parametrize(
    ("bounds", "groups"),
    [
        (((0, 3), (3, 5), (7, 8)), [[0, 1, 2]]),
        (((0, 1), (0, 1), (1, 2), (1, 2)), [[0, 2], [1, 3]]),
        (((0, 4), (1, 2), (2, 3), (3, 6)), [[0], [1, 2, 3]]),
        (((0, 3), (1, 4), (2, 5)), [[0], [1], [2]]),
    ],
)
def test_layers_are_as_few_as_have_no_element_in_common(bounds, groups):
    assert layers(windows(*bounds)) == groups


def test_holes_lie_before_the_first_window_and_behind_each():
    assert holes(windows((1, 3), (3, 4), (6, 8))) == [(1, 0), (0, 2), (0, 2)]
