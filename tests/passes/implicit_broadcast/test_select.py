"""Ops broadcast an operand themselves where all readers of the repeated blob can."""

import pytest

from rnnmem.analysis.loops import loop_pairs
from rnnmem.analysis.machine import CPU
from rnnmem.analysis.shapes import with_known_shapes
from rnnmem.errors import CheckError, NetError
from rnnmem.passes.implicit_broadcast.apply import with_implicit_broadcasts
from rnnmem.passes.implicit_broadcast.decision import ImplicitBroadcast
from rnnmem.passes.implicit_broadcast.select import implicit_broadcasts_of
from rnnmem.planning.pareto import plan_net
from rnnmem.planning.plan import Plan
from rnnmem.verify import check
from tests.handmade import const, make_net, op, rnn

BODY = ("gradient", "body")
FOLD = ImplicitBroadcast("p", 0, BODY)


def repeated(*more, maker="Tile", reader="Mul", source="f[512,1]", read_by="p"):
    """The loop pair of ``rnn``, in whose gradient step net ``d`` is multiplied by sums of its rows.

    d ─► Sum ─► row [512, 1] ─► Tile = rep [512, 512] ─► Mul(rep, t') = p ─► MatMul ─► g
    """
    net = rnn(units=512)
    gradient = net.op_by_name["gradient"]
    body, f = gradient.nets["body"], "f[512,512]"
    drawn = make_net(
        {"d": f, "pop_t:1": f},
        [
            const("axis", 1),
            const("times", (1, 512) if maker == "Tile" else (512, 512)),
            op("row", "Sum", "d axis", source),
            op("other", "Max", "d axis", source),
            op("rep", maker, "row times", f),
            op("p", reader, "rep pop_t:1", f),
            *more,
        ],
        ["p"],
    )
    ops = [
        one.replace(inputs=(read_by, *one.inputs[1:])) if one.name == "back" else one
        for one in body.ops
    ]
    made = body.replace(ops=(*ops, *drawn.ops), blobs={**drawn.blobs, **body.blobs})
    changed = gradient.replace(nets={**gradient.nets, "body": made})
    return net.replace(ops=tuple(changed if one is gradient else one for one in net.ops))


def implicit_broadcasts(net):
    (pair,) = loop_pairs(net, net, {})
    return implicit_broadcasts_of(pair, CPU.seconds)[0]


@pytest.mark.parametrize("maker", ["Tile", "BroadcastTo"])
@pytest.mark.parametrize("reader", ["Mul", "RealDiv", "Sub"])
def test_a_repeated_operand_is_broadcast_by_who_reads_it(maker, reader):
    net = repeated(maker=maker, reader=reader)
    assert implicit_broadcasts(net) == (FOLD,)
    folded = with_implicit_broadcasts(net, implicit_broadcasts(net))
    check(net, folded)
    body = folded.op_by_name["gradient"].nets["body"]
    barrier = body.producer[body.op_by_name["p"].inputs[0]]
    assert barrier.type == "OptionalGetValue"
    assert body.producer[barrier.inputs[0]].inputs == ("row",)


def test_it_is_part_of_the_plan_and_the_time_is_spared():
    plan = plan_net(repeated(), CPU, 1.1)
    assert plan.implicit_broadcasts == (FOLD,)
    assert Plan.from_json(plan.to_json()) == plan
    assert plan_net(rnn(units=512), CPU, 1.1).implicit_broadcasts == ()


def test_what_another_op_reads_is_made_anyway():
    assert implicit_broadcasts(repeated(op("s", "Tanh", "rep", "f[512,512]"))) == ()


def test_what_a_sum_adds_up_keeps_its_form():
    # a graph optimizer takes common factors out of sums
    f = "f[512,512]"
    assert implicit_broadcasts(repeated(op("s", "AddV2", "p d", f), read_by="s")) == ()
    view = [op("v", "Identity", "p", f), op("s", "AddV2", "v d", f)]
    assert implicit_broadcasts(repeated(*view, read_by="s")) == ()


def test_two_repeated_operands_broadcast_to_less_than_the_result():
    # rep * rep2 is as large as both; row * row2 would have one column
    f = "f[512,512]"
    more = [op("rep2", "Tile", "other times", f), op("p2", "Mul", "rep rep2", f)]
    found = implicit_broadcasts(repeated(*more))
    for implicit_broadcast in found:
        check(repeated(*more), with_implicit_broadcasts(repeated(*more), [implicit_broadcast]))
    net = repeated(*more, read_by="p2")
    with pytest.raises(CheckError, match="value-changed"):
        check(
            net,
            with_implicit_broadcasts(
                net, [ImplicitBroadcast("p2", 0, BODY), ImplicitBroadcast("p2", 1, BODY)]
            ),
        )


def test_unknown_shapes_are_left_alone_and_refused():
    net = repeated(source="f[512,?]")
    if implicit_broadcasts(with_known_shapes(net)) == ():
        with pytest.raises(CheckError, match="value-changed"):
            check(net, with_implicit_broadcasts(net, [FOLD]))


def test_another_source_is_refused():
    net = repeated(op("q", "Mul", "other pop_t:1", "f[512,512]"))
    folded = with_implicit_broadcasts(net, [FOLD])
    gradient = folded.op_by_name["gradient"]
    body = gradient.nets["body"]
    wrapped = body.producer[body.producer[body.op_by_name["p"].inputs[0]].inputs[0]]
    ops = (one.replace(inputs=("other",)) if one is wrapped else one for one in body.ops)
    changed = gradient.replace(nets={**gradient.nets, "body": body.replace(ops=tuple(ops))})
    ops = (changed if one is gradient else one for one in folded.ops)
    with pytest.raises(CheckError, match="value-changed"):
        check(net, folded.replace(ops=tuple(ops)))


@pytest.mark.parametrize(
    "implicit_broadcast",
    [
        ImplicitBroadcast("p", 1, BODY),
        ImplicitBroadcast("p", 5, BODY),
        ImplicitBroadcast("none", 0, BODY),
        ImplicitBroadcast("p", 0),
    ],
)
def test_a_plan_for_another_net_is_refused(implicit_broadcast):
    with pytest.raises(NetError, match="another function"):
        with_implicit_broadcasts(repeated(), [implicit_broadcast])
