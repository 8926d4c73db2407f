"""Whether a Net is well formed, at every depth: names, links, dtypes, arities, no cycle."""

from __future__ import annotations

from collections.abc import Hashable

from rnnmem.ir.graph import DType, Net, Op
from rnnmem.ir.op_table import BRANCHES, LOOPS
from rnnmem.verify.errors import refused
from rnnmem.verify.order import RunningOrder
from rnnmem.verify.signatures import Signs

Signature = tuple[tuple[str, ...], tuple[str, ...]]
Signatures = dict[Hashable, set[Signature]]
"""Sign of an op -> the dtypes that such ops read and write."""

_LISTS_OF_TYPES = {
    "While": ("T", "T"),
    "StatelessWhile": ("T", "T"),
    "If": ("Tin", "Tout"),
    "StatelessIf": ("Tin", "Tout"),
    "Case": ("Tin", "Tout"),
    "StatelessCase": ("Tin", "Tout"),
    "PartitionedCall": ("Tin", "Tout"),
    "StatefulPartitionedCall": ("Tin", "Tout"),
}


def verify_form(
    net: Net, order: RunningOrder, signs: Signs, known: Signatures | None = None
) -> Signatures:
    """Refuses a Net that is not well formed.

    Args:
      net: the Net.
      order: finds the running orders.
      signs: finds the ops' signs.
      known: what another Net's ops read and write; an op of the same sign must do the same here.

    Returns:
      What this Net's ops read and write.
    """
    form = _Form(order, signs, known)
    form.net(net)
    return form.signatures


def verify_signature(original: Net, rewritten: Net) -> None:
    """Refuses other inputs or outputs of the whole Net."""
    if original.inputs != rewritten.inputs:
        raise refused("signature-changed", f"the inputs are {rewritten.inputs}")
    for what in ("inputs", "outputs"):
        before = [original.blobs[blob].dtype for blob in getattr(original, what)]
        after = [rewritten.blobs[blob].dtype for blob in getattr(rewritten, what)]
        if before != after:
            raise refused("signature-changed", f"the {what} were {before} and are {after}")


def verify_devices(original: Net, rewritten: Net) -> None:
    """Refuses an op of the original that stands elsewhere now."""
    if original is rewritten:
        return
    for op in rewritten.ops:
        before = original.op_by_name.get(op.name)
        if before is None or before is op or before.type != op.type:
            continue
        if before.device != op.device:
            sentence = f"{op.name!r} moved from {before.device!r} to {op.device!r}"
            raise refused("device-changed", sentence, rewritten, (op.name,))
        for label, net in op.nets.items():
            if label in before.nets:
                verify_devices(before.nets[label], net)


class _Form:
    def __init__(self, order: RunningOrder, signs: Signs, known: Signatures | None):
        self.order, self.signs = order, signs
        self.known = known
        self.signatures: Signatures = {}
        self.verified: dict[int, Net] = {}

    def net(self, net: Net) -> None:
        if id(net) in self.verified:
            return
        self.verified[id(net)] = net
        self.names(net)
        self.order.of(net)
        for op in net.ops:
            if op.nets:
                self.composite(net, op)
                for inner in op.nets.values():
                    self.net(inner)
            else:
                self.plain(net, op)

    def names(self, net: Net) -> None:
        """Every name is given once, every blob that is named is known and made by someone."""
        ops: set[str] = set()
        made = set(net.inputs)
        if len(made) != len(net.inputs):
            raise refused("duplicate-blob", f"{net.name!r} names an input twice")
        for op in net.ops:
            if op.name in ops:
                raise refused("duplicate-op", f"two ops are {op.name!r}", net, (op.name,))
            ops.add(op.name)
            for blob in op.outputs:
                if blob in made:
                    raise refused("duplicate-blob", f"{blob!r} is made twice", net, (op.name,))
                made.add(blob)
        if not made <= net.blobs.keys():
            for blob in sorted(made - net.blobs.keys()):
                names = [op.name for op in net.ops if blob in op.outputs]
                raise refused("missing-blob", f"nothing is known of {blob!r}", net, names)
        for op in net.ops:
            if not made.issuperset(op.inputs):
                blob = next(blob for blob in op.inputs if blob not in made)
                text = f"{op.name!r} reads {blob!r}, which no op writes"
                raise refused("undefined-input", text, net, (op.name,))
            if not ops.issuperset(op.controls):
                name = next(name for name in op.controls if name not in ops)
                text = f"{op.name!r} waits for {name!r}, which does not exist"
                raise refused("undefined-control", text, net, (op.name,))
        for blob in net.outputs:
            if blob not in made:
                raise refused("undefined-output", f"no op writes the output {blob!r}", net)
        for name in net.control_outputs:
            if name not in ops:
                raise refused("undefined-control", f"the control output {name!r} is gone", net)

    def plain(self, net: Net, op: Op) -> None:
        """An op of a known sign reads and writes the dtypes that such ops read and write."""
        blobs = net.blobs
        reads = tuple([blobs[blob].dtype for blob in op.inputs])
        writes = tuple([blobs[blob].dtype for blob in op.outputs])
        sign = self.signs.of(op)
        seen = self.signatures.get(sign)
        if seen is None:
            seen = self.signatures[sign] = set()
        if (reads, writes) in seen:
            return
        seen.add((reads, writes))
        expected = self._expected(op, sign)
        if expected and (reads, writes) not in expected:
            text = f"{op.name!r} reads {reads} and writes {writes}"
            raise refused("dtype-mismatch", text, net, (op.name,))

    def _expected(self, op: Op, sign: Hashable) -> set[Signature]:
        """What such an op may read and write, as far as that is known."""
        known = self.known.get(sign) if self.known else None
        if known is not None:
            return known
        element = _name(op.attributes.get("element_dtype"))
        same = _name(op.attributes.get("T"))
        if op.type == "TensorListPushBack" and element:
            return {(("variant", element), ("variant",))}
        if op.type == "TensorListPopBack" and element:
            return {(("variant", "int32"), ("variant", element))}
        if op.type in ("Identity", "EnsureShape") and same:
            return {((same,), (same,))}
        if op.type == "PlaceholderWithDefault" and _name(op.attributes.get("dtype")):
            same = _name(op.attributes["dtype"])
            return {((same,), (same,))}
        return set()

    def composite(self, net: Net, op: Op) -> None:
        """The links between an op's outside and the Nets that it runs."""
        outside = [net.blobs[blob].dtype for blob in op.inputs]
        results = [net.blobs[blob].dtype for blob in op.outputs]
        fed = outside[1:] if op.type in BRANCHES else outside
        for label, inner in op.nets.items():
            given = [_dtype(inner, blob) for blob in inner.inputs]
            handed = [_dtype(inner, blob) for blob in inner.outputs]
            is_cond = op.type in LOOPS and label == "cond"
            if is_cond and len(handed) != 1:
                text = f"the cond of {op.name!r} has {len(handed)} outputs"
                raise refused("loop-arity", text, net, (op.name,))
            self._link(net, op, f"{label} takes", fed, given)
            if not is_cond:
                self._link(net, op, f"{label} hands back", results, handed)
            described = inner.attributes.get("argument_attributes")
            if described is not None and len(described) != len(inner.inputs):
                text = f"{label} of {op.name!r} describes {len(described)} arguments"
                raise refused("attribute-arity", text, net, (op.name,))
        if op.type in LOOPS:
            self._link(net, op, "hands outside", fed, results)
        self._attributes(net, op, fed, results)

    def _link(self, net: Net, op: Op, what: str, one: list[str], other: list[str]) -> None:
        if len(one) != len(other):
            reason = "loop-arity" if op.type in LOOPS else "branch-arity"
            text = f"{op.name!r} has {len(one)} blobs, but {what} {len(other)}"
            raise refused(reason, text, net, (op.name,))
        for place, (mine, yours) in enumerate(zip(one, other, strict=True)):
            if mine != yours:
                text = f"blob {place} of {op.name!r} is {mine}, but {what} {yours}"
                raise refused("dtype-mismatch", text, net, (op.name,))

    def _attributes(self, net: Net, op: Op, fed: list[str], results: list[str]) -> None:
        """What an op writes down of its links must say what they are."""
        takes, gives = _LISTS_OF_TYPES.get(op.type, ("", ""))
        for key, dtypes in ((takes, fed), (gives, results)):
            written = op.attributes.get(key)
            if written is not None and [_name(dtype) for dtype in written] != dtypes:
                text = f"{key} of {op.name!r} is not what its blobs are"
                raise refused("attribute-arity", text, net, (op.name,))
        shapes = op.attributes.get("output_shapes")
        if shapes and len(shapes) != len(results):
            text = f"{op.name!r} has {len(shapes)} output shapes for {len(results)} outputs"
            raise refused("attribute-arity", text, net, (op.name,))
        for place in op.attributes.get("_read_only_resource_inputs") or ():
            dtypes = [net.blobs[blob].dtype for blob in op.inputs]
            if not 0 <= place < len(dtypes) or dtypes[place] != "resource":
                text = f"input {place} of {op.name!r} is marked as a resource"
                raise refused("attribute-arity", text, net, (op.name,))


def _dtype(net: Net, blob: str) -> str:
    # The inner Net is verified after its links, so it may still name blobs that nobody knows.
    return net.blobs[blob].dtype if blob in net.blobs else "unknown"


def _name(dtype: object) -> str:
    return dtype.name if isinstance(dtype, DType) else ""
