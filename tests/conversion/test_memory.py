"""Real limits: each case in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20

HEAD = """
import json
import numpy as np
import tensorflow as tf
import rnnmem

MIB = 1 << 20
def info():
    return tf.config.experimental.get_memory_info("CPU:0")
def variable(mib, value, dtype="float32"):
    size = mib * MIB // tf.as_dtype(dtype).size
    return tf.Variable(lambda: tf.fill([size], tf.cast(value, dtype)), name=f"v{value}")
def right(found, dtype):
    return all(
        v.dtype.name == dtype and bool(tf.reduce_all(v[:: 1 << 16] == tf.cast(i + 1, dtype)))
        for i, v in enumerate(found)
    )
def measured(act):
    tf.config.experimental.reset_memory_stats("CPU:0")
    start = info()["current"]
    try:
        act()
        outcome = "done"
    except Exception as error:
        outcome = type(error).__name__
    return {"outcome": outcome, "peak": info()["peak"] - start, "end": info()["current"] - start}
"""


def run(script, limit_mib, **environment):
    environment = {
        **os.environ,
        "TF_CPU_ALLOCATOR_USE_BFC": "true",
        "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit_mib),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONPATH": str(ROOT),
        **environment,
    }
    done = subprocess.run(
        [sys.executable, "-c", HEAD + script], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_model_almost_as_large_as_the_device():
    found = run(
        """
found = [variable(2, i + 1) for i in range(32)]
figures = measured(lambda: rnnmem.convert(found, "float16"))
print(json.dumps({**figures, "right": right(found, "float16")}))
""",
        67,
    )
    assert found["outcome"] == "done" and found["right"]
    assert found["peak"] <= MIB * 1.2 + 1024 * 32
    assert found["end"] <= -29 * MIB


@pytest.mark.slow
def test_tensors_too_large_to_lie_beside_their_new_form():
    found = run(
        """
found = [variable(32, i + 1) for i in range(2)]
plan = rnnmem.convert(found, "float16", dry_run=True)
figures = measured(lambda: rnnmem.convert(found, "float16"))
routes = [step.route for step in plan.steps]
print(json.dumps({**figures, "right": right(found, "float16"), "routes": routes}))
""",
        70,
    )
    assert found["outcome"] == "done" and found["right"]
    assert found["routes"][0] == "through host"
    assert found["peak"] <= 1024 * 64


@pytest.mark.slow
def test_widening_up_to_the_brim_and_not_beyond():
    script = """
found = [variable(8, i + 1, "float16") for i in range(4)]
figures = measured(lambda: rnnmem.convert(found, "float32"))
dtype = found[0].dtype.name
print(json.dumps({**figures, "dtype": dtype, "right": right(found, dtype)}))
"""
    fits, beyond = run(script, 82), run(script, 60)
    assert fits["outcome"] == "done" and fits["dtype"] == "float32" and fits["right"]
    assert beyond["outcome"] == "ConvertError" and beyond["dtype"] == "float16" and beyond["right"]
    assert beyond["end"] <= 1024 * 64


@pytest.mark.slow
def test_functions_that_captured_the_weights_do_not_hold_their_memory():
    found = run(
        """
import keras
model = keras.Sequential([keras.Input((1024,)), keras.layers.Dense(4096, use_bias=False)])
x = np.ones((1, 1024), "float32")
model.predict(x, verbose=0)
kept = tf.function(lambda: tf.reduce_sum(model.layers[0].kernel))
kept(), kept.get_concrete_function()
figures = measured(lambda: rnnmem.convert(model, "float16"))
print(json.dumps({**figures, "right": str(model.predict(x, verbose=0).dtype)}))
""",
        128,
    )
    assert found["outcome"] == "done" and found["right"] == "float16"
    assert found["end"] <= -7.9 * MIB


@pytest.mark.slow
def test_a_full_host():
    found = run(
        """
import resource
found = [variable(32, i + 1) for i in range(2)]
rnnmem.convert(tf.Variable([1.0]), "float16")
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 20 * MIB, resource.RLIM_INFINITY))
figures = measured(lambda: rnnmem.convert(found, "float16"))
print(json.dumps({**figures, "right": right(found, found[0].dtype.name)}))
""",
        70,
    )
    assert found["outcome"] in ("ConvertError", "done")
    assert found["right"]


@pytest.mark.slow
def test_another_device():
    found = run(
        """
import keras
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2), keras.layers.Dropout(0.5)])
model.compile("adam", "mse")
x, y = np.ones((8, 4), "float32"), np.ones((8, 2), "float32")
model.fit(x, y, verbose=0)
kernel, before = model.layers[0].kernel, model.predict(x, verbose=0)
asked = []
real = tf.config.experimental.get_memory_info
tf.config.experimental.get_memory_info = lambda d: asked.append(d) or real(d)
rnnmem.convert(model, device="CPU:1")
every = [*model.variables, *model.optimizer.variables]
moved = {v.value.device.rsplit("device:")[-1] for v in every}
same = bool(np.array_equal(model.predict(x, verbose=0), before))
same = same and model.layers[0].kernel is kernel
model.fit(x, y, verbose=0)
try:
    rnnmem.convert(model, "float16", "CPU:0", progress=lambda *_: 1 / 0)
except ZeroDivisionError:
    pass
back = [kernel.dtype, kernel.value.device[-5:]]
rnnmem.convert(model, "float16", "CPU:0")
loss = model.fit(x, y, verbose=0).history["loss"][0]
found = {"moved": sorted(moved), "same": same, "asked": sorted(asked)[:2], "back": back}
end = [kernel.dtype, kernel.value.device[-5:]]
print(json.dumps({**found, "end": end, "finite": bool(np.isfinite(loss))}))
""",
        1024,
    )
    assert found["moved"] == ["CPU:1"] and found["same"]
    assert found["back"] == ["float32", "CPU:1"]
    assert found["end"] == ["float16", "CPU:0"] and found["finite"]


@pytest.mark.slow
def test_two_gibibytes_under_a_limit_of_two_and_a_tenth():
    command = [sys.executable, "-m", "benchmarks.convert", "--nospeed"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout[done.stdout.index("{") :])
    ours, keras = figures["rnnmem"], figures["keras"]
    assert ours["outcome"] == "done" and ours["right"]
    assert ours["peak_above_start_mib"] <= 64 * 1.2 + 1
    assert keras["outcome"] == "out of memory"
