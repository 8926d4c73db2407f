"""Ops that slide a window over an image, a signal or a volume, and those that resize or pad one."""

from __future__ import annotations

from collections.abc import Sequence

from rnnmem.analysis.facts import SHAPES, Fact, of_value, to_shape
from rnnmem.ir.graph import Op, Shape


@SHAPES.of("Conv2D", "Conv3D")
def _convolution(op: Op, ins: list[Fact]) -> list[Fact]:
    window = ins[1].shape
    if window is None:
        return []
    return [Fact(_slid(op, ins[0].shape, window[:-2], window[-1]))]


@SHAPES.of("DepthwiseConv2dNative")
def _depthwise(op: Op, ins: list[Fact]) -> list[Fact]:
    window = ins[1].shape
    if window is None:
        return []
    *sizes, channels, times = window
    made = None if channels is None or times is None else channels * times
    return [Fact(_slid(op, ins[0].shape, sizes, made))]


@SHAPES.of("AvgPool", "AvgPool3D", "MaxPool", "MaxPool3D")
def _pool(op: Op, ins: list[Fact]) -> list[Fact]:
    shape = ins[0].shape
    if shape is None:
        return []
    at = _channels_at(op, len(shape))
    sizes = tuple(size for axis, size in enumerate(op.attributes["ksize"]) if axis not in (0, at))
    if op.attributes["ksize"][at] != 1 or op.attributes["strides"][at] != 1:
        return []
    return [Fact(_slid(op, shape, sizes, shape[at]))]


@SHAPES.of("FusedBatchNormV2", "FusedBatchNormV3", "FusedBatchNormGradV3")
def _batch_norm(op: Op, ins: list[Fact]) -> list[Fact]:
    return [Fact(ins[0].shape)]


@SHAPES.of("ResizeBicubic", "ResizeBilinear", "ResizeNearestNeighbor", "ResizeNearestNeighborGrad")
def _resized(op: Op, ins: list[Fact]) -> list[Fact]:
    shape, sizes = ins[0].shape, to_shape(ins[1].value)
    return [] if shape is None or sizes is None else [Fact((shape[0], *sizes, shape[-1]))]


@SHAPES.of("ResizeBicubicGrad", "ResizeBilinearGrad")
def _like_image(op: Op, ins: list[Fact]) -> list[Fact]:
    return [Fact(ins[1].shape)]


@SHAPES.of("BatchToSpaceND", "SpaceToBatchND")
def _blocks(op: Op, ins: list[Fact]) -> list[Fact]:
    """Blocks of some axes go into the batch, or come out of it: a dilated convolution's."""
    shape, block, sides = ins[0].shape, ins[1].value, ins[2].matrix
    if not shape or not isinstance(block, tuple) or sides is None or len(shape) <= len(block):
        return []
    into = op.type == "SpaceToBatchND"
    sizes = [shape[0], *shape[1 : 1 + len(block)]]
    for axis, (times, ends) in enumerate(zip(block, sides, strict=False), start=1):
        known = [one for one in (times, *ends) if isinstance(one, int)]
        if len(known) < 3 or known[0] < 1:
            return []
        times, more = known[0], sum(known[1:])
        batch, size = sizes[0], sizes[axis]
        if batch is not None:
            sizes[0] = batch * times if into else batch // times
        if size is not None:
            sizes[axis] = (size + more) // times if into else size * times - more
    return [Fact((*sizes, *shape[1 + len(block) :]))]


@SHAPES.of("MirrorPad", "MirrorPadGrad", "Pad", "PadV2")
def _padded(op: Op, ins: list[Fact]) -> list[Fact]:
    shape, added = ins[0].shape, ins[1].matrix
    if shape is None or added is None:
        return []
    if isinstance(ins[0].value, tuple) and not op.type.startswith("Mirror"):
        ((before, behind),) = added
        given = ins[2].value if op.type == "PadV2" else 0
        beside = given if isinstance(given, int) else None
        if before is not None and behind is not None:
            return [of_value((beside,) * before + ins[0].value + (beside,) * behind)]
    sign, found = -1 if op.type == "MirrorPadGrad" else 1, []
    for size, sides in zip(shape, added, strict=True):
        known = [side for side in sides if side is not None]
        both = size is not None and len(known) == len(sides)
        found.append((size or 0) + sign * sum(known) if both else None)
    return [Fact(tuple(found))]


@SHAPES.of("DepthToSpace", "SpaceToDepth")
def _depth(op: Op, ins: list[Fact]) -> list[Fact]:
    """Squares of places become channels, or come out of them."""
    shape, side = ins[0].shape, op.attributes["block_size"]
    if shape is None or len(shape) != 4:
        return []
    at, into = _channels_at(op, 4), op.type == "SpaceToDepth"
    grows = [1 if axis == 0 else side * side if axis == at else side for axis in range(4)]
    return [
        Fact(
            tuple(
                None if size is None else size * times if (axis == at) == into else size // times
                for axis, (size, times) in enumerate(zip(shape, grows, strict=True))
            )
        )
    ]


@SHAPES.of("CropAndResize")
def _crops(op: Op, ins: list[Fact]) -> list[Fact]:
    image, boxes, size = ins[0].shape, ins[1].shape, ins[3].value
    if not image or not boxes or not isinstance(size, tuple):
        return []
    return [Fact((boxes[0], *(to_shape(size) or ()), image[-1]))]


@SHAPES.of("CropAndResizeGradImage")
def _cropped_image(op: Op, ins: list[Fact]) -> list[Fact]:
    return [Fact(to_shape(ins[3].value))]


@SHAPES.of("IRFFT", "IRFFT2D", "IRFFT3D", "RFFT", "RFFT2D", "RFFT3D")
def _real_transform(op: Op, ins: list[Fact]) -> list[Fact]:
    shape, length = ins[0].shape, ins[1].value
    if shape is None or not isinstance(length, tuple) or not 0 < len(length) <= len(shape):
        return []
    sizes = [*shape[: len(shape) - len(length)], *(to_shape(length) or ())]
    if op.type.startswith("RFFT") and sizes[-1] is not None:
        sizes[-1] = sizes[-1] // 2 + 1
    return [Fact(tuple(sizes))]


def _slid(op: Op, shape: Shape, window: Sequence[int | None], channels: int | None) -> Shape:
    """The shape that a window makes of one, by the op's strides, padding and order of dimensions.

    Args:
      op: the convolution or pool.
      shape: of what the window slides over.
      window: its sizes.
      channels: of the result.
    """
    if shape is None:
        return None
    at = _channels_at(op, len(shape))
    along = [axis for axis in range(len(shape)) if axis not in (0, at)]
    wide = dict(zip(along, window, strict=True))
    return tuple(
        _places(op, axis, size, wide[axis]) if axis in wide else channels if axis == at else size
        for axis, size in enumerate(shape)
    )


def _places(op: Op, axis: int, size: int | None, window: int | None) -> int | None:
    """How many places a window has along a dimension."""
    attributes = op.attributes
    stride, kind = attributes["strides"][axis], attributes["padding"]
    if size is None:
        return None
    if kind == b"SAME":
        return -(-size // stride)
    if window is None:
        return None
    if kind == b"EXPLICIT":
        size += sum(attributes["explicit_paddings"][2 * axis : 2 * axis + 2])
    dilations = attributes.get("dilations")
    reach = (window - 1) * (dilations[axis] if dilations else 1)
    return max(0, (size - reach - 1) // stride + 1)


def _channels_at(op: Op, rank: int) -> int:
    """Which dimension counts channels."""
    return 1 if op.attributes.get("data_format", b"")[:2] == b"NC" else rank - 1
