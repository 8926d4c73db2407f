"""One replica's step, and all replicas' together, with rnnmem and without: `test_devices` runs it.

Its arguments are the strategy and what is optimised. It says "same bits" where loss and variables
have them after some steps, the step was rewritten, and takes less memory.
"""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.errors import MeasureError
from rnnmem.tf.memory_trace import trace_memory
from tests.conformance.programs import H, squares, values

TIME, BATCH, FEATURES, STEPS = 48, 16, 8, 3
EVERYTHING = 1e9
"""A slowdown at which whatever can be recomputed is."""


def connected(kind: str) -> tf.distribute.Strategy:
    """The strategy: two devices of this process, or what `TF_CONFIG` says; before any op."""
    if kind == "multi_worker":
        return tf.distribute.MultiWorkerMirroredStrategy()
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def outcome(strategy, optimised: str) -> tuple[list[np.ndarray], int]:
    """Losses and variables after some steps, and the peak of more in bytes.

    Args:
      strategy: the strategy.
      optimised: "replica", without what the replicas do together; "step", with it; "": neither.
    """
    keras.utils.set_random_seed(5)
    with strategy.scope():
        layers = [keras.Input((TIME, FEATURES)), keras.layers.LSTM(H), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        variables = [one.value for one in model.trainable_variables]

    def differentiated(x):
        with tf.GradientTape() as tape:
            loss = squares(model(x, training=True))
        return loss, tape.gradient(loss, variables)

    if optimised == "replica":
        differentiated = rnnmem.optimize(differentiated, max_slowdown=EVERYTHING)

    def replica(x):
        loss, gradients = differentiated(x)
        context = tf.distribute.get_replica_context()
        gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(0.1 * gradient)
        return loss

    def step(x):
        return strategy.reduce("SUM", strategy.run(replica, args=(x,)), axis=None)

    step = tf.function(step)
    if optimised == "step":
        step = rnnmem.optimize(step, max_slowdown=EVERYTHING)
    data = tf.data.Dataset.from_tensors(values(BATCH, TIME, FEATURES))
    data = data.unbatch().batch(BATCH).repeat(STEPS + 1)
    *batches, last = strategy.experimental_distribute_dataset(data)
    if optimised == "step":
        assert not step.plan(last).changes_nothing
    losses = [step(one).numpy() for one in batches]
    found = [np.asarray(losses), *(np.asarray(one) for one in model.get_weights())]
    return found, rnnmem.measure(step, last, repeats=3).peak_bytes


def _hold_that_nothing_is_traced() -> None:
    """TensorFlow's profiler would end a worker now and then, and with it the cluster."""
    with pytest.raises(MeasureError, match="one of several workers"):
        trace_memory(lambda: tf.zeros([4]))


def main(kind: str, optimised: str) -> None:
    """Compares the strategy's step with rnnmem and without."""
    tf.config.experimental.enable_op_determinism()
    rnnmem.enable_cpu_memory_stats()
    strategy = connected(kind)
    before, held = outcome(strategy, "")
    after, less = outcome(strategy, optimised)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(before, after, strict=True)), "other bits"
    assert less < 0.8 * held, f"{held} bytes before, {less} after"
    if kind == "multi_worker":
        _hold_that_nothing_is_traced()
    print(f"same bits, {held} bytes before, {less} after")


if __name__ == "__main__":
    main(*sys.argv[1:])
