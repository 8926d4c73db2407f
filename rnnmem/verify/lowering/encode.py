"""Lowering of encodings: recognises what encodes a pushed blob and decodes a popped one, op by op.

Of ops that keep booleans as bits, or numbers as their signs or rounded, these are shown:

    bits      what is decoded is the boolean that was encoded: eight bytes of 0 or 1 are one
              number, a product gathers their lowest bits in its highest byte, and another product
              and a mask put bit j back into byte j; the shape is a constant, or was kept too
    signs     the same of ``x > 0``; what is decoded is above 0 where x is, and is read by ops alone
              that ask for no more
    bfloat16  what is decoded is x, rounded; it was in a list meanwhile, and nobody else reads it

The Net handed out has one op each, `ENCODED` and `DECODED`, with the form they share. Whether the
two meet in a list is left to value numbering, where decoding undoes encoding.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

from rnnmem.ir.graph import Net, Op, static
from rnnmem.ir.marks import DECODES, ENCODES
from rnnmem.ir.op_table import POP, PUSH
from rnnmem.verify.errors import refused
from rnnmem.verify.lowering.patterns import dtype_name, made_by, number

ENCODED, DECODED = "rnnmem.Encoded", "rnnmem.Decoded"
"""Op types of the verifier alone."""

_UNLIKE = "not as a saved copy is written"
_GATHERS, _SPREADS, _SELECTS = 0x0102040810204080, 0x0101010101010101, 0x8040201008040201
_ASKS_SIGN = {"LeakyReluGrad": 1, "ReluGrad": 1}


def verify_roundings(net: Net, allowed: bool) -> None:
    """Refuses a rounded copy that is more than a saved one, or that nobody allowed.

    Raises:
      CheckError: a copy is rounded, and that is not allowed, or it does not go through a list.
    """
    for _, inner in net.walk():
        for op in inner.ops:
            encodes = op.attributes.get(ENCODES) == b"bfloat16"
            if not encodes and op.attributes.get(DECODES) != b"bfloat16":
                continue
            if not allowed:
                raise _refused(inner, op, "a saved copy is rounded, which is not allowed")
            kept = _is_only_pushed if encodes else _was_popped
            if not kept(inner, op):
                raise _refused(inner, op, "what is rounded is not just saved")


def lower_encodings(net: Net) -> Net:
    """The Net with one op in place of those that encode a blob, and one of those that decode it.

    Raises:
      CheckError: ops are marked as such, and are not shown to be.
    """
    changed = {}
    for op in net.ops:
        if op.nets:
            nets = {label: lower_encodings(inner) for label, inner in op.nets.items()}
            if any(nets[label] is not inner for label, inner in op.nets.items()):
                changed[op.name] = op.replace(nets=nets)
        for mark, type in ((ENCODES, ENCODED), (DECODES, DECODED)):
            held = op.attributes.get(mark)
            if held is not None and held != b"offload":
                source, form = _Chain(net, op).read(type, held)
                changed[op.name] = Op(op.name, type, (source,), op.outputs, {"form": form})
    if not changed:
        return net
    return net.replace(ops=tuple(changed.get(op.name, op) for op in net.ops))


def _refused(net: Net, op: Op, sentence: str):
    return refused("encoding-not-understood", f"{op.name!r}: {sentence}", net, (op.name,))


def _is_only_pushed(net: Net, op: Op) -> bool:
    """Whether lists that the step net is given are all that take what the op writes."""
    (blob,) = op.outputs
    return blob not in net.outputs and all(
        _is_only_pushed(net, one)
        if one.type == "Identity"
        else one.type == PUSH and one.inputs[1] == blob and one.inputs[0] in net.inputs
        for one in net.readers.get(blob, ())
    )


def _was_popped(net: Net, op: Op) -> bool:
    """Whether what the op reads comes out of a list that was not pushed into just now."""
    source = net.producer.get(op.inputs[0])
    if source is None or source.type != "Identity":
        pushed = source is not None and net.producer.get(source.inputs[0])
        return source is not None and source.type == POP and not (pushed and pushed.type == PUSH)
    return _was_popped(net, source)


class _Chain:
    """Ops of one step net, read from the last one up."""

    def __init__(self, net: Net, last: Op):
        self.net = net
        self.last = last

    def read(self, type: str, techniques: bytes) -> tuple[str, Hashable]:
        """The blob that the ops start from, and the form that they give it or take from it."""
        if techniques == b"bfloat16":
            return self._rounded(type)
        self._demand(techniques in (b"bits", b"signs"), f"{techniques!r} is no codec")
        told = (self._packed if type == ENCODED else self._unpacked)(techniques == b"signs")
        source, shape, dtype = told
        return source, (techniques, dtype, shape)

    def _demand(self, holds: object, sentence: str = _UNLIKE) -> None:
        if not holds:
            raise _refused(self.net, self.last, sentence)

    def _rounded(self, type: str) -> tuple[str, Hashable]:
        wide, narrow = ("SrcT", "DstT") if type == ENCODED else ("DstT", "SrcT")
        dtypes = [dtype_name(self.last, wide), dtype_name(self.last, narrow)]
        self._demand(self.last.type == "Cast" and dtypes[1] == "bfloat16")
        return self.last.inputs[0], ("bfloat16", dtypes[0])

    # --- eight to a byte

    def _packed(self, signs: bool) -> tuple[str, Hashable, str]:
        """The blob whose bits are written, what tells its shape, and its dtype."""
        blob, sizes = self.last.outputs[0], None
        if self.last.type == "ConcatV2":
            header, blob = self._joined(blob)
            sizes = self._vector(self._op(header, "Reshape"), 1, (-1,)).inputs[0]
            (sizes,) = self._op(sizes, "Bitcast", type="uint8").inputs
            (sizes,) = self._op(sizes, "Shape", out_type="int32").inputs
        (blob,) = self._op(blob, "Cast", SrcT="uint64", DstT="uint8").inputs
        blob = self._number(self._op(blob, "RightShift"), 56)
        blob = self._number(self._op(blob, "Mul"), _GATHERS)
        (blob,) = self._op(blob, "Bitcast", T="uint8", type="uint64").inputs
        blob = self._vector(self._op(blob, "Reshape"), 1, (-1, 8)).inputs[0]
        whole = self.net.producer[blob].type != "ConcatV2"
        if not whole:
            blob, _ = self._joined(blob)
            blob = self._vector(self._op(blob, "Reshape"), 1, (-1,)).inputs[0]
        (blob,) = self._op(blob, "Cast", SrcT="bool", DstT="uint8").inputs
        if signs:
            blob = self._number(self._op(blob, "Greater"), 0)
        kind = self.net.blobs[blob]
        if sizes is not None:
            self._demand(sizes == blob and kind.shape is not None and not whole)
            return blob, ("rank", len(kind.shape or ())), kind.dtype
        shape = static(kind.shape)
        self._demand(shape is not None and (not whole or math.prod(shape) % 8 == 0))
        return blob, ("shape", shape), kind.dtype

    def _unpacked(self, signs: bool) -> tuple[str, Hashable, str]:
        """The bits that are read, what tells the shape of the result, and its dtype."""
        blob, dtype = self.last.outputs[0], "bool"
        if signs:
            self._demand(self._asks_sign(blob), "more is asked of a sign than the sign")
            dtype = dtype_name(self.last, "DstT")
            (blob,) = self._op(blob, "Cast", SrcT="bool").inputs
        blob, wanted = self._op(blob, "Reshape").inputs
        size = None
        if self.net.producer[blob].type == "Slice":
            blob, begin, size = self._op(blob, "Slice").inputs
            self._demand(self._numbers(begin) == (0,))
            blob = self._vector(self._op(blob, "Reshape"), 1, (-1,)).inputs[0]
        (blob,) = self._op(blob, "Cast", SrcT="uint8", DstT="bool").inputs
        (blob,) = self._op(blob, "Bitcast", T="uint64", type="uint8").inputs
        blob = self._number(self._op(blob, "BitwiseAnd"), _SELECTS)
        blob = self._number(self._op(blob, "Mul"), _SPREADS)
        (blob,) = self._op(blob, "Cast", SrcT="uint8", DstT="uint64").inputs
        shape = self._numbers(wanted)
        if shape is not None:
            count = math.prod(shape)
            known = (count,) if size is not None else ()
            self._demand(count % 8 == 0 if size is None else self._numbers(size) == known)
            return blob, ("shape", shape), dtype
        return *self._behind_header(blob, wanted, size), dtype

    def _behind_header(
        self, blob: str, wanted: str, size: str | None
    ) -> tuple[str, tuple[str, int]]:
        """What bits and the dimensions in front of them are parts of, and how many there are."""
        product = self._vector(self._op(size or "", "Prod"), 1, (0,))
        self._demand(product.inputs[0] == wanted)
        (header,) = self._op(wanted, "Bitcast", T="uint8", type="int32").inputs
        rows = self._op(header, "Reshape")
        counted = self._numbers(rows.inputs[1]) or ()
        self._demand(len(counted) == 2 and counted[1] == 4)
        rank = counted[0]
        front = self._vector(self._op(rows.inputs[0], "Slice"), 1, (0,))
        rest = self._vector(self._op(blob, "Slice"), 1, (4 * rank,))
        self._demand(self._numbers(front.inputs[2]) == (4 * rank,))
        self._demand(self._numbers(rest.inputs[2]) == (-1,))
        self._demand(front.inputs[0] == rest.inputs[0])
        return rest.inputs[0], ("rank", rank)

    def _asks_sign(self, blob: str) -> bool:
        """Whether nobody asks more of the blob than whether its elements are above 0."""
        if blob in self.net.outputs:
            return False
        for op in self.net.readers.get(blob, ()):
            if op.type in ("OptionalFromValue", "OptionalGetValue"):
                if not self._asks_sign(op.outputs[0]):
                    return False
            elif op.type not in _ASKS_SIGN or op.inputs.index(blob) != _ASKS_SIGN[op.type]:
                return False
        return True

    # --- ops

    def _op(self, blob: str, kind: str, /, **dtypes: str) -> Op:
        """The op that writes the blob; it must be of the kind and name the dtypes."""
        op = made_by(self.net, blob, kind)
        if op is None:
            raise _refused(self.net, self.last, _UNLIKE)
        for name, dtype in dtypes.items():
            written = dtype_name(op, name) or ("int32" if name == "out_type" else "")
            self._demand(written == dtype)
        return op

    def _joined(self, blob: str) -> tuple[str, str]:
        op = self._op(blob, "ConcatV2")
        self._demand(len(op.inputs) == 3 and number(self.net, op.inputs[2]) == 0)
        return op.inputs[0], op.inputs[1]

    def _number(self, op: Op, wanted: int) -> str:
        """The first input of the op, whose second one must be a number."""
        self._demand(number(self.net, op.inputs[1]) == wanted)
        return op.inputs[0]

    def _vector(self, op: Op, slot: int, numbers: tuple[int, ...]) -> Op:
        """The op, of which an input must hold these numbers."""
        self._demand(self._numbers(op.inputs[slot]) == numbers)
        return op

    def _numbers(self, blob: str) -> tuple[int, ...] | None:
        held = number(self.net, blob)
        return held if isinstance(held, tuple) else None
