"""What is known of each op type: may it run twice, what does it share, what does it cost.

One table, one line per type. A type that does not stand here is saved, never recomputed. A test
holds every key against TensorFlow's registry and refuses stateful ones.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections.abc import Mapping
from types import MappingProxyType

from rnnmem.ir.graph import Net, Op, Shape, bytes_of


class Work(enum.Enum):
    """How an op's work grows."""

    NONE = "none"  # a view of its input, or a few numbers
    MOVES = "moves"  # copies its output
    READS = "reads"  # passes over its inputs
    POINTWISE = "pointwise"  # computes each element of its output
    PRODUCT = "product"  # multiplies matrices


@dataclasses.dataclass(frozen=True, slots=True)
class OpFacts:
    """What is known of an op type whose result depends on nothing but its inputs.

    Attributes:
      work: how its work grows.
      weight: arithmetic per element, relative to one addition.
      view: its output may share the buffer of its first input.
      folds: TensorFlow's graph optimizer looks through it into its readers, so a reader that is
        recomputed must find it recomputed too, or it might be fused otherwise than before.
    """

    work: Work
    weight: float = 1.0
    view: bool = False
    folds: bool = False


def _pointwise(weight: float, folds: bool = False) -> OpFacts:
    return OpFacts(Work.POINTWISE, weight, folds=folds)


def _reads(weight: float) -> OpFacts:
    return OpFacts(Work.READS, weight)


def _moves(folds: bool = False) -> OpFacts:
    return OpFacts(Work.MOVES, folds=folds)


def _tiny(folds: bool = False) -> OpFacts:
    return OpFacts(Work.NONE, folds=folds)


def _view(folds: bool = False) -> OpFacts:
    return OpFacts(Work.NONE, view=True, folds=folds)


def _product() -> OpFacts:
    return OpFacts(Work.PRODUCT)


# fmt: off
TABLE: Mapping[str, OpFacts] = MappingProxyType({
    "Abs": _pointwise(1),
    "AccumulateNV2": _reads(1),
    "Acos": _pointwise(12),
    "Acosh": _pointwise(12),
    "Add": _pointwise(1),
    "AddN": _reads(1),
    "AddV2": _pointwise(1),
    "All": _reads(1),
    "Any": _reads(1),
    "ArgMax": _reads(1),
    "ArgMin": _reads(1),
    "Asin": _pointwise(12),
    "Asinh": _pointwise(12),
    "Atan": _pointwise(12),
    "Atan2": _pointwise(30),
    "Atanh": _pointwise(12),
    "AvgPool": _reads(9),
    "AvgPool3D": _reads(9),
    "BatchMatMul": _product(),
    "BatchMatMulV2": _product(),
    "BatchMatMulV3": _product(),
    "BatchToSpace": _moves(),
    "BatchToSpaceND": _moves(),
    "BesselI0e": _pointwise(12),
    "BesselI1e": _pointwise(12),
    "Betainc": _pointwise(12),
    "BiasAdd": _reads(1),
    "BiasAddV1": _reads(1),
    "Bitcast": _view(folds=True),
    "BitwiseAnd": _pointwise(1),
    "BitwiseOr": _pointwise(1),
    "BitwiseXor": _pointwise(1),
    "BroadcastArgs": _tiny(),
    "BroadcastGradientArgs": _tiny(),
    "BroadcastTo": _moves(),
    "Cast": _pointwise(1, folds=True),
    "Ceil": _pointwise(1),
    "ClipByValue": _pointwise(1),
    "Complex": _pointwise(1),
    "ComplexAbs": _pointwise(1),
    "Concat": _moves(),
    "ConcatOffset": _tiny(),
    "ConcatV2": _moves(),
    "Conj": _pointwise(1, folds=True),
    "ConjugateTranspose": _moves(folds=True),
    "Const": _tiny(folds=True),
    "Conv2D": _product(),
    "Conv3D": _product(),
    "Cos": _pointwise(6),
    "Cosh": _pointwise(12),
    "Cross": _pointwise(6),
    "Cumprod": _reads(2),
    "Cumsum": _reads(2),
    "DepthToSpace": _moves(),
    "DepthwiseConv2dNative": _product(),
    "Diag": _moves(),
    "DiagPart": _moves(),
    "Digamma": _pointwise(12),
    "Div": _pointwise(4),
    "DivNoNan": _pointwise(4),
    "Einsum": _product(),
    "Elu": _pointwise(4),
    "EluGrad": _pointwise(2),
    "Equal": _pointwise(1),
    "Erf": _pointwise(4),
    "Erfc": _pointwise(6),
    "Erfinv": _pointwise(12),
    "EuclideanNorm": _reads(1),
    "Exp": _pointwise(4),
    "ExpandDims": _view(folds=True),
    "Expm1": _pointwise(6),
    "ExtractImagePatches": _moves(),
    "Fill": _moves(folds=True),
    "Floor": _pointwise(1),
    "FloorDiv": _pointwise(4),
    "FloorMod": _pointwise(4),
    "Gather": _moves(),
    "GatherNd": _moves(),
    "GatherV2": _moves(),
    "Greater": _pointwise(1),
    "GreaterEqual": _pointwise(1),
    "Identity": _view(folds=True),
    "IdentityN": _tiny(folds=True),
    "Igamma": _pointwise(12),
    "Igammac": _pointwise(12),
    "Imag": _pointwise(1),
    "InTopKV2": _reads(1),
    "Inv": _pointwise(4),
    "InvGrad": _pointwise(2),
    "Invert": _pointwise(1),
    "IsFinite": _pointwise(1),
    "IsInf": _pointwise(1),
    "IsNan": _pointwise(1),
    "L2Loss": _reads(1),
    "LRN": _pointwise(4),
    "LeakyRelu": _pointwise(1),
    "LeakyReluGrad": _pointwise(2),
    "LeftShift": _pointwise(1),
    "Less": _pointwise(1),
    "LessEqual": _pointwise(1),
    "Lgamma": _pointwise(12),
    "LinSpace": _moves(),
    "Log": _pointwise(4),
    "Log1p": _pointwise(6),
    "LogSoftmax": _pointwise(8),
    "LogicalAnd": _pointwise(1),
    "LogicalNot": _pointwise(1),
    "LogicalOr": _pointwise(1),
    "MatMul": _product(),
    "MatrixBandPart": _moves(),
    "MatrixDiag": _moves(),
    "MatrixDiagPart": _moves(),
    "MatrixDiagPartV3": _moves(),
    "MatrixDiagV3": _moves(),
    "MatrixSetDiagV3": _moves(),
    "Max": _reads(1),
    "MaxPool": _reads(9),
    "MaxPool3D": _reads(9),
    "Maximum": _pointwise(1),
    "Mean": _reads(1),
    "Min": _reads(1),
    "Minimum": _pointwise(1),
    "MirrorPad": _moves(),
    "Mod": _pointwise(4),
    "Mul": _pointwise(1),
    "MulNoNan": _pointwise(1),
    "Ndtri": _pointwise(12),
    "Neg": _pointwise(1, folds=True),
    "NotEqual": _pointwise(1),
    "OneHot": _moves(),
    "OnesLike": _moves(folds=True),
    "OptionalFromValue": _view(),
    "OptionalGetValue": _view(),
    "OptionalHasValue": _view(),
    "OptionalNone": _view(),
    "Pack": _moves(),
    "Pad": _moves(),
    "PadV2": _moves(),
    "ParallelConcat": _moves(),
    "PlaceholderWithDefault": _view(),
    "Polygamma": _pointwise(12),
    "Pow": _pointwise(80),
    "Prod": _reads(1),
    "Range": _moves(),
    "Rank": _tiny(),
    "Real": _pointwise(1),
    "RealDiv": _pointwise(4),
    "Reciprocal": _pointwise(4),
    "ReciprocalGrad": _pointwise(2),
    "Relu": _pointwise(1),
    "Relu6": _pointwise(1),
    "Relu6Grad": _pointwise(2),
    "ReluGrad": _pointwise(2),
    "Reshape": _view(folds=True),
    "Reverse": _moves(),
    "ReverseSequence": _moves(),
    "ReverseV2": _moves(),
    "RightShift": _pointwise(1),
    "Rint": _pointwise(1),
    "Roll": _moves(),
    "Round": _pointwise(1),
    "Rsqrt": _pointwise(4),
    "RsqrtGrad": _pointwise(2),
    "Select": _pointwise(1),
    "SelectV2": _pointwise(1),
    "Selu": _pointwise(4),
    "SeluGrad": _pointwise(2),
    "Shape": _tiny(),
    "ShapeN": _tiny(),
    "Sigmoid": _pointwise(4),
    "SigmoidGrad": _pointwise(2),
    "Sign": _pointwise(1),
    "Sin": _pointwise(6),
    "Sinh": _pointwise(12),
    "Size": _tiny(),
    "Slice": _moves(),
    "Softmax": _pointwise(8),
    "SoftmaxCrossEntropyWithLogits": _reads(1),
    "Softplus": _pointwise(8),
    "SoftplusGrad": _pointwise(2),
    "Softsign": _pointwise(12),
    "SoftsignGrad": _pointwise(2),
    "SpaceToBatch": _moves(),
    "SpaceToBatchND": _moves(),
    "SpaceToDepth": _moves(),
    "SparseSoftmaxCrossEntropyWithLogits": _reads(1),
    "Split": _moves(),
    "SplitV": _moves(),
    "Sqrt": _pointwise(4),
    "SqrtGrad": _pointwise(2),
    "Square": _pointwise(1),
    "SquaredDifference": _pointwise(1),
    "Squeeze": _view(folds=True),
    "StatelessRandomGetKeyCounter": _pointwise(30),
    "StatelessRandomGetKeyCounterAlg": _pointwise(30),
    "StatelessRandomNormal": _pointwise(30),
    "StatelessRandomNormalV2": _pointwise(30),
    "StatelessRandomUniform": _pointwise(30),
    "StatelessRandomUniformFullIntV2": _pointwise(30),
    "StatelessRandomUniformInt": _pointwise(30),
    "StatelessRandomUniformIntV2": _pointwise(30),
    "StatelessRandomUniformV2": _pointwise(30),
    "StatelessTruncatedNormal": _pointwise(30),
    "StatelessTruncatedNormalV2": _pointwise(30),
    "StopGradient": _view(folds=True),
    "StridedSlice": _moves(),
    "Sub": _pointwise(1),
    "Sum": _reads(1),
    "Tan": _pointwise(10),
    "Tanh": _pointwise(2),
    "TanhGrad": _pointwise(2),
    "TensorListElementShape": _view(),
    "TensorListGetItem": _view(),
    "TensorListLength": _view(),
    "Tile": _moves(),
    "TopKV2": _moves(),
    "Transpose": _moves(folds=True),
    "TruncateDiv": _pointwise(4),
    "TruncateMod": _pointwise(4),
    "Unpack": _moves(),
    "Xdivy": _pointwise(4),
    "Xlog1py": _pointwise(12),
    "Xlogy": _pointwise(12),
    "ZerosLike": _moves(folds=True),
    "Zeta": _pointwise(12),
})
# fmt: on

BROADCASTS = frozenset({"BroadcastTo", "Tile"})
"""Op types that repeat their first input along some axes."""

BRANCHES = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
LOOPS = frozenset({"While", "StatelessWhile"})
_RUN_NETS = BRANCHES | LOOPS

PUSH, POP, EMPTY = "TensorListPushBack", "TensorListPopBack", "EmptyTensorList"
READ = "ReadVariableOp"
READERS = frozenset(
    {READ, "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape"}
)
"""Types that take a variable's handle and leave the variable as it is."""

OPAQUE_SOURCES = frozenset(
    {"ReadVariableOp", "TensorListGetItem", "TensorListPopBack", *BRANCHES, *LOOPS}
)
"""Types that no graph optimizer fuses into a reader: one more reader of theirs changes nothing."""

_HAND_ON = frozenset({READ, "TensorListPopBack", "TensorListSetItem"})
"""Types of unknown work that hand on a buffer, whatever its size."""


def facts(op: Op) -> OpFacts | None:
    """What is known of the op, or None where it must never run twice."""
    known = TABLE.get(op.type)
    if known is not None or op.type not in _RUN_NETS:
        return known
    if all(_pure(net) for net in op.nets.values()):
        return OpFacts(Work.NONE)
    return None


def _pure(net: Net) -> bool:
    return all(is_pure(op) for op in net.ops)


_KEEPS_APART = frozenset(
    {"Split", "SplitV", "TensorListPushBack", "TensorListSetItem", *BRANCHES, *LOOPS}
)


def may_fuse(producer: Op, reader: Op) -> bool:
    """Whether a graph optimizer might merge an op into the only reader of what it writes.

    Merging into a split never happens; into a concatenation only another one, or an elementwise op
    that all of its inputs share.
    """
    if producer.type in OPAQUE_SOURCES or reader.type in _KEEPS_APART:
        return False
    known = facts(producer)
    if reader.type == "ConcatV2" and known is not None:
        return known.work is Work.POINTWISE or known.folds or producer.type == "ConcatV2"
    return True


_PURE_INSIDE = frozenset(
    {
        *("EmptyTensorList", "TensorListPopBack", "TensorListPushBack", "TensorListReserve"),
        *("TensorListSetItem", "TensorListStack", "TensorListFromTensor", "NoOp"),
        *("BiasAddGrad", "DynamicStitch", "InvertPermutation", "TensorListConcatV2"),
        *("AvgPoolGrad", "AvgPool3DGrad", "Conv2DBackpropFilter", "Conv2DBackpropInput"),
        *("Conv3DBackpropFilterV2", "Conv3DBackpropInputV2", "DepthwiseConv2dNativeBackpropFilter"),
        *("DepthwiseConv2dNativeBackpropInput", "FusedBatchNormGradV3", "LRNGrad", "MaxPoolGrad"),
        *("MaxPool3DGrad", "MirrorPadGrad", "RaggedTensorToVariantGradient", "ResizeBilinearGrad"),
        *("ResizeNearestNeighborGrad", "StridedSliceGrad", "TensorListConcatLists"),
        *("TensorListGather", "TensorListScatterV2", "TensorListSplit", "UnsortedSegmentSum"),
    }
)
"""Pure too, but not worth running twice outside a step net that runs as a whole."""

_ALWAYS_PURE = frozenset(TABLE) | _PURE_INSIDE


def is_pure(op: Op) -> bool:
    """Whether the op may be removed where nobody reads what it writes."""
    return op.type in _ALWAYS_PURE or facts(op) is not None


def is_prunable(op: Op) -> bool:
    """Whether TensorFlow takes the op out where nobody reads what it writes, so that we may too.

    That is more than may run twice: the registry vouches for types that no table of ours knows.
    """
    if op.nets and op.type in _RUN_NETS:
        return all(net.of_ops(_all_prunable) for net in op.nets.values())
    return is_pure(op) or (op.stateless and not op.nets)


def _all_prunable(ops: tuple[Op, ...]) -> bool:
    return all(is_prunable(op) for op in ops)


def why_never_twice(op: Op) -> str:
    """The reason, in words, why an op is saved and not recomputed."""
    if "Random" in op.type or "Multinomial" in op.type:
        return "stateful, running it again would draw a new value"
    if op.type == "ReadVariableOp":
        return "reads a variable, which may have changed since"
    if op.nets:
        return "holds an op that may not run twice"
    return f"{op.type} is not known to be safe to run twice"


def arithmetic(op: Op, net: Net) -> tuple[float, float]:
    """The work of one run of the op.

    Returns:
      ``(operations, bytes moved)``; dimensions that are unknown count as 64.
    """
    if op.nets:
        inner = [_total(step_net) for step_net in op.nets.values()]
        return max(work for work, _ in inner), max(moved for _, moved in inner)
    if op.type in _HAND_ON:
        return 0.0, 0.0
    known = facts(op)
    if known is not None and known.work is _NO_WORK:
        return 0.0, 0.0
    flipped = bool(op.attributes.get("transpose_a") or op.attributes.get("adj_x"))
    return _arithmetic(op.type, flipped, _kinds(net, op.inputs), _kinds(net, op.outputs))


def _total(net: Net) -> tuple[float, float]:
    pairs = [arithmetic(op, net) for op in net.ops]
    return sum(work for work, _ in pairs), sum(moved for _, moved in pairs)


UNKNOWN_DIMENSION = 64

_NO_WORK = Work.NONE  # a member that is asked for by its class takes longer than all else here
_BlobKind = tuple[str, Shape]


def _kinds(net: Net, blobs: tuple[str, ...]) -> tuple[_BlobKind, ...]:
    """Dtypes and shapes."""
    known = net.blobs
    return tuple([((blob := known[name]).dtype, blob.shape) for name in blobs])


@functools.lru_cache(4096)
def _arithmetic(
    op_type: str,
    flipped: bool,
    inputs: tuple[_BlobKind, ...],
    outputs: tuple[_BlobKind, ...],
) -> tuple[float, float]:
    """`arithmetic`, of any op of a type with such inputs and outputs."""
    known = TABLE.get(op_type)
    work = known.work if known else Work.READS
    weight = known.weight if known else 1.0
    written = sum([_size(*kind) for kind in outputs])
    read = sum([_size(*kind) for kind in inputs])
    match work:
        case Work.MOVES:
            return 0.0, 2.0 * written
        case Work.POINTWISE:
            return weight * sum(_elements(shape) for _, shape in outputs), written + read
        case Work.READS:
            return weight * sum(_elements(shape) for _, shape in inputs), written + read
        case Work.PRODUCT:
            shapes = [shape for _, shape in inputs]
            made = outputs[0][1] if outputs else ()
            return _multiplications(op_type, flipped, shapes, made), written + read
    raise AssertionError(known)


def _elements(shape: Shape) -> float:
    if shape is None:
        return float(UNKNOWN_DIMENSION)
    return math.prod(UNKNOWN_DIMENSION if size is None else size for size in shape)


def _size(dtype: str, shape: Shape) -> float:
    known = bytes_of(dtype, shape)
    return 4.0 * _elements(shape) if known is None else float(known)


def _multiplications(op_type: str, flipped: bool, inputs: list[Shape], output: Shape) -> float:
    """Operations of a product: two (multiply, add) for each element written and each one summed."""
    written = _elements(output)
    left, right = (*(shape or () for shape in inputs[:2]), (), ())[:2]
    if "Conv" in op_type:
        per_channel = math.prod(UNKNOWN_DIMENSION if size is None else size for size in right[:-1])
        return 2.0 * written * per_channel
    if op_type == "Einsum" or len(left) < 2:
        read = math.prod(map(_elements, inputs))
        return 2.0 * math.sqrt(read * written)
    summed = left[-2 if flipped else -1]
    return 2.0 * written * (UNKNOWN_DIMENSION if summed is None else summed)
