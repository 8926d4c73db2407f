"""An op that may write in place waits for the other readers of what it reads."""

import pytest

from rnnmem.analysis.machine import CPU
from rnnmem.analysis.versions import ssa
from rnnmem.grappler.cse import congruent_ops
from rnnmem.ir.edges import Edge
from rnnmem.passes.schedule.apply import with_edges
from rnnmem.passes.schedule.in_place import FRESH, READING, last_readers
from rnnmem.passes.schedule.serialise import edges_of
from rnnmem.simulate.timeline import simulate
from tests.handmade import const, make_net, op

WIDE, ROWS = "f[512,2048]", "f[512]"
SIZE = 512 * 2048 * 4


def read_twice(*more, kind="Tanh", producer="MatMul", outputs=("rows", "done")):
    """product ─┬─► Sum ─► rows
    └─► Tanh ─► Sum ─► done"""
    return make_net(
        {"x": "f[512,256]", "w": "f[256,2048]"},
        [
            const("axis", 1),
            op("product", producer, "x w", WIDE),
            op("rows", "Sum", "product axis", ROWS),
            op("last", kind, "product", WIDE),
            *more,
            op("done", "Sum", "last axis", ROWS),
        ],
        outputs,
    )


def found(net):
    planned, edges = last_readers(net, ssa(net), congruent_ops(net), 2**18)
    return {one.name for one in planned.ops if one.type == "Alias"}, edges


@pytest.mark.parametrize("kind", ["Tanh", "Relu", "Softmax", "LogSoftmax", "Square"])
def test_it_waits_for_the_other_reader(kind):
    net = read_twice(kind=kind)
    assert found(net) == ({"last"}, [Edge("last", 0, "rows")])
    scheduling_edges = edges_of(net, CPU, 1.1)
    assert scheduling_edges.edges == (Edge("last", 0, "rows"),)
    assert (scheduling_edges.bytes_before, scheduling_edges.bytes) == (2 * SIZE, SIZE)
    ordered = with_edges(net, scheduling_edges.edges)
    gate = ordered.producer[ordered.op_by_name["last"].inputs[0]]
    assert gate.inputs == ("product",) and gate.controls == ("rows",)
    assert simulate(ordered).peak_bytes <= SIZE + 2**14


def test_the_order_in_which_it_was_written_does_not_matter():
    net = read_twice()
    first = [net.op_by_name[name] for name in ("axis", "product", "last", "done", "rows")]
    assert edges_of(net.replace(ops=tuple(first)), CPU, 1.1).edges == (Edge("last", 0, "rows"),)


def test_of_two_that_could_one_waits_for_the_other():
    net = read_twice(op("other", "Sigmoid", "product", WIDE), op("more", "Sum", "other axis", ROWS))
    net = net.replace(outputs=(*net.outputs, "more"))
    scheduling_edges = edges_of(net, CPU, 1.1)
    assert (scheduling_edges.bytes_before, scheduling_edges.bytes) == (3 * SIZE, 2 * SIZE)


def test_what_runs_before_it_anyway_needs_no_edge():
    by_rows = op("last", "Mul", "product tall", WIDE)
    net = make_net(
        {"x": "f[512,256]", "w": "f[256,2048]"},
        [
            const("axis", 1),
            op("product", "MatMul", "x w", WIDE),
            op("rows", "Sum", "product axis", ROWS),
            op("tall", "ExpandDims", "rows axis", "f[512,1]"),
            by_rows,
        ],
        ["last"],
    )
    assert found(net) == ({"last"}, [])


NOTHING = (set(), [])


def test_a_result_is_not_overwritten():
    assert found(read_twice(outputs=("rows", "done", "product"))) == NOTHING


@pytest.mark.parametrize(
    "reader",
    [
        op("held", "Identity", "product", WIDE),
        op("held", "Reshape", "product shape", "f[1048576]"),
        op("held", "TensorListPushBack", "list product", "v[]"),
        op("held", "Strange", "product", ROWS),
        op("held", "AddN", "product other third", WIDE),
        op("held", "Tanh", "product", WIDE),
    ],
)
def test_a_reader_that_holds_it_longer_or_is_not_known(reader):
    given = {"shape": "i[1]", "list": "v[]", "other": WIDE, "third": WIDE}
    net = read_twice(reader)
    net = net.replace(
        inputs=(*net.inputs, *given),
        outputs=(*net.outputs, *reader.op.outputs),
        blobs={**net.blobs, **make_net(given, [], []).blobs},
    )
    assert found(net) == NOTHING


def test_what_may_be_fused_with_its_readers_is_left_alone():
    assert found(read_twice(producer="AddV2")) == NOTHING
    assert found(read_twice(producer="Exp")) == NOTHING


def test_a_pattern_of_both_is_left_alone():
    """x·f(sum x) may be fused as one: with an edge it would not be."""
    net = make_net(
        {"x": "f[512,256]", "w": "f[256,2048]"},
        [
            const("axis", 1),
            op("product", "MatMul", "x w", WIDE),
            op("mean", "Mean", "product axis", "f[512,1]"),
            op("rows", "Sum", "product axis", ROWS),
            op("last", "Sub", "product mean", WIDE),
            op("done", "Sum", "last axis", ROWS),
        ],
        ["rows", "done"],
    )
    assert found(net) == NOTHING


def test_small_buffers_are_not_worth_it():
    net = read_twice()
    small = {name: make_net({name: "f[2,2]"}, [], []).blobs[name] for name in ("product", "last")}
    assert found(net.replace(blobs={**net.blobs, **small})) == NOTHING


def test_who_reads_without_keeping_hands_out_no_part_of_it():
    assert {"ArgMin", "GatherV2", "Sum", "TopKV2"} <= READING <= FRESH
    # a part of the buffer, a list that holds it, or the buffer of the logits itself
    parts = {"Split", "SplitV", "Unpack"}
    assert READING.isdisjoint({*parts, "TensorListPushBack", "SoftmaxCrossEntropyWithLogits"})
