"""Holds the random step nets of many numbers, in processes that are replaced where one hangs.

TensorFlow does so while it traces some gradients of gradients of nested loops: it fails inside of a
lock, which stays taken.

    numbers ──► a thread for each core ──► a process: tells what it found of each number
                      └── waits for that, and starts another process behind a number that hangs
"""

from __future__ import annotations

import collections
import concurrent.futures
import multiprocessing
import multiprocessing.connection
import os
from collections.abc import Callable
from typing import Any

PATIENCE = 600
"""Seconds that a number may take; the slowest take one of two."""
STEP_NETS, ALONE, CASES = "step nets that were rewritten", "left alone", "cases"
FAILED, DIFFER, VARIES = "failed", "differ with fusions on", "times the original varies itself"
UNKNOWN, HUNG = "of them for no known reason", "hung or died"
NEVER_RAN = "hung or died before anything was rewritten"
COUNTS = (CASES, STEP_NETS, ALONE, FAILED, DIFFER, UNKNOWN, VARIES, HUNG, NEVER_RAN)
RAN = "the original ran"


def main(first: int, last: int) -> int:
    """Holds the step nets of these numbers; prints what failed, and how many cases there were.

    Returns:
      How many failed, differ for no known reason, or hung.
    """
    jobs = os.cpu_count() or 1
    total: collections.Counter[str] = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(jobs) as threads:
        parts = [range(first + job, last, jobs) for job in range(jobs)]
        for counts in threads.map(_held, parts):
            total.update(counts)
    print(f"{first} to {last}: " + ", ".join(f"{total[one]} {one}" for one in COUNTS), flush=True)
    return total[FAILED] + total[UNKNOWN] + total[HUNG]


def _held(numbers: range, tell: Callable[..., None] | None = None) -> collections.Counter[str]:
    """What is found of the numbers, one after the other; ``tell`` finds it, in a process."""
    total: collections.Counter[str] = collections.Counter()
    spawning = multiprocessing.get_context("spawn")
    while numbers:
        found, telling = spawning.Pipe(duplex=False)
        process = spawning.Process(target=tell or _tell_each, args=(numbers, telling), daemon=True)
        process.start()
        telling.close()
        while numbers:
            told = _told(found)
            has_run = told == RAN
            if has_run:
                told = _told(found)
            number, numbers = numbers[0], numbers[1:]
            if told is None:
                total[HUNG if has_run else NEVER_RAN] += 1
                print(f"HUNG {number}{'' if has_run else ' in the original'}", flush=True)
                break
            counts, text = told
            total.update(counts)
            if text:
                print(text, flush=True)
        process.kill()
        process.join()
    return total


def _told(found: multiprocessing.connection.Connection) -> Any:
    """What a process tells next; None where it hangs, or died."""
    try:
        return found.recv() if found.poll(PATIENCE) else None
    except EOFError:
        return None


def _tell_each(numbers: range, telling: multiprocessing.connection.Connection) -> None:
    """Tells of each number that the original ran, then what was counted and is to be printed."""
    import tensorflow as tf

    from tests import test_random_step_nets as tried

    tf.config.experimental.enable_op_determinism()
    for number in numbers:
        trial = tried.Trial.of_number(number)
        differ, varies = len(tried.DIFFER), len(tried.RACES)
        counts, text = collections.Counter[str](), ""
        try:
            held = tried.hold(trial, lambda: telling.send(RAN))
        except Exception as error:  # all are told, whatever it is
            counts[FAILED] = 1
            text = f"FAILED {number}: {type(error).__name__}: {str(error)[:500]}\n  {trial}"
        else:
            counts[CASES] = held
            counts[STEP_NETS if held else ALONE] = 1
        counts[VARIES] = len(tried.RACES) - varies
        if tried.DIFFER[differ:]:
            known = tried.KNOWN_TO_DIFFER.get(number, "")
            counts[DIFFER], counts[UNKNOWN] = 1, not known
            text += f"DIFFERS {number}{known and f' ({known})'}: {tried.DIFFER[-1]}"
        telling.send((dict(counts), text))
