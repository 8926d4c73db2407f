"""The doors: a Net comes in, and goes out with fewer storages, verified."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping

from rnnmem.analysis.versions import OUTSIDE, SsaVersions, in_order, ssa
from rnnmem.errors import NetError, OptionError, RnnmemWarning
from rnnmem.ir.devices import is_on
from rnnmem.ir.graph import Net, Path
from rnnmem.ir.names import without_gradient_scopes
from rnnmem.ir.order import reached
from rnnmem.sizes import counted, format_bytes
from rnnmem.storage.arguments import check_net, names_of
from rnnmem.storage.buffers import Rules, Sizes, units_of
from rnnmem.storage.descent import all_plans, with_rename_maps
from rnnmem.storage.estimate import Estimate, statistics
from rnnmem.storage.orders import order as ordered
from rnnmem.storage.parallel import assign_parallel
from rnnmem.storage.plan import Storage, StoragePlan, apply_storage_plan, is_shared
from rnnmem.storage.pool import SharedStorage
from rnnmem.storage.ranges import ALGORITHMS
from rnnmem.storage.sequential import assign_sequential
from rnnmem.storage.verify import verify
from rnnmem.warn import warn_user

_NAMED = 8
"""Scopes, or devices, that a warning names; more are counted."""
Pairs = Mapping[str, tuple[tuple[int, int], ...]]


@dataclasses.dataclass(frozen=True)
class Reuse:
    """A blob that takes a storage which another has left.

    Attributes:
      blob: its name in the original.
      bytes: of it; None where that is not known.
      after: the blob that had the storage before it.
      storage: the storage's name.
      path: of the step net; empty for the Net itself.
    """

    blob: str
    bytes: int | None
    after: str
    storage: str
    path: Path = Path()

    def __str__(self) -> str:
        where = f" in {self.path.text}" if self.path else ""
        size = format_bytes(self.bytes)
        return f"{self.blob} ({size}) takes storage {self.storage} after {self.after}{where}"


@dataclasses.dataclass(frozen=True)
class Shared:
    """A Net with shared storages.

    Attributes:
      net: its blobs stand under the names of their storages.
      original: the Net whose blobs have names of their own, its ops in the same order.
      plan: which blobs live in one storage.
      before: statistics of the original.
      after: statistics of the shared Net.
    """

    net: Net
    original: Net
    plan: StoragePlan
    before: Estimate
    after: Estimate

    @property
    def saving(self) -> float:
        """The share of the bytes that is saved, 0 to 1."""
        return 1.0 - self.after.bytes / self.before.bytes if self.before.bytes else 0.0

    @property
    def reuses(self) -> tuple[Reuse, ...]:
        """Each blob that takes a storage after another, with what it is; ``print`` one a line."""
        return tuple(
            Reuse(blob, path.at(self.original).blobs[blob].bytes, after, storage.name, path)
            for path, plan in self.plan.walk()
            for storage in plan.storages
            for after, blob in itertools.pairwise(storage.blobs)
        )

    def __str__(self) -> str:
        return (
            f"{self.plan.method}: {counted(self.before.blobs, 'blob')} of "
            f"{format_bytes(self.before.bytes)} in {counted(self.after.blobs, 'storage')} of "
            f"{format_bytes(self.after.bytes)} "
            f"({100 * self.saving:.2f} % less)"
        )

    __repr__ = __str__


def share_parallel(
    net: Net,
    *,
    keep: Iterable[str] = (),
    blobs: Iterable[str] | None = None,
    sizes: Sizes = "shapes",
    level: int = 2,
    must_be_in_place: Pairs | None = None,
    descend: bool = True,
    skip_grads: Iterable[str] = (),
) -> Shared:
    """Shares storages so that the Net may run on many threads.

    Args:
      net: the Net; one that is shared already is handed back as it is.
      keep: blobs that keep a storage of their own, beside inputs and outputs.
      blobs: only these share; None: all that may.
      sizes: ``"shapes"``, bytes by name, or None to look at no size: the storage that is shared by
        most is taken then.
      level: 0 equal shapes share, 1 a storage at least as large, 2 a storage may grow.
      must_be_in_place: op type -> (input slot, output slot) pairs that must be one name; an op may
        also say so itself, in an attribute ``in_place``.
      descend: whether step nets are shared too.
      skip_grads: names of losses whose gradients keep storages of their own.

    Raises:
      NetError: the Net has a cycle or no such blob, or an op that must be in place is not.
      OptionError: no such level, no Net, or what is no name where one is wanted.
      CheckError: the result does not verify (a defect of ours).

    Warns:
      RnnmemWarning: the Net has no gradient of what ``skip_grads`` names.
    """
    check_net(net)

    def plan(one: Net, rules: Rules) -> StoragePlan:
        past = ssa(one)
        live_buffers = units_of(past, rules)
        return _plan(
            "parallel", assign_parallel(past, live_buffers, rules.level, rules.sizes is None)
        )

    keep = _with_gradients(net, keep, skip_grads)
    return _share(net, plan, True, keep, blobs, sizes, level, must_be_in_place, descend)


def share_gradients(
    net: Net,
    losses: Iterable[str],
    *,
    activations: bool = False,
    gradients: Iterable[str] | None = None,
    parameter_gradients: Iterable[str] = (),
    scopes: Iterable[str] | None = None,
    device: str | None = None,
    **options,
) -> Shared:
    """Shares storages among gradient blobs, safe on many threads.

    Args:
      net: a Net with its gradient.
      losses: names of what was differentiated; :func:`gradient_blobs` finds their gradients.
      activations: whether gradients may also take the storages of forward blobs that are done
        with, and those each other's; what the losses read keeps its name.
      gradients: names of the gradient blobs, where they are known.
      parameter_gradients: gradients that somebody reads when the Net has run, or sends to other
        devices; they keep storages of their own.
      scopes: name scopes; only what ops in one of them, and the gradients of these, make is shared.
        None: in any.
      device: e.g. ``"GPU:0"``; only what ops that name it make is shared. None: on any, and blobs
        on two devices never share. ``"GPU"`` is any of them.
      **options: of :func:`share_parallel`.

    Raises:
      NetError: see :func:`share_parallel`, as for all other errors.
      OptionError: ``device`` is no text, too.

    Warns:
      RnnmemWarning: the Net has no gradient of the losses, or no op in a scope or on the device, or
        none whose results may be shared, so nothing is.
    """
    check_net(net)
    losses = names_of("losses", losses)
    if gradients is None:
        found = set(gradient_blobs(net, losses))
    else:
        found = set(names_of("gradients", gradients))
    if not found and not activations:
        warnings.warn(
            f"losses={losses}: no gradient was found in the Net {net.name!r}, for nothing but they "
            "reads what they are computed from; name the blobs with gradients=..., or take "
            "share_parallel",
            RnnmemWarning,
            stacklevel=2,
        )
    keep = options.pop("keep", ())
    keep = {*names_of("keep", keep), *losses}
    keep.update(names_of("parameter_gradients", parameter_gradients))
    if activations and scopes is None and device is None:
        return share_parallel(net, keep=keep, **options)
    blobs = set(net.producer) if activations else found
    inside = None if scopes is None else names_of("scopes", scopes)
    if device is not None and not isinstance(device, str):
        raise OptionError(f'device={device!r} must be the name of one, as text, e.g. "GPU:0"')
    _tell_strangers(net, blobs, inside or (), device)
    blobs &= _made_in(net, inside, device)
    return share_parallel(net, keep=keep, blobs=sorted(blobs - keep), **options)


def _made_in(net: Net, scopes: tuple[str, ...] | None, device: str | None) -> set[str]:
    """The blobs that ops in some name scopes, on a device, make."""
    return {
        blob
        for op in net.ops
        if (scopes is None or any(_is_in(op.name, one) for one in scopes))
        and (device is None or is_on(op.device, device))
        for blob in op.outputs
    }


def _is_in(name: str, scope: str) -> bool:
    """Whether an op stands in a name scope, or belongs to the gradient of one that does."""
    start = f"{scope.rstrip('/')}/"
    return name.startswith(start) or without_gradient_scopes(name).startswith(start)


def _tell_strangers(net: Net, blobs: set[str], scopes: tuple[str, ...], device: str | None) -> None:
    """Warns of name scopes and of a device that no op of the Net has, or none that makes a blob."""
    for scope in scopes:
        if not any(_is_in(op.name, scope) for op in net.ops):
            bare = (without_gradient_scopes(op.name) for op in net.ops)
            there = [name.partition("/")[0] for name in bare if "/" in name]
            warn_user(
                f"scopes={scopes}: no op of the Net {net.name!r} is in the name scope {scope!r}, "
                f"so nothing of it is shared; name one of the Net's, such as {_some(there)}"
            )
        elif blobs and blobs.isdisjoint(_made_in(net, (scope,), None)):
            warn_user(
                f"scopes={scopes}: no gradient of the Net {net.name!r} is made in the name scope "
                f"{scope!r}, so nothing of it is shared; activations=True lets the forward "
                "part share"
            )
    if device is not None and not any(is_on(op.device, device) for op in net.ops):
        named = _some(op.device for op in net.ops if op.device)
        warn_user(
            f"device={device!r}: no op of the Net {net.name!r} names this device, so nothing is "
            f"shared; its ops name {named}; leave device out to share on any"
        )
    elif device is not None and blobs and blobs.isdisjoint(_made_in(net, None, device)):
        warn_user(
            f"device={device!r}: no gradient of the Net {net.name!r} is made by an op that names "
            "this device, so nothing is shared: gradients name the one under which tape.gradient "
            "was called; call it within tf.device(...), or leave device out to share on any"
        )


def _some(names: Iterable[str]) -> str:
    """The first of the names, each once; ``none`` where there are none."""
    told = list(dict.fromkeys(names))
    more = f" and {len(told) - _NAMED} more" if len(told) > _NAMED else ""
    return ", ".join(told[:_NAMED]) + more if told else "none"


def _with_gradients(net: Net, keep: Iterable[str], losses: Iterable[str]) -> tuple[str, ...]:
    """What keeps a storage of its own, with the gradients of these losses."""
    losses = names_of("skip_grads", losses)
    skipped = _gradient_blobs(net, losses, "skip_grads") if losses else ()
    if losses and not skipped:
        warn_user(
            f"skip_grads={losses}: no gradient of it was found in the Net {net.name!r}, so none is "
            "left out; name the loss that was differentiated, or the gradients in keep=..."
        )
    return (*names_of("keep", keep), *skipped)


def gradient_blobs(net: Net, losses: Iterable[str]) -> tuple[str, ...]:
    """The blobs of a Net's gradient part; none where it has no gradient.

    Where gradients are computed from the losses, as in nets that name them so, they are what is
    computed from the losses. TensorFlow's start from a constant and never read the loss: there they
    are what the losses do not need, if any of it reads what the losses are computed from. What is
    computed beside a loss (metrics, statistics) cannot be told from that, and may share as well.

    Args:
      net: the Net.
      losses: names of what was differentiated.

    Raises:
      NetError: the Net has no such blob.
      OptionError: no Net, or no names.
    """
    check_net(net)
    return _gradient_blobs(net, names_of("losses", losses), "losses")


def _gradient_blobs(net: Net, losses: tuple[str, ...], argument: str) -> tuple[str, ...]:
    """The same, for the argument of this name."""
    past = ssa(net)
    for loss in losses:
        if loss not in past.versions:
            raise NetError(
                f"{argument}: the Net {net.name!r} has no blob {loss!r}; its outputs are "
                f"{_some(net.outputs)}"
            )
    ends = {past.last(loss) for loss in losses}
    needed = _needed_for(past, ends)
    forward = {version for op in needed if past.reads[op] for version in past.writes[op]} - ends
    beside = [op for op in range(len(past.ops)) if op not in needed]
    for part in (_computed_from(past, ends), beside):
        if any(not forward.isdisjoint(past.reads[op]) for op in part):
            return tuple(dict.fromkeys(blob for op in part for blob in past.ops[op].outputs))
    return ()


def _computed_from(past: SsaVersions, versions: Iterable[int]) -> list[int]:
    """The ops that read the versions or what is computed from them, in order."""

    def readers(versions: Iterable[int]) -> Iterator[int]:
        return (op for version in versions for op in past.readers[version])

    return sorted(reached(readers(versions), lambda op: readers(past.writes[op])))


def _needed_for(past: SsaVersions, versions: Iterable[int]) -> set[int]:
    """The ops from which the versions are computed, by data."""

    def writers(versions: Iterable[int]) -> set[int]:
        return {past.writer[version] for version in versions} - {OUTSIDE}

    return set(reached(writers(versions), lambda op: writers(past.reads[op])))


def share_sequential(
    net: Net,
    *,
    algorithm: str = "greedy",
    order: str = "given",
    keep: Iterable[str] = (),
    blobs: Iterable[str] | None = None,
    sizes: Sizes = "shapes",
    level: int = 2,
    must_be_in_place: Pairs | None = None,
    descend: bool = True,
    skip_grads: Iterable[str] = (),
) -> Shared:
    """Shares storages among ops that run one after the other, as they stand in the result.

    Args:
      net: the Net; one that is shared already is handed back as it is.
      algorithm: ``greedy``, ``best_fit`` or ``exact``; see :func:`rnnmem.storage.assign`.
      order: ``given``, ``topological``, ``longest_path`` or ``peak``; see
        :func:`rnnmem.storage.order`.
      keep: see :func:`share_parallel`, as for all other arguments.
      blobs: see there.
      sizes: see there.
      level: see there.
      must_be_in_place: see there.
      descend: see there.
      skip_grads: see there.

    Raises:
      OptionError: no such algorithm, order or level.
      NetError: see :func:`share_parallel`.
      CheckError: the result does not verify (a defect of ours).
    """
    check_net(net)
    if algorithm not in ALGORITHMS:
        raise OptionError(f"algorithm={algorithm!r} must be one of {', '.join(ALGORITHMS)}")

    def plan(one: Net, rules: Rules) -> StoragePlan:
        live_buffers = units_of(ssa(one), rules)
        shared_storages, optimal = assign_sequential(
            live_buffers, rules.level, rules.sizes is None, algorithm
        )
        return _plan(f"sequential/{algorithm}", shared_storages, optimal)

    keep = _with_gradients(net, keep, skip_grads)
    if not is_shared(net):
        net = ordered(net, order, sizes)
    return _share(net, plan, False, keep, blobs, sizes, level, must_be_in_place, descend)


def _plan(method: str, shared_storages: list[SharedStorage], optimal: bool = False) -> StoragePlan:
    storages = tuple(
        Storage(
            shared_storage.live_buffers[0].name,
            max(live_buffer.bytes for live_buffer in shared_storage.live_buffers),
            tuple(live_buffer.name for live_buffer in shared_storage.live_buffers),
            shared_storage.live_buffers[0].kind,
        )
        for shared_storage in shared_storages
    )
    return StoragePlan(method, storages, optimal)


def _share(
    net: Net,
    plan: Callable[[Net, Rules], StoragePlan],
    parallel: bool,
    keep,
    blobs,
    sizes: Sizes,
    level: int,
    must_be_in_place,
    descend: bool,
) -> Shared:
    rules = Rules.of(net, keep, blobs, sizes, level, must_be_in_place)
    before = statistics(net, sizes or "shapes")
    if is_shared(net):
        return Shared(net, net, StoragePlan("shared already"), before, before)
    original = in_order(net)
    found = all_plans(original, rules, plan, parallel) if descend else plan(original, rules)
    shared = with_rename_maps(apply_storage_plan(original, found), found)
    verify(original, shared, parallel=parallel)
    return Shared(shared, original, found, before, statistics(shared, _after(sizes, found)))


def _after(sizes: Sizes, plan: StoragePlan) -> Sizes:
    """Sizes by name, where names are those of storages."""
    if not isinstance(sizes, Mapping):
        return "shapes"
    held = {**sizes}
    for _, step in plan.walk():
        for storage in step.storages:
            held[storage.name] = max(storage.bytes, held.get(storage.name, 0))
    return held
