"""``share``: what TensorFlow runs has the bits of the original, and what may differ is named."""

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.ir.order import all_needed_by
from rnnmem.shared import ALLOCATES, _users
from rnnmem.storage import share_parallel

BRANCHES, ROWS, UNITS = 6, 512, 256


def branches():
    weights = [tf.Variable(tf.ones([UNITS, 8 * UNITS]) * (k + 1) * 1e-3) for k in range(BRANCHES)]

    def run(x):
        total = tf.zeros([ROWS])
        for one in weights:
            total += tf.reduce_sum(tf.tanh(tf.nn.relu(x @ one)), axis=1)
        return total

    return run, tf.random.stateless_normal([ROWS, UNITS], [1, 2])


def test_branches_take_turns_and_the_plan_is_enforced():
    run, x = branches()
    made = rnnmem.share(run, x, max_slowdown=2.0)
    np.testing.assert_array_equal(made.function(x), tf.function(run)(x))
    net = rnnmem.load_net(tf.function(run).get_concrete_function(x))
    assert made.plan.scheduling_edges
    assert made.enforced.after.bytes < share_parallel(net).after.bytes
    assert made.wanted.after.bytes <= made.enforced.after.bytes
    assert made.not_enforced[-1] == ALLOCATES


def test_what_may_run_otherwise_is_named():
    run, x = branches()
    made = rnnmem.share(run, x, max_slowdown=1.0)  # if edges cost time, there are fewer
    net = rnnmem.load_net(made.function)
    named = {one.split(" takes the storage of ")[0]: one for one in made.not_enforced[:-1]}
    for storage in made.wanted.plan.storages:
        for before, after in zip(storage.blobs, storage.blobs[1:], strict=False):
            producer = net.producer.get(after)
            if producer is None:
                continue
            late = set(_users(net, before)) - all_needed_by(net, [producer.name])
            assert bool(late - {producer.name}) == (after in named)
    assert str(made).count("not enforced: ") == len(made.not_enforced)
    assert repr(made) == str(made)


def test_what_is_no_function_is_refused():
    with pytest.raises(rnnmem.OptionError):
        rnnmem.share(3)
    net = rnnmem.load_net(tf.function(branches()[0]).get_concrete_function(branches()[1]))
    with pytest.raises(rnnmem.OptionError, match="is not callable") as error:
        rnnmem.share(net)
    assert len(str(error.value)) < 200


def test_a_loop_that_could_be_differentiated_is_shared_without_a_gradient():
    weight = tf.Variable(tf.eye(32) * 0.5)

    def scan(x):
        h = tf.zeros_like(x)
        for _ in tf.range(20):
            h = tf.tanh(x + h @ weight)
        return tf.reduce_sum(tf.exp(tf.tile(h, [8, 1])))

    x = tf.random.stateless_normal([64, 32], [1, 2])
    made = rnnmem.share(scan, x, max_slowdown=1.2)
    traced = rnnmem.load_net(tf.function(scan).get_concrete_function(x))
    assert made.function(x).numpy() == tf.function(scan)(x).numpy()
    assert set(made.wanted.original.blobs) <= set(traced.blobs)
    assert set(made.enforced.original.blobs) <= set(traced.blobs)
    assert "rnnmem_backward" not in str(made)
