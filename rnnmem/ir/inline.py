"""Inlining: a called function's ops take the place of the call, in every Net at any depth.

The control edges follow TensorFlow's own inliner, so that the runtime would build the same graph:
what the call waited for, the body's inputs wait for; what waited for the call waits for the body's
control outputs. In a step net every call is entered by an op that its constants wait for, so that
they are not taken for equal ones outside where no graph optimizer runs; it takes that op away here
and there alike (:mod:`rnnmem.grappler.cse` has what follows). Loops remember which of their
variables a call gave them (:mod:`rnnmem.grappler.boundaries`).

A call of a function that the device chose TensorFlow does not inline: so that its graph optimizer
sees as little of the results as it did, these go through an optional each.
"""

from __future__ import annotations

from collections.abc import Mapping

from rnnmem.ir.graph import BYTES_PER_ELEMENT, Blob, DType, Net, Op, ShapeValue
from rnnmem.ir.lines import either
from rnnmem.ir.marks import GIVEN
from rnnmem.ir.op_table import BRANCHES, CALLS, LOOPS, UNWRAP, WRAP

_CLOSED_MARKS = ("_noinline", "_XlaMustCompile", "api_implements", "_XlaCompile")


def is_open_call(op: Op) -> bool:
    """Whether the op is a plain function call whose body may stand in its place."""
    if op.type not in CALLS or "f" not in op.nets:
        return False
    return not _marked(op, *_CLOSED_MARKS)


def is_compiled_call(op: Op) -> bool:
    """Whether the op is a call that XLA compiles."""
    return op.type in CALLS and "f" in op.nets and _marked(op, "_XlaMustCompile")


def _marked(op: Op, *marks: str) -> bool:
    """Whether a call or the function that it calls has one of these attributes."""
    found = {**op.nets["f"].attributes.get("attributes", {}), **op.attributes}
    return any(found.get(mark) for mark in marks)


def _is_chosen(op: Op) -> bool:
    """Whether TensorFlow chose the function by the device, and therefore leaves the call a call."""
    return _marked(op, "api_preferred_device")


def inline(net: Net) -> Net:
    """The Net with every open call inlined, here and in all step nets."""
    return _inlined(net, {}, inside=False)


_Done = dict[tuple[int, bool], tuple[Net, Net]]
"""``(id of a Net, whether it is in a step net)`` -> the Net, and what inlining makes of it."""


def _inlined(net: Net, done: _Done, *, inside: bool) -> Net:
    key = id(net), inside
    if key not in done:
        done[key] = net, _Inliner(net, done, inside).result()
    return done[key][1]


def _starts(op: Op) -> bool:
    """Whether nothing runs before the op."""
    return not op.inputs and not op.controls


class _Inliner:
    def __init__(self, net: Net, done: _Done, inside: bool):
        self.net = net
        self.done = done
        self.inside = inside
        self.ops: list[Op] = []
        self.blobs: dict[str, Blob] = dict(net.blobs)
        self.stands_for: dict[str, str] = {}
        self.waits_on: dict[str, tuple[str, ...]] = {}
        self.taken = {op.name for op in net.ops}

    def result(self) -> Net:
        for op in self.net.ops:
            is_open = is_open_call(op)
            nets = {
                key: _inlined(inner, self.done, inside=self.inside or not is_open)
                for key, inner in op.nets.items()
            }
            op = op.replace(nets=nets) if nets else op
            if is_open:
                self._call(op)
            else:
                self.ops.append(op)
        if not self.stands_for and not self.waits_on:
            same = all(old is new for old, new in zip(self.net.ops, self.ops, strict=True))
            return self.net if same else self.net.replace(ops=tuple(self.ops))
        return self.net.replace(
            ops=tuple(self._resolved(op) for op in self.ops),
            outputs=tuple(self._blob(blob) for blob in self.net.outputs),
            control_outputs=self._waits(self.net.control_outputs),
            blobs=self.blobs,
        )

    def _call(self, call: Op) -> None:
        body = call.nets["f"]
        prefix = self._free_prefix(call.name)
        enter = None
        if call.controls or (self.inside and any(_starts(op) for op in body.ops)):
            enter = Op(f"{prefix}/enter", "NoOp", controls=call.controls, device=call.device)
            self.ops.append(enter)
        renamed = {}
        for outer, inner in zip(call.inputs, body.inputs, strict=True):
            renamed[inner] = (
                self._delayed(outer, inner, prefix, enter, body)
                if enter and call.controls
                else outer
            )
        for op in body.ops:
            renamed.update({blob: f"{prefix}/{blob}" for blob in op.outputs})
        arguments = {blob: place for place, blob in enumerate(body.inputs)}
        for op in body.ops:
            op = _with_given(op, arguments, prefix)
            self.ops.append(self._moved(op, prefix, renamed, call, enter))
            for blob in op.outputs:
                self.blobs[renamed[blob]] = _named(body.blobs[blob], renamed[blob])
        given = [renamed[inner] for inner in body.outputs]
        if _is_chosen(call):
            given = [self._hidden(call, *one) for one in zip(call.outputs, given, strict=True)]
        for outer, inner in zip(call.outputs, given, strict=True):
            if outer != inner:
                self.stands_for[outer] = inner
        waits = tuple(f"{prefix}/{name}" for name in body.control_outputs)
        self.waits_on[call.name] = waits or ((enter.name,) if enter and call.controls else ())

    def _delayed(self, outer: str, inner: str, prefix: str, enter: Op, body: Net) -> str:
        """An Identity of an argument that waits for what the call waited for."""
        name = f"{prefix}/input/{inner.replace(':', '_')}"
        blob = _named(body.blobs[inner], f"{name}:0")
        self.blobs[blob.name] = blob
        self.ops.append(
            Op(
                name,
                "Identity",
                (outer,),
                (blob.name,),
                {"T": DType(blob.dtype)},
                (enter.name,),
                device=enter.device,
            )
        )
        return blob.name

    def _hidden(self, call: Op, outer: str, given: str) -> str:
        """What a call gave, of which the graph optimizer sees as little as of a call's result."""
        blob = self.blobs[outer]
        if blob.dtype not in BYTES_PER_ELEMENT:
            return given
        name, number = call.name, 0
        while f"{name}:0" != outer and name in self.taken:
            number += 1
            name = f"{call.name}_{number}"
        self.taken.add(name)
        held = Blob(f"{name}/held:0", "variant", ())
        seen = Blob(f"{name}:0", blob.dtype, blob.shape)
        self.blobs |= {held.name: held, seen.name: seen}
        kind = (DType(blob.dtype),)
        wrap = Op(f"{name}/held", WRAP, (given,), (held.name,), {"Toutput_types": kind})
        shown = {"output_types": kind, "output_shapes": (ShapeValue(None),)}
        unwrap = Op(name, UNWRAP, (held.name,), (seen.name,), shown, source=call.source)
        self.ops += [wrap, unwrap]
        return seen.name

    def _moved(self, op: Op, prefix: str, renamed, call: Op, enter: Op | None) -> Op:
        controls = tuple(f"{prefix}/{name}" for name in op.controls)
        if enter is not None and _starts(op):
            controls = (enter.name,)
        attributes = op.attributes
        if "_class" in attributes:
            attributes = {**attributes, "_class": _colocated(attributes["_class"], prefix)}
        return op.replace(
            name=f"{prefix}/{op.name}",
            inputs=tuple(renamed[blob] for blob in op.inputs),
            outputs=tuple(renamed[blob] for blob in op.outputs),
            controls=controls,
            attributes=attributes,
            device=op.device or call.device,
            source=either(op.source, call.source),
        )

    def _free_prefix(self, name: str) -> str:
        """The call's name, or one made from it, under which no other op stands."""
        prefix, number = name, 0
        while any(taken.startswith(f"{prefix}/") for taken in self.taken):
            number += 1
            prefix = f"{name}_{number}"
        self.taken.add(f"{prefix}/")
        return prefix

    def _blob(self, blob: str) -> str:
        while blob in self.stands_for:
            blob = self.stands_for[blob]
        return blob

    def _waits(self, controls: tuple[str, ...]) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for name in controls:
            for waited in self.waits_on.get(name, (name,)):
                found[waited] = None
        return tuple(found)

    def _resolved(self, op: Op) -> Op:
        return op.replace(
            inputs=tuple(self._blob(blob) for blob in op.inputs),
            controls=self._waits(op.controls),
        )


def _named(blob: Blob, name: str) -> Blob:
    return Blob(name, blob.dtype, blob.shape)


def _colocated(marks: tuple, prefix: str) -> tuple:
    """Colocation marks name ops of the same Net, so they move with it."""
    start = b"loc:@"
    return tuple(
        start + f"{prefix}/".encode() + mark[len(start) :] if mark.startswith(start) else mark
        for mark in marks
    )


def _with_given(op: Op, arguments: Mapping[str, int], prefix: str) -> Op:
    """The op of a called body as it stands behind the call, knowing what the call gave it.

    What a call inside the body gave it, it knows already.

    Args:
      op: any op of the body.
      arguments: blob of the body -> place among the call's arguments.
      prefix: before the names of the body's ops, from now on.
    """
    if op.type not in LOOPS and op.type not in BRANCHES:
        return op
    before = op.attributes.get(GIVEN) or (b"",) * len(op.inputs)
    given = tuple(
        f"{prefix}/".encode() + known
        if known
        else f"{prefix}:{arguments[blob]}".encode()
        if blob in arguments
        else b""
        for blob, known in zip(op.inputs, before, strict=True)
    )
    return op.replace(attributes={**op.attributes, GIVEN: given}) if any(given) else op
