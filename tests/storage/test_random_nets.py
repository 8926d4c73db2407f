"""Whatever the Net, sharing keeps its numbers under any interleaving, and the checks can fail."""

import random

import pytest

from rnnmem.analysis.reachability import HappensBeforeSoFar
from rnnmem.analysis.versions import ssa
from rnnmem.errors import CheckError
from rnnmem.ir.graph import Blob, Net, Op
from rnnmem.storage import (
    ALGORITHMS,
    ORDERS,
    share_gradients,
    share_parallel,
    share_sequential,
    verify,
)
from tests.storage.symbolic import assert_same_numbers, run

SHAPES = [(4, 8), (8, 8), (16, 8), (None, 8), (None, 4), (3,), ()]


def random_net(seed: int) -> Net:
    """Fan-out, in-place ops, several writers of a name, dead ends, views, control edges."""
    draw = random.Random(seed)
    names = ["x0", "x1"]
    blobs = {name: Blob(name, "float32", (8, 8)) for name in names}
    ops: list[Op] = []
    for index in range(draw.randint(1, 25)):
        inputs = [draw.choice(names[-6:]) for _ in range(draw.randint(1, 3))]
        kind = draw.choice(["F", "F", "F", "Identity", "Reshape"])
        outputs = []
        for place in range(draw.choice([1, 1, 1, 2])):
            way = draw.random()
            written = [name for name in names if name not in outputs and not name.startswith("x")]
            if way < 0.15 and inputs[0] in written:
                name = inputs[0]
            elif way < 0.22 and written:
                name = draw.choice(written)
            else:
                name = f"b{index}_{place}"
                dtype = draw.choice(["float32", "float32", "float32", "int8", "variant"])
                blobs[name] = Blob(name, dtype, draw.choice(SHAPES))
            outputs.append(name)
        names += [name for name in outputs if name not in names]
        controls = (draw.choice(ops).name,) if ops and draw.random() < 0.2 else ()
        device = draw.choice(["", "", "", "gpu"])
        ops.append(
            Op(f"o{index}", kind, tuple(inputs), tuple(outputs), {}, controls, device=device)
        )
    outputs = draw.sample(names, min(len(names), draw.randint(1, 3)))
    return Net("random", ("x0", "x1"), tuple(outputs), tuple(ops), blobs)


@pytest.mark.parametrize("start", range(0, 300, 50))
@pytest.mark.filterwarnings("ignore:.*no known size")
def test_numbers_stay(start):
    for seed in range(start, start + 50):
        net = random_net(seed)
        for level in (0, 1, 2):
            shared = share_parallel(net, level=level)
            assert_same_numbers(net, shared.net, parallel=True)
            assert shared.after.bytes <= shared.before.bytes
            assert len(shared.plan.storages) <= len(shared.plan.rename)
        assert_same_numbers(net, share_parallel(net, sizes=None).net, parallel=True)
        losses = [net.outputs[0]]
        for activations in (False, True):
            shared = share_gradients(net, losses, activations=activations)
            assert_same_numbers(net, shared.net, parallel=True)
        least = {}
        for algorithm in ALGORITHMS:
            shared = share_sequential(net, algorithm=algorithm)
            assert_same_numbers(shared.original, shared.net)
            least[algorithm] = shared.plan.bytes
            assert shared.after.bytes <= shared.before.bytes
        assert least["exact"] <= min(least.values())
        for how in ORDERS:
            shared = share_sequential(net, order=how)
            assert run(shared.original, keep_all=True) == run(net, keep_all=True)
            assert_same_numbers(shared.original, shared.net)


@pytest.mark.filterwarnings("ignore:.*no known size")
def test_the_order_with_the_lowest_peak_is_never_above_the_others():
    for seed in range(100):
        net = random_net(seed)
        peaks = {how: share_sequential(net, order=how).before.peak_bytes for how in ORDERS}
        assert peaks["peak"] == min(peaks.values())


def test_clocks_tell_what_walking_tells():
    for seed in range(60):
        past = ssa(random_net(seed))
        ancestors: list[set[int]] = []
        happens_before = HappensBeforeSoFar(past.before, set(range(len(past.ops))))
        for index, others in enumerate(past.before):
            ancestors.append(set(others).union(*(ancestors[other] for other in others)))
            assert happens_before.advance() == index
            assert {op for op in range(index) if happens_before.comes_before(op)} == ancestors[
                index
            ]


@pytest.mark.filterwarnings("ignore:.*no known size")
def test_a_plan_that_merges_what_is_alive_is_refused():
    """Merges two names at random; the verifier must refuse whatever changes a number."""
    refused = 0
    for seed in range(300):
        net = random_net(seed)
        draw = random.Random(seed)
        written = sorted({blob for op in net.ops for blob in op.outputs})
        if len(written) < 2:
            continue
        one, other = draw.sample(written, 2)

        def renamed(blobs, one=one, other=other):
            return tuple(other if blob == one else blob for blob in blobs)

        ops = tuple(
            op.replace(inputs=renamed(op.inputs), outputs=renamed(op.outputs)) for op in net.ops
        )
        wrong = net.replace(ops=ops)
        try:
            verify(net.replace(ops=ssa(net).ops), wrong, parallel=True)
        except (CheckError, ValueError):
            refused += 1
            continue
        assert_same_numbers(net, wrong, parallel=True)
    assert refused > 100


@pytest.mark.slow
def test_a_hundred_thousand_ops_are_planned():
    count = 100_000
    blobs = {f"b{i}": Blob(f"b{i}", "float32", (i % 40 + 1, 16)) for i in range(count + 1)}
    ops = tuple(
        Op(
            f"o{i}",
            "F",
            (f"b{i - 1}", f"b{max(0, i - 5)}") if i % 3 else (f"b{i - 1}",),
            (f"b{i}",),
        )
        for i in range(1, count + 1)
    )
    net = Net("long", ("b0",), (f"b{count}",), ops, blobs)
    assert len(share_parallel(net).plan.storages) < 20
