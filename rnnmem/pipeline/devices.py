"""Where stages run: devices of this process, or of workers that it is connected to."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from rnnmem.errors import OptionError
from rnnmem.pipeline.listening import check_trusted, guard
from rnnmem.tf import private

_ADDRESS = re.compile(r"(?P<host>\[[0-9a-fA-F:]+\]|[A-Za-z0-9_.-]+):(?P<port>[0-9]{1,5})")
_LOCAL_KINDS = ("CPU", "GPU", "TPU", "XLA_CPU", "XLA_GPU")
START = "python -m rnnmem.pipeline.worker --workers=host:port,... --task=N"
PROBE_SECONDS = 5.0

# The workers that this process is connected to, and its own address; both belong to TensorFlow's
# one context.
_connected: tuple[list[str], str] | None = None


def connect(
    workers: Sequence[str], timeout: float = 10.0, *, trusted_network: bool = False
) -> list[str]:
    """Connects this process to worker processes, which then appear as devices.

    A worker is any ``tf.distribute.Server`` of a cluster ``{"worker": workers}``. Calling it again
    with the same workers changes nothing while all of them are the ones that it connected to; once
    one was started again, it connects again.

    Args:
      workers: ``host:port`` of each, in the order of their tasks.
      timeout: seconds to wait for each to listen.
      trusted_network: that everybody who can reach the workers, and this process, over the network
        is trusted: TensorFlow's servers run what they are sent, on every interface. Loopback
        addresses need no such word: there this process is reached from this machine alone.

    Returns:
      The workers' devices: ``/job:worker/replica:0/task:N/device:CPU:0``.

    Raises:
      OptionError: an address is malformed, given twice, not a loopback address (see
        ``trusted_network``), or nobody listens there.
    """
    if isinstance(workers, (str, bytes)) or not isinstance(workers, Iterable):
        raise OptionError(f"workers={workers!r} is not a list: pass host:port of each")
    workers = [str(address) for address in workers]
    if not workers:
        raise OptionError("workers=[] names no worker: pass host:port of each")
    for address in workers:
        if workers.count(address) > 1:
            raise OptionError(f"workers={workers!r}: {address!r} is named twice")
        _parts(address)
    names = [f"/job:worker/replica:0/task:{task}" for task in range(len(workers))]
    wanted = dict(zip(names, workers, strict=True))
    known = {n: a for n, a in private.worker_addresses().items() if n.startswith("/job:worker/")}
    if known != wanted:
        check_trusted(workers, trusted_network)
    for address in workers:
        if not _will_listen(address, timeout):
            raise OptionError(
                f"workers={workers!r}: nothing listens at {address!r}; start that worker "
                f"({START}), or correct the address"
            )
    if known != wanted or not all(is_alive(name) for name in names):
        _connect(workers)
    return [f"{name}/device:CPU:0" for name in names]


def _connect(workers: list[str]) -> None:
    """Connects; again to the same workers under the address that this process already has.

    TensorFlow, asked twice for the same workers, would tell them an address at which this process
    does not listen.
    """
    global _connected
    if _connected is None or _connected[0] != workers:
        _connected = workers, _free_address(workers[0])
    cluster = {"worker": workers, "localhost": [_connected[1]]}
    tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec(cluster))
    guard(_connected[1])


def _free_address(worker: str) -> str:
    """An address of this process that the worker can reach, at a port that nobody uses."""
    host, port = worker.rsplit(":", 1)
    family, _, _, _, where = socket.getaddrinfo(host.strip("[]"), int(port))[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(where)  # sends nothing
        own = probe.getsockname()[0]
    with socket.socket(family, socket.SOCK_STREAM) as free:
        free.bind((own, 0))
        return f"{own if family == socket.AF_INET else f'[{own}]'}:{free.getsockname()[1]}"


def resolve(devices: Iterable[Any], stages: int) -> list[str]:
    """The full names of the devices of each stage.

    Args:
      devices: each ``"CPU:1"``, ``"/device:GPU:0"``, ``"/job:worker/task:2"`` (its CPU),
        ``"/job:worker/task:2/device:GPU:0"``, a ``tf.config.LogicalDevice``, or ``"host:port"`` of
        a worker, to which this process is then connected.
      stages: how many are needed; further devices stay idle.

    Raises:
      OptionError: there are too few, or one is unknown; the text names those that are known.
    """
    if isinstance(devices, (str, bytes)) or not isinstance(devices, Iterable):
        raise OptionError(f"devices={devices!r} is not a list of devices, one for each stage")
    given = list(devices)
    if stages > len(given):
        raise OptionError(
            f"devices={given!r}: {len(given)} devices for {stages} stages; pass one for each "
            "stage (the same one may stand twice), or fewer stages"
        )
    names = [_name(device, i) for i, device in enumerate(given[:stages])]
    addresses = list(dict.fromkeys(name for name in names if _is_address(name)))
    if addresses:
        placed = dict(zip(addresses, connect(addresses, PROBE_SECONDS), strict=True))
        names = [placed.get(name, name) for name in names]
    return [_known(name, i, given[i]) for i, name in enumerate(names)]


def is_local(device: str) -> bool:
    """Whether a full device name is one of this process."""
    return tf.DeviceSpec.from_string(device).job == "localhost"


def worker_of(device: str) -> str:
    """The worker of a full device name: ``/job:worker/replica:0/task:0``."""
    return device.split("/device:")[0]


def is_alive(worker: str) -> bool:
    """Whether a worker still is the one that this process connected to."""
    address = private.worker_addresses().get(worker)
    if address is None or not _listens(address, PROBE_SECONDS):
        return False
    # The question may hang where a worker stopped in the middle of an answer.
    heard: list[bool] = []
    asking = threading.Thread(target=lambda: heard.append(answers(worker)), daemon=True)
    asking.start()
    asking.join(PROBE_SECONDS)
    return heard == [True]


def answers(worker: str) -> bool:
    """Whether a worker computes for this process; one that was started again does not know it."""
    executor = private.new_executor()
    try:
        with private.executor_scope(executor), tf.device(f"{worker}/device:CPU:0"):
            return float(tf.ones([])) == 1.0
    except tf.errors.OpError:
        private.retire(executor)
        return False


def listens(worker: str) -> bool:
    """Whether somebody listens at a worker's address; quick, and true of a new worker there too."""
    address = private.worker_addresses().get(worker)
    return address is not None and _listens(address, PROBE_SECONDS)


def _name(device: Any, place: int) -> str:
    name = device.name if isinstance(device, tf.config.LogicalDevice) else device
    if not isinstance(name, str) or not name:
        raise OptionError(f"devices[{place}]={device!r} is not the name of a device")
    return name


def _is_address(name: str) -> bool:
    match = _ADDRESS.fullmatch(name)
    return match is not None and match["host"].upper() not in _LOCAL_KINDS


def _will_listen(address: str, timeout: float) -> bool:
    """Whether somebody listens at an address, or does so before the time is over."""
    end = time.monotonic() + timeout
    while not _listens(address, max(0.1, timeout)):
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def _parts(address: str) -> tuple[str, int]:
    """The host and the port of an address."""
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) > 65535:
        raise OptionError(f"{address!r} is no address of a worker: write host:port")
    return match["host"].strip("[]"), int(match["port"])


def _listens(address: str, timeout: float) -> bool:
    try:
        socket.create_connection(_parts(address), timeout).close()
    except OSError:
        return False
    return True


def _known(name: str, place: int, given: Any) -> str:
    here = [_full(device.name) for device in tf.config.list_logical_devices()]
    try:
        wanted = _full(name)
    except ValueError:
        wanted = None
    if wanted not in here:
        workers = (
            ""
            if any("/job:worker" in one for one in here)
            else (
                "; this process is connected to no worker: call rnnmem.pipeline.connect first, or "
                "pass host:port"
            )
        )
        raise OptionError(
            f"devices[{place}]={given!r} is unknown; known: {', '.join(here)}{workers}"
        )
    return wanted


def _full(name: str) -> str:
    """A device's name with all its parts; a worker without a device means its first CPU."""
    name = name if name.startswith("/") else f"/device:{name}"
    spec = tf.DeviceSpec.from_string(name)
    if spec.job is None and spec.device_type is None:
        raise ValueError(f"{name!r} names neither a worker nor a device")
    return tf.DeviceSpec(
        job=spec.job or "localhost",
        replica=spec.replica or 0,
        task=spec.task or 0,
        device_type=(spec.device_type or "CPU").upper(),
        device_index=spec.device_index or 0,
    ).to_string()
