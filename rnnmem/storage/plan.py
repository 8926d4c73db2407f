"""A storage plan as plain data, and its application: blobs take the name of their storage."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping

from rnnmem.errors import NetError
from rnnmem.ir.graph import Blob, Net, Op, Path

MARK = "storage_plan"
"""Name of the attribute that tells how a Net was shared; such a Net is not shared again."""
RENAME_MAP, FORWARD_RENAME_MAP = "rename_map", "forward_rename_map"
"""Attributes of a loop op: its own rename map, and of a gradient loop its forward loop's."""
GLOBAL = "//"
"""Starts the name of a storage that step nets own together."""


@dataclasses.dataclass(frozen=True)
class Storage:
    """A named buffer that several blobs use in turn.

    Attributes:
      name: of the buffer; that of the first blob that uses it.
      bytes: of the largest of its blobs; 0 where no size is known.
      blobs: that use it, in turn.
      kind: what all of them have in common: dtype, device, and class of shape.
    """

    name: str
    bytes: int
    blobs: tuple[str, ...]
    kind: tuple = ()


@dataclasses.dataclass(frozen=True)
class StoragePlan:
    """Which blobs of a Net live in one storage.

    Attributes:
      method: how it was found, e.g. ``parallel`` or ``sequential/exact``.
      storages: of blobs that may share; what does not stand here keeps its own name.
      optimal: whether no other plan over the same order and rules needs fewer bytes.
      steps: (op name, attribute name) -> the plan of that step net.
    """

    method: str
    storages: tuple[Storage, ...] = ()
    optimal: bool = False
    steps: tuple[tuple[tuple[str, str], StoragePlan], ...] = ()

    @functools.cached_property
    def rename(self) -> Mapping[str, str]:
        """Blob -> storage, for each blob that has a storage."""
        return {blob: storage.name for storage in self.storages for blob in storage.blobs}

    @property
    def bytes(self) -> int:
        """Bytes of all storages of this Net, those of step nets apart."""
        return sum(storage.bytes for storage in self.storages)

    def walk(self) -> Iterator[tuple[Path, StoragePlan]]:
        """Yields ``(path, plan)`` for this plan and those of all step nets."""
        yield Path(), self
        for (op, key), step in self.steps:
            for path, plan in step.walk():
                yield Path((op, key, *path)), plan

    @property
    def changes_nothing(self) -> bool:
        """Whether applying it renames nothing, at any depth."""
        alone = all(len(storage.blobs) == 1 for storage in self.storages)
        same = all(storage.name == storage.blobs[0] for storage in self.storages)
        return alone and same and all(step.changes_nothing for _, step in self.steps)

    def to_json(self) -> str:
        """The plan as JSON text."""
        return json.dumps(dataclasses.asdict(self), indent=1)

    @staticmethod
    def from_json(text: str) -> StoragePlan:
        """The inverse of :meth:`to_json`.

        Raises:
          ValueError: the text is no storage plan.
        """
        try:
            return _plan(json.loads(text))
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            raise ValueError(f"this is not a plan that to_json wrote: {error}") from error


def _plan(data) -> StoragePlan:
    return StoragePlan(
        data["method"],
        tuple(
            Storage(one["name"], one["bytes"], tuple(one["blobs"]), _tuple(one["kind"]))
            for one in data["storages"]
        ),
        data["optimal"],
        tuple(((op, key), _plan(step)) for (op, key), step in data["steps"]),
    )


def _tuple(data):
    return tuple(map(_tuple, data)) if isinstance(data, list) else data


def is_shared(net: Net) -> bool:
    """Whether a storage plan was applied to the Net."""
    return MARK in net.attributes


def apply_storage_plan(net: Net, plan: StoragePlan) -> Net:
    """The Net with each blob under the name of its storage, step nets included.

    A storage's Blob has the shape of the largest that it holds. The order of the ops then has a
    meaning: see :mod:`rnnmem.analysis.versions`.

    Raises:
      NetError: the plan names a blob or a step net that the Net does not have, or it is shared.
    """
    if is_shared(net):
        raise NetError(f"the Net {net.name!r} is shared already ({net.attributes[MARK]})")
    strange = [blob for blob in plan.rename if blob not in net.blobs]
    strange += [
        "/".join(path)
        for path, _ in plan.steps
        if path[0] not in net.op_by_name or path[1] not in net.op_by_name[path[0]].nets
    ]
    if strange:
        raise NetError(f"the plan is for another Net: {net.name!r} has no {strange[0]!r}")
    steps = dict(plan.steps)
    rename = plan.rename
    ops = tuple(_renamed(op, rename, steps) for op in net.ops)
    return net.replace(
        ops=ops,
        blobs=_storages(net, rename),
        attributes={**net.attributes, MARK: plan.method},
    )


def _renamed(op: Op, rename: Mapping[str, str], steps) -> Op:
    nets = {
        key: apply_storage_plan(inner, steps[op.name, key]) if (op.name, key) in steps else inner
        for key, inner in op.nets.items()
    }
    return op.replace(
        inputs=tuple(rename.get(blob, blob) for blob in op.inputs),
        outputs=tuple(rename.get(blob, blob) for blob in op.outputs),
        nets=nets,
    )


def _storages(net: Net, rename: Mapping[str, str]) -> dict[str, Blob]:
    found: dict[str, Blob] = {}
    for name, blob in net.blobs.items():
        storage = rename.get(name, name)
        held = found.get(storage)
        if held is None or (held.bytes or 0) < (blob.bytes or 0):
            found[storage] = Blob(storage, blob.dtype, blob.shape)
    return found
