"""Chains by chunks of rows: one refusal of each way in which the memory could be wrong."""

import pytest

from rnnmem.analysis.machine import CPU
from rnnmem.errors import CheckError
from rnnmem.ir.graph import Net
from rnnmem.ir.marks import CHUNKS, OWNED
from rnnmem.passes.elementwise_chunks.apply import by_chunks
from rnnmem.passes.elementwise_chunks.select import chains_of
from rnnmem.verify import check
from tests.drawing import encoded
from tests.passes.elementwise_chunks.test_select import gradient, layer, net_of

NET = net_of(*layer(), *gradient(), outputs=("out", "dx0"))
MADE = by_chunks(NET, [one for some in chains_of(NET, CPU) for one in some], encoded)
LOOPS = [one for one in MADE.ops if CHUNKS in one.attributes]
BUFFERS = [one for one in MADE.ops if one.type == "Empty"]


def changed(name, **fields) -> Net:
    ops = tuple(one.replace(**fields) if one.name == name else one for one in MADE.ops)
    return MADE.replace(ops=ops)


def changed_inside(name, loop=LOOPS[0], **fields) -> Net:
    """The same of an op of a loop's body."""
    body = loop.nets["body"]
    ops = tuple(one.replace(**fields) if one.name == name else one for one in body.ops)
    assert ops != body.ops
    return changed(loop.name, nets={**loop.nets, "body": body.replace(ops=ops)})


def inside(kind, loop=LOOPS[0]):
    return next(one for one in loop.nets["body"].ops if one.type == kind)


def refusal(made):
    with pytest.raises(CheckError) as caught:
        check(NET, made)
    return str(caught.value).splitlines()[0]


def test_chains_by_chunks_compute_the_same():
    check(NET, MADE)
    assert len(LOOPS) == len(BUFFERS) == 2


def test_two_loops_that_fill_the_same_memory():
    first, second = (one.outputs[0] for one in BUFFERS)
    inputs = tuple(first if one == second else one for one in LOOPS[1].inputs)
    assert "others may read" in refusal(changed(LOOPS[1].name, inputs=inputs))
    waiting = {"inputs": inputs, "controls": (LOOPS[0].name,)}
    assert "others may read" in refusal(changed(LOOPS[1].name, **waiting))


def test_memory_that_somebody_reads_beside_the_loop():
    (blob,) = BUFFERS[0].outputs
    out = MADE.producer["out"]
    made = changed("out", inputs=(blob, *out.inputs[1:]))
    assert "others may read" in refusal(made)


def test_memory_that_is_nobodys_own():
    attributes = {k: v for k, v in BUFFERS[0].attributes.items() if k != OWNED}
    assert "others may read" in refusal(changed(BUFFERS[0].name, attributes=attributes))


def test_memory_of_another_shape():
    other = next(one for one in MADE.ops if one.type == "Const" and one.outputs[0].endswith(":0"))
    assert "does not fill" in refusal(changed(BUFFERS[0].name, inputs=other.outputs))


def test_a_body_that_reads_memory_before_it_is_written():
    write = inside("InplaceUpdate")
    part = inside("Slice")
    made = changed_inside(part.name, inputs=(write.inputs[0], *part.inputs[1:]))
    assert "nobody has written" in refusal(made)


def test_rows_that_are_written_elsewhere():
    ramp = inside("Range")
    made = changed_inside(ramp.name, inputs=(ramp.inputs[1], ramp.inputs[1], ramp.inputs[2]))
    assert "not in the place" in refusal(made)


def test_fewer_chunks_than_there_are_rows():
    attributes = {**LOOPS[0].attributes, CHUNKS: 4}
    assert "do not cover" in refusal(changed(LOOPS[0].name, attributes=attributes))


def test_an_op_that_computes_something_else():
    assert "sigmoid" in refusal(changed_inside("b0", type="Tanh")).lower()


def test_an_op_that_sees_all_rows():
    made = changed_inside("b0", type="Softmax")
    assert refusal(made)
    made = changed_inside("b0", type="Cumsum")
    assert refusal(made)
