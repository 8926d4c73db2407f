"""Storage sharing, measured: plans of real nets, long Nets, and branches that take turns.

    python -m benchmarks.sharing --json=benchmarks/results/sharing-cpu.json

Bytes and peaks are exact; seconds are those of one run on whatever else the machine does.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from absl import app, flags

_JSON = flags.DEFINE_string("json", "", "where to write the results; empty: nowhere")
_OPS = flags.DEFINE_integer("ops", 100_000, "ops of the long Net")
_RUNS = flags.DEFINE_integer("runs", 20, "runs of the branches")
_STEPS = flags.DEFINE_integer("steps", 20, "steps of the loss curve")
_PART = flags.DEFINE_string("part", None, "internal: what this process measures")
_MIB = 2**20
ROOT = Path(__file__).resolve().parent.parent


def main(argv: list[str]) -> None:
    """Prints a table, and writes it as JSON."""
    del argv
    if _PART.value:
        print(json.dumps(_PARTS[_PART.value]()))
        return
    rows = [long_net(_OPS.value), *resnet50()]
    rows += [in_a_process("branches", threads) for threads in (1, 16)]
    rows.append(in_a_process("translation"))
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))
    if _JSON.value:
        machine = {"machine": platform.machine(), "cores": os.cpu_count()}
        with open(_JSON.value, "w", encoding="utf-8") as file:
            json.dump({**machine, "rows": rows}, file, indent=1)
            file.write("\n")


def timed(name: str, share, net) -> dict:
    """One plan as a row; seconds are of the processor."""
    start = time.process_time()
    shared = share(net)
    return {
        "case": name,
        "method": shared.plan.method,
        "ops": len(net.ops),
        "blobs": shared.before.blobs,
        "storages": shared.after.blobs,
        "MiB before": round(shared.before.bytes / _MIB, 2),
        "MiB after": round(shared.after.bytes / _MIB, 2),
        "seconds": round(time.process_time() - start, 2),
    }


def long_net(count: int) -> dict:
    """A Net of many ops with short and longer lives."""
    from rnnmem.ir.graph import Blob, Net, Op
    from rnnmem.storage import share_parallel

    def reads(i: int) -> tuple[str, ...]:
        return (f"b{i - 1}", f"b{max(0, i - 5)}") if i % 3 else (f"b{i - 1}",)

    blobs = {f"b{i}": Blob(f"b{i}", "float32", (i % 40 + 1, 16)) for i in range(count + 1)}
    ops = tuple(Op(f"o{i}", "F", reads(i), (f"b{i}",)) for i in range(1, count + 1))
    return timed("long Net", share_parallel, Net("long", ("b0",), (f"b{count}",), ops, blobs))


def resnet50() -> list[dict]:
    """Training and inference graph, each shared in every way."""
    from benchmarks.resnet import resnet50_nets
    from rnnmem.storage import share_parallel, share_sequential

    ways = [share_parallel, share_sequential]
    ways.append(lambda net: share_sequential(net, algorithm="exact"))
    return [timed(name, share, net) for name, net in resnet50_nets(8).items() for share in ways]


def in_a_process(part: str, threads: int = 0) -> dict:
    """A part by itself; how many inter-op threads there are is read when TensorFlow starts."""
    command = [sys.executable, "-m", "benchmarks.sharing", f"--part={part}"]
    command += [f"--runs={_RUNS.value}", f"--steps={_STEPS.value}"]
    environment = {**os.environ}
    if threads:
        environment["TF_NUM_INTEROP_THREADS"] = str(threads)
    done = subprocess.run(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    row = json.loads(done.stdout.splitlines()[-1])
    return {"threads": threads, **row} if threads else row


def branches(count: int, runs: int) -> dict:
    """x[512,256] times ``count`` matrices, relu, tanh, row sums, added: peaks of all runs."""
    import numpy as np
    import tensorflow as tf

    import rnnmem

    rnnmem.enable_cpu_memory_stats()
    threads = int(os.environ.get("TF_NUM_INTEROP_THREADS", "0"))
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    draw = np.random.default_rng(0).standard_normal
    weights = [tf.Variable(draw((256, 2048)).astype(np.float32)) for _ in range(count)]

    @tf.function
    def run(x):
        total = tf.zeros([512])
        for weight in weights:
            total += tf.reduce_sum(tf.tanh(tf.nn.relu(x @ weight)), axis=1)
        return total

    x = tf.constant(draw((512, 256)), tf.float32)
    optimised = rnnmem.optimize(run, max_slowdown=2.0)  # in turns they take up to 1.6 times as long
    same = run(x).numpy().tobytes() == optimised(x).numpy().tobytes()
    peaks = {}
    for name, function in (("TensorFlow", run), ("rnnmem", optimised)):
        found = [rnnmem.measure(function, x, repeats=1).peak_bytes / _MIB for _ in range(runs)]
        peaks[f"{name} MiB"] = [round(min(found), 2), round(max(found), 2)]
    ratio = rnnmem.measure_pair(run, optimised, x, repeats=5).time_ratio
    return {
        "case": f"{count} branches",
        **peaks,
        "one branch MiB": 512 * 2048 * 4 / _MIB,
        "runs": runs,
        "same bits": same,
        "time": round(ratio, 2),
    }


def recorded_translation() -> dict:
    """The sizes that Paddle recorded 6.53 % for."""
    import tensorflow as tf

    import rnnmem
    from benchmarks.translation import Sizes, compare

    rnnmem.enable_cpu_memory_stats()
    tf.config.experimental.enable_op_determinism()
    return {"case": "machine translation", **compare(Sizes(), _STEPS.value)}


_PARTS = {"branches": lambda: branches(16, _RUNS.value), "translation": recorded_translation}

if __name__ == "__main__":
    app.run(main)
