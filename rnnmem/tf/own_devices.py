"""The devices of this process, which may be one of several workers.

A worker of ``MultiWorkerMirroredStrategy`` is told the devices of all workers, by full names. It
can neither wait for another's devices nor read their memory.
"""

from __future__ import annotations

import tensorflow as tf

from rnnmem.errors import OptionError
from rnnmem.tf import private


def own_devices() -> list[str]:
    """Names within this process: "CPU:0", "GPU:0"."""
    return [_name(one) for one in _own()]


def find_device(device: str | None) -> str:
    """The name of a device of this process, by default of the first GPU, else "CPU:0".

    Args:
      device: "GPU:1", "gpu", "/device:CPU:0", or as tensors tell: "/job:.../task:0/device:GPU:0".

    Raises:
      OptionError: it is not here; it may be another worker's.
    """
    own = _own()
    names = [_name(one) for one in own]
    if device is None:
        return next((name for name in names if name.startswith("GPU:")), "CPU:0")
    text = str(device)
    try:
        wanted = tf.DeviceSpec.from_string(text if text.startswith("/") else f"/{text}")
    except ValueError:
        wanted = tf.DeviceSpec()
    here = wanted.job in (None, "localhost", own[0].job) and wanted.task in (None, own[0].task or 0)
    if not here or _name(wanted) not in names:
        raise OptionError(f"device={device!r} is not here: choose from {', '.join(names)}")
    return _name(wanted)


def sync_devices() -> None:
    """Waits until every op on a device of this process has ended."""
    for name in own_devices():
        with tf.device(name):
            tf.raw_ops.SyncDevice()
    private.wait_for_queued_ops()


def _own() -> list[tf.DeviceSpec]:
    devices = [tf.DeviceSpec.from_string(one.name) for one in tf.config.list_logical_devices()]
    # TensorFlow tells a worker its own devices first.
    return [one for one in devices if (one.job, one.task) == (devices[0].job, devices[0].task)]


def _name(device: tf.DeviceSpec) -> str:
    return f"{(device.device_type or '').upper()}:{device.device_index or 0}"
