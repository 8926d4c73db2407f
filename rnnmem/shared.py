"""``share``: a storage plan that TensorFlow runs, as far as it can be held to one."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from rnnmem.api import optimize
from rnnmem.errors import NotUnderstood
from rnnmem.ir.graph import Net
from rnnmem.ir.handed_on import handed_on
from rnnmem.ir.joint import is_joint
from rnnmem.ir.order import all_needed_by
from rnnmem.planning.plan import Plan
from rnnmem.storage import Shared, share_parallel, share_sequential
from rnnmem.tf.load import load_net

ALLOCATES = (
    "which addresses storages have: TensorFlow allocates while it runs, and a storage that is free "
    "is taken by whoever asks first"
)


@dataclasses.dataclass(frozen=True)
class SharedFunction:
    """A function whose ops wait for each other so that blobs can share storages.

    Attributes:
      function: the ConcreteFunction that runs, with the bits of the original.
      plan: the scheduling edges that were added.
      enforced: the sharing that holds whichever op TensorFlow runs first, edges included.
      wanted: the sharing of one order of the ops, the lowest peak that was found.
      not_enforced: what of ``wanted`` a run may do otherwise, in sentences.
    """

    function: Any
    plan: Plan
    enforced: Shared
    wanted: Shared
    not_enforced: tuple[str, ...]

    def __str__(self) -> str:
        """What is shared, and what is not enforced."""
        lines = [f"wanted: {self.wanted}", f"enforced: {self.enforced}"]
        return "\n".join([*lines, *(f"not enforced: {one}" for one in self.not_enforced)])

    __repr__ = __str__


def share(
    fn: Callable[..., Any],
    *args: Any,
    max_slowdown: float = 1.1,
    algorithm: str = "greedy",
    **kwargs: Any,
) -> SharedFunction:
    """Shares storages among the blobs of a function, and makes TensorFlow run it so.

    "b takes the storage of a" holds in TensorFlow once all that reads a has surely run before b is
    made. Scheduling edges see to that where they change no bit, are predicted to lower the peak,
    and fit in the bound on time; what they do not see to is named.

    Args:
      fn: what :func:`rnnmem.optimize` takes.
      *args: arguments of one call, or ``tf.TensorSpec`` of them.
      max_slowdown: the bound on the estimated factor of step time.
      algorithm: how ``wanted`` is found; see :func:`rnnmem.storage.share_sequential`.
      **kwargs: keyword arguments of the call.

    Raises:
      OptionError: an option is malformed, or ``fn`` is no function.
      NotUnderstood: the function holds something that a Net cannot.
    """
    optimised = optimize(fn, max_slowdown=max_slowdown, allow=("scheduling_edges",))
    function = optimised.get_concrete_function(*args, **kwargs)
    original = optimised._trace_of(args, kwargs).original
    as_it_runs = load_net(original)  # now: a gradient that is built changes the loops of the graph
    inspection = optimised.inspect(*args, **kwargs)
    if inspection.net is None:
        raise NotUnderstood(" ".join(inspection.plan.notes) or "the function has no Net")
    net, runs, plan = inspection.net, inspection.rewritten or inspection.net, inspection.plan
    if is_joint(net):  # the gradient, if ever it is asked for, is no part of what runs
        net = runs = as_it_runs
        plan = Plan()
    wanted = share_sequential(net, algorithm=algorithm, order="peak")
    return SharedFunction(
        function=function,
        plan=plan,
        enforced=share_parallel(runs),
        wanted=wanted,
        not_enforced=(*_races(runs, wanted), ALLOCATES),
    )


def _races(net: Net, wanted: Shared) -> Iterator[str]:
    """The blobs that may be made before all has run that uses the storage they are to take."""
    for path, plan in wanted.plan.walk():
        inner = path.at(net)
        for storage in plan.storages:
            for before, after in itertools.pairwise(storage.blobs):
                producer = inner.producer.get(after)
                if producer is None:
                    continue
                late = set(_users(inner, before)) - all_needed_by(inner, [producer.name])
                late.discard(producer.name)  # it may write in place
                if late:
                    where = f" in {path.text}" if path else ""
                    yield (
                        f"{after} takes the storage of {before}{where}: {min(late)} may run later"
                    )


def _users(net: Net, blob: str) -> Iterator[str]:
    """Names of the ops that read a blob, itself or a view of it."""
    for op in net.readers.get(blob, ()):
        yield op.name
        for read, written in handed_on(op):
            if read == blob:
                yield from _users(net, written)
