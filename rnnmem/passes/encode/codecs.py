"""Writes the form in which an accumulator keeps a blob: encoded to be pushed, decoded when popped.

    bits        b0 ... b7 ─► a byte each ─► 64-bit number ─► × 0x0102040810204080 >> 56 ─► byte
                byte ─► × 0x0101010101010101 & 0x8040201008040201 ─► eight bytes ─► b0 ... b7
    bfloat16    x ─► Cast ─► push ...                     pop ─► Cast ─► x, rounded
    offload     x ─► Identity on the host ─► push ...     pop ─► Identity on the device ─► x

Eight booleans of a byte each are one number of 64 bits, and the product moves bit 8j to bit 56 + j
(Warren 2013, "Hacker's Delight", chapter 7, gathers bits by multiplication so). Of a number only
its sign is kept, as the boolean ``x > 0``; in the gradient step net 1 or 0 stands for it. Where the
shape is known only at run time its dimensions go in front of the bits.

TensorFlow's graph optimizer must not look through: a number goes through an optional before it is
encoded, and what is decoded through another, which hides its shape as a pop does.
"""

from __future__ import annotations

import dataclasses
import math

from rnnmem.errors import NetError
from rnnmem.grappler.barrier import hidden
from rnnmem.ir.builders import Encode, made, number
from rnnmem.ir.devices import host_of
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import Blob, DType, Shape, static
from rnnmem.ir.marks import DECODES, ENCODES
from rnnmem.passes.encode.decision import BFLOAT16, BITS, OFFLOAD

GATHERS = 0x0102040810204080
"""Multiplied with eight bytes of 0 or 1, it gathers them in the highest byte."""
SPREADS = 0x0101010101010101
"""Multiplied with a byte, it puts the byte into all eight."""
SELECTS = 0x8040201008040201
"""Selects bit j of byte j."""

_SIZE = 4  # bytes of a dimension in front of the bits
_NAME = "rnnmem/kept"


@dataclasses.dataclass(frozen=True)
class Codec:
    """How one blob is kept.

    Attributes:
      kind: the blob, as the forward step net has it.
      techniques: by which means, in the order applied.
      home: the device that a copy on the host comes back to.
    """

    kind: Blob
    techniques: tuple[str, ...]
    home: str = ""

    def __post_init__(self) -> None:
        rank = None if self.kind.shape is None else len(self.kind.shape)
        if BITS in self.techniques and rank is None:
            raise NetError(f"{self.kind.name!r} of unknown rank cannot be saved as bits")
        if BFLOAT16 in self.techniques and not self.kind.dtype.startswith("float"):
            raise NetError(f"{self.kind.name!r} of {self.kind.dtype} cannot be saved as bfloat16")

    @property
    def count(self) -> int | None:
        """How many elements the blob has, or None where only a run can tell."""
        shape = static(self.kind.shape)
        return None if shape is None else math.prod(shape)

    @property
    def bytes_of_bits(self) -> int | None:
        """How many bytes its bits take, or None where only a run can tell."""
        return None if self.count is None else -(-self.count // 8)

    @property
    def mark(self) -> bytes:
        """What marks the ops that pack and unpack it."""
        return b"bits" if self.kind.dtype == "bool" else b"signs"

    @property
    def pushed(self) -> tuple[str, Shape]:
        """Dtype and shape of what is pushed."""
        if BITS in self.techniques:
            return "uint8", (self.bytes_of_bits,)
        dtype = "bfloat16" if BFLOAT16 in self.techniques else self.kind.dtype
        return dtype, self.kind.shape


def encoded(net: NetEditor, blob: str, codec: Codec, constant: Encode, keeps_alive: bool) -> str:
    """What is pushed for a blob of a forward step net.

    Args:
      net: the step net.
      blob: the blob.
      codec: how it is kept.
      constant: encodes a number: (value, dtype) -> Constant.
      keeps_alive: whether a graph optimizer that fuses by neighbourhood runs afterwards.
    """
    writer, kind = _Writer(net, constant), codec.kind
    if keeps_alive and kind.dtype != "bool" and codec.techniques != (OFFLOAD,):
        blob = writer.wrapped(blob, kind.shape, kind.name)
    if BITS in codec.techniques:
        blob = _packed(writer, blob, codec)
    if BFLOAT16 in codec.techniques:
        blob = writer.cast(blob, "bfloat16", {ENCODES: BFLOAT16.encode()})
    if OFFLOAD in codec.techniques:
        blob = writer.copied(blob, host_of(codec.home), ENCODES)
    return blob


def decoded(net: NetEditor, popped: str, codec: Codec, constant: Encode, keeps_alive: bool) -> str:
    """What stands for the blob in a gradient step net that popped what was pushed for it."""
    writer, blob = _Writer(net, constant), popped
    if OFFLOAD in codec.techniques:
        blob = writer.copied(blob, codec.home, DECODES)
    if BITS in codec.techniques:
        blob = _unpacked(writer, blob, codec)
    if BFLOAT16 in codec.techniques:
        blob = writer.cast(blob, codec.kind.dtype, {DECODES: BFLOAT16.encode()})
    if keeps_alive and codec.techniques != (OFFLOAD,):
        blob = writer.wrapped(blob, None, codec.kind.name)
    return blob


def _packed(writer: _Writer, blob: str, codec: Codec) -> str:
    """Booleans, or whether numbers are above 0, eight to a byte."""
    kind, count, mark = codec.kind, codec.count, {ENCODES: codec.mark}
    bits = blob
    if kind.dtype != "bool":
        bits = writer.op("Greater", (blob, writer.one(0.0, kind.dtype)), "bool", kind.shape)
    ones = writer.cast(bits, "uint8")
    if count is None or count % 8:
        flat = writer.reshaped(ones, writer.numbers(-1), (count,))
        ones = writer.joined(flat, _padding(writer, flat, count))
    eights = writer.reshaped(ones, writer.numbers(-1, 8), (codec.bytes_of_bits, 8))
    whole = writer.bitcast(eights, "uint64", (codec.bytes_of_bits,))
    product = writer.op("Mul", (whole, writer.one(GATHERS, "uint64")), "uint64")
    highest = writer.op("RightShift", (product, writer.one(56, "uint64")), "uint64")
    if count is not None:
        return writer.cast(highest, "uint8", mark)
    rank = len(kind.shape or ())
    sizes = writer.op("Shape", (blob,), "int32", (rank,), out_type="int32")
    header = writer.bitcast(sizes, "uint8", (rank, _SIZE))
    header = writer.reshaped(header, writer.numbers(-1), (_SIZE * rank,))
    return writer.joined(header, writer.cast(highest, "uint8"), mark)


def _padding(writer: _Writer, flat: str, count: int | None) -> str:
    """As many zeros as make whole bytes of bits."""
    if count is not None:
        return writer.one([0] * (-count % 8), "uint8")
    size = writer.op("Size", (flat,), "int32", (), out_type="int32")
    missing = writer.op("Neg", (size,), "int32")
    missing = writer.op("FloorMod", (missing, writer.one(8, "int32")), "int32")
    length = writer.reshaped(missing, writer.numbers(1), (1,))
    fill = {"T": "uint8", "index_type": "int32"}
    return writer.op("Fill", (length, writer.one(0, "uint8")), "uint8", (None,), **fill)


def _unpacked(writer: _Writer, bits: str, codec: Codec) -> str:
    """The booleans, or numbers of 1 and 0, that bits stand for."""
    kind, count, rows = codec.kind, codec.count, codec.bytes_of_bits
    mark = {DECODES: codec.mark}
    if count is None:
        rank = len(kind.shape or ())
        header = writer.part(bits, writer.numbers(0), writer.numbers(_SIZE * rank), _SIZE * rank)
        header = writer.reshaped(header, writer.numbers(rank, _SIZE), (rank, _SIZE))
        shape = writer.bitcast(header, "int32", (rank,))
        alone = {"Tidx": "int32", "keep_dims": True}
        size = writer.op("Prod", (shape, writer.numbers(0)), "int32", (1,), **alone)
        bits = writer.part(bits, writer.numbers(_SIZE * rank), writer.numbers(-1), None)
    else:
        shape, size = writer.numbers(*static(kind.shape) or ()), writer.numbers(count)
    whole = writer.cast(bits, "uint64")
    product = writer.op("Mul", (whole, writer.one(SPREADS, "uint64")), "uint64")
    selected = writer.op("BitwiseAnd", (product, writer.one(SELECTS, "uint64")), "uint64")
    eights = writer.bitcast(selected, "uint8", (rows, 8))
    ones = writer.cast(eights, "bool")
    if count is None or count % 8:
        flat = writer.reshaped(ones, writer.numbers(-1), (None if rows is None else 8 * rows,))
        ones = writer.part(flat, writer.numbers(0), size, count)
    if kind.dtype == "bool":
        return writer.reshaped(ones, shape, kind.shape, mark)
    return writer.cast(writer.reshaped(ones, shape, kind.shape), kind.dtype, mark)


class _Writer:
    """Adds ops to a step net; dtypes and shapes of results follow from what is read."""

    def __init__(self, net: NetEditor, constant: Encode):
        self.net = net
        self.constant = constant

    def op(
        self, type: str, inputs: tuple[str, ...], dtype: str, shape: Shape = (-1,), **attributes
    ) -> str:
        """An op of one result; its shape is that of the first input unless it is given."""
        first = self.net.blobs[inputs[0]]
        shape = first.shape if shape == (-1,) else shape
        return made(self.net, type, inputs, dtype, shape, _NAME, **{"T": first.dtype, **attributes})

    def one(self, value: float | list[int], dtype: str) -> str:
        """A constant."""
        return number(self.net, value, self.constant, _NAME, dtype)

    def numbers(self, *values: int) -> str:
        """A constant vector of int32."""
        return number(self.net, list(values), self.constant, _NAME)

    def cast(self, blob: str, dtype: str, mark: dict[str, bytes] | None = None) -> str:
        kind = self.net.blobs[blob]
        kinds = {"SrcT": kind.dtype, "DstT": dtype, "Truncate": False, **(mark or {})}
        return made(self.net, "Cast", (blob,), dtype, kind.shape, _NAME, **kinds)

    def bitcast(self, blob: str, dtype: str, shape: Shape) -> str:
        kinds = {"T": self.net.blobs[blob].dtype, "type": dtype}
        return made(self.net, "Bitcast", (blob,), dtype, shape, _NAME, **kinds)

    def reshaped(
        self, blob: str, wanted: str, shape: Shape, mark: dict[str, bytes] | None = None
    ) -> str:
        dtype = self.net.blobs[blob].dtype
        attributes = {"Tshape": "int32", **(mark or {})}
        return self.op("Reshape", (blob, wanted), dtype, shape, **attributes)

    def joined(self, first: str, last: str, mark: dict[str, bytes] | None = None) -> str:
        """Two vectors of bytes as one."""
        sizes = [size for blob in (first, last) for size in self.net.blobs[blob].shape or (None,)]
        known = static(tuple(sizes))
        attributes = {"N": 2, "Tidx": "int32", **(mark or {})}
        shape = (None if known is None else sum(known),)
        inputs = (first, last, self.one(0, "int32"))
        return self.op("ConcatV2", inputs, "uint8", shape, **attributes)

    def part(self, blob: str, begin: str, size: str, length: int | None) -> str:
        """A part of a vector, of a length or to the end."""
        dtype = self.net.blobs[blob].dtype
        inputs = (blob, begin, size)
        return self.op("Slice", inputs, dtype, (length,), Index="int32")

    def copied(self, blob: str, device: str, mark: str) -> str:
        """A copy on another device."""
        kind = self.net.blobs[blob]
        attributes = {"T": DType(kind.dtype), mark: OFFLOAD.encode()}
        results = ((kind.dtype, kind.shape),)
        return self.net.add(
            "Identity", (blob,), results, attributes, name=_NAME, device=device
        ).outputs[0]

    def wrapped(self, blob: str, shape: Shape, stands_for: str) -> str:
        """The value put into an optional and taken out again with another shape to be seen."""
        return hidden(self.net, blob, shape, name=_NAME, stands_for=stands_for, optional=True)
