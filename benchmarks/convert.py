"""What a conversion needs: `rnnmem.convert` beside Keras' own way, memory and speed.

    python -m benchmarks.convert --json=benchmarks/results/convert-cpu.json

Memory: a float32 model becomes float16 under a limit of TensorFlow's CPU allocator, each way in a
process of its own. Keras' way is to cast every weight, build the layers in the new dtype and
assign. Speed: bytes of the old form by the seconds of a whole conversion, in turn with plain copies
of the same variables (`DeepCopy`, TensorFlow's own) without a limit; only the ratio counts.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from absl import app, flags

_MODEL = flags.DEFINE_integer("model_mib", 2048, "size of the float32 model")
_LAYERS = flags.DEFINE_integer("layers", 16, "number of its layers, all of one size")
_LIMIT = flags.DEFINE_integer("limit_mib", 2150, "limit of the allocator")
_SPEED_MODEL = flags.DEFINE_integer("speed_model_mib", 1024, "model of the speed figures")
_REPEATS = flags.DEFINE_integer("repeats", 7, "pairs of a conversion and a copy")
_SPEED = flags.DEFINE_boolean("speed", True, "measure speed too")
_JSON = flags.DEFINE_string("json", None, "write the figures to this file")
_PART = flags.DEFINE_string("part", None, "internal: what this process measures")

MIB = 1 << 20
ROOT = Path(__file__).resolve().parent.parent


def main(argv: list[str]) -> None:
    """Measures every part in a process of its own and prints the figures."""
    if _PART.value:
        print(json.dumps(_PARTS[_PART.value]()))
        return
    del argv
    size = [f"--model_mib={_MODEL.value}", f"--layers={_LAYERS.value}"]
    figures = {
        "model_mib": _MODEL.value,
        "limit_mib": _LIMIT.value,
        "largest_tensor_mib": _MODEL.value / _LAYERS.value,
        "rnnmem": _run("ours", _LIMIT.value, size),
        "keras": _run("keras", _LIMIT.value, size),
    }
    if _SPEED.value:
        size = [f"--model_mib={_SPEED_MODEL.value}", f"--layers={_LAYERS.value}"]
        figures["speed"] = _run("speed", None, [*size, f"--repeats={_REPEATS.value}"])
    text = json.dumps(figures, indent=2)
    print(text)
    if _JSON.value:
        Path(_JSON.value).write_text(text + "\n", encoding="utf-8")


def _run(part: str, limit_mib: int | None, options: list[str]) -> dict:
    environment = {**os.environ, "TF_CPU_ALLOCATOR_USE_BFC": "true", "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment["PYTHONPATH"] = f"{ROOT}{os.pathsep}{environment.get('PYTHONPATH', '')}"
    environment.pop("TF_CPU_BFC_MEM_LIMIT_IN_MB", None)
    if limit_mib is not None:
        environment["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = str(limit_mib)
    command = [sys.executable, "-m", "benchmarks.convert", f"--part={part}", *options]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{part} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _model(dtype: str = "float32"):
    """Dense layers of one size, the weights of each all alike; building needs nothing besides."""
    import keras
    import tensorflow as tf

    rows = 1024
    columns = _MODEL.value * MIB // 4 // _LAYERS.value // rows
    layers = []
    for index in range(_LAYERS.value):
        layer = keras.layers.Dense(
            columns,
            use_bias=False,
            dtype=dtype,
            kernel_initializer=lambda shape, dtype, value=index + 1: tf.fill(
                shape, tf.cast(value, dtype)
            ),
        )
        layer.build((None, rows))
        layers.append(layer)

    class Stack(keras.Model):
        def __init__(self):
            super().__init__(dtype=dtype)
            self.blocks = layers

    return Stack()


def _peak_of(act) -> dict:
    import tensorflow as tf

    tf.config.experimental.reset_memory_stats("CPU:0")
    start = tf.config.experimental.get_memory_info("CPU:0")["current"]
    try:
        act()
        outcome = "done"
    except tf.errors.ResourceExhaustedError:
        outcome = "out of memory"
    info = tf.config.experimental.get_memory_info("CPU:0")
    return {
        "outcome": outcome,
        "start_mib": round(start / MIB, 2),
        "peak_above_start_mib": round((info["peak"] - start) / MIB, 3),
        "end_mib": round(info["current"] / MIB, 2),
    }


def _ours() -> dict:
    import rnnmem

    model = _model()
    figures = _peak_of(lambda: rnnmem.convert(model, "float16"))
    right = all(
        layer.kernel.dtype == "float16" and float(layer.kernel[0, 0]) == index + 1
        for index, layer in enumerate(model.blocks)
    )
    return {**figures, "right": right}


def _keras() -> dict:
    import tensorflow as tf

    model = _model()

    def act():
        fresh = [tf.cast(variable.value, "float16") for variable in model.weights]
        target = _model("float16")
        for variable, value in zip(target.weights, fresh, strict=True):
            variable.assign(value)

    return _peak_of(act)


def _speed() -> dict:
    import tensorflow as tf

    import rnnmem

    model = _model()
    size = sum(v.value.shape.num_elements() * 4 for v in model.weights)
    rnnmem.convert(model, "float16", overflow="error")
    rnnmem.convert(model, "float32")
    pairs = []
    for _ in range(_REPEATS.value):
        copy = _seconds(
            lambda: [tf.raw_ops.DeepCopy(x=v.value.read_value()) for v in model.weights]
        )
        down = _seconds(lambda: rnnmem.convert(model, "float16"))
        up = _seconds(lambda: rnnmem.convert(model, "float32"))
        pairs.append((copy, down, up))
    copies, downs, ups = zip(*pairs, strict=True)
    return {
        "model_mib": size // MIB,
        "copy_gb_per_s": round(size / statistics.median(copies) / 1e9, 2),
        "to_float16_gb_per_s": round(size / statistics.median(downs) / 1e9, 2),
        "to_float32_gb_per_s": round(size / statistics.median(ups) / 1e9, 2),
        "to_float16_by_copy": round(statistics.median(c / d for c, d, _ in pairs), 3),
        "to_float32_by_copy": round(statistics.median(c / u for c, _, u in pairs), 3),
    }


def _seconds(act) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


_PARTS = {"ours": _ours, "keras": _keras, "speed": _speed}

if __name__ == "__main__":
    app.run(main)
