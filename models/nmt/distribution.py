"""More than one device, or machine: TensorFlow's strategies behind one flag.

Every replica gets the same batch and takes its own rows of it; losses, tokens and gradients are
summed over all of them, so that a step means what it means on one device.

Several machines are started one by one with the same command, each with its own `TF_CONFIG`:

    TF_CONFIG='{"cluster": {"worker": ["one:2222", "two:2222"]}, "task": {"type": "worker",
                "index": 0}}' python -m models.nmt.train --distribute=multi_worker --out=/shared/run
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable

import tensorflow as tf

KINDS = ("none", "mirrored", "multi_worker")
LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError)
SEED = 7919  # seeds of the replicas' dropout differ by multiples of this


class Distribution:
    """Where a training runs.

    Attributes:
        kind: one of `KINDS`.
        replicas: how many work on a batch.
        is_chief: whether this process writes what is written.
    """

    def __init__(self, kind: str = "none", replicas: int | None = None):
        """Connects to the others; it must precede TensorFlow's first op.

        Args:
            kind: one of `KINDS`.
            replicas: for "mirrored", of how many devices; by default every GPU. Without a GPU the
                CPU is made so many devices of.

        Raises:
            ValueError: there are not as many devices, or `TF_CONFIG` describes no cluster.
        """
        self.kind = kind
        self.strategy = None
        self.is_chief = True
        if kind == "mirrored":
            self.strategy = tf.distribute.MirroredStrategy(_devices(replicas))
        elif kind == "multi_worker":
            index = _task_index()
            self.strategy = tf.distribute.MultiWorkerMirroredStrategy()
            self.is_chief = index == 0
        self.replicas = self.strategy.num_replicas_in_sync if self.strategy else 1

    def scope(self) -> contextlib.AbstractContextManager:
        """Within it variables are made, one a replica."""
        return self.strategy.scope() if self.strategy else contextlib.nullcontext()

    def everywhere(self, step: Callable) -> Callable:
        """The step of one replica, run by all of them; gives the first one's result."""
        if self.strategy is None:
            return step

        def run(*args):
            results = self.strategy.run(step, args=args)
            return self.strategy.experimental_local_results(results)[0]

        return run

    def rows(self, *batch: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Within a replica's step: the rows that are its own."""
        if self.strategy is None:
            return batch
        return tuple(part[self._replica() :: self.replicas] for part in batch)

    def seed(self, seed: tf.Tensor) -> tf.Tensor:
        """Within a replica's step: the seed of its own dropout, int32 [2]."""
        if self.strategy is None:
            return seed
        return seed + tf.stack([self._replica() * SEED, 0])

    def total(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        """Within a replica's step: the sums over all replicas."""
        if self.strategy is None:
            return tensors
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tensors)

    def _replica(self):
        return tf.distribute.get_replica_context().replica_id_in_sync_group


def _devices(replicas):
    """The devices of a mirrored strategy; None is for every GPU."""
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        if replicas is not None and replicas > len(gpus):
            raise ValueError(f"--replicas={replicas}: there are {len(gpus)} GPUs")
        return None if replicas is None else [f"GPU:{i}" for i in range(replicas)]
    count = replicas or 1
    logical = [tf.config.LogicalDeviceConfiguration()] * count
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], logical)
    return [f"CPU:{i}" for i in range(count)]


def _task_index():
    """This worker's number, by TF_CONFIG."""
    text = os.environ.get("TF_CONFIG", "")
    try:
        config = json.loads(text)
        workers, index = config["cluster"]["worker"], config["task"]["index"]
        if not 0 <= index < len(workers):
            raise ValueError(f"task {index} of {len(workers)} workers")
        return index
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            "--distribute=multi_worker needs the cluster and this worker's index in TF_CONFIG, "
            f"got {text!r} ({error!r})"
        ) from error
