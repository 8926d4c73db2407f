"""What runs again outside of loops: one refusal of each way in which it could be wrong."""

import dataclasses

import pytest

from rnnmem.analysis.machine import CPU
from rnnmem.errors import CheckError, NetError
from rnnmem.passes.straight_line.apply import CLONE, with_regions
from rnnmem.passes.straight_line.decision import Region
from rnnmem.passes.straight_line.select import candidates
from rnnmem.verify import check
from tests.drawing import encoded
from tests.handmade import make_net, op
from tests.passes.straight_line.test_select import F, chain

NET = chain()
REGIONS = candidates(NET, CPU.seconds, 1.0)[0].regions
MADE = with_regions(NET, REGIONS, encoded)
CLONES = [one for one in MADE.ops if one.name.endswith(CLONE) and one.type in ("Sin", "Tanh")]


def changed(name, **fields):
    ops = tuple(one.replace(**fields) if one.name == name else one for one in MADE.ops)
    return MADE.replace(ops=ops)


def refusal(made, net=NET):
    with pytest.raises(CheckError) as caught:
        check(net, made)
    return caught.value.reason


def test_clones_compute_the_same():
    check(NET, MADE)
    assert CLONES


def test_a_clone_of_another_type():
    clone = CLONES[0]
    assert refusal(changed(clone.name, type="Exp")) == "value-changed"


def test_a_clone_that_reads_another_blob():
    clone = next(one for one in CLONES if one.type == "Tanh")
    assert refusal(changed(clone.name, inputs=("x",))) == "value-changed"


def test_a_reader_that_reads_another_clone():
    first, second = [one for one in CLONES if one.type == "Tanh"][:2]
    reader = MADE.readers[first.outputs[0]][0]
    inputs = tuple(second.outputs[0] if one == first.outputs[0] else one for one in reader.inputs)
    assert refusal(changed(reader.name, inputs=inputs)) in ("value-changed", "cycle")


def test_a_random_op_that_runs_again():
    net = chain(act="RandomShuffle")
    drawn = Region(("h3",), ("gradients/t3",), ("gradients/d4",), 2**20, 0.0)
    made = with_regions(net, [drawn], encoded)
    assert refusal(made, net) == "stateful-op-doubled"


def test_a_variable_that_was_written_in_between():
    reads = make_net(
        {"x": F, "v": "r[]"},
        [
            op("w", "ReadVariableOp", "v", F),
            op("m", "MatMul", "x w", F),
            op("write", "AssignVariableOp", "v m", "", stateful=True),
            op("gradients/d", "Mul", "m w", F, controls=("write",)),
        ],
        ["gradients/d"],
        control_outputs=("write",),
    )
    region = Region(("w",), ("gradients/d",), (), 2**20, 0.0)
    made = with_regions(reads, [region], encoded)
    clone = next(one for one in made.ops if one.name == f"w/{CLONE}")
    late = tuple(
        one.replace(controls=("write",), inputs=("v",)) if one is clone else one for one in made.ops
    )
    assert refusal(made.replace(ops=late), reads) == "stateful-op-doubled"


@pytest.mark.parametrize("field", ["ops", "readers", "after"])
def test_a_plan_for_another_function(field):
    strange = dataclasses.replace(REGIONS[0], **{field: ("nothing",)})
    with pytest.raises(NetError, match="another function"):
        with_regions(NET, [strange], encoded)
