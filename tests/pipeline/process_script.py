"""Run by test_processes: trains on workers, loses one, resumes; prints what it saw as JSON."""

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np
import tensorflow as tf

from rnnmem.errors import PipelineError
from rnnmem.pipeline import Pipeline, connect, serve

MICRO_BATCHES = 8
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["__main__"])  # TensorFlow is imported once for all workers


def free_addresses(count: int) -> list[str]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("localhost", 0))
    addresses = [f"localhost:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return addresses


def start(addresses: list[str], task: int) -> multiprocessing.Process:
    worker = FORKS.Process(target=work, args=(addresses, task), daemon=True)
    worker.start()
    return worker


def work(addresses: list[str], task: int) -> None:
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    serve(addresses, task)


def end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(0)


def start_by_command(addresses: list[str], task: int) -> subprocess.Popen:
    command = [sys.executable, "-m", "rnnmem.pipeline.worker", f"--workers={','.join(addresses)}"]
    return subprocess.Popen(
        [*command, f"--task={task}", "--intra_threads=1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def stages(count: int) -> list:
    keras.utils.set_random_seed(1)
    stack = [
        keras.layers.LSTM(16, return_sequences=True),
        keras.layers.LSTM(16, return_sequences=True, dropout=0.2),
        keras.layers.LSTM(16),
        keras.layers.Dense(5),
    ]
    size = len(stack) // count
    return [stack[i * size : (i + 1) * size] for i in range(count)]


def pipeline(devices: list[str], timeout: float = 60.0) -> Pipeline:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.Adam(0.01)
    return Pipeline(
        stages(len(devices)), devices, MICRO_BATCHES, optimizer, loss=loss, timeout=timeout
    )


def address_on_a_network() -> str | None:
    """An address of this machine that others could reach; None where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return None
        own = probe.getsockname()[0]
    return None if own.startswith("127.") else own


def is_reached(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def stop(addresses: list[str], workers: list) -> dict:
    """Trains on a worker that is stopped, but not ended, meanwhile."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=[MICRO_BATCHES, 6, 8]), random.integers(0, 5, [MICRO_BATCHES])
    there = pipeline(connect(addresses, timeout=60), timeout=6.0)
    there.train_step(x.astype("float32"), y)
    own, port = address_on_a_network(), int(addresses[0].rsplit(":", 1)[1])
    seen = {"here": is_reached("localhost", port), "own": own}
    seen["over a network"] = own is not None and is_reached(own, port)
    os.kill(workers[-1].pid, signal.SIGSTOP)
    for what in (lambda: there.train_step(x.astype("float32"), y), there.get_weights):
        try:
            what()
        except PipelineError as error:
            seen.setdefault("errors", []).append(str(error))
    return seen


def main(count: int, directory: Path, what: str) -> dict:
    tf.config.experimental.enable_op_determinism()
    addresses = free_addresses(count)
    workers = [start(addresses, task) for task in range(count)]
    try:
        if what == "stop":
            return stop(addresses, workers)
        return run(count, directory, what == "lose", addresses, workers)
    finally:
        for worker in workers:
            worker.kill()


def run(count, directory, lose, addresses, workers) -> dict:
    random = np.random.default_rng(0)
    x = random.normal(size=[4 * MICRO_BATCHES, 6, 8]).astype("float32")
    y = random.integers(0, 5, [4 * MICRO_BATCHES])
    here = pipeline(["CPU:0"] * count)
    wanted = [float(here.train_step(x, y)) for _ in range(6)]
    devices = connect(addresses, timeout=60)
    there = pipeline(devices)
    found = [float(there.train_step(x, y)) for _ in range(3)]
    seen = {"wanted": wanted, "scopes": there.most_scopes, "devices": there.devices}
    if lose:
        path = there.save(directory / "checkpoint")
        threading.Timer(0.3, workers[-1].kill).start()
        begun = time.monotonic()
        try:
            while time.monotonic() < begun + 90:
                there.train_step(x, y)
        except PipelineError as error:
            seen["error"] = str(error)
        seen["seconds"] = time.monotonic() - begun
        workers[-1].join()
        workers[-1] = start_by_command(addresses, count - 1)
        there = pipeline(connect(addresses, timeout=60))
        there.restore(path)
        found += [float(there.train_step(x, y)) for _ in range(3)]
    else:
        found += [float(there.train_step(x, y)) for _ in range(3)]
    pairs = zip(here.variables, there.variables, strict=True)
    seen["difference"] = max(float(np.abs(a.numpy() - b.numpy()).max()) for a, b in pairs)
    if not lose:
        seen["peaks"] = [one.peak_bytes for one in there.measure(x, y)]
    return {**seen, "found": found}


if __name__ == "__main__":
    result = main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
    Path(sys.argv[2], "seen.json").write_text(json.dumps(result))
    # TensorFlow would wait for workers that are gone.
    os._exit(0)
