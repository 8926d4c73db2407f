"""How much memory the device has, where that can be told."""

from __future__ import annotations

import os

import tensorflow as tf

from rnnmem.errors import OptionError
from rnnmem.ir.devices import kind_of
from rnnmem.ir.graph import Net
from rnnmem.planning.options import Options
from rnnmem.sizes import MIB, format_bytes
from rnnmem.tf import private
from rnnmem.tf.counting import USE_BFC, counts_memory, in_use
from rnnmem.tf.own_devices import find_device


def allocator_limit() -> int | None:
    """Bytes above which TensorFlow itself raises ``ResourceExhaustedError``; None: nothing does."""
    if tf.config.list_logical_devices("GPU"):
        return private.memory_limit("GPU")
    # The environment may have been changed when the allocator was there already.
    if os.environ.get(USE_BFC, "").lower() in ("1", "true") and counts_memory("CPU:0"):
        limit = os.environ.get("TF_CPU_BFC_MEM_LIMIT_IN_MB", "")
        if limit.isdecimal() and int(limit):
            return int(limit) * MIB
    return None


def device_bytes() -> int | None:
    """Bytes that the first GPU, else the host, has for TensorFlow; None where unknown."""
    limit = allocator_limit()
    if limit is not None or tf.config.list_logical_devices("GPU"):
        return limit
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def executor_threads() -> int:
    """Threads that run ops side by side: as many as TensorFlow was told, else one a core."""
    return tf.config.threading.get_inter_op_parallelism_threads() or cores()


def cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def check_budget(budget: int | None) -> None:
    """Refuses a budget that the device could never give.

    Raises:
      OptionError: names the budget and what the device has.
    """
    limit = None if budget is None else device_bytes()
    if budget is not None and limit is not None and budget > limit:
        raise OptionError(
            f"budget={budget} ({format_bytes(budget)}) is more than the device has: {limit} bytes "
            f"({format_bytes(limit)}); give at most that, or no budget"
        )


def check_offload(net: Net, options: Options, device: str) -> None:
    """Refuses to copy to the host what is there already.

    Args:
      net: the whole step.
      options: what the user asks for; a saved plan may ask for it too.
      device: where ops run that name no device.

    Raises:
      OptionError: names the argument, its value, the device, and what to leave out.
    """
    planned = options.plan is not None and options.plan.offloads
    if not planned and not options.offloads:
        return
    named = {kind_of(op.device) for _, inner in net.walk() for op in inner.ops}
    if named - {"", "CPU"} or kind_of(device) != "CPU":
        return
    if planned:
        raise OptionError(
            f"plan: it copies accumulators to the host, and {net.name} runs on the host ({device}) "
            "already; make a plan here, or run it where TensorFlow has a GPU"
        )
    raise OptionError(
        f"allow={options.allow!r}: 'offload' copies accumulators to the host, and {net.name} "
        f"runs on the host ({device}) already; leave it out, or run where TensorFlow has a GPU"
    )


def resident_bytes() -> int | None:
    """Bytes in use on the device now; None where it counts none."""
    name = find_device(None)
    return in_use(name) if counts_memory(name) else None
