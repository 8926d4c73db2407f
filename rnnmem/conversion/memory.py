"""What is free on a device and on the host."""

from __future__ import annotations

import os
from pathlib import Path

import tensorflow as tf

from rnnmem.sizes import MIB
from rnnmem.tf import private

_BFC_LIMIT_MIB = "TF_CPU_BFC_MEM_LIMIT_IN_MB"
_BFC_LIMIT_MIB_DEFAULT = 1 << 16
_MEMINFO = Path("/proc/meminfo")


def free_bytes(devices: list[str], occupied: dict[str, int]) -> dict[str, int | None]:
    """What is free on each device; asks TensorFlow once for each.

    Args:
      devices: e.g. "CPU:0", "GPU:1".
      occupied: device -> bytes of tensors that are known to lie there.

    Returns:
      Device -> bytes, None where nobody knows.
    """
    limits = private.memory_limits()
    return {
        device: _free_on(device, limits.get(device), occupied.get(device, 0)) for device in devices
    }


def host_free_bytes() -> int | None:
    """What the operating system could still give, None where it does not say."""
    try:
        text = _MEMINFO.read_text(encoding="ascii")
    except OSError:
        return None
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) << 10
    return None


def _free_on(device: str, limit: int | None, occupied: int) -> int | None:
    in_use = _in_use(device)
    if limit is not None:
        return None if in_use is None else max(0, limit - in_use)
    if in_use is None or (in_use == 0 and occupied):
        return host_free_bytes()  # a CPU whose allocator does not count
    if not device.startswith("CPU:"):
        return None
    return _cpu_free(in_use)


def _in_use(device: str) -> int | None:
    try:
        return tf.config.experimental.get_memory_info(device)["current"]
    except (ValueError, tf.errors.OpError):
        return None


def _cpu_free(in_use: int) -> int:
    try:
        limit = int(os.environ.get(_BFC_LIMIT_MIB, _BFC_LIMIT_MIB_DEFAULT)) * MIB
    except ValueError:
        limit = _BFC_LIMIT_MIB_DEFAULT * MIB
    free = max(0, limit - in_use)
    host = host_free_bytes()
    return free if host is None else min(free, host)
