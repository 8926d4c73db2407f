"""What is known of each op type: may it run twice, what does it share, what does it cost.

`rnnmem.ir.op_types` has one line a type; whoever needs a set of types asks for those with a word.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections.abc import Mapping
from types import MappingProxyType

from rnnmem.ir.graph import Constant, Net, Op, Shape, bytes_of, may_be_one_shape
from rnnmem.ir.op_types import ROWS
from rnnmem.ir.op_words import WORDS


class Work(enum.Enum):
    """How an op's work grows; a word of the table each."""

    NONE = "none"
    MOVES = "moves"
    READS = "reads"
    POINTWISE = "pointwise"
    PRODUCT = "product"
    SOLVES = "solves"


@dataclasses.dataclass(frozen=True, slots=True)
class OpFacts:
    """What is known of an op type.

    Attributes:
      work: how its work grows; of a type that may not run twice, a guess.
      weight: arithmetic per element, relative to one addition: of what runs on matrices alone by
        ``benchmarks.op_times``, of other types by hand; a copy that weighs 1 takes what its bytes
        do.
      view: its output may share the buffer of an input.
      folds: TensorFlow's graph optimizer looks through it into its readers.
    """

    work: Work = Work.READS
    weight: float = 1.0
    view: bool = False
    folds: bool = False


def _parsed(rows: str) -> Mapping[str, Mapping[str, str]]:
    """Type -> its words -> their values."""
    found = {}
    for row in rows.strip().splitlines():
        name, *words = row.split()
        found[name] = {word: value for word, _, value in (one.partition("=") for one in words)}
        if not WORDS.keys() >= found[name].keys():
            raise KeyError(f"{name}: {sorted(found[name].keys() - WORDS.keys())}")
    return MappingProxyType(found)


_ROWS = _parsed(ROWS)


def _facts(words: Mapping[str, str]) -> OpFacts:
    work = next((one for one in Work if one.value in words), Work.READS)
    weight = float(words.get(work.value) or 1)
    return OpFacts(work, weight, "view" in words, "folds" in words)


TABLE: Mapping[str, OpFacts] = MappingProxyType(
    {name: _facts(words) for name, words in _ROWS.items()}
)


def types(word: str, *values: str) -> frozenset[str]:
    """The op types with a word of the table, whatever its value, or with one of these values."""
    found = frozenset(name for name, held in column(word).items() if held in values or not values)
    if not found:
        raise KeyError(f"no op type has {word} {values}")
    return found


def column(word: str) -> Mapping[str, str]:
    """Op type -> the value of a word of the table, for the types that have it."""
    return {name: words[word] for name, words in _ROWS.items() if word in words}


def slots(word: str) -> Mapping[str, int]:
    """Op type -> the input that a word of the table names."""
    return MappingProxyType({name: int(value) for name, value in column(word).items()})


LOOPS, BRANCHES, CALLS = types("runs", "loop"), types("runs", "branch"), types("runs", "call")
_RUN_NETS = BRANCHES | LOOPS

MAY_RERUN = types("rerun")
"""Types that may run twice."""
READERS = types("effect", "reads")
"""Types that take a variable's handle and leave the variable as it is."""
READ, LOOKUP = "ReadVariableOp", "ResourceGather"
"""Of a variable: the whole, some of its rows."""
RUNS_PYTHON = types("python")

EMPTY, RESERVE, CUT = "EmptyTensorList", "TensorListReserve", "TensorListFromTensor"
PUSH, POP = "TensorListPushBack", "TensorListPopBack"
GET, SET = "TensorListGetItem", "TensorListSetItem"
STACK = "TensorListStack"
WRAP, UNWRAP = "OptionalFromValue", "OptionalGetValue"
"""Into an optional and out of it."""

TAKES = types("list", "get", "pop")
"""Types that take an element out of a list."""
HANDS_OUT = TAKES | {UNWRAP}
"""Types that hand out a buffer which a list or an optional has kept."""
PUTS = slots("puts")
"""Op type -> the input that it puts into a list or an optional: held from then on."""

VIEWS = types("view")
"""Types whose outputs may be the buffers of their inputs."""
SAME_BUFFER = types("view", "same", "bits", "optional", "over")
"""Types whose result stands in the buffer of what they read."""
SAME_NUMBERS = types("view", "same")
"""Types that hand on a tensor, its numbers as they are, perhaps in another shape."""
BROADCASTS = types("repeats")
"""Types that repeat their first input along some axes."""
UNIFORM = types("fills")
"""Types that write equal numbers: of constants, a graph optimizer stores them as one of these."""
FILLERS = UNIFORM | BROADCASTS
"""Types whose results are large, cheap, and made from next to nothing."""
ADDS = types("adds")
"""Types that add values up."""
REDUCES = types("reduces")
"""Types that make one number of those along some axes."""
WAKES = MappingProxyType({name: int(value or 1) for name, value in column("wakes").items()})
"""Types whose kernels hand their work to other threads, however little that is -> how often."""
PATCHES = types("patches")
"""Types whose kernels, where TensorFlow's own run, lay out what a filter sees."""
SOFTMAX = types("softmax")
MATRIX_PRODUCTS = types("matmul")
PRIMITIVES = types("starts")
"""Types that oneDNN runs as primitives that take long to start."""
OVERWRITES = "InplaceUpdate"
"""Writes rows into its first input's buffer, whoever else reads that, and hands it on."""
MEMORY = "Empty"
"""Gives memory of a shape that is a buffer of its own, with whatever stood there."""
ASKS_SHAPE = types("asks_shape")
"""Types that read nothing of a blob but its shape."""

OPAQUE_SOURCES = TAKES | _RUN_NETS | {READ}
"""Types that no graph optimizer fuses into a reader: one more reader of theirs changes nothing."""
APART = types("apart") | _RUN_NETS
"""Types that no graph optimizer fuses with what they read, or with what reads them."""

_HAND_ON = frozenset({READ, POP, SET, OVERWRITES})
"""Types of unknown work that hand on a buffer, whatever its size."""
_VARIABLE_PREFIXES = ("Assign", "ResourceApply", "ResourceScatter", "ResourceSparseApply")
_INSIDE_PREFIXES = ("Stack", "TensorArray")
"""Types on resources that are gone when the run ends."""


def effect(type: str) -> str | None:
    """What a run of a stateful op leaves behind; None: that is not known.

    Returns:
      ``iterator``, ``table`` or ``variable``, which is changed behind the first input; ``draws``,
      whose kernel counts what it drew, so that each traced function has counts of its own;
      ``seen``, which a user sees outside of TensorFlow, once for each run; ``reads`` a variable;
      ``none``.
    """
    if type.startswith(_VARIABLE_PREFIXES):
        return "variable"
    if type in MAY_RERUN or type in _RUN_NETS or type.startswith(_INSIDE_PREFIXES):
        return "none"
    return _ROWS.get(type, {}).get("effect")


_ACCESS_ROWS = types("row_access")


def accesses_rows(op: Op) -> bool:
    """Whether the op reads or writes rows of a variable."""
    return op.type in _ACCESS_ROWS or op.type.startswith(("ResourceScatter", "ResourceSparseApply"))


def acts(op: Op) -> bool:
    """Whether the op has an effect whose order may show."""
    return op.stateful and op.type not in READERS and op.type not in _RUN_NETS


_IN_PLACE = dict.fromkeys(MAY_RERUN & types("pointwise"), "all") | {
    name: value for name, value in column("in_place").items() if name in MAY_RERUN
}


def in_place_slots(op: Op) -> tuple[int, ...]:
    """Inputs whose buffer the op may take for its first output, if that is as large."""
    known = _IN_PLACE.get(op.type)
    return tuple(range(len(op.inputs))) if known == "all" else (0,) if known == "0" else ()


def einsum_terms(op: Op) -> tuple[list[str], str] | None:
    """The labels of an einsum's operands and of its result; None where it tells no result."""
    equation = op.attributes.get("equation", b"").decode()
    given, arrow, result = equation.replace(" ", "").partition("->")
    return (given.split(","), result) if arrow else None


def facts(op: Op) -> OpFacts | None:
    """What is known of the op, or None where it must never run twice."""
    if op.type in MAY_RERUN or op.type not in _RUN_NETS:
        return TABLE[op.type] if op.type in MAY_RERUN else None
    if all(_pure(net) for net in op.nets.values()):
        return OpFacts(Work.NONE)
    return None


def _pure(net: Net) -> bool:
    return all(is_pure(op) for op in net.ops)


_KEEPS_APART = types("splits") | types("list", "push", "set") | _RUN_NETS


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


_ALWAYS_PURE = MAY_RERUN | types("pure")


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
    if op.type == READ:
        return "reads a variable, which may have changed since"
    if op.type == LOOKUP:
        return "to look its rows up again would take a copy of the whole variable"
    if op.nets:
        return "holds an op that may not run twice"
    return f"{op.type} is not known to be safe to run twice"


def arithmetic(op: Op, net: Net) -> tuple[float, float]:
    """The work of one run of the op.

    Returns:
      ``(operations, bytes moved)``; the first three dimensions that are unknown count as 64.
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
    sized = op.inputs
    if known is None or known.work is not _PRODUCT:  # which asks for rows and columns
        sized = tuple([_of_known_size(net, blob) for blob in sized])
    return _arithmetic(_computed(op, net), flipped, _kinds(net, sized), _kinds(net, op.outputs))


def transposing(dtype: str, shape: Shape, made: Shape) -> tuple[float, float]:
    """`arithmetic` of a transposition of a shape to another."""
    return _arithmetic("Transpose", False, ((dtype, shape),), ((dtype, made),))


def _total(net: Net) -> tuple[float, float]:
    pairs = [arithmetic(op, net) for op in net.ops]
    return sum(work for work, _ in pairs), sum(moved for _, moved in pairs)


UNKNOWN_DIMENSION = 64
ROW = 80.0
"""Operations that each row of a last axis takes where an op tells them apart, however short it is.
By hand: rows of three numbers take ten to fifty times as long as a kernel that knows no rows."""

_UNKNOWN_DIMENSIONS = 3
"""How many dimensions are taken to be of any size: six of 64 would be more than memory holds."""

_EACH = {name: float(value) for name, value in column("each").items()}
_INDICES, _INDEX_VECTORS = slots("indices"), slots("index_vectors")
_EXPONENTS = slots("exponent")
_EASY_EXPONENTS = (-1, -0.5, 0, 0.5, 1, 2, 3)
"""Those of which ``arithmetic_optimizer.cc`` (``ConvertPowStage``) makes roots and products."""

# A member that is asked for by its class takes longer than all else here.
_NO_WORK, _PRODUCT = Work.NONE, Work.PRODUCT
_BlobKind = tuple[str, Shape]


def _computed(op: Op, net: Net) -> str:
    """The op's type, or one that takes as long as what a graph optimizer makes of its constant."""
    slot = _EXPONENTS.get(op.type)
    made = None if slot is None else net.producer.get(op.inputs[slot])
    held = None if made is None else made.attributes.get("value")
    return "Sqrt" if isinstance(held, Constant) and held.value in _EASY_EXPONENTS else op.type


def _of_known_size(net: Net, blob: str) -> str:
    """The blob, or what it is the same numbers as, where the shape of that is known."""
    one = blob
    while (shape := net.blobs[one].shape) is None or None in shape:
        made = net.producer.get(one)
        if made is None or made.type not in SAME_NUMBERS:
            return blob
        one = made.inputs[0]
    return one


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
    known = TABLE.get(op_type, OpFacts())
    work, weight = known.work, known.weight
    written = sum([_size(*kind) for kind in outputs])
    read = sum([_size(*kind) for kind in inputs])
    by_rows = ROW * _rows(op_type, work, inputs, outputs)
    by_rows = max(by_rows, _EACH.get(op_type, 0.0) * _rows_told(op_type, inputs, outputs))
    match work:
        case Work.MOVES:
            elements = sum(_elements(shape) for _, shape in outputs)
            return (weight * elements if weight > 1.0 else 0.0) + by_rows, 2.0 * written
        case Work.POINTWISE:
            elements = sum(_elements(shape) for _, shape in outputs)
            return weight * elements + by_rows, written + _read_pointwise(inputs, outputs)
        case Work.READS:
            elements = sum(_elements(shape) for _, shape in inputs)
            return weight * elements + by_rows, written + read
        case Work.PRODUCT:
            shapes = [shape for _, shape in inputs]
            made = outputs[0][1] if outputs else ()
            return weight * _multiplications(op_type, flipped, shapes, made), written + read
        case Work.SOLVES:
            matrix = inputs[0][1] or (None,)
            return weight * _elements(matrix) * _elements(matrix[-1:]), written + read
        case Work.NONE:
            return 0.0, 0.0


def _read_pointwise(inputs: tuple[_BlobKind, ...], outputs: tuple[_BlobKind, ...]) -> float:
    """Bytes of what is read: of what is broadcast, number by number, as many as are written."""
    if len(outputs) != 1:
        return sum([_size(*kind) for kind in inputs])
    dtype, made = outputs[0]
    return sum(
        [
            _size(*kind) if kind[0] != dtype or _elements(kind[1]) == 1.0 else _size(dtype, made)
            for kind in inputs
        ]
    )


def _rows(
    op_type: str, work: Work, inputs: tuple[_BlobKind, ...], outputs: tuple[_BlobKind, ...]
) -> float:
    """Rows of the last axis that the op tells apart: adds up, cuts, lays out anew or broadcasts.

    Those of each input that is broadcast count by themselves.
    """
    dtype, made = outputs[0] if outputs else ("", None)
    given = [shape for kind, shape in inputs if shape and kind == dtype]
    if not made or not given:
        return 0.0
    if work is Work.POINTWISE or op_type in BROADCASTS:
        return _elements(made[:-1]) * sum([shape != made for shape in given])
    is_last = made[-1] != given[0][-1] or made == given[0][:-1]
    return _elements(max(made, given[0], key=_elements)[:-1]) if is_last else 0.0


def _rows_told(
    op_type: str, inputs: tuple[_BlobKind, ...], outputs: tuple[_BlobKind, ...]
) -> float:
    """Rows that indices tell the op to take, to write over or to add up."""
    if op_type in _INDEX_VECTORS:
        return _elements((inputs[_INDEX_VECTORS[op_type]][1] or (None,))[:-1])
    if op_type not in _INDICES:
        return 0.0
    held, told = inputs[0][1], inputs[_INDICES[op_type]][1]
    made = outputs[0][1] if outputs else None
    if TABLE[op_type].work is not Work.MOVES or held is None or told is None or made is None:
        return _elements(told)
    batched = len(held) + len(told) - 1 - len(made)
    for axis in range(max(0, batched), len(held)):
        behind = axis + len(told) - batched
        if may_be_one_shape(made, (*held[:axis], *told[batched:], *held[axis + 1 :])):
            return _elements(made[:behind])
    return _elements(told)


def _elements(shape: Shape) -> float:
    if shape is None:
        return float(UNKNOWN_DIMENSION)
    unknown = min(shape.count(None), _UNKNOWN_DIMENSIONS)
    return UNKNOWN_DIMENSION**unknown * math.prod(size for size in shape if size is not None)


def _size(dtype: str, shape: Shape) -> float:
    known = bytes_of(dtype, shape)
    return 4.0 * _elements(shape) if known is None else float(known)


def _multiplications(op_type: str, flipped: bool, inputs: list[Shape], output: Shape) -> float:
    """Operations of a product: two (multiply, add) for each element written and each one summed."""
    written = _elements(output)
    left, right = (*(shape or () for shape in inputs[:2]), (), ())[:2]
    if "Conv" in op_type:
        if "Backprop" in op_type:  # as many as forward, whichever of the two gradients it is
            written = _elements(inputs[2] if len(inputs) > 2 else None)
        kernel = (output if "Filter" in op_type else right) or ()
        ends = -2 if "Depthwise" in op_type else -1
        summed = [UNKNOWN_DIMENSION if size is None else size for size in kernel[:ends]]
        return 2.0 * written * math.prod(summed)
    if op_type == "Einsum" or len(left) < 2:
        read = math.prod(map(_elements, inputs))
        return 2.0 * math.sqrt(read * written)
    inner = left[-2 if flipped else -1]
    return 2.0 * written * (UNKNOWN_DIMENSION if inner is None else inner)
