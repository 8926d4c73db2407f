"""Gradient loops look up the rows of their iteration where no list of all rows is needed."""

import dataclasses

import pytest

from rnnmem.analysis.loops import loop_pairs
from rnnmem.analysis.machine import CPU
from rnnmem.analysis.variable_effects import Writers
from rnnmem.errors import CheckError
from rnnmem.ir.graph import VARIABLE_SHAPES, DType
from rnnmem.passes.rebuild_lists.select import rebuilt_lists
from rnnmem.planning.apply import apply_plan
from rnnmem.planning.pareto import plan_net
from rnnmem.planning.plan import Plan
from rnnmem.simulate.timeline import simulate
from rnnmem.verify import check
from tests.drawing import encoded
from tests.handmade import const, edited, empty_list, make_net, op, pop, push, while_op

F = {"element_dtype": DType("float32")}
T, B, U = 64, 32, 128
ROWS, ROW = f"f[{T},{B},{U}]", f"f[{B},{U}]"


def reading_rows(table=(100, U), batch_dims=0, asks="TensorListLength", after=()):
    """A loop that multiplies its state with a row of a variable, and its gradient loop.

    forward     seq[i] = x,  Tanh(h * x) = t ─► h          pushes i, x and t
    gradient    TanhGrad(t', g) * x' ─► g                  pops i', x' and t'
    """
    body = make_net(
        {"i": "i[]", "h": ROW, "seq": "v[]", "acc_i": "v[]", "acc_x": "v[]", "acc_t": "v[]"},
        [
            const("one", 1),
            const("dims", (B, U)),
            op("next", "AddV2", "i one", "i[]"),
            op("x", "TensorListGetItem", "seq i dims", ROW, attributes=F),
            op("asked", asks, "seq", "i[]"),
            op("m", "Mul", "h x", ROW),
            op("t", "Tanh", "m", ROW),
            push("push_i", "acc_i", "i"),
            push("push_x", "acc_x", "x"),
            push("push_t", "acc_t", "t"),
        ],
        ["next", "t", "seq", "push_i", "push_x", "push_t"],
        name="body",
    )
    back = make_net(
        {"j": "i[]", "g": ROW, "acc_i": "v[]", "acc_x": "v[]", "acc_t": "v[]"},
        [
            const("one", 1),
            const("any", (-1, -1)),
            op("next", "AddV2", "j one", "i[]"),
            pop("pop_i", "acc_i", "i[]"),
            pop("pop_x", "acc_x", ROW),
            pop("pop_t", "acc_t", ROW),
            op("d", "TanhGrad", "pop_t:1 g", ROW),
            op("back", "Mul", "d pop_x:1", ROW),
        ],
        ["next", "back", "pop_i:0", "pop_x:0", "pop_t:0"],
        name="gradient_body",
    )
    net = make_net(
        {"table": "r[]", "indices": f"i[{T},{B}]", "h0": ROW, "other": "r[]"},
        [
            const("zero", 0),
            const("any", (-1, -1)),
            const("dims", (B, U)),
            op(
                "rows",
                "ResourceGather",
                "table indices",
                ROWS,
                attributes={"dtype": DType("float32"), "batch_dims": batch_dims},
                stateful=True,
            ),
            op("list", "TensorListFromTensor", "rows dims", "v[]", attributes=F),
            *map(empty_list, ("list_i", "list_x", "list_t")),
            while_op("loop", "zero h0 list list_i list_x list_t", body, limit=T),
            op("ones", "OnesLike", "loop:1", ROW),
            while_op("gradient", "zero ones loop:3 loop:4 loop:5", back, limit=T),
            *after,
        ],
        ["loop:1", "gradient:1"],
    )
    return net.replace(attributes={VARIABLE_SHAPES: {"table": table}})


def lists(net):
    return rebuilt_lists(net, loop_pairs(net, net, {}), CPU.seconds, Writers(net))


def rewritten(net, anew):
    plan = plan_net(net, CPU, 10.0, segments=False).having(rebuild_lists=anew)
    assert Plan.from_json(plan.to_json()) == plan
    return apply_plan(net, plan, encoded)


def test_rows_of_a_small_variable_are_looked_up_one_by_one():
    net = reading_rows()
    (made,) = lists(net)
    assert made.table == (100, U)
    changed = rewritten(net, (made,))
    check(net, changed)
    types = [op.type for op in changed.ops]
    assert types.count("TensorListFromTensor") == types.count("ResourceGather") == 1
    body = changed.op_by_name["gradient"].nets["body"]
    assert [op.type for op in body.ops].count("GatherV2") == 2
    assert not any(op.type == "TensorListGetItem" for op in body.ops)


def test_it_is_predicted_to_hold_less():
    net = reading_rows()
    (made,) = lists(net)
    whole = rewritten(net, (dataclasses.replace(made, table=()),))
    check(net, whole)
    apart = rewritten(net, (made,))
    assert _held_in_gradient(apart) <= _held_in_gradient(whole) - made.bytes // 2


def _held_in_gradient(net):
    """Bytes alive in the gradient loop at most."""
    events = simulate(net).events
    first = next(index for index, (name, _) in enumerate(events) if name == "d")
    return max(bytes for _, bytes in events[first:])


@pytest.mark.parametrize(
    "net",
    [
        pytest.param(reading_rows(table=(T * B, U)), id="a large variable"),
        pytest.param(reading_rows(table=(None, U)), id="a variable of unknown size"),
        pytest.param(reading_rows(table=None), id="a variable of unknown shape"),
        pytest.param(reading_rows(batch_dims=1), id="a lookup for each row"),
        pytest.param(reading_rows(asks="TensorListStack"), id="a reader of the whole list"),
    ],
)
def test_else_the_list_is_made(net):
    (made,) = lists(net)
    assert made.table == ()


def test_a_variable_that_is_written_before_the_gradient_is_left_alone():
    write = op("write", "AssignVariableOp", "table h0", controls=("loop",), stateful=True)
    net = reading_rows(after=[write]).replace(control_outputs=("write",))
    assert lists(net) == ()


def test_a_broken_rewrite_is_refused():
    net = reading_rows()
    good = rewritten(net, lists(net))
    body = good.op_by_name["gradient"].nets["body"]
    rows = next(
        one
        for one in body.ops
        if one.type == "GatherV2" and body.producer[one.inputs[1]].type == "GatherV2"
    )
    place = body.producer[rows.inputs[1]]
    (read,) = (one for one in good.ops if one.type == "ReadVariableOp")
    later = op("write", "AssignVariableOp", "table h0", stateful=True).op
    broken = {
        "another variable": edited(good, read.name, inputs=("other",)),
        "another place": edited(good, place.name, inputs=(place.inputs[0], "j", place.inputs[2])),
        "another axis": edited(good, rows.name, attributes={**rows.attributes, "batch_dims": 1}),
        "not the indices": edited(
            good, rows.name, inputs=(rows.inputs[0], place.inputs[1], rows.inputs[2])
        ),
        "a write that may run first": edited(
            good.replace(ops=(*good.ops, later), control_outputs=("write",)), read.name, controls=()
        ),
    }
    for one in broken.values():
        with pytest.raises(CheckError):
            check(net, one)


def test_a_read_after_a_write_is_refused():
    write = op("write", "AssignVariableOp", "table h0", controls=("gradient",), stateful=True)
    net = reading_rows(after=[write]).replace(control_outputs=("write",))
    good = rewritten(net, lists(net))
    check(net, good)
    (read,) = (one for one in good.ops if one.type == "ReadVariableOp")
    early = edited(good, "write", controls=())
    late = edited(early, read.name, controls=("write",))
    for one in (early, late):
        with pytest.raises(CheckError):
            check(net, one)
