"""Whether workers still answer: one that was stopped, not ended, keeps its connections for ever."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

from rnnmem.errors import OptionError
from rnnmem.pipeline import devices

ASK_SECONDS = 2.0
"""How often a worker is asked."""


class Heartbeats:
    """Asks each worker, again and again, to compute something small, while a block runs.

    A worker answers while it computes something large, for it serves each asker in a queue of its
    own. One that never answers (stopped, or its machine is gone without a word) is told by time.
    """

    def __init__(self, workers: Collection[str], timeout: float | None):
        """Prepares it.

        Args:
          workers: ``/job:worker/replica:0/task:N`` of each.
          timeout: seconds that a worker may leave a question unanswered; None: any time.
        """
        self._timeout = math.inf if timeout is None else timeout
        self._heard: dict[str, float] = {}
        self._workers = () if timeout is None else tuple(workers)
        self._over = threading.Event()

    def __enter__(self) -> Heartbeats:
        now = time.monotonic()
        for worker in self._workers:
            self._heard[worker] = now
            # The question may hang for ever: nobody waits for the thread.
            threading.Thread(target=self._ask, args=(worker,), daemon=True).start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._over.set()

    def _ask(self, worker: str) -> None:
        while not self._over.is_set():
            devices.answers(worker)  # an error is an answer, too: other ops will raise it
            self._heard[worker] = time.monotonic()
            self._over.wait(min(ASK_SECONDS, self._timeout / 4))

    def silent(self) -> str | None:
        """A worker that left a question unanswered for too long; None where there is none."""
        now = time.monotonic()
        late = (worker for worker, then in self._heard.items() if now - then > self._timeout)
        return next(late, None)


def patiently(act: Callable[[], Any], workers: Collection[str], timeout: float | None) -> Any:
    """What a call gives that asks workers for something.

    Args:
      act: the call; where there are workers it runs in a thread of its own.
      workers: see :class:`Heartbeats`.
      timeout: see there.

    Raises:
      TimeoutError: a worker left a question unanswered for so long; the call still waits for it.
    """
    if not workers or timeout is None:
        return act()
    found: list[Any] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(act())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    with Heartbeats(workers, timeout) as heartbeats:
        thread.start()
        while thread.is_alive():
            thread.join(0.05)
            silent = heartbeats.silent()
            if silent is not None and thread.is_alive():
                raise TimeoutError(f"{silent} did not answer for {timeout:g} s")
    if failed:
        raise failed[0]
    return found[0]


def timeout_of(timeout: Any) -> float | None:
    """A checked number of seconds."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
        raise OptionError(f"timeout={timeout!r} is no number of seconds above 0, nor None")
    return float(timeout)
