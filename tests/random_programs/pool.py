"""Verifies programs in processes of their own, so that a crash is laid to its program.

A process verifies some programs and gives way to a new one: what TensorFlow keeps of each trace
would add up, and each new process has another hash seed, which no plan may depend on.
"""

from __future__ import annotations

import dataclasses
import gc
import multiprocessing
import os
import signal
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from typing import Any

from tests.random_programs.programs import program

PROGRAMS = 30
"""Programs that one process verifies."""
SECONDS = 1800.0
"""A program that takes longer is stopped: some trace anew in each of a hundred runs."""
HASHES = "PYTHONHASHSEED"

CRASH, TIMEOUT = "crash", "timeout"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of one program.

    Attributes:
      seed: of the program.
      hashes: the hash seed of the process.
      findings: (category, message) of what is wrong.
      notes: what is worth a look.
      improved: whether the plan changes anything.
      peaks: bytes, of the original and of the optimised function.
    """

    seed: int
    hashes: str
    findings: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    improved: bool = False
    peaks: tuple[int, int] = (0, 0)


def verified(seeds: Iterable[int], seconds: float = SECONDS) -> Iterator[Outcome]:
    """What comes of each program, one after the other.

    Args:
      seeds: of the programs.
      seconds: after which a program is stopped.
    """
    worker = None
    for number, seed in enumerate(seeds):
        if worker is None or number % PROGRAMS == 0:
            if worker is not None:
                worker.stop()
            worker = _Worker(str(1 + seed % 4_000_000_000))
        outcome = worker.verify(seed, seconds)
        if any(category in (CRASH, TIMEOUT) for category, _ in outcome.findings):
            worker.stop()
            worker = None
        yield outcome
    if worker is not None:
        worker.stop()


def verified_text(text: str, seconds: float = SECONDS) -> Outcome:
    """What comes of one program, of which the text is given."""
    worker = _Worker(os.environ.get(HASHES, "1"))
    try:
        return worker.verify(0, seconds, text)
    finally:
        worker.stop()


class _Worker:
    """A process that verifies one program after the other."""

    def __init__(self, hashes: str):
        context = multiprocessing.get_context("spawn")
        self._hashes = hashes
        self._connection, theirs = context.Pipe()
        before = os.environ.get(HASHES)
        os.environ[HASHES] = hashes
        try:
            self._process = context.Process(target=_work, args=(theirs,), daemon=True)
            self._process.start()
        finally:
            if before is None:
                del os.environ[HASHES]
            else:
                os.environ[HASHES] = before
        theirs.close()

    def verify(self, seed: int, seconds: float, text: str = "") -> Outcome:
        self._connection.send(text or program(seed).text)
        if not self._connection.poll(seconds):
            text = f"no end after {seconds:.0f} s"
            return Outcome(seed, self._hashes, ((TIMEOUT, text),))
        try:
            return Outcome(seed, self._hashes, **self._connection.recv())
        except EOFError:
            self._process.join()
            code = self._process.exitcode or 0
            name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            return Outcome(seed, self._hashes, ((CRASH, f"the process died: {name}"),))

    def stop(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.join()


def _work(connection: Connection) -> None:
    """Verifies the programs that come in, until nobody sends any more."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    import rnnmem
    from tests.random_programs.runner import verify

    rnnmem.enable_cpu_memory_stats()
    tf.config.experimental.enable_op_determinism()
    tf.get_logger().setLevel("ERROR")
    gc.collect()
    gc.freeze()  # what the imports made need not be looked at in front of each measurement
    while True:
        try:
            text = connection.recv()
        except EOFError:
            return
        connection.send(_plain(verify(text)))


def _plain(verdict: Any) -> dict[str, Any]:
    return {
        "findings": tuple((one.category, one.message) for one in verdict.findings),
        "notes": tuple(verdict.notes),
        "improved": verdict.improved,
        "peaks": verdict.peaks,
    }
