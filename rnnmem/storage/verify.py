"""Verifies a shared Net by what stands in it, and run before any is returned.

They follow Caffe2's: every op has the same producers per input in order, and the same in-place
pairs; names are irrelevant. On top of that no storage changes its dtype or its device, a view
never outlives what it shows, and under parallel execution every overwriting waits for all users.
"""

from __future__ import annotations

from rnnmem.analysis.live_ranges import views
from rnnmem.analysis.reachability import all_come_before
from rnnmem.analysis.versions import OUTSIDE, SsaVersions, ssa
from rnnmem.errors import CheckError
from rnnmem.ir.graph import Net
from rnnmem.storage.descent import forward_loops
from rnnmem.storage.plan import FORWARD_RENAME_MAP, RENAME_MAP


def verify(before: Net, after: Net, *, parallel: bool = False) -> None:
    """Checks that a Net with shared storages computes what it computed before.

    Args:
      before: the Net whose blobs have names of their own, its ops in the order in which they run.
      after: the same with names of storages.
      parallel: whether the ops may interleave in any way that the data and control edges of
        ``before`` allow; else they run in the order in which they stand.

    Raises:
      CheckError: starts with what is wrong: ``ops-changed``, ``producer-changed``,
        ``in-place-changed``, ``output-changed``, ``dtype-changed``, ``device-changed``,
        ``view-overwritten``, ``not-ordered`` or ``rename-map-missing``.
    """
    old, new = ssa(before), ssa(after)
    _same_ops(old, new)
    _same_producers(old, new)
    _same_outputs(old, new)
    _same_in_place(old, new)
    _same_kinds(before, after)
    _views_hold(old, new)
    if parallel:
        _is_ordered(old, new)
    _rename_maps(after)
    for op in before.ops:
        for key, inner in op.nets.items():
            verify(inner, after.op_by_name[op.name].nets[key], parallel=parallel)


def same_producers(one: Net, other: Net) -> bool:
    """Whether every op of both Nets reads the same ops' results, per input in order.

    Ops are told apart by their place among the ops of their type; names are irrelevant.
    """
    return _shape(ssa(one)) == _shape(ssa(other))


def _shape(past: SsaVersions) -> list[tuple]:
    given = {version: place for place, version in _inputs(past).items()}
    result = []
    for index, op in enumerate(past.ops):
        sources = []
        for version in past.reads[index]:
            writer = past.writer[version]
            sources.append(
                ("input", given[version])
                if writer == OUTSIDE
                else (writer, past.writes[writer].index(version))
            )
        result.append((op.type, tuple(sources), len(op.outputs)))
    return result


def _inputs(past: SsaVersions) -> dict[int, int]:
    return {place: past.versions[blob][0] for place, blob in enumerate(past.net.inputs)}


def _same_ops(old: SsaVersions, new: SsaVersions) -> None:
    for one, other in zip(old.ops, new.ops, strict=False):
        if (one.name, one.type, one.controls) != (other.name, other.type, other.controls):
            raise CheckError(f"ops-changed: {one.name!r} ({one.type}) became {other.name!r}")
    if len(old.ops) != len(new.ops):
        raise CheckError(f"ops-changed: {len(old.ops)} ops became {len(new.ops)}")


def _source(past: SsaVersions, version: int) -> tuple:
    """Who wrote a version: an op's output, or an input of the Net."""
    writer = past.writer[version]
    if writer == OUTSIDE:
        return (OUTSIDE, past.name[version])
    return (writer, past.writes[writer].index(version))


def _same_producers(old: SsaVersions, new: SsaVersions) -> None:
    for index, op in enumerate(old.ops):
        reads = zip(old.reads[index], new.reads[index], strict=True)
        for slot, (one, other) in enumerate(reads):
            if _source(old, one) != _source(new, other):
                raise CheckError(
                    f"producer-changed: input {slot} of {op.name!r} was {old.name[one]!r} and is "
                    f"{new.name[other]!r}, which holds another value then"
                )


def _same_outputs(old: SsaVersions, new: SsaVersions) -> None:
    for one, other in zip(old.net.outputs, new.net.outputs, strict=True):
        if one != other or _source(old, old.last(one)) != _source(new, new.last(other)):
            raise CheckError(f"output-changed: {one!r} is {other!r} or is overwritten")


def _same_in_place(old: SsaVersions, new: SsaVersions) -> None:
    for index, op in enumerate(old.ops):
        if old.in_place(index) != new.in_place(index):
            raise CheckError(
                f"in-place-changed: {op.name!r} had the pairs {sorted(old.in_place(index))} and "
                f"has {sorted(new.in_place(index))}"
            )


def _same_kinds(before: Net, after: Net) -> None:
    devices: dict[str, str] = {}
    for one, other in zip(ssa(before).ops, ssa(after).ops, strict=True):
        for blob, storage in zip(one.outputs, other.outputs, strict=True):
            old, new = before.blobs.get(blob), after.blobs.get(storage)
            if old is not None and new is not None and old.dtype != new.dtype:
                raise CheckError(f"dtype-changed: {blob!r} ({old.dtype}) in a {new.dtype} storage")
            if blob != storage and devices.setdefault(storage, one.device) != one.device:
                raise CheckError(f"device-changed: {storage!r} is used on two devices")


def _views_hold(old: SsaVersions, new: SsaVersions) -> None:
    """What a view shows is not overwritten while the view is read."""
    for view, root in _shown(old).items():
        used = max((old.writer[old.last(view)], *old.readers[old.last(view)]))
        if view in old.net.outputs:
            used = len(old.ops)
        first = old.writer[old.versions[root][0]]
        if first == OUTSIDE:
            continue
        version = new.writes[first][old.writes[first].index(old.versions[root][0])]
        storage = new.versions[new.name[version]]
        place = storage.index(version) + 1
        if place < len(storage) and new.writer[storage[place]] <= used:
            raise CheckError(
                f"view-overwritten: {view!r} shows {root!r}, whose storage {new.name[version]!r} "
                f"is overwritten by {new.ops[new.writer[storage[place]]].name!r}"
            )


def _shown(old: SsaVersions) -> dict[str, str]:
    """View -> what it shows, where the Net itself does not overwrite that."""
    return {view: root for view, root in views(old).items() if len(old.versions[root]) == 1}


def _is_ordered(old: SsaVersions, new: SsaVersions) -> None:
    """Each overwriting comes after all users of what it overwrites, however the ops interleave."""
    shows: dict[str, list[str]] = {}
    for view, root in _shown(old).items():
        shows.setdefault(root, []).append(view)
    questions = []
    for versions in new.versions.values():
        for one, other in zip(versions, versions[1:], strict=False):
            later = new.writer[other]
            users = {new.writer[one], *new.readers[one]}
            for view in shows.get(_old_name(old, new, one), ()):
                users.update(old.readers[old.last(view)])
            questions += [(user, later) for user in users if user not in (later, OUTSIDE)]
    wrong = all_come_before(old.before, questions)
    if wrong is not None:
        before, after = (new.ops[index].name for index in wrong)
        raise CheckError(
            f"not-ordered: {after!r} overwrites what {before!r} uses; nothing orders them"
        )


def _old_name(old: SsaVersions, new: SsaVersions, version: int) -> str:
    writer = new.writer[version]
    if writer == OUTSIDE:
        return new.name[version]
    return old.name[old.writes[writer][new.writes[writer].index(version)]]


def _rename_maps(after: Net) -> None:
    """A gradient loop is told what became of the names of its forward loop."""
    for forward, gradient in forward_loops(after):
        known = gradient.attributes.get(FORWARD_RENAME_MAP)
        if known != forward.attributes.get(RENAME_MAP):
            raise CheckError(
                f"rename-map-missing: {gradient.name!r} does not know the rename map of "
                f"{forward.name!r}"
            )
