"""Planning looks up few of the user's lines: TensorFlow keeps the stack of an op that is asked."""

import os
import sysconfig

import pytest
import tensorflow as tf

import rnnmem
from rnnmem.tf.functions import _SourceLines, net_of

W = tf.Variable(tf.random.stateless_normal([4, 4], [1, 2]))
X = tf.random.stateless_normal([6, 2, 4], [3, 4])


@tf.function
def mixed(h, x):
    return tf.tanh(tf.matmul(h, W) * tf.sigmoid(x) + tf.sin(h) * tf.cos(x))


def step(x):
    with tf.GradientTape() as tape:
        h = x[0]
        for i in tf.range(6):
            h = mixed(h, x[i])
        loss = tf.reduce_sum(tf.square(h))
    W.assign_sub(0.1 * tape.gradient(loss, W))
    return loss


@pytest.fixture
def looked_up(monkeypatch):
    found = []
    look_up = _SourceLines.__call__

    def recorded(self, function, op):
        found.append((function, op))
        return look_up(self, function, op)

    monkeypatch.setattr(_SourceLines, "__call__", recorded)
    return found


def test_only_what_decisions_name_is_looked_up(looked_up):
    function = rnnmem.optimize(tf.function(step))
    function(X)
    plan = function.plan(X)
    blobs = [blob for loop in plan.every_loop() for blob in loop.residuals]
    assert not plan.changes_nothing
    assert len(set(looked_up)) <= len(blobs) + len(list(plan.every_loop()))
    assert all(blob.source.startswith("test_lines_looked_up.py:") for blob in blobs if blob.source)
    assert any(blob.source for blob in blobs)


def test_reports_look_up_the_rest(looked_up):
    function = rnnmem.optimize(tf.function(step))
    net = function.inspect(X).net
    before = len(set(looked_up))
    lines = {str(op.source) for _, inner in net.walk() for op in inner.ops}
    assert "test_lines_looked_up.py:18" in lines
    assert len(set(looked_up)) > before


def test_a_function_without_loops_is_not_asked(looked_up):
    rnnmem.optimize(tf.function(lambda x: tf.tanh(x) * 2.0))(X)
    assert not looked_up


SCRIPT = os.path.join(sysconfig.get_paths()["scripts"], "rnnmem")


@pytest.mark.parametrize("program", [SCRIPT, "<frozen runpy>"])
def test_the_program_that_loads_a_function_is_no_line_of_the_user_s(program):
    names: dict = {}
    exec(compile("def made(make, x):\n    return make(x)", program, "exec"), names)
    concrete = tf.function(lambda x: names["made"](tf.tanh, x)).get_concrete_function(X)
    (line,) = [str(op.source) for op in net_of(concrete).ops if op.type == "Tanh"]
    assert line.startswith("test_lines_looked_up.py:")
