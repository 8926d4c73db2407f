"""The checker on what TensorFlow really traces: loops, their gradients, branches, closed calls."""

import pytest

from rnnmem.errors import CheckError
from rnnmem.ir.graph import Net
from rnnmem.verify import check
from rnnmem.verify.effects import Effects
from rnnmem.verify.expressions import Table
from rnnmem.verify.order import RunningOrder
from rnnmem.verify.signatures import Signs
from rnnmem.verify.value_numbering import ValueNumbering
from tests.drawing import edited, renamed, with_input

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.slow


def keras_lstm():
    """Two layers, dropout masks in and between them, one Adam step."""
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [layers.LSTM(4, return_sequences=True, recurrent_dropout=0.2), layers.LSTM(4, dropout=0.1)]
    )
    optimizer = tf.keras.optimizers.Adam()
    x = tf.ones([2, 5, 3])
    model(x)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x, training=True) ** 2)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    return step.get_concrete_function(x)


def gradient_of(steps):
    """The gradient of a scalar that ``steps(h, w)`` computes, with respect to w."""
    w = tf.Variable(tf.ones([4, 4]) / 8)

    @tf.function
    def gradient(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(steps(x, w))
        return tape.gradient(loss, w)

    return gradient.get_concrete_function(tf.ones([2, 4]))


def branch_in_a_loop():
    def steps(h, w):
        for _ in tf.range(7):
            h = tf.tanh(h @ w)
            if tf.reduce_sum(h) > 3.0:
                h = tf.sin(h) * 2.0
            else:
                h = tf.exp(-h)
        return h

    return gradient_of(steps)


def loop_in_a_loop():
    def steps(h, w):
        for _ in tf.range(3):
            for _ in tf.range(5):
                h = tf.tanh(tf.sigmoid(h @ w))
            h = tf.sin(h)
        return h

    return gradient_of(steps)


def rows_written_and_read():
    def steps(h, w):
        rows = tf.TensorArray(tf.float32, 6)
        for i in tf.range(6):
            h = tf.tanh(h @ w) * tf.random.uniform([2, 4])
            rows = rows.write(i, h)
        return rows.stack()

    return gradient_of(steps)


def two_losses_and_prints():
    w = tf.Variable(tf.ones([4, 4]) / 8)
    seen = tf.Variable(0.0)

    @tf.function
    def gradients(x):
        with tf.GradientTape(persistent=True) as tape:
            h = x
            for i in tf.range(4):
                h = tf.tanh(h @ w)
                seen.assign_add(tf.reduce_sum(h))
                tf.print("step", i)
            one, other = tf.reduce_sum(h), tf.reduce_mean(h**2)
        return tape.gradient(one, w), tape.gradient(other, w)

    return gradients.get_concrete_function(tf.ones([2, 4]))


def calls_that_stay_closed():
    @tf.function(jit_compile=True)
    def cell(h, w):
        return tf.tanh(h @ w)

    def steps(h, w):
        for _ in tf.range(3):
            h = cell(h, w)
        return h

    return gradient_of(steps)


def second_gradients():
    def steps(h, w):
        with tf.GradientTape() as tape:
            tape.watch(h)
            out = h
            for _ in tf.range(3):
                out = tf.tanh(out @ w)
            loss = tf.reduce_sum(out)
        return tape.gradient(loss, h)

    return gradient_of(steps)


TRACED = [
    keras_lstm,
    branch_in_a_loop,
    loop_in_a_loop,
    rows_written_and_read,
    two_losses_and_prints,
    calls_that_stay_closed,
    second_gradients,
]


def imported(concrete) -> Net:
    from rnnmem.ir.inline import inline
    from rnnmem.ir.order import without_dead_ops
    from rnnmem.tf.functions import net_of

    return without_dead_ops(inline(net_of(concrete)))


@pytest.mark.parametrize("trace", TRACED, ids=lambda trace: trace.__name__)
def test_a_traced_net_equals_itself_and_its_renamed_copy(trace):
    net = imported(trace())
    check(net, net)
    check(net, renamed(net, "other"))


def _notes(table: Table, net: Net):
    order, signs = RunningOrder(), Signs()
    return ValueNumbering(table, order, signs, Effects(order, signs), {}).run(net).notes


def test_every_pop_of_a_traced_net_is_understood():
    table = Table()
    for trace in (keras_lstm, branch_in_a_loop, loop_in_a_loop):
        notes = _notes(table, imported(trace()))
        pops = [*notes.pops, *notes.pops_here]
        assert pops
        assert all(table.resolved(pop.popped) for pop in pops)


def test_a_traced_net_with_two_pops_exchanged_is_refused():
    net = imported(loop_in_a_loop())
    refused = 0
    for path, inner in net.walk():
        pops = [op for op in inner.ops if op.type == "TensorListPopBack"]
        for one, other in zip(pops, pops[1:], strict=False):
            mine, yours = one.outputs[1], other.outputs[1]
            if inner.blobs[mine].dtype != inner.blobs[yours].dtype:
                continue
            reader = inner.readers[mine][0]
            slot = reader.inputs.index(mine)
            changed = edited(
                net, path, lambda one, r=reader, s=slot, b=yours: with_input(one, r.name, s, b)
            )
            with pytest.raises(CheckError):
                check(net, changed)
            refused += 1
    assert refused
