"""The shape rules: none raises whatever it is given, none says what TensorFlow's kernels deny."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from rnnmem.analysis import row_rules as rows
from rnnmem.analysis.shape_rules import RULES, Fact, possible, results_of
from rnnmem.ir.graph import Blob, Constant, DType, Net, Op, ShapeValue
from rnnmem.tf.workspace import Workspace

random = np.random.default_rng(0)


def floats(*shape):
    return random.normal(size=shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int32)


def waves(*shape):
    return floats(*shape).astype(np.complex64)


MATRIX = np.array([[1, 2, 3], [4, 5, 6]], np.int32)


def scalar(value):
    return np.int32(value)


# op type, attributes, inputs; a list of inputs is one argument of the kernel.
CASES = [
    ("Add", {}, [ints(3, 4), ints(1)]),
    ("AddV2", {}, [floats(2, 1, 4), floats(3, 1)]),
    ("AddV2", {}, [ints(1, 2, 3), ints(4, 5, 6)]),
    ("AddV2", {}, [ints(1, 2, 3), ints(4)]),
    ("AddV2", {}, [ints(7), scalar(2)]),
    ("Sub", {}, [scalar(3), ints(1, 2)]),
    ("Mul", {}, [scalar(2**20), scalar(2**20)]),
    ("Mul", {}, [ints(), ints(3)]),
    ("FloorDiv", {}, [ints(7, -7), ints(2, 2)]),
    ("FloorMod", {}, [ints(7, -7), ints(3, 3)]),
    ("Maximum", {}, [ints(7, -7), scalar(0)]),
    ("Minimum", {}, [scalar(4), scalar(5)]),
    ("AddN", {}, [[floats(2, 3), floats(2, 3), floats(2, 3)]]),
    ("All", {}, [floats(2, 3) > 0, ints(0)]),
    ("Any", {"keep_dims": True}, [floats(2, 3) > 0, ints(-1)]),
    ("ArgMax", {}, [floats(2, 3, 4), scalar(1)]),
    ("ArgMin", {}, [floats(2, 3, 4), scalar(-1)]),
    ("BatchMatMul", {"adj_y": True}, [floats(2, 3, 4), floats(2, 5, 4)]),
    ("BatchMatMulV2", {}, [floats(7, 1, 3, 4), floats(2, 4, 5)]),
    ("BatchMatMulV2", {"adj_x": True}, [floats(4, 3), floats(2, 4, 5)]),
    ("BiasAdd", {}, [floats(2, 3), floats(3)]),
    ("BiasAddGrad", {}, [floats(2, 4, 3)]),
    ("BroadcastArgs", {}, [ints(2, 1, 4), ints(3, 1)]),
    ("BroadcastArgs", {}, [ints(2, 3), ints(2, 3)]),
    ("BroadcastGradientArgs", {}, [ints(2, 1, 4), ints(3, 1)]),
    ("BroadcastGradientArgs", {}, [ints(1, 3), ints(1, 1)]),
    ("BroadcastGradientArgs", {}, [ints(1, 3), ints(1, 3)]),
    ("BroadcastGradientArgs", {}, [ints(2, 3), ints()]),
    ("BroadcastGradientArgs", {}, [ints(1, 3), ints()]),
    ("BroadcastGradientArgs", {}, [ints(1), ints(1)]),
    ("BroadcastGradientArgs", {}, [ints(0, 4), ints(1, 4)]),
    ("BroadcastTo", {}, [floats(1, 3), ints(2, 4, 3)]),
    ("Cast", {"DstT": DType("int64")}, [ints(3, 4)]),
    ("Cast", {"DstT": DType("bool")}, [ints(3, 4)]),
    ("Cast", {"DstT": DType("int8")}, [ints(3, 400)]),
    ("Cast", {"DstT": DType("float32")}, [scalar(2**24 + 1)]),
    ("Concat", {}, [scalar(1), [floats(2, 3), floats(2, 4)]]),
    ("ConcatV2", {}, [[floats(2, 3), floats(5, 3)], scalar(0)]),
    ("ConcatV2", {}, [[floats(2, 3), floats(2, 4)], scalar(-1)]),
    ("ConcatV2", {}, [[ints(2, 3), ints(), ints(5)], scalar(0)]),
    ("CheckNumerics", {"message": b""}, [floats(2, 3)]),
    ("CheckNumericsV2", {"message": b""}, [floats(2, 3)]),
    ("Cholesky", {}, [np.eye(3, dtype=np.float32)]),
    ("CholeskyGrad", {}, [np.eye(3, dtype=np.float32), floats(3, 3)]),
    ("Cumprod", {}, [floats(2, 3), scalar(1)]),
    ("Cumsum", {}, [floats(2, 3), scalar(1)]),
    ("CumulativeLogsumexp", {}, [floats(2, 3), scalar(1)]),
    *((name, {}, [waves(2, 2, 4)]) for name in ("FFT", "FFT2D", "FFT3D")),
    *((name, {}, [waves(2, 2, 4)]) for name in ("IFFT", "IFFT2D", "IFFT3D")),
    ("MatrixBandPart", {}, [floats(2, 3, 4), scalar(1), scalar(0)]),
    ("MatrixInverse", {}, [np.eye(3, dtype=np.float32)]),
    ("MatrixSetDiagV3", {}, [floats(2, 3, 3), floats(2, 3), scalar(0)]),
    ("MatrixSquareRoot", {}, [np.eye(3, dtype=np.complex64)]),
    ("QuantizeAndDequantizeV2", {}, [floats(2, 3), np.float32(-1), np.float32(1)]),
    ("QuantizeAndDequantizeV3", {}, [floats(2, 3), np.float32(-1), np.float32(1), scalar(8)]),
    ("QuantizeAndDequantizeV4", {}, [floats(2, 3), np.float32(-1), np.float32(1)]),
    ("RandomShuffle", {}, [floats(4, 3)]),
    ("Reverse", {}, [floats(2, 3), np.array([True, False])]),
    ("ReverseSequence", {"seq_dim": 1}, [floats(2, 3), ints(2, 3)]),
    ("Roll", {}, [floats(2, 3), ints(1), ints(1)]),
    ("ScatterNdNonAliasingAdd", {}, [floats(4, 3), np.array([[1], [2]], np.int32), floats(2, 3)]),
    *(
        (name, {}, [floats(4, 3), np.array([[1], [2]], np.int32), floats(2, 3)])
        for name in (
            "TensorScatterAdd",
            "TensorScatterMax",
            "TensorScatterMin",
            "TensorScatterSub",
            "TensorScatterUpdate",
        )
    ),
    ("TensorStridedSliceUpdate", {}, [floats(4, 3), ints(1), ints(3), ints(1), floats(2, 3)]),
    ("DynamicStitch", {}, [[ints(0, 2), ints(1)], [ints(5, 6), ints(7)]]),
    ("DynamicStitch", {}, [[scalar(1), scalar(0)], [scalar(8), scalar(9)]]),
    ("DynamicStitch", {}, [[ints(0, 2), ints(1)], [floats(2, 4), floats(1, 4)]]),
    ("EnsureShape", {"shape": ShapeValue((None, 3))}, [floats(2, 3)]),
    ("Einsum", {"equation": b"bth,vh->btv"}, [[floats(2, 3, 4), floats(5, 4)]]),
    ("Einsum", {"equation": b"ij->ji"}, [[floats(2, 3)]]),
    ("ExpandDims", {}, [floats(2, 3), scalar(-1)]),
    ("ExpandDims", {}, [ints(2, 3), scalar(0)]),
    ("Fill", {}, [ints(2, 3), np.float32(1)]),
    ("Fill", {}, [ints(3), scalar(4)]),
    ("Fill", {}, [ints(), scalar(4)]),
    ("GatherV2", {}, [floats(4, 3), ints(0, 1, 1), scalar(0)]),
    ("GatherV2", {}, [ints(4, 3, 2), ints(0, 2), scalar(0)]),
    ("GatherV2", {}, [ints(4, 3, 2), scalar(1), scalar(0)]),
    ("GatherV2", {"batch_dims": 1}, [floats(2, 4, 3), np.zeros((2, 5), np.int32), scalar(1)]),
    ("GatherV2", {"batch_dims": -1}, [floats(2, 4, 3), np.zeros((2, 5), np.int32), scalar(1)]),
    ("Identity", {}, [ints(4, 3)]),
    ("InTopKV2", {}, [floats(2, 3), ints(0, 1), scalar(1)]),
    ("InvertPermutation", {}, [ints(2, 0, 1)]),
    ("LogSoftmax", {}, [floats(2, 3)]),
    ("MatMul", {}, [floats(2, 3), floats(3, 4)]),
    ("MatMul", {"transpose_a": True, "transpose_b": True}, [floats(3, 2), floats(4, 3)]),
    ("Max", {}, [floats(2, 3), ints(0, 1)]),
    ("Max", {}, [ints(2, 3), ints(0)]),
    ("Max", {}, [ints(2, 3), ints()]),
    ("Mean", {}, [floats(2, 3), ints()]),
    ("Min", {"keep_dims": True}, [ints(2, 3), ints(0)]),
    ("Prod", {}, [ints(2, 3, 4), scalar(0)]),
    ("Prod", {}, [ints(2**16, 2**16), ints(0)]),
    ("Sum", {}, [np.array([[1, 2, 3]], np.int32), ints(0)]),
    ("Sum", {}, [scalar(3), ints()]),
    ("OneHot", {}, [ints(0, 1), scalar(4), np.float32(1), np.float32(0)]),
    ("OneHot", {"axis": 0}, [ints(0, 1), scalar(4), np.float32(1), np.float32(0)]),
    ("OnesLike", {}, [ints(4, 3)]),
    ("Pack", {}, [[scalar(4), scalar(3)]]),
    ("Pack", {"axis": -1}, [[floats(2, 3), floats(2, 3)]]),
    ("Pack", {}, [[ints(1, 2), ints(3, 4)]]),
    ("Pack", {"axis": 1}, [[ints(1, 2, 5), ints(3, 4, 6)]]),
    ("PlaceholderWithDefault", {"shape": ShapeValue((None,))}, [ints(4, 3)]),
    ("PreventGradient", {}, [floats(2)]),
    ("Range", {}, [scalar(2), scalar(9), scalar(3)]),
    ("Range", {}, [scalar(9), scalar(2), scalar(-3)]),
    *(
        ("RaggedTensorToTensor", {"row_partition_types": kinds}, [shape, floats(5, 2), one, parts])
        for one in [np.float32(0)]
        for shape in (scalar(-1), ints(-1, -1, 2), ints(-1, 4, 2))
        for kinds, parts in (
            ((b"ROW_SPLITS",), [ints(0, 2, 2, 5)]),
            ((b"FIRST_DIM_SIZE", b"VALUE_ROWIDS"), [scalar(4), ints(0, 0, 2, 2, 2)]),
        )
    ),
    ("Rank", {}, [floats(2, 3)]),
    ("Reshape", {}, [floats(2, 6), ints(3, -1)]),
    ("Reshape", {}, [floats(2, 6), ints(4, 3)]),
    ("Reshape", {}, [floats(2, 0), ints(0, 5)]),
    ("Reshape", {}, [ints(4, 3), ints(1, 2)]),
    ("Reshape", {}, [ints(4), ints()]),
    ("ReverseV2", {}, [ints(4, 3), ints(0)]),
    *(
        (f"Segment{kind}", {}, [floats(3, 2), ints(0, 0, 4)])
        for kind in ("Max", "Mean", "Min", "Prod", "Sum")
    ),
    ("Shape", {}, [floats(2, 3)]),
    ("ShapeN", {}, [[floats(2, 3), floats(4)]]),
    ("Size", {}, [floats(2, 3)]),
    ("Slice", {}, [floats(4, 5, 6), ints(1, 0, 2), ints(2, -1, 3)]),
    ("Slice", {}, [ints(4, 5, 6), ints(1), ints(-1)]),
    ("Slice", {}, [ints(4, 5, 6), ints(1), ints(1)]),
    ("Softmax", {}, [floats(2, 3)]),
    ("SoftmaxCrossEntropyWithLogits", {}, [floats(2, 3), floats(2, 3)]),
    ("SparseSoftmaxCrossEntropyWithLogits", {}, [floats(2, 3), ints(0, 1)]),
    ("Split", {"num_split": 3}, [scalar(1), floats(2, 6)]),
    ("Split", {"num_split": 2}, [scalar(0), ints(4, 5, 6, 7)]),
    ("SplitV", {"num_split": 2}, [floats(2, 6), ints(4, -1), scalar(-1)]),
    ("SplitV", {"num_split": 3}, [ints(4, 5, 6, 7), ints(2, -1, 1), scalar(0)]),
    ("Squeeze", {}, [floats(1, 2, 1)]),
    ("Squeeze", {"squeeze_dims": (-1,)}, [floats(1, 2, 1)]),
    ("Squeeze", {}, [ints(4)]),
    ("StopGradient", {}, [ints(4, 2)]),
    ("StridedSlice", {"shrink_axis_mask": 1}, [ints(4, 5, 6), ints(-1), ints(0), ints(1)]),
    ("StridedSlice", {"begin_mask": 1}, [ints(4, 5, 6), ints(1), ints(2), ints(1)]),
    ("StridedSlice", {"end_mask": 1}, [ints(4, 5, 6), ints(1), ints(2), ints(2)]),
    ("StridedSlice", {}, [ints(4, 5, 6), ints(9), ints(-9), ints(-1)]),
    ("StridedSlice", {"ellipsis_mask": 1}, [floats(4, 5, 6), ints(0, 1), ints(0, 3), ints(1, 1)]),
    (
        "StridedSlice",
        {"ellipsis_mask": 2, "new_axis_mask": 1, "shrink_axis_mask": 4},
        [floats(4, 5, 6), ints(0, 0, 2), ints(0, 0, 3), ints(1, 1, 1)],
    ),
    ("StridedSlice", {"new_axis_mask": 1}, [ints(4, 5), ints(0, 0), ints(0, 1), ints(1, 1)]),
    ("StridedSliceGrad", {}, [ints(4, 3), ints(1), ints(3), ints(1), floats(2, 3)]),
    ("Tile", {}, [floats(2, 3), ints(3, 1)]),
    ("Transpose", {}, [floats(2, 3, 4), ints(2, 0, 1)]),
    ("ConcatOffset", {}, [scalar(1), [ints(2, 3, 4), ints(2, 5, 4), ints(2, 1, 4)]]),
    ("ConcatOffset", {}, [scalar(-1), [ints(2, 3), ints(2, 5), ints(2, 1)]]),
    ("ConcatV2", {}, [[MATRIX, MATRIX], scalar(0)]),
    ("ConcatV2", {}, [[MATRIX, MATRIX[:, :1]], scalar(1)]),
    ("Reshape", {}, [ints(1, 2, 3), ints(3, 1)]),
    ("Transpose", {}, [MATRIX, ints(1, 0)]),
    ("Transpose", {}, [MATRIX, ints(0, 1)]),
    ("Reshape", {}, [MATRIX, ints(-1)]),
    ("Reshape", {}, [MATRIX, ints(3, 2)]),
    ("Unpack", {"num": 3, "axis": 1}, [floats(2, 3)]),
    ("Unpack", {"num": 2, "axis": -1}, [ints(5, 6)]),
    ("UnsortedSegmentSum", {}, [floats(2, 3, 4), np.zeros((2, 3), np.int32), scalar(5)]),
    ("ZerosLike", {}, [ints(4, 2)]),
    ("Bitcast", {"T": DType("float32"), "type": DType("int32")}, [floats(2, 3)]),
    ("Bitcast", {"T": DType("float32"), "type": DType("uint8")}, [floats(2, 3)]),
    ("Bitcast", {"T": DType("int32"), "type": DType("int64")}, [np.ones((3, 2), np.int32)]),
    ("FakeQuantWithMinMaxVars", {}, [floats(2, 3), np.float32(-1), np.float32(1)]),
    ("FakeQuantWithMinMaxVarsPerChannel", {}, [floats(2, 3), -np.ones(3, "f"), np.ones(3, "f")]),
    *((name, {}, [np.ones((2, 4, 3), np.float32) * 0.5]) for name in ("HSVToRGB", "RGBToHSV")),
    *(
        (name, {"out_type": DType("int32")}, [np.sort(floats(2, 5)), floats(2, 3)])
        for name in ("LowerBound", "UpperBound")
    ),
    ("TridiagonalSolve", {}, [floats(2, 3, 4), floats(2, 4, 5)]),
    *((name, {}, [floats(2, 3, 3)]) for name in ("LogMatrixDeterminant", "MatrixDeterminant")),
    ("Lu", {"output_idx_type": DType("int32")}, [floats(2, 3, 3)]),
    ("SelfAdjointEigV2", {"compute_v": True}, [floats(2, 3, 3)]),
    ("LinSpace", {}, [np.float32(0), np.float32(1), scalar(5)]),
    ("Select", {}, [np.array([True, False]), floats(2, 3), floats(2, 3)]),
    ("Select", {}, [np.array(True), floats(2, 3), floats(2, 3)]),
    ("Select", {}, [floats(2, 3) > 0, floats(2, 3), floats(2, 3)]),
    ("SelectV2", {}, [np.array([True, False, True]), floats(2, 3), floats(3)]),
    ("TanhGrad", {}, [floats(2, 3), floats(2, 3)]),
    ("StatelessRandomGetKeyCounter", {}, [ints(1, 2)]),
    ("StatelessRandomUniform", {}, [ints(2, 3), ints(1, 2)]),
    ("RandomStandardNormal", {"dtype": DType("float32")}, [ints(2, 3)]),
    *(
        (
            name,
            {"strides": (1, 2, across, 1), "padding": pad, **more},
            [floats(2, 7, 6, 4), floats(3, 2, 4, 5)],
        )
        # TensorFlow's own depthwise kernel has one stride for both.
        for name, across in (("Conv2D", 1), ("DepthwiseConv2dNative", 2))
        for pad in (b"SAME", b"VALID")
        for more in ({}, {"dilations": (1, 1, 2, 1)})
        if name == "Conv2D" or not more
    ),
    (
        "Conv2D",
        {
            "strides": (1, 1, 2, 1),
            "padding": b"EXPLICIT",
            "explicit_paddings": (0, 0, 2, 1, 0, 1, 0, 0),
        },
        [floats(2, 7, 6, 4), floats(3, 2, 4, 5)],
    ),
    (
        "Conv3D",
        {"strides": (1, 2, 1, 1, 1), "padding": b"SAME"},
        [floats(2, 5, 6, 4, 3), floats(2, 2, 2, 3, 4)],
    ),
    (
        "Conv2DBackpropInput",
        {"strides": (1, 1, 1, 1), "padding": b"SAME"},
        [ints(2, 7, 6, 4), floats(3, 2, 4, 5), floats(2, 7, 6, 5)],
    ),
    (
        "Conv2DBackpropFilter",
        {"strides": (1, 1, 1, 1), "padding": b"SAME"},
        [floats(2, 7, 6, 4), ints(3, 2, 4, 5), floats(2, 7, 6, 5)],
    ),
    *(
        (
            name,
            {"ksize": (1, 3, 2, 1), "strides": (1, 2, 2, 1), "padding": pad},
            [floats(2, 7, 6, 4)],
        )
        for name in ("AvgPool", "MaxPool")
        for pad in (b"SAME", b"VALID")
    ),
    *(
        (
            name,
            {"ksize": (1, 2, 2, 2, 1), "strides": (1, 2, 1, 2, 1), "padding": b"VALID"},
            [floats(2, 4, 5, 6, 3)],
        )
        for name in ("AvgPool3D", "MaxPool3D")
    ),
    (
        "MaxPoolGrad",
        {"ksize": (1, 2, 2, 1), "strides": (1, 2, 2, 1), "padding": b"VALID"},
        [floats(2, 4, 4, 3), floats(2, 2, 2, 3), floats(2, 2, 2, 3)],
    ),
    (
        "MaxPool3DGrad",
        {"ksize": (1, 2, 2, 2, 1), "strides": (1, 2, 2, 2, 1), "padding": b"VALID"},
        [floats(2, 2, 4, 4, 3), floats(2, 1, 2, 2, 3), floats(2, 1, 2, 2, 3)],
    ),
    (
        "AvgPoolGrad",
        {"ksize": (1, 2, 2, 1), "strides": (1, 2, 2, 1), "padding": b"VALID"},
        [ints(2, 4, 4, 3), floats(2, 2, 2, 3)],
    ),
    *(
        (name, {"strides": (1, 1, 1, 1), "padding": b"SAME"}, inputs)
        for name, inputs in {
            "DepthwiseConv2dNativeBackpropInput": [
                ints(2, 7, 6, 4),
                floats(3, 2, 4, 1),
                floats(2, 7, 6, 4),
            ],
            "DepthwiseConv2dNativeBackpropFilter": [
                floats(2, 7, 6, 4),
                ints(3, 2, 4, 1),
                floats(2, 7, 6, 4),
            ],
        }.items()
    ),
    *(
        (name, {"strides": (1, 1, 1, 1, 1), "padding": b"SAME"}, inputs)
        for name, inputs in {
            "Conv3DBackpropInputV2": [
                ints(2, 3, 3, 3, 4),
                floats(2, 2, 2, 4, 5),
                floats(2, 3, 3, 3, 5),
            ],
            "Conv3DBackpropFilterV2": [
                floats(2, 3, 3, 3, 4),
                ints(2, 2, 2, 4, 5),
                floats(2, 3, 3, 3, 5),
            ],
        }.items()
    ),
    (
        "AvgPool3DGrad",
        {"ksize": (1, 2, 2, 2, 1), "strides": (1, 2, 2, 2, 1), "padding": b"VALID"},
        [ints(2, 2, 4, 4, 3), floats(2, 1, 2, 2, 3)],
    ),
    ("FusedBatchNormV3", {}, [floats(2, 4, 4, 3), floats(3), floats(3), floats(0), floats(0)]),
    ("FusedBatchNormV2", {}, [floats(2, 4, 4, 3), floats(3), floats(3), floats(0), floats(0)]),
    (
        "FusedBatchNormGradV3",
        {},
        [floats(2, 4, 4, 3), floats(2, 4, 4, 3), floats(3), floats(3), floats(3), floats(0)],
    ),
    *(
        (name, {}, [floats(2, 3, 4, 5), ints(6, 7)])
        for name in (
            "ResizeBicubic",
            "ResizeBilinear",
            "ResizeNearestNeighbor",
            "ResizeNearestNeighborGrad",
        )
    ),
    *(
        (name, {}, [floats(2, 6, 7, 5), floats(2, 3, 4, 5)])
        for name in ("ResizeBicubicGrad", "ResizeBilinearGrad")
    ),
    ("SpaceToBatchND", {}, [floats(2, 6, 3), ints(2), np.array([[1, 1]], np.int32)]),
    ("SpaceToBatchND", {}, [floats(2, 6, 4, 3), ints(2, 3), np.array([[1, 1], [0, 2]], np.int32)]),
    ("BatchToSpaceND", {}, [floats(4, 3, 3), ints(2), np.array([[1, 0]], np.int32)]),
    ("UnsortedSegmentMax", {}, [floats(4, 3), ints(0, 1, 1, 0), scalar(3)]),
    ("UnsortedSegmentMin", {}, [floats(4, 3), ints(0, 1, 1, 0), scalar(3)]),
    ("UnsortedSegmentProd", {}, [floats(4, 3), ints(0, 1, 1, 0), scalar(3)]),
    *(
        ("StridedSlice", masks, [MATRIX, ints(*begin), ints(*end), ints(*(1 for _ in begin))])
        for masks, begin, end in [
            ({}, (0,), (1,)),
            ({"shrink_axis_mask": 1}, (1,), (2,)),
            ({"shrink_axis_mask": 2, "begin_mask": 1, "end_mask": 1}, (0, 1), (0, 2)),
            ({"shrink_axis_mask": 3}, (1, -1), (2, 0)),
            ({"begin_mask": 3, "end_mask": 2}, (0, 0), (2, 0)),
            ({"new_axis_mask": 1}, (0, 0), (0, 2)),
        ]
    ),
    ("Pad", {}, [floats(2, 3), np.array([[1, 2], [0, 3]], np.int32)]),
    ("PadV2", {}, [floats(2, 3), np.array([[1, 2], [0, 3]], np.int32), np.float32(1)]),
    ("Pad", {}, [ints(3, 4), np.array([[1, 2]], np.int32)]),
    ("PadV2", {}, [ints(3, 4), np.array([[1, 2]], np.int32), scalar(5)]),
    ("MirrorPadGrad", {"mode": b"REFLECT"}, [floats(6, 4), np.array([[1, 2], [0, 1]], np.int32)]),
    ("SpaceToDepth", {"block_size": 2}, [floats(2, 4, 6, 3)]),
    ("DepthToSpace", {"block_size": 2}, [floats(2, 4, 6, 8)]),
    (
        "CropAndResize",
        {},
        [floats(2, 8, 8, 3), np.zeros([5, 4], np.float32), ints(0, 1, 0, 1, 0), ints(4, 3)],
    ),
    (
        "CropAndResizeGradImage",
        {"T": DType("float32"), "method": b"bilinear"},
        [floats(3, 4, 5, 2), np.zeros([3, 4], np.float32), ints(0, 1, 0), ints(2, 8, 9, 2)],
    ),
    ("RFFT", {"Tcomplex": DType("complex64")}, [floats(2, 8), ints(6)]),
    ("RFFT2D", {"Tcomplex": DType("complex64")}, [floats(2, 8, 8), ints(8, 7)]),
    ("RFFT3D", {"Tcomplex": DType("complex64")}, [floats(4, 4, 4), ints(4, 4, 2)]),
    ("IRFFT", {"Treal": DType("float32")}, [floats(2, 5).astype(np.complex64), ints(8)]),
    ("IRFFT2D", {"Treal": DType("float32")}, [floats(4, 5).astype(np.complex64), ints(4, 8)]),
    ("IRFFT3D", {"Treal": DType("float32")}, [floats(4, 4, 3).astype(np.complex64), ints(4, 4, 4)]),
    ("L2Loss", {}, [floats(2, 3)]),
    ("FakeQuantWithMinMaxArgs", {}, [floats(2, 3)]),
    ("FakeQuantWithMinMaxArgsGradient", {}, [floats(2, 3), floats(2, 3)]),
    ("LRNGrad", {}, [floats(2, 3, 4, 5)] * 3),
    ("EuclideanNorm", {}, [floats(2, 3), ints(1)]),
    ("EuclideanNorm", {"keep_dims": True}, [floats(2, 3), ints(0)]),
    ("ConjugateTranspose", {}, [floats(2, 3), ints(1, 0)]),
    ("MirrorPad", {"mode": b"REFLECT"}, [floats(3, 3), np.array([[1, 2], [0, 1]], np.int32)]),
    ("InplaceUpdate", {}, [floats(4, 3), ints(0, 2), floats(2, 3)]),
    ("IdentityN", {}, [[floats(2, 3), ints(1, 2)]]),
    ("GatherNd", {}, [floats(2, 3, 4), np.zeros((5, 2), np.int32)]),
    ("TopKV2", {"sorted": True}, [floats(2, 5), scalar(3)]),
    ("StatelessMultinomial", {}, [floats(2, 5), scalar(3), ints(1, 2)]),
    ("Multinomial", {}, [floats(2, 5), scalar(3)]),
    *(
        (
            f"{of}CandidateSampler",
            {"num_true": 2, "num_sampled": 4, "unique": True, "range_max": 9},
            [np.array([[1, 2], [3, 4], [5, 6]], np.int64)],
        )
        for of in ("LogUniform", "LearnedUnigram", "ThreadUnsafeUnigram", "Uniform")
    ),
    ("SparseToDense", {}, [ints(1, 3), ints(5), floats(2), np.float32(0)]),
    ("ScatterNd", {}, [np.array([[1], [2]], np.int32), floats(2, 3), ints(4, 3)]),
    ("MatrixDiagV3", {}, [floats(2, 3), scalar(0), scalar(-1), scalar(-1), np.float32(0)]),
    ("MatrixDiagV3", {}, [floats(2, 3), scalar(1), scalar(-1), scalar(-1), np.float32(0)]),
    ("MatrixDiagPartV3", {}, [floats(2, 3, 5), scalar(0), np.float32(0)]),
    ("MatrixDiagPartV3", {}, [floats(3, 5), scalar(3), np.float32(0)]),
    ("MatrixDiagPartV3", {}, [floats(3, 5), scalar(-2), np.float32(0)]),
    ("MatrixSolve", {}, [np.eye(3, dtype=np.float32), floats(3, 2)]),
    ("MatrixTriangularSolve", {}, [np.eye(3, dtype=np.float32), floats(3, 2)]),
    (
        "CTCLoss",
        {},
        [floats(6, 2, 4), np.array([[0, 0], [1, 0]], np.int64), ints(1, 2), ints(6, 5)],
    ),
]
BY_LISTS = {name for name in RULES if name.startswith(("TensorList", "Empty", "Optional"))}
ALIKE = {
    *(name for name in RULES if RULES[name] is RULES["Tanh"]),
    *(name for name in RULES if name.startswith(("Random", "Stateful", "Stateless", "Truncated"))),
    "BatchMatMulV3",
    "CTCLossV2",  # has a kernel for GPUs alone
    "Const",
    "AllCandidateSampler",
    "FixedUnigramCandidateSampler",  # reads a file
}
"""Types whose rule another type's case tries, and constants."""

SHAPES = (None, (), (1,), (0,), (None,), (3,), (2, 3), (None, 3), (2, None, 4), (1, 1, 1, 1), (-1,))
VALUES = (None, 0, 1, -1, 2**40, (), (0,), (1, 2), (None,), (None, 3), (-1, 0, 5), (1, 0))


def whole(array):
    """All that there is to know of a tensor, as far as facts tell it."""
    value = None
    if array.dtype in (np.int32, np.int64) and array.ndim < 2:
        value = array.item() if array.ndim == 0 else tuple(array.tolist())
    if array.dtype == np.int32 and array.ndim == 2:
        return Fact(tuple(array.shape), matrix=tuple(map(tuple, array.tolist())))
    return Fact(tuple(array.shape), value)


def partial(fact):
    """What may be known of a tensor: all of it, or less and less."""
    yield fact
    if isinstance(fact.value, tuple) and fact.value:
        yield Fact(fact.shape, (None, *fact.value[1:]))
        yield Fact(fact.shape, (*fact.value[:-1], None))
    if fact.value is not None:
        yield Fact(fact.shape)
    if fact.shape:
        yield Fact((None, *fact.shape[1:]))
        yield Fact((*fact.shape[:-1], None))
        yield Fact((None,) * len(fact.shape))
    yield Fact()


def agrees(fact, array):
    """Whether nothing that is said of a tensor is wrong."""
    shape = array.shape
    if fact.matrix is not None:
        rows = zip(fact.matrix, array.tolist(), strict=True)
        if any(a not in (None, b) for row in rows for a, b in zip(*row, strict=True)):
            return False
    if fact.shape is not None:
        if len(fact.shape) != len(shape):
            return False
        if any(size not in (None, real) for size, real in zip(fact.shape, shape, strict=True)):
            return False
    if isinstance(fact.value, tuple):
        pairs = zip(fact.value, array.tolist(), strict=True) if array.ndim == 1 else [(0, None)]
        return len(fact.value) == array.size and all(a in (None, b) for a, b in pairs)
    return fact.value is None or (array.ndim == 0 and fact.value == array.item())


def made(op_type, attributes, inputs):
    """The op with as many results as its kernel has, and the tensors that it reads, flat."""
    flat = [one for some in inputs for one in (some if isinstance(some, list) else [some])]
    count = attributes.get("num") or attributes.get("num_split") or RESULTS.get(op_type, 1)
    names = tuple(f"in{i}" for i in range(len(flat)))
    outputs = tuple(f"out{i}" for i in range(count))
    return Op("op", op_type, names, outputs, attributes), flat


RESULTS = {
    "BroadcastGradientArgs": 2,
    "CTCLoss": 2,
    "ConcatOffset": 3,
    "FusedBatchNormGradV3": 5,
    "FusedBatchNormV2": 5,
    "FusedBatchNormV3": 6,
    "IdentityN": 2,
    "ShapeN": 2,
    "SoftmaxCrossEntropyWithLogits": 2,
    "SparseSoftmaxCrossEntropyWithLogits": 2,
    "StatelessRandomGetKeyCounter": 2,
    "LogMatrixDeterminant": 2,
    "Lu": 2,
    "SelfAdjointEigV2": 2,
    "TopKV2": 2,
    **{name: 3 for name in RULES if name.endswith("CandidateSampler")},
}


def ran(one, flat):
    """The kernel's results as arrays."""
    blobs = {
        **{
            name: Blob(name, value.dtype.name) for name, value in zip(one.inputs, flat, strict=True)
        },
        **{name: Blob(name, "float32") for name in one.outputs},
    }
    if one.type == "DynamicStitch":  # its kernel is found with a type that the inputs tell
        half = len(flat) // 2
        return [tf.raw_ops.DynamicStitch(indices=flat[:half], data=flat[half:]).numpy()]
    net = Net("net", one.inputs, one.outputs, (one,), blobs)
    return [value.numpy() for value in Workspace(net, poison=False).run(flat)]


@pytest.mark.parametrize(
    ("op_type", "attributes", "inputs"), CASES, ids=[f"{i}-{one[0]}" for i, one in enumerate(CASES)]
)
def test_a_rule_says_nothing_that_the_kernel_denies(op_type, attributes, inputs):
    one, flat = made(op_type, attributes, inputs)
    results = ran(one, flat)
    known = [list(dict.fromkeys(partial(whole(value)))) for value in flat]
    everything = [facts[0] for facts in known]
    for slot, facts in enumerate(known):
        for fact in facts:
            ins = [*everything[:slot], fact, *everything[slot + 1 :]]
            if op_type in RULES:
                RULES[op_type](one, ins)  # raises nothing, also where nobody catches it
            for found, array in zip(results_of(one, ins), results, strict=True):
                assert agrees(possible(found), array), (ins, found, array)
    for ins in itertools.islice(itertools.product(*known), 400):
        for found, array in zip(results_of(one, ins), results, strict=True):
            assert agrees(possible(found), array), (ins, found, array)


def test_with_everything_known_most_rules_tell_the_shape():
    silent = set()
    for op_type, attributes, inputs in CASES:
        one, flat = made(op_type, attributes, inputs)
        if any(found.shape is None for found in results_of(one, [whole(value) for value in flat])):
            silent.add(op_type)
    statistics = {name for name in silent if name.startswith("FusedBatchNorm")}  # as traced
    assert silent - statistics == {"StatelessRandomGetKeyCounter"}


def test_every_rule_is_tried():
    assert set(RULES) <= {name for name, _, _ in CASES} | BY_LISTS | ALIKE


DIMS = ((), (rows.ONE,), (rows.ROW,), (rows.ROW, rows.Dim(3)), (rows.Dim(-1),), (rows.Dim(0),) * 3)


@pytest.mark.parametrize("op_type", sorted(rows.RULES))
def test_no_rule_of_rows_raises_whatever_it_is_given(op_type):
    values = [make(dims) for make in (rows.Rows, rows.Sizes) for dims in DIMS]
    values += [rows.Sizes(rows.ROW), rows.Partial((rows.ONE,)), rows.Rows((rows.ROW,), rows.ONE)]
    values += [rows.Given(Fact(shape, value)) for shape in SHAPES for value in VALUES]
    for case in range(300):
        count = random.integers(0, 6)
        given = [values[i] for i in random.integers(0, len(values), count)]
        attributes = ({}, {"axis": 5, "squeeze_dims": (4,), "batch_dims": 7, "num": -1})[case % 2]
        names = tuple(f"in{i}" for i in range(count))
        one = Op("op", op_type, names, ("out0", "out1"), attributes)
        rows.apply(one, given)
        rows.apply_outside(one, given)


@pytest.mark.parametrize("op_type", sorted(RULES))
def test_no_rule_raises_whatever_it_is_given(op_type):
    facts = [Fact(shape, value) for shape in SHAPES for value in VALUES]
    facts += [Fact((), None, Fact(shape), length) for shape in SHAPES for length in (None, 0, 2)]
    attributes = [
        {},
        {"axis": 3, "squeeze_dims": (5,), "batch_dims": 9, "value": 3, "shape": 7, "keep_dims": 1},
        {"axis": -9, "squeeze_dims": (-1,), "value": Constant("int32", None, b""), "DstT": "int32"},
    ]
    for case in range(600):
        count = random.integers(0, 6)
        ins = [facts[i] for i in random.integers(0, len(facts), count)]
        names = tuple(f"in{i}" for i in range(count))
        one = Op("op", op_type, names, ("out0", "out1"), attributes[case % 3])
        found = results_of(one, ins)
        assert len(found) == 2
        assert all(size is None or size >= 0 for fact in found for size in fact.shape or ())
        rows.apply(one, [rows.Given(fact) for fact in ins])
