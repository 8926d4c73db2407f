"""What a second run of a function would change, and whether that can be undone.

TensorFlow marks an op as stateful and says no more. This table, by op type, says what a run leaves
behind; a type that does not stand here may leave anything.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import BRANCHES, LOOPS, READERS, TABLE

ITERATORS = frozenset({"IteratorGetNext", "IteratorGetNextAsOptional", "IteratorGetNextSync"})
"""Types that take an element from an iterator."""

TABLES = frozenset({"LookupTableImportV2", "LookupTableInsertV2", "LookupTableRemoveV2"})
"""Types that write a lookup table."""

DRAWS = frozenset(
    {
        *("Multinomial", "ParameterizedTruncatedNormal", "RandomCrop", "RandomGamma"),
        *("RandomPoisson", "RandomPoissonV2", "RandomShuffle", "RandomStandardNormal"),
        *("RandomUniform", "RandomUniformInt", "TruncatedNormal", "NonDeterministicInts"),
        *("AllCandidateSampler", "FixedUnigramCandidateSampler", "LearnedUnigramCandidateSampler"),
        *("LogUniformCandidateSampler", "ThreadUnsafeUnigramCandidateSampler"),
        *("UniformCandidateSampler", "SampleDistortedBoundingBox", "SampleDistortedBoundingBoxV2"),
        *("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3", "CudnnRNNBackprop", "CudnnRNNBackpropV2"),
        "CudnnRNNBackpropV3",
    }
)
"""Types whose kernel counts its draws: each traced function has kernels, and counts, of its own."""

SEEN = frozenset(
    {
        *("DebugIdentityV2", "DebugIdentityV3", "DumpTensor", "EagerPyFunc", "FlushSummaryWriter"),
        *("ImportEvent", "Print", "PrintV2", "PyFunc", "Save", "SaveSlices", "SaveV2", "WriteFile"),
        *("WriteAudioSummary", "WriteGraphSummary", "WriteHistogramSummary", "WriteImageSummary"),
        *("WriteRawProtoSummary", "WriteScalarSummary", "WriteSummary"),
    }
)
"""Types whose effect a user sees outside of TensorFlow, once for each run."""

_VARIABLE_PREFIXES = ("Assign", "ResourceApply", "ResourceScatter", "ResourceSparseApply")
_VARIABLES = frozenset(
    {
        *("ResourceCountUpTo", "ResourceStridedSliceAssign", "RngReadAndSkip", "RngSkip"),
        *("StatefulRandomBinomial", "StatefulStandardNormal", "StatefulStandardNormalV2"),
        *("StatefulTruncatedNormal", "StatefulUniform", "StatefulUniformFullInt"),
        "StatefulUniformInt",
    }
)

_INSIDE_PREFIXES = ("Stack", "TensorArray")
"""Types on resources that are gone when the run ends."""

_LEAVES_NOTHING = frozenset(
    {
        *("Assert", "CheckNumerics", "CheckNumericsV2", "DeepCopy", "DeviceIndex", "Empty"),
        *("DisableCopyOnRead", "GraphDefVersion", "GuaranteeConst", "HashTableV2"),
        *("InitializeTableFromTextFileV2", "InitializeTableV2", "IsTensorFloat32Enabled"),
        *("IteratorGetDevice", "LookupTableExportV2", "LookupTableFindV2", "LookupTableSizeV2"),
        *("MapPeek", "MapSize", "OrderedMapPeek", "OrderedMapSize", "QueueIsClosedV2"),
        *("QueueSizeV2", "RangeDataset", "Restore", "RestoreSlice", "RestoreV2", "SleepOp"),
        *("SparseTensorSliceDataset", "StagePeek", "StageSize", "StatefulPartitionedCall"),
        *("StatelessRandomGetAlg", "TensorDataset", "TensorSliceDataset", "Timestamp"),
        *READERS,
        *LOOPS,
        *BRANCHES,
        *TABLE,
    }
)


@dataclasses.dataclass(frozen=True)
class SecondRun:
    """What a second run of a Net would change.

    Attributes:
      stays: ops whose effect cannot be undone and would spoil what follows: queues, datasets that
        are read from their start, and every stateful type that nobody knows.
      seen: ops whose effect would be seen twice: prints, Python functions, summaries, files.
      draws: whether kernels of the function count random draws.
      written: for each input of the Net that is a handle, the ops that change what is behind it: a
        variable, an iterator, a table. An op that no input leads to stands in ``stays``.
    """

    stays: tuple[Op, ...]
    seen: tuple[Op, ...]
    draws: bool
    written: Mapping[str, tuple[Op, ...]]


def second_run(net: Net) -> SecondRun:
    """What a second run of a Net would change; step nets and called Nets are looked into."""
    ops = [op for _, inner in net.walk() for op in inner.ops if op.stateful]
    handles = [blob for blob in net.inputs if net.blobs[blob].dtype == "resource"]
    behind = {blob: tuple(_behind(net, blob)) for blob in handles}
    reached = {id(op) for found in behind.values() for op in found}
    return SecondRun(
        stays=tuple(
            op
            for op in ops
            if not _is_known(op) or (_writes_a_handle(op) and id(op) not in reached)
        ),
        seen=tuple(op for op in ops if op.type in SEEN),
        draws=any(op.type in DRAWS for op in ops),
        written={
            blob: tuple(op for op in found if _writes_a_handle(op))
            for blob, found in behind.items()
        },
    )


def writes_variable(op: Op) -> bool:
    """Whether the op changes the variable behind its first input."""
    return op.type in _VARIABLES or op.type.startswith(_VARIABLE_PREFIXES)


def described(ops: tuple[Op, ...], most: int = 4) -> str:
    """Types of ops with the user's lines, each once: ``PrintV2 (train.py:12)``."""
    told = dict.fromkeys(f"{op.type} ({op.source})" if op.source else op.type for op in ops)
    more = f" and {len(told) - most} more" if len(told) > most else ""
    return ", ".join(list(told)[:most]) + more


def _is_known(op: Op) -> bool:
    return (
        _writes_a_handle(op)
        or op.type in _LEAVES_NOTHING
        or op.type in SEEN
        or op.type in DRAWS
        or op.type.startswith(_INSIDE_PREFIXES)
    )


def _writes_a_handle(op: Op) -> bool:
    return op.type in ITERATORS or op.type in TABLES or writes_variable(op)


def _behind(net: Net, blob: str) -> Iterator[Op]:
    """Every stateful op that a handle leads to, through loops, branches and calls."""
    for op in net.readers.get(blob, ()):
        for place, name in enumerate(op.inputs):
            if name != blob:
                continue
            yield from (_behind_step_nets(op, place) if op.nets else (op,))
            # A loop hands its handles on; an identity is one more name.
            if op.type in LOOPS or op.type == "Identity":
                yield from _behind(net, op.outputs[place])


def _behind_step_nets(op: Op, place: int) -> Iterator[Op]:
    # A branch's first input says which one is taken.
    place -= op.type in BRANCHES
    for inner in op.nets.values():
        if 0 <= place < len(inner.inputs):
            yield from _behind(inner, inner.inputs[place])
