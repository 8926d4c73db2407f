"""What has to be set before TensorFlow starts: logical devices and numbers of threads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.expectations import hold

ROOT = Path(__file__).resolve().parents[2]

MIRRORED = """
import keras, numpy as np, tensorflow as tf, rnnmem
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
tf.config.experimental.enable_op_determinism()
from tests.conformance.programs import H, squares, update, values

def outcome(optimised):
    keras.backend.clear_session()
    keras.utils.set_random_seed(5)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        layers = [keras.Input((12, 8)), keras.layers.LSTM(H), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        variables = [one.value for one in model.trainable_variables]

    def differentiated(x):
        with tf.GradientTape() as tape:
            loss = squares(model(x, training=True))
        return loss, tape.gradient(loss, variables)

    if optimised == "replica":  # without what the replicas do together: no function may hold that
        differentiated = rnnmem.optimize(differentiated, max_slowdown=1e9)

    def replica(x):
        loss, gradients = differentiated(x)
        context = tf.distribute.get_replica_context()
        gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        for variable, gradient in zip(variables, gradients):
            variable.assign_sub(0.1 * gradient)
        return loss

    def step(x):
        return strategy.reduce("SUM", strategy.run(replica, args=(x,)), axis=None)

    step = tf.function(step)
    if optimised == "step":
        step = rnnmem.optimize(step, max_slowdown=1e9)
    data = tf.data.Dataset.from_tensors(values(8, 12, 8)).unbatch().batch(8).repeat(3)
    distributed = strategy.experimental_distribute_dataset(data)
    if optimised == "step":
        assert not step.plan(next(iter(distributed))).changes_nothing
    losses = [step(one).numpy() for one in distributed]
    return [np.asarray(losses), *model.get_weights()]

before = outcome("")
for where in WHERE:
    after = outcome(where)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(before, after)), where
print("same bits")
"""

THREADS = """
import tensorflow as tf
tf.config.threading.set_inter_op_parallelism_threads({threads})
tf.config.experimental.enable_op_determinism()
tf.keras.utils.set_random_seed(7)
from tests.conformance.harness import Subject
from tests.conformance.programs import build
for name in {names}:
    gap = Subject(build(name)).compare()
    assert not gap, (name, gap)
print("same bits")
"""
THREADED = "several.parallel_branches", "nested.two_deep", "keras.Bidirectional"


def run(script: str) -> None:
    result = subprocess.run(
        [sys.executable, "-W", "error::rnnmem.RnnmemWarning", "-c", script],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0 and "same bits" in result.stdout, result.stderr[-3000:]


@pytest.mark.parametrize("threads", [1, 16])
def test_one_and_many_threads_between_ops(threads):
    run(THREADS.format(threads=threads, names=THREADED))
    for name in THREADED:
        hold(name, f"{threads} threads", "")


@pytest.mark.parametrize("where", ["replica", "step"])
def test_mirrored_strategy_on_two_devices(where):
    run(MIRRORED.replace("WHERE", f"[{where!r}]"))
    hold("keras.LSTM", f"MirroredStrategy, {where}", "")
