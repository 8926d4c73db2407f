"""Wherever an edge is allowed to stand, TensorFlow's graph optimizer leaves the bits as they were.

Random functions of small matrices, with every bound on what is worth an edge taken away.
"""

import os
import random

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.analysis.machine import CPU
from rnnmem.passes.schedule import serialise as scheduling_edges
from rnnmem.passes.schedule.apply import with_edges
from rnnmem.tf.functions import function_of
from rnnmem.verify import check
from tests.random_step_nets import COLUMNS, ONE, ROWS, TWO

CASES = int(os.environ.get("RNNMEM_FUZZ_CASES") or 40)


def values(draw, *shape):
    return tf.constant(draw.standard_normal(shape) * 0.5, tf.float32)


def random_function(seed: int):
    """Branches over shared inputs: products with variables, other ops, sums; with a gradient.

    Some results on the way are read once more, so that others must wait to write over them.
    """
    draw, numbers = random.Random(seed), np.random.default_rng(seed)
    weights = [tf.Variable(values(numbers, COLUMNS, COLUMNS)) for _ in range(draw.randint(1, 4))]
    bias = tf.Variable(values(numbers, COLUMNS))
    x = values(numbers, ROWS, COLUMNS)
    plan = [
        [
            (draw.choice(["one", "one", "two", "matmul", "matmul", "bias"]), draw.random())
            for _ in range(draw.randint(1, 5))
        ]
        for _ in range(draw.randint(2, 7))
    ]
    names, pairs = sorted(ONE), sorted(TWO)
    with_gradient = draw.random() < 0.5
    more = [tf.reduce_sum, tf.reduce_max, tf.reduce_min, lambda y, axis: tf.gather(y, 0, axis=axis)]

    def forward(x):
        found = []
        for branch in plan:
            y = x @ weights[int(branch[0][1] * len(weights))]
            for kind, way in branch:
                if way % 0.1 < 0.04:
                    found.append(more[int(way * 4)](y, axis=1))
                if kind == "one":
                    y = ONE[names[int(way * len(names))]](y)
                elif kind == "two":
                    y = TWO[pairs[int(way * len(pairs))]](y, x)
                elif kind == "matmul":
                    y = y @ weights[int(way * len(weights))]
                else:
                    y = tf.nn.relu(y + bias) if way < 0.5 else tf.nn.bias_add(y, bias)
            found.append(tf.reduce_sum(y, axis=1))
        return tf.add_n(found) if len(plan) % 2 else sum(found[1:], found[0])

    @tf.function(autograph=False)
    def run(x):
        if not with_gradient:
            return forward(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_mean(tf.square(forward(x)))
        gradients = tape.gradient(loss, [x, *weights, bias])
        return loss, [one for one in gradients if one is not None]

    concrete = run.get_concrete_function(x)
    concrete.kept = (weights, bias)  # a function does not keep its variables alive
    return concrete, x


def hold(seed: int) -> int:
    """Fails unless the bits stay; how many edges there are."""
    concrete, x = random_function(seed)
    net = rnnmem.load_net(concrete)
    found = scheduling_edges.edges_of(net, CPU, 1e9)
    if found is None:
        return 0
    ordered = with_edges(net, found.edges)
    check(net, ordered)
    function = function_of(ordered, concrete)
    for one, other in zip(tf.nest.flatten(concrete(x)), tf.nest.flatten(function(x)), strict=True):
        assert one.numpy().tobytes() == other.numpy().tobytes(), (seed, found.edges)
    return len(found.edges)


@pytest.mark.slow
@pytest.mark.fuzz
def test_any_edges_keep_the_bits(monkeypatch):
    tf.config.experimental.enable_op_determinism()
    monkeypatch.setattr(scheduling_edges, "LARGE", 1)
    edges = [hold(seed) for seed in range(CASES)]
    assert sum(map(bool, edges)) > CASES / 4
