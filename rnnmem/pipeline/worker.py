"""A worker process: a ``tf.distribute.Server`` that also counts its memory.

python -m rnnmem.pipeline.worker --workers=localhost:2222,localhost:2223 --task=0
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
from absl import app, flags

from rnnmem.errors import OptionError
from rnnmem.pipeline.listening import check_trusted, guard, is_loopback
from rnnmem.pipeline.memory import PROBE, count_memory
from rnnmem.tf.measure import enable_cpu_memory_stats

_kept: list[object] = []


def serve(
    workers: Sequence[str],
    task: int,
    *,
    limit: int | str | None = None,
    trusted_network: bool = False,
) -> None:
    """Serves as one worker of a cluster until the process is ended.

    TensorFlow's server runs what it is sent and listens on every interface. At a loopback address
    the kernel drops what comes from elsewhere; any other address must be asked for.

    Args:
      workers: ``host:port`` of all workers, in the order of their tasks.
      task: which of them this process is.
      limit: the most bytes of CPU memory that TensorFlow may take here, as an int or "2GiB".
      trusted_network: that everybody who can reach this machine's ports is trusted; needed where an
        address is not a loopback address.

    Raises:
      OptionError: there is no such task, its address cannot be bound, or is not a loopback address
        (see ``trusted_network``).
      MeasureError: TensorFlow already ran ops here.
    """
    workers = list(workers)
    if isinstance(task, bool) or not isinstance(task, int) or not 0 <= task < len(workers):
        raise OptionError(f"task={task!r} is none of the {len(workers)} workers {workers!r}")
    check_trusted(workers, trusted_network)
    enable_cpu_memory_stats(limit)
    _offer_memory_counts()
    try:
        server = tf.distribute.Server(
            tf.train.ClusterSpec({"worker": workers}),
            job_name="worker",
            task_index=task,
            start=False,
        )
    except tf.errors.OpError as error:
        raise OptionError(f"workers[{task}]={workers[task]!r} cannot be served: {error}") from error
    guard(workers[task])
    server.start()
    reach = "this machine" if is_loopback(workers[task]) else "every interface, whoever connects"
    print(f"worker {task} serves {workers[task]} ({reach})", flush=True)
    server.join()


def _offer_memory_counts() -> None:
    """Registers ``count_memory`` under the name by which the other process calls it."""
    graph = tf.Graph()
    with graph.as_default():
        counts = tf.numpy_function(count_memory, [tf.constant(False)], [tf.int64] * 3)
    _kept.append(graph)  # the function lives as long as a graph that uses it
    token = tf.compat.as_str(counts[0].op.get_attr("token"))
    if token != PROBE:
        raise OptionError(
            f"this process registered Python functions before ({token}): call serve first"
        )


def _main(arguments: list[str]) -> None:
    del arguments
    values = flags.FLAGS
    if values.intra_threads:
        tf.config.threading.set_intra_op_parallelism_threads(values.intra_threads)
        tf.config.threading.set_inter_op_parallelism_threads(values.intra_threads)
    serve(
        values.workers,
        values.task,
        limit=values.memory_limit,
        trusted_network=values.trusted_network,
    )


if __name__ == "__main__":
    flags.DEFINE_list("workers", None, "host:port of all workers, in the order of their tasks")
    flags.DEFINE_integer("task", None, "which of the workers this process is", lower_bound=0)
    flags.DEFINE_string(
        "memory_limit", None, "the most CPU memory that TensorFlow may take, e.g. 2GiB"
    )
    flags.DEFINE_integer(
        "intra_threads", 0, "threads of one op (default: all cores)", lower_bound=0
    )
    flags.DEFINE_bool(
        "trusted_network",
        False,
        "serve an address that a network reaches: everybody who does can run anything here",
    )
    flags.mark_flags_as_required(["workers", "task"])
    app.run(_main)
