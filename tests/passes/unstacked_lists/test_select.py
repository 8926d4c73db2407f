"""A list that was unstacked from an argument, or from another list, is not made where that shows.

x [B, T, U] ─► Transpose ─► cut ─► rows ─► loop: row = rows[i], h = tanh(row w + h)
steps ─► list ─► Stack ─► Transpose ─► Transpose ─► cut ─► rows ─► the same loop
"""

import dataclasses

import pytest

from rnnmem.analysis.loops import loop_pairs
from rnnmem.analysis.machine import CPU
from rnnmem.analysis.shapes import with_known_shapes
from rnnmem.errors import CheckError, NetError
from rnnmem.ir.graph import DType
from rnnmem.passes.unstacked_lists.apply import apply
from rnnmem.passes.unstacked_lists.decision import UnstackedList
from rnnmem.passes.unstacked_lists.select import unstacked_lists
from rnnmem.planning.apply import apply_plan
from rnnmem.planning.pareto import plan_net
from rnnmem.planning.plan import Plan
from rnnmem.simulate.timeline import simulate
from rnnmem.verify import check
from tests.handmade import (
    CONTEXT,
    const,
    edited,
    empty_list,
    encoded,
    make_net,
    op,
    pop,
    push,
    while_op,
)

B, T, U = 16, 64, 64
ROW, X, STACKED, W = f"f[{B},{U}]", f"f[{B},{T},{U}]", f"f[{T},{B},{U}]", f"f[{U},{U}]"
LIST = {"element_dtype": DType("float32")}
TURNED = op("turned", "Transpose", "x swap", STACKED)
CUT = op("rows", "TensorListFromTensor", "turned shape", "v[]", attributes=LIST)


def item(held="rows", place="i", shape="dims", name="row"):
    return op(name, "TensorListGetItem", f"{held} {place} {shape}", ROW, attributes=LIST)


def pair(before, inside=(), behind=(), outputs=(), hands_on="rows", dims=(B, U)):
    """A loop pair that reads rows; the arguments are what differs from the picture."""
    lists = {"rows": "v[]", "acc_row": "v[]", "acc_t": "v[]"}
    body = make_net(
        {"i": "i[]", "h": ROW, "w": W, **lists},
        [
            const("one", 1),
            const("dims", dims),
            op("next", "AddV2", "i one", "i[]"),
            item(),
            op("m", "MatMul", "row w", ROW),
            op("s", "AddV2", "m h", ROW),
            op("t", "Tanh", "s", ROW),
            *inside,
            push("push_row", "acc_row", "row"),
            push("push_t", "acc_t", "t"),
        ],
        ["next", "t", "w", hands_on, "push_row", "push_t"],
        name="body",
    )
    flipped = {"transpose_a": True, "transpose_b": False, "T": DType("float32")}
    gradient = make_net(
        {"i": "i[]", "g": ROW, "total": W, "acc_row": "v[]", "acc_t": "v[]"},
        [
            const("one", 1),
            const("any", (-1, -1)),
            op("next", "AddV2", "i one", "i[]"),
            pop("pop_row", "acc_row", ROW),
            pop("pop_t", "acc_t", ROW),
            op("d", "TanhGrad", "pop_t:1 g", ROW),
            op("e", "MatMul", "pop_row:1 d", W, attributes=flipped),
            op("sum", "AddV2", "total e", W),
        ],
        ["next", "d", "sum", "pop_row:0", "pop_t:0"],
        name="gradient_body",
    )
    return make_net(
        {"x": X, "h": ROW, "w": W},
        [
            const("zero", 0),
            const("any", (-1, -1)),
            const("swap", (1, 0, 2)),
            const("shape", (B, U)),
            *before,
            empty_list("list_row"),
            empty_list("list_t"),
            while_op("loop", "zero h w rows list_row list_t", body, limit=T),
            *behind,
            op("ones", "OnesLike", "loop:1", ROW),
            op("zeros", "ZerosLike", "w", W),
            while_op("gradient", "zero ones zeros loop:4 loop:5", gradient, limit=T),
        ],
        ["loop:1", "gradient:2", *outputs],
    )


def stacked(length=T, puts="i", first=(1, 0, 2), back="swap", behind=(), **fields):
    """The same of a list that a loop of so many iterations has set."""
    steps = make_net(
        {"i": "i[]", "h": ROW, "held": "v[]"},
        [
            const("one", 1),
            const("five", 5),
            op("next", "AddV2", "i one", "i[]"),
            op("h2", "Tanh", "h", ROW),
            op("put", "TensorListSetItem", f"held {puts} h2", "v[]", attributes=LIST),
        ],
        ["next", "h2", "put"],
        name="steps_body",
    )
    before = [
        const("length", T),
        const("first", first),
        op("new", "TensorListReserve", "shape length", "v[]", attributes=LIST),
        while_op("steps", "zero h new", steps, limit=length),
        op("all", "TensorListStack", "steps:2 shape", STACKED, attributes=LIST),
        op("out", "Transpose", "all first", X),
        op("inverse", "InvertPermutation", "swap", "i[3]"),
        op("turned", "Transpose", f"out {back}", STACKED),
        CUT,
    ]
    return pair(before, behind=behind, **fields)


def found(net):
    known = with_known_shapes(net)
    pairs = loop_pairs(known, known, {})
    return unstacked_lists(known, pairs, pairs)


def applied(net, *chosen, keeps_alive=True):
    context = dataclasses.replace(CONTEXT, keeps_alive=keeps_alive)
    return apply(net, chosen or found(net), context)


OF_X = UnstackedList("rows", "x", 1)
OF_STEPS = UnstackedList("rows", "steps:2")
ZEROS = op("like", "ZerosLike", "loop:3", "v[]")
READ = op("read", "TensorListStack", "like shape", STACKED, attributes=LIST)
PUT = op("put", "TensorListSetItem", "rows i t", "v[]", attributes=LIST)
BACKWARDS = (
    const("axis", (0,)),
    op("first", "Transpose", "x swap", STACKED),
    op("turned", "ReverseV2", "first axis", STACKED),
    CUT,
)
WHOLE = pair([TURNED, CUT])


def body(net, name="loop"):
    return net.op_by_name[name].nets["body"]


@pytest.mark.parametrize(
    ("net", "one"),
    [
        (WHOLE, OF_X),
        (pair(BACKWARDS), dataclasses.replace(OF_X, backwards=T)),
        (stacked(), OF_STEPS),
        (stacked(behind=[ZEROS, READ], outputs=["read"]), OF_STEPS),
        (stacked(back="inverse", inside=[PUT], hands_on="put"), OF_STEPS),
    ],
)
def test_a_list_is_not_made(net, one):
    assert found(net) == (one,)
    changed = applied(net)
    check(net, changed)
    assert not changed.readers.get("rows")
    assert applied(net, one, keeps_alive=False) == net


def test_an_argument_cut_as_it_is_needs_no_list_either():
    net = pair([op("rows", "TensorListFromTensor", "x shape", "v[]", attributes=LIST)])
    net = net.replace(
        blobs={**net.blobs, "x": dataclasses.replace(net.blobs["x"], shape=(T, B, U))}
    )
    assert found(net) == (dataclasses.replace(OF_X, axis=0),)
    check(net, applied(net))


def test_it_is_part_of_the_plan_and_holds_less():
    plan = plan_net(WHOLE, CPU, 1.1)
    assert plan.of("unstacked_lists") == (OF_X,)
    assert not plan.of("rebuild_lists")
    assert Plan.from_json(plan.to_json()) == plan
    before, after = (
        simulate(apply_plan(WHOLE, one, encoded)).peak_bytes
        for one in (plan.having(unstacked_lists=()), plan)
    )
    assert after <= before - B * T * U * 4 // 2


THREE = op("three", "AddN", "row m h", ROW)
IN_X = op("more", "AddN", "x x x", X)


@pytest.mark.parametrize(
    "net",
    [
        pair([TURNED, CUT], inside=[THREE]),
        pair([TURNED, CUT], behind=[IN_X], outputs=["more"]),
        pair([TURNED, CUT], inside=[op("n", "TensorListLength", "rows", "i[]")]),
        pair([TURNED, CUT], behind=[ZEROS, READ], outputs=["read"]),
        pair([TURNED, CUT], outputs=["rows"]),
        pair([TURNED, CUT], outputs=["loop:3"]),
        pair([TURNED, CUT], inside=[op("new", "ZerosLike", "rows", "v[]")], hands_on="new"),
        pair([op("turned", "Neg", "x", STACKED), CUT]),
        pair([const("odd", (1, 2, 0)), op("turned", "Transpose", "x odd", STACKED), CUT]),
        stacked(first=(0, 1, 2)),
        stacked(length=T - 1, behind=[ZEROS, READ], outputs=["read"]),
        stacked(puts="five", behind=[ZEROS, READ], outputs=["read"]),
        stacked(dims=(-1, U), puts="five"),
    ],
)
def test_a_list_stays_where_more_is_asked_or_held(net):
    assert found(net) == ()


def test_rows_of_a_batch_that_is_unknown_show_no_more_than_the_lists():
    net = pair([TURNED, CUT], dims=(-1, U))
    assert found(net) == (OF_X,)
    changed = applied(net)
    check(net, changed)
    (shown,) = (one for one in body(changed).ops if one.name == "row")
    assert [one.dims for one in shown.attributes["output_shapes"]] == [(None, U)]


@pytest.mark.parametrize(
    ("net", "one"),
    [
        (WHOLE, dataclasses.replace(OF_X, axis=0)),
        (WHOLE, dataclasses.replace(OF_X, backwards=T)),
        (pair(BACKWARDS), OF_X),
        (pair(BACKWARDS), dataclasses.replace(OF_X, backwards=T - 1)),
        (stacked(first=(0, 1, 2)), OF_STEPS),
        (stacked(length=T - 1, behind=[ZEROS, READ], outputs=["read"]), OF_STEPS),
        (stacked(puts="five", behind=[ZEROS, READ], outputs=["read"]), OF_STEPS),
        (stacked(dims=(-1, U), puts="five"), OF_STEPS),
    ],
)
def test_what_is_not_the_same_is_refused(net, one):
    with pytest.raises(CheckError):
        check(net, applied(net, one))


@pytest.mark.parametrize(
    "changes",
    [
        {"attributes": {"batch_dims": 1}},
        {"inputs": ("rows", "one", "rnnmem/number:0")},
    ],
)
def test_another_row_is_refused(changes):
    changed = applied(WHOLE)
    loop = changed.op_by_name["loop"]
    row = loop.nets["body"].op_by_name["rnnmem/row"]
    changes = {**changes, "attributes": {**row.attributes, **changes.get("attributes", {})}}
    body = edited(loop.nets["body"], "rnnmem/row", **changes)
    with pytest.raises(CheckError):
        check(WHOLE, edited(changed, "loop", nets={**loop.nets, "body": body}))


def test_a_plan_for_another_net_is_refused():
    for one in (dataclasses.replace(OF_X, list="none"), dataclasses.replace(OF_X, source="none")):
        with pytest.raises(NetError, match="the plan is for another function"):
            applied(WHOLE, one)
