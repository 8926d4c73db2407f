"""What a trace holds on to: its plan, and no Net, which reports have made again."""

import gc

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.ir.graph import Net

W = tf.constant(np.random.default_rng(1).normal(size=(3, 3)), tf.float32)


def forward(x):
    h = x[0]
    for i in tf.range(tf.shape(x)[0]):
        h = tf.tanh(tf.sin(h @ W) * tf.sigmoid(x[i]))
    return tf.reduce_sum(h**2)


def step(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = forward(x)
    return tape.gradient(loss, x)


def training(x):
    total = x
    for _ in tf.range(2):
        total -= 0.1 * step(total)
    return total


def racing_sums(x):
    def body(i, h):
        return i + 1, tf.tanh(tf.add_n([0.5 * h, h * 0.5, tf.sin(h)]))

    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(tf.while_loop(lambda i, h: i < 5, body, (0, x[0]))[1])
    return tape.gradient(loss, x)


def differentiated(f, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = f(x)
    return tape.gradient(loss, x)


def planned_and_differentiated(f, x):
    """A tape that asked first would get a pair of its own, and that a plan of its own."""
    f.plan(x)
    return differentiated(f, x)


def called(f, x):
    return f(x)


def inputs(batch=2):
    return tf.constant(np.random.default_rng(2).normal(size=(6, batch, 3)), tf.float32)


def nets_alive():
    gc.collect()
    return {id(thing) for thing in gc.get_objects() if isinstance(thing, Net)}


WAYS = [
    pytest.param(step, called, {}, id="step"),
    pytest.param(step, called, {"max_slowdown": 3.0}, id="slower"),
    pytest.param(step, called, {"allow": ()}, id="nothing allowed"),
    pytest.param(step, called, {"allow": ("order",)}, id="order"),
    pytest.param(training, called, {}, id="training"),
    pytest.param(forward, planned_and_differentiated, {}, id="forward"),
    pytest.param(racing_sums, called, {}, id="sums by chance"),
    pytest.param(lambda x: 2.0 * x, called, {}, id="no loop"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("fn", "use", "options"), WAYS)
def test_reports_say_the_same_after_the_nets_were_let_go_of(fn, use, options):
    fresh = rnnmem.optimize(tf.function(fn), **options)
    expected = fresh.inspect(inputs())
    explained = str(fresh.explain(inputs()))
    f = rnnmem.optimize(tf.function(fn), **options)
    before = nets_alive()
    use(f, inputs())
    assert not nets_alive() - before
    for _ in range(2):
        found = f.inspect(inputs())
        assert found.plan == expected.plan == f.plan(inputs())
        assert as_text(found.net) == as_text(expected.net)
        assert as_text(found.rewritten) == as_text(expected.rewritten)
        assert found.joint == expected.joint
        assert str(f.explain(inputs())) == explained
    assert f.explain(inputs()).frontier == fresh.explain(inputs()).frontier
    del found
    use(f, inputs())
    assert not nets_alive() - before


def as_text(net):
    """A Net's ops, wherever the call stands that traced it (what is made then has its line)."""
    if net is None:
        return None
    return [
        (path, op.type, op.inputs, op.outputs, op.controls)
        for path, inner in net.walk()
        for op in inner.ops
    ]


def test_what_is_planned_in_a_function_around_it_lets_go_too():
    f = rnnmem.optimize(tf.function(forward))
    before = nets_alive()
    tf.function(lambda x: differentiated(f, x))(inputs())
    assert not nets_alive() - before


def test_the_nets_stay_until_the_call():
    f = rnnmem.optimize(tf.function(step), max_slowdown=3.0)
    assert not f.plan(inputs()).changes_nothing
    assert f.inspect(inputs()).net is f.inspect(inputs()).net


def test_a_gradient_is_planned_once_however_often_its_plan_is_asked_for(monkeypatch):
    f = rnnmem.optimize(tf.function(forward))
    first = f.plan(inputs())
    assert first.loops
    assert f.plan(inputs()) is first
    assert f.explain(inputs()).plan is first
    expected = differentiated(tf.function(forward), inputs())
    assert differentiated(f, inputs()).numpy().tobytes() == expected.numpy().tobytes()
    assert f.plan(inputs()) is first


def test_what_failed_is_not_tried_again(monkeypatch):
    monkeypatch.setattr("rnnmem.compile.decide_with_nested_steps", lambda *args: 1 / 0)
    f = rnnmem.optimize(tf.function(step))
    with pytest.warns(rnnmem.errors.RnnmemWarning, match="ZeroDivisionError"):
        f(inputs())
    assert f.inspect(inputs()).rewritten is None
    assert "ZeroDivisionError" in str(f.explain(inputs()))
