"""When may a blob take a storage: equal shapes, at least as large, or growing; unknown batch."""

import pytest

from rnnmem.ir.graph import Blob, Net, Op
from rnnmem.storage import share_parallel, share_sequential


def line(*kinds, outputs=("z",)):
    """b0 ─► b1 ─► b2 ─► ... ─► z; each kind is (dtype, shape)."""
    blobs = {"x": Blob("x", "float32", (1,)), "z": Blob("z", "float32", (1,))}
    ops, source = [], "x"
    for index, (dtype, shape) in enumerate(kinds):
        blobs[f"b{index}"] = Blob(f"b{index}", dtype, shape)
        ops.append(Op(f"o{index}", "F", (source,), (f"b{index}",)))
        source = f"b{index}"
    ops.append(Op("end", "F", (source,), ("z",)))
    return Net("line", ("x",), outputs, tuple(ops), blobs)


TINY = ("int8", (1,))


def shares(first, second, level):
    """Whether two blobs, one dead before the other is made, live in one storage."""
    net = line(first, TINY, second)
    answers = {
        share(net, level=level).plan.rename.get("b2") == "b0"
        for share in (share_parallel, share_sequential)
    }
    (answer,) = answers
    return answer


FOUR, EIGHT = ("float32", (None, 4)), ("float32", (None, 8))


@pytest.mark.parametrize(
    "first, second, allowed",
    [
        (FOUR, FOUR, (0, 1, 2)),
        (EIGHT, FOUR, (1, 2)),
        (FOUR, EIGHT, (2,)),
        (FOUR, ("float32", (8, 4)), ()),
        (("float32", (8, 4)), FOUR, ()),
        (("float32", (8, 4)), ("float32", (4, 8)), (1, 2)),
        (("float32", (8, 8)), ("float32", (4, 8)), (1, 2)),
        (("float32", (4, 8)), ("float32", (8, 8)), (2,)),
        (FOUR, ("float16", (None, 4)), ()),
        (("float32", (2, None)), ("float32", (2, None)), (0, 1, 2)),
        (("float32", (2, None)), ("float32", (3, None)), ()),
    ],
)
def test_levels(first, second, allowed):
    assert tuple(level for level in (0, 1, 2) if shares(first, second, level)) == allowed


def test_the_nearest_size_comes_first():
    kinds = [("float32", (size,)) for size in (9, 30, 12)]
    blobs = {"x": Blob("x", "float32", (1,)), "s": Blob("s", "int8", (1,))}
    blobs |= {f"b{i}": Blob(f"b{i}", *kind) for i, kind in enumerate(kinds)}
    blobs |= {"want": Blob("want", "float32", (10,)), "z": Blob("z", "float32", (1,))}
    ops = [Op(f"o{i}", "F", ("x",), (f"b{i}",)) for i in range(3)]
    ops += [Op("s", "F", ("b0", "b1", "b2"), ("s",)), Op("w", "F", ("s",), ("want",))]
    ops.append(Op("end", "F", ("want",), ("z",)))
    net = Net("n", ("x",), ("z",), tuple(ops), blobs)
    assert share_parallel(net, level=1).plan.rename["want"] == "b2"
    assert share_sequential(net, level=1).plan.rename["want"] == "b2"


@pytest.mark.parametrize(
    "never",
    [("float32", ()), ("variant", None), ("resource", None), ("string", (3,))],
    ids=["zero-rank", "list", "persistent", "string"],
)
def test_never_pooled(never):
    plan = share_parallel(line(never, TINY, never)).plan
    assert not {"b0", "b2"} & set(plan.rename)


def test_what_is_written_into_host_memory_is_never_pooled():
    net = line(("int32", (2,)), TINY, ("int32", (2,)))
    ops = tuple(op.replace(type="Shape") if op.name == "o0" else op for op in net.ops)
    assert "b0" not in share_parallel(net.replace(ops=ops)).plan.rename
