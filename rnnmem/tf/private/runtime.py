"""The eager runtime: its context, executors, workers, devices and kernels."""

from __future__ import annotations

from typing import Any

from tensorflow.python import pywrap_tfe as _pywrap_tfe
from tensorflow.python.client import device_lib as _device_lib
from tensorflow.python.client import pywrap_tf_session as _pywrap_tf_session
from tensorflow.python.eager import context as _context
from tensorflow.python.eager import execute as _execute
from tensorflow.python.eager import executor as _executor
from tensorflow.python.framework import config as _config
from tensorflow.python.framework import op_def_registry as _op_def_registry
from tensorflow.python.util import _pywrap_util_port


def eager_context_is_initialized() -> bool:
    """Whether TensorFlow ran its first op, after which allocator settings are read no more."""
    context = _context.context_safe()
    # A property would initialize the context, so the field itself is read.
    return context is not None and context._initialized


def is_deterministic() -> bool:
    """Whether the user asked for ops that give the same bits in every run."""
    return _config.is_op_determinism_enabled()


def has_onednn() -> bool:
    """Whether oneDNN's kernels serve where it has some (``TF_ENABLE_ONEDNN_OPTS``, ``port.cc``)."""
    return _pywrap_util_port.IsMklEnabled()


def new_executor() -> Any:
    """A queue of eager ops of its own: a remote worker runs each such queue beside the others."""
    return _executor.new_executor(enable_async=False)


def executor_scope(executor: Any) -> Any:
    """A context manager: eager ops of this thread go through the executor."""
    return _context.executor_scope(executor)


def retire(executor: Any) -> None:
    """Forgets the errors of a failed worker, and keeps the executor as long as the process.

    Calls to that worker which are still under way end later, and write into the executor.
    """
    executor.clear_error()
    _retired.add(executor)


_retired: set[Any] = set()


def worker_addresses() -> dict[str, str]:
    """Every worker that TensorFlow is connected to: "/job:j/replica:0/task:i" -> "host:port"."""
    context = _context.context_safe()
    server = context._server_def if context is not None else None
    if server is None:
        return {}
    return {
        f"/job:{job.name}/replica:0/task:{task}": address
        for job in server.cluster.job
        for task, address in job.tasks.items()
        if (job.name, task) != (server.job_name, server.task_index)
    }


def wait_for_queued_ops() -> None:
    """Returns when no op waits in a queue, where ops are called asynchronously."""
    _context.async_wait()


def memory_limit(kind: str) -> int | None:
    """Bytes that TensorFlow may use of the first device of a kind ("GPU"), or None."""
    for device in _device_lib.list_local_devices():
        if device.device_type == kind:
            return device.memory_limit or None
    return None


def memory_limits() -> dict[str, int]:
    """Bytes that TensorFlow may use of each device but CPUs, e.g. {"GPU:0": 12 << 30}."""
    context = _context.context()
    context.ensure_initialized()
    devices = _pywrap_tfe.TFE_ContextListDevices(context._handle)
    limits = {}
    for index in range(_pywrap_tf_session.TF_DeviceListCount(devices)):
        name = _pywrap_tf_session.TF_DeviceListName(devices, index).rsplit("device:", 1)[-1]
        # What TensorFlow states for a CPU is a placeholder.
        if not name.startswith("CPU:"):
            limits[name] = _pywrap_tf_session.TF_DeviceListMemoryBytes(devices, index)
    return limits


def execute(op_type: str, results: int, inputs: list, attributes: tuple) -> list:
    """Runs one kernel eagerly; ``attributes`` are names and values in turn."""
    context = _context.context()
    context.ensure_initialized()
    return _execute.quick_execute(op_type, results, inputs, attributes, context)


def op_def(op_type: str):
    """The OpDef that TensorFlow registers for an op type, or None."""
    return _op_def_registry.get(op_type)
