"""What may share: the names of a Net that may be put in a pool, when they are used, how large.

Never pooled: what comes from outside or goes there, names to keep, handles (variables, lists,
strings), zero-rank values, what an op writes into host memory, what a list keeps, and a loop's
carried values. A view (Identity, Reshape) has no memory of its own: it prolongs the life of what it
shows.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Collection, Iterable, Mapping

from rnnmem.analysis.live_ranges import ALREADY, HOST, views
from rnnmem.analysis.versions import OUTSIDE, SsaVersions
from rnnmem.errors import NetError, OptionError, RnnmemWarning
from rnnmem.ir.graph import BYTES_PER_ELEMENT, Blob, Net, Op, Path
from rnnmem.sizes import counted
from rnnmem.storage.arguments import names_of

LEVELS = (0, 1, 2)
"""0: equal shapes share; 1: a storage at least as large; 2: a storage may grow."""

Sizes = Mapping[str, int] | str | None
"""Bytes by name; ``"shapes"``: as the shapes say; None: sizes are not looked at."""


@dataclasses.dataclass(slots=True)
class LiveBuffer:
    """A name that may be pooled, with everything that shows it.

    Attributes:
      name: of the blob.
      kind: only units of one kind share.
      size: bytes, or bytes per element of the batch, or 0 where unknown or not looked at.
      bytes: for statistics; 0 where unknown.
      defined: the op that first writes it.
      last: the ops one of which uses it last, in any order that may be run.
    """

    name: str
    kind: tuple
    size: int
    bytes: int
    defined: int
    last: tuple[int, ...]

    @property
    def used(self) -> int:
        """The op that uses it last when ops run one after the other."""
        return max(self.last)


@dataclasses.dataclass(frozen=True)
class Rules:
    """What sharing must respect.

    Attributes:
      keep: names that keep a storage of their own.
      only: names that may share; None: all.
      sizes: see ``Sizes``.
      level: see ``LEVELS``.
      must_be_in_place: op type -> (input slot, output slot) pairs that must be one name.
    """

    keep: frozenset[str] = frozenset()
    only: frozenset[str] | None = None
    sizes: Sizes = "shapes"
    level: int = 2
    must_be_in_place: Mapping[str, tuple[tuple[int, int], ...]] = dataclasses.field(
        default_factory=dict
    )

    @staticmethod
    def of(net: Net, keep, only, sizes, level, must_be_in_place) -> Rules:
        """The rules, checked against the Net.

        Raises:
          OptionError: a level or sizes that do not exist.
          NetError: a name that the Net does not have, or an op that must be in place and is not.
        """
        if isinstance(level, bool) or level not in LEVELS:
            raise OptionError(f"level={level!r} must be one of {', '.join(map(str, LEVELS))}")
        if not (sizes is None or sizes == "shapes" or isinstance(sizes, Mapping)):
            raise OptionError(
                f"sizes={sizes!r} must be 'shapes', a mapping of names to bytes, or None"
            )
        rules = Rules(
            frozenset(_known(net, "keep", keep)),
            None if only is None else frozenset(_known(net, "blobs", only)),
            sizes,
            level,
            must_be_in_place or {},
        )
        for _, inner in net.walk():
            for op in inner.ops:
                _check_in_place(op, rules)
        return rules

    def inside(self, path: Path) -> Rules:
        """The rules in the step net at a path; sizes are given there by the path and the name."""
        if not path or not isinstance(self.sizes, Mapping):
            return self
        prefix = f"{path.text}/"
        sizes = {
            name.removeprefix(prefix): size
            for name, size in self.sizes.items()
            if name.startswith(prefix)
        }
        return dataclasses.replace(self, sizes=sizes)


def _known(net: Net, argument: str, names: Iterable[str]) -> Collection[str]:
    names = names_of(argument, names)
    here = {
        blob
        for _, inner in net.walk()
        for op in inner.ops
        for blob in (*op.inputs, *op.outputs, *inner.inputs)
    } | set(net.inputs)
    for name in names:
        if name not in here:
            raise NetError(f"{argument}: the Net {net.name!r} has no blob {name!r}")
    return names


def _check_in_place(op: Op, rules: Rules) -> None:
    pairs = (*rules.must_be_in_place.get(op.type, ()), *op.attributes.get("in_place", ()))
    for i, j in pairs:
        if op.inputs[i] != op.outputs[j]:
            raise NetError(
                f"op {op.name!r} ({op.type}) must be in place: output {j} is {op.outputs[j]!r} "
                f"and should be {op.inputs[i]!r}, its input {i}"
            )


def units_of(past: SsaVersions, rules: Rules) -> list[LiveBuffer]:
    """The units of a Net, in the order in which they are first written."""
    return _Finder(past, rules).run()


class _Finder:
    def __init__(self, past: SsaVersions, rules: Rules):
        self.past, self.rules, self.net = past, rules, past.net
        self.shows = views(past)
        self.outside = {*self.net.outputs, *rules.keep}
        self.shown_by: dict[str, list[str]] = {}
        for view, root in self.shows.items():
            self.shown_by.setdefault(root, []).append(view)
        self.unknown: list[str] = []

    def run(self) -> list[LiveBuffer]:
        members: dict[str, list[str]] = {}
        for name in self.past.versions:
            members.setdefault(self._root(name), []).append(name)
        closed = {self._root(name) for name in self._closed()}
        found = []
        for root, names in members.items():
            if root in closed or (self.rules.only is not None and root not in self.rules.only):
                continue
            live_buffer = self._unit(root, names)
            if live_buffer is not None:
                found.append(live_buffer)
        if self.unknown:
            warnings.warn(
                f"no known size, taken as 0: {counted(len(self.unknown), 'blob')}, "
                f"e.g. {self.unknown[0]!r}: give sizes=..., or collect them by running once",
                RnnmemWarning,
                stacklevel=5,
            )
        return sorted(found, key=lambda live_buffer: live_buffer.defined)

    def _root(self, name: str) -> str:
        return self.shows.get(name, name)

    def _closed(self) -> Iterable[str]:
        yield from self.net.inputs
        yield from self.net.outputs
        yield from self.rules.keep
        for op in self.net.ops:
            if op.type in ALREADY or op.type in HOST:
                yield from op.outputs
            if op.nets:
                yield from op.outputs  # they may be an input's own buffer

    def _held(self, version: int) -> set[int] | None:
        """Ops until which lists keep a value, if any do; None where one leaves the Net."""
        past = self.past
        found: set[int] = set()
        pending = [
            written
            for index in past.readers[version]
            for written in past.writes[index]
            if self._is_handle(past.name[written])
        ]
        seen = set(pending)
        for held in pending:
            if past.name[held] in self.outside:
                return None
            found.update(past.readers[held] or (past.writer[held],))
            for index in past.readers[held]:
                # What comes out of a list may be the buffer that went in.
                if past.ops[index].nets:
                    return None
                fresh = [one for one in past.writes[index] if one not in seen]
                seen.update(fresh)
                pending += fresh
            for view in self.shown_by.get(past.name[held], ()):
                if past.last(view) not in seen:
                    seen.add(past.last(view))
                    pending.append(past.last(view))
        return found

    def _is_handle(self, blob: str) -> bool:
        known = self.net.blobs.get(blob)
        return known is not None and known.dtype not in BYTES_PER_ELEMENT

    def _unit(self, root: str, names: list[str]) -> LiveBuffer | None:
        past = self.past
        blob = self.net.blobs.get(root, Blob(root, "float32"))
        if blob.dtype not in BYTES_PER_ELEMENT or (self._by_shape and blob.shape == ()):
            return None
        first = past.writer[past.versions[root][0]]
        if first == OUTSIDE:
            return None
        writers = {past.writer[version] for version in past.versions[root]}
        if len({past.ops[index].device for index in writers if index != OUTSIDE}) > 1:
            return None
        last: set[int] = set()
        for name in names:
            version = past.last(name)
            last.update(past.readers[version] or (past.writer[version],))
            for one in past.versions[name]:
                held = self._held(one)
                if held is None:
                    return None
                last.update(held)
        group, size = self._class(blob)
        kind = (blob.dtype, past.ops[first].device, group)
        taken = size if group in ((), ("known",)) else blob.bytes or 0
        return LiveBuffer(root, kind, size, taken, first, tuple(sorted(last)))

    @property
    def _by_shape(self) -> bool:
        return self.rules.sizes == "shapes"

    def _class(self, blob: Blob) -> tuple[tuple, int]:
        """What only shares with its like, and the size by which it is compared with those."""
        sizes = self.rules.sizes
        if sizes is None:
            return (), 0
        if isinstance(sizes, Mapping):
            size = sizes.get(blob.name, blob.bytes)
            if size is None:
                self.unknown.append(blob.name)
                size = 0
            return (("size", size) if self.rules.level == 0 else ("known",)), size
        if blob.shape is None:
            self.unknown.append(blob.name)
            return ("unknown",), 0
        rest = blob.shape[1:] if blob.shape and blob.shape[0] is None else blob.shape
        size = BYTES_PER_ELEMENT[blob.dtype]
        for dimension in rest:
            if dimension is None:
                return ("shape", blob.shape), 0
            size *= dimension
        if self.rules.level == 0:
            return ("shape", blob.shape), size
        return ("known",) if len(rest) == len(blob.shape) else ("batch",), size
