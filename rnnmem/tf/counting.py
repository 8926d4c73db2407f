"""Whether TensorFlow counts the memory of a device, all of it.

TensorFlow's default CPU allocator has figures too, of buffers of 256 KiB and more alone: they look
right and are several times too small. So a small tensor must show in them.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from rnnmem.tf.own_devices import find_device, sync_devices

USE_BFC = "TF_CPU_ALLOCATOR_USE_BFC"
"""The variable in the environment that makes TensorFlow count its CPU memory."""

ENABLE = (
    "call rnnmem.enable_cpu_memory_stats() before TensorFlow runs its first op, "
    f"or start the program with {USE_BFC}=true in its environment"
)
"""The way out."""

_PROBE = 1 << 15
"""Bytes of a small tensor: fewer than the default allocator counts at all, and many more than what
a reading takes and gives back itself, a worker's at any time."""
_LEAST, _MOST = _PROBE // 2, 4 * _PROBE
"""Bytes that it may show as, while other threads take and give memory."""
_PROBES, _SHOWN = 8, 2
"""Tensors at most, and how many must show: other threads take and give memory in between."""


def counts_memory(device: str | None = None) -> bool:
    """Whether memory can be measured: on a device, or on the one that is measured by default."""
    name = find_device(device)
    with tf.init_scope():
        if not tf.executing_eagerly():
            return False
        try:
            return shows_small_tensors(name, lambda: in_use(name))
        except ValueError:
            # TensorFlow's way to say that the device has no statistics at all.
            return False


def shows_small_tensors(device: str, bytes_in_use: Callable[[], int]) -> bool:
    """Whether one small tensor more on a device shows as one more in what is in use there.

    Args:
        device: where the tensors are put.
        bytes_in_use: reads the device's figure.
    """
    probes: list[tf.Tensor] = []
    shown = 0
    while len(probes) < _PROBES and shown < _SHOWN:
        before = bytes_in_use()
        with tf.device(device):
            probes.append(tf.fill([_PROBE // 4], 1.0))
        shown += _LEAST <= bytes_in_use() - before < _MOST
    return shown >= _SHOWN


def in_use(device: str) -> int:
    """Bytes in use on a device now, as its allocator tells."""
    sync_devices()
    return tf.config.experimental.get_memory_info(device)["current"]


def uncounted(device: str | None = None) -> str:
    """Why a run has no figure, and the way out."""
    name = find_device(device)
    if counts_memory(name):
        return f"it used no memory of {name}; does it run there?"
    return f"{name} does not count all of its memory: {ENABLE}"
