"""Steps planned as for a GPU keep their bits, and their gradient loops pop no whole number.

A GPU's host waits for the device at each of them. Kernels of the host run what was planned here.
"""

import pytest
import tensorflow as tf

import rnnmem
from rnnmem import compile as compiling
from rnnmem.analysis.machine import GPU
from rnnmem.ir.op_table import POP
from tests.cases import Case, assert_same_bits, numbers, thrice, values, weights

pytestmark = pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning")
T, B, U = 12, 16, 64


@pytest.fixture(autouse=True)
def planned_for_a_gpu(monkeypatch):
    monkeypatch.setattr(compiling, "machine_here", lambda: GPU)


def recurrence(run, arguments=None, rows=T):
    """The gradient of a recurrence: ``run(x, cell, n)`` gives its last state."""
    kernel, recurrent = made = weights((U, U), (U, U))

    def step(x, n=rows):
        def cell(row, h):
            return tf.tanh(row @ kernel + tf.sin(h @ recurrent))

        with tf.GradientTape() as tape:
            tape.watch(x)
            h = run(x, cell, n)
            loss = tf.reduce_sum(h * h)
        return loss, tape.gradient(loss, [x, *made])

    calls = thrice(numbers(rows, B, U))
    if arguments is not None:
        calls = [((*given, *arguments), named) for given, named in calls]
    return Case(step, calls, values(*made))


def rows_of_a_tensor():
    def run(x, cell, n):
        return tf.while_loop(
            lambda i, h: i < n, lambda i, h: (i + 1, cell(x[i], h)), (0, tf.zeros([B, U]))
        )[1]

    return recurrence(run)


def backwards_by_two():
    def run(x, cell, n):
        return tf.while_loop(
            lambda i, h: i >= 0, lambda i, h: (i - 2, cell(x[i], h)), (n - 1, tf.zeros([B, U]))
        )[1]

    return recurrence(run)


def a_list():
    def run(x, cell, n):
        rows = tf.TensorArray(tf.float32, n).unstack(x)
        return tf.while_loop(
            lambda i, h: i < n, lambda i, h: (i + 1, cell(rows.read(i), h)), (0, tf.zeros([B, U]))
        )[1]

    return recurrence(run)


def as_many_as_an_argument_says():
    def run(x, cell, n):
        return tf.while_loop(
            lambda i, h: i < n, lambda i, h: (i + 1, cell(x[i], h)), (0, tf.zeros([B, U]))
        )[1]

    return recurrence(run, (tf.constant(T - 3),))


def none_at_all():
    def run(x, cell, n):
        return tf.while_loop(
            lambda i, h: i < n, lambda i, h: (i + 1, cell(x[i], h)), (0, tf.ones([B, U]))
        )[1]

    return recurrence(run, (tf.constant(0),))


def scanned():
    def run(x, cell, n):
        return tf.scan(lambda h, row: cell(row, h), x, tf.zeros([B, U]))[-1]

    return recurrence(run)


CASES = [
    rows_of_a_tensor,
    backwards_by_two,
    a_list,
    as_many_as_an_argument_says,
    none_at_all,
    scanned,
]


@pytest.mark.slow
@pytest.mark.parametrize("make", CASES)
def test_bits_stay(make, grappler, deterministic):
    for bound in (1.1, 1e9):
        assert_same_bits(make, max_slowdown=bound)


@pytest.mark.parametrize("make", CASES)
def test_no_whole_number_is_popped(make):
    case = make()
    given, named = case.calls[0]
    seen = rnnmem.optimize(case.fn).inspect(*given, **named)
    assert seen.plan.of("induction_variables") and whole_numbers_popped(seen.net)
    assert not whole_numbers_popped(seen.rewritten)


def whole_numbers_popped(net):
    """Pops of loops' bodies that the host would wait for: somebody reads the number there."""
    return [
        op.name
        for _, inner in net.walk()
        for op in inner.ops
        if op.type == POP and inner.blobs[op.outputs[1]].dtype == "int32"
        if inner.fan_out(op.outputs[1])
    ]


def test_it_is_left_where_it_is_not_allowed():
    case = rows_of_a_tensor()
    given, _ = case.calls[0]
    seen = rnnmem.optimize(case.fn, allow="rematerialise").inspect(*given)
    assert not seen.plan.of("induction_variables") and whole_numbers_popped(seen.rewritten)
