"""Lists of gradients begin without elements where nobody could tell them from zeros."""

import dataclasses

import pytest

from rnnmem.analysis.loops import loop_pairs
from rnnmem.analysis.machine import CPU
from rnnmem.errors import CheckError, NetError
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import DType
from rnnmem.passes.lazy_gradient_lists.apply import begin_empty
from rnnmem.passes.lazy_gradient_lists.decision import LazyGradientList
from rnnmem.passes.lazy_gradient_lists.select import lazy_gradient_lists
from rnnmem.planning.pareto import plan_net
from rnnmem.planning.plan import Plan
from rnnmem.simulate.timeline import simulate
from rnnmem.verify import check
from tests.handmade import const, edited, make_net, op, rnn

F = {"element_dtype": DType("float32")}
START = LazyGradientList("no_sums", "gradient", ("put",))
ROW = 64 * 1024


def listed(*more, length=8, dtype="f", shape=(128, 128), sums="sums put", stack="TensorListStack"):
    """``rnn`` whose loops also have a list that is read, and the list of its elements' gradients.

    sequence ─► list ─► loop ─► ZerosLike = no_sums ─► gradient ─► Stack
    gradient step net    sums ─► AddN(sums, SetItem(Reserve, i, g2)) ─► sums
    """
    net = rnn(units=128, limit=length)
    rows, row = f"{dtype}[{length},128,128]", f"{dtype}[128,128]"
    outside = make_net(
        {"sequence": rows, "gradient:6": "v[]", "loop:6": "v[]"},
        [
            const("shape", shape),
            op("list", "TensorListFromTensor", "sequence shape", "v[]", attributes=F),
            op("no_sums", "ZerosLike", "loop:6", "v[]"),
            op("passed", "Identity", "gradient:6", "v[]"),
            op("stacked", stack, "passed shape", rows, attributes=F),
        ],
        ["stacked"],
    )
    inside = make_net(
        {"sums": "v[]", "i": "i[]", "e": "f[128,128]"},
        [
            const("dims", (128, 128)),
            const("count", length),
            op("taken", "Cast", "e", row) if dtype != "f" else op("taken", "Relu", "e", row),
            op("new", "TensorListReserve", "dims count", "v[]", attributes=F),
            op("put", "TensorListSetItem", "new i taken", "v[]", attributes=F),
            *more,
            op("more_sums", "AddN", sums, "v[]"),
            op("handed", "Identity", "more_sums", "v[]"),
        ],
        ["handed"],
    )
    ops = {one.name: one for one in net.ops}
    ops["loop"] = _carrying(ops["loop"], "list", "seq", None)
    ops["gradient"] = _carrying(ops["gradient"], "no_sums", "sums", inside)
    made = {one.name: one for one in outside.ops}
    order = [made[name] for name in ("shape", "list")]
    order += [*(ops[name] for name in ops if name != "gradient"), made["no_sums"]]
    order += [ops["gradient"], made["passed"], made["stacked"]]
    return net.replace(
        inputs=(*net.inputs, "sequence"),
        ops=tuple(order),
        outputs=(*net.outputs, "stacked"),
        blobs={**outside.blobs, **net.blobs},
    )


def _carrying(loop, start, argument, inside):
    """The loop with one more variable; with the ops that change it, or handing it on."""
    nets = {}
    for key, inner in loop.nets.items():
        more = inside is not None and key == "body"
        nets[key] = inner.replace(
            inputs=(*inner.inputs, argument),
            outputs=(*inner.outputs, "handed" if more else argument)
            if key == "body"
            else inner.outputs,
            ops=(*inner.ops, *(inside.ops if more else ())),
            blobs={
                **(inside.blobs if more else {}),
                **inner.blobs,
                argument: dataclasses.replace(inner.blobs[inner.inputs[-1]], name=argument),
            },
        )
    attributes = {**loop.attributes, "T": (*loop.attributes["T"], DType("variant"))}
    del attributes["output_shapes"]
    return loop.replace(
        inputs=(*loop.inputs, start),
        outputs=(*loop.outputs, f"{loop.name}:6"),
        nets=nets,
        attributes=attributes,
    )


def starts(net):
    return lazy_gradient_lists(net, loop_pairs(net, net, {}))


def begun(net, *chosen):
    editor = NetEditor(net)
    begin_empty(editor, chosen or (START,))
    return editor.net()


def test_a_list_of_gradients_begins_empty():
    net = listed()
    assert starts(net) == (START,)
    changed = begun(net)
    check(net, changed)
    assert changed.op_by_name["no_sums"].type == "TensorListReserve"
    body = changed.op_by_name["gradient"].nets["body"]
    added = body.producer[body.op_by_name["put"].inputs[2]]
    assert added.type == "AddV2"
    assert {body.producer[blob].type for blob in added.inputs} == {"OptionalGetValue"}


def test_it_is_part_of_the_plan():
    plan = plan_net(listed(length=64), CPU, 1.1)
    assert plan.lazy_gradient_lists == (START,)
    assert Plan.from_json(plan.to_json()) == plan
    assert plan_net(rnn(units=128), CPU, 1.1).lazy_gradient_lists == ()


def test_it_is_predicted_to_hold_less():
    net = listed(length=64)
    before, after = simulate(net).peak_bytes, simulate(begun(net)).peak_bytes
    assert after <= before - 48 * ROW
    assert simulate(net).events[-1][1] == simulate(begun(net)).events[-1][1]


@pytest.mark.parametrize(
    "net",
    [
        pytest.param(listed(dtype="i"), id="whole numbers"),
        pytest.param(listed(shape=(-1, 128)), id="a shape that only elements tell"),
        pytest.param(listed(length=2), id="small"),
        pytest.param(listed(stack="TensorListConcatLists"), id="a reader that needs elements"),
        pytest.param(
            listed(op("second", "Identity", "put", "v[]"), sums="sums second"), id="a view"
        ),
        pytest.param(
            listed(op("length", "TensorListLength", "sums", "i[]")), id="another who reads it"
        ),
        pytest.param(
            listed(op("length", "TensorListLength", "more_sums", "i[]")), id="another reads the sum"
        ),
        pytest.param(
            listed(op("length", "TensorListLength", "new", "i[]")), id="another reads the new list"
        ),
        pytest.param(listed(sums="sums put sums"), id="it is added twice"),
    ],
)
def test_what_is_not_understood_is_left_alone_and_refused(net):
    assert starts(net) == ()
    if net.blobs["sequence"].bytes > 4 * ROW:
        with pytest.raises(CheckError):
            check(net, begun(net))


def test_what_the_caller_gets_keeps_its_elements():
    net = listed()
    net = net.replace(outputs=(*net.outputs, "gradient:6"))
    assert starts(net) == ()
    with pytest.raises(CheckError, match="value-changed"):
        check(net, begun(net))


def test_several_gradients_are_added_to_one_list():
    more = [
        op("new_2", "TensorListReserve", "dims count", "v[]", attributes=F),
        op("put_2", "TensorListSetItem", "new_2 next e", "v[]", attributes=F),
    ]
    net = listed(*more, sums="put_2 sums put")
    (start,) = starts(net)
    assert start.items == ("put_2", "put")
    check(net, begun(net, start))
    with pytest.raises(CheckError, match="value-changed"):  # one of them lacks its zero
        check(net, begun(net))


def test_a_broken_rewrite_is_refused():
    net = listed()
    good = begun(net)
    body = good.op_by_name["gradient"].nets["body"]
    added = body.producer[body.op_by_name["put"].inputs[2]]
    put = body.op_by_name["put"]
    reserve = good.op_by_name["no_sums"]
    broken = {
        "no zero": edited(good, "put", inputs=(*put.inputs[:2], "taken")),
        "another sum": edited(good, added.name, inputs=(added.inputs[1],) * 2),
        "another place": edited(good, "put", inputs=("new", "next", put.inputs[2])),
        "another length": edited(good, "no_sums", inputs=(reserve.inputs[0], "zero")),
        "another list": edited(good, good.producer[reserve.inputs[1]].name, inputs=("list_h",)),
        "another dtype": edited(
            good, "no_sums", attributes={**reserve.attributes, "element_dtype": DType("float64")}
        ),
    }
    for what, one in broken.items():
        with pytest.raises(CheckError):
            check(net, one)
            pytest.fail(what)


@pytest.mark.parametrize(
    "start",
    [
        LazyGradientList("none", "gradient", ("put",)),
        LazyGradientList("list", "gradient", ("put",)),
        LazyGradientList("no_sums", "none", ("put",)),
        LazyGradientList("no_sums", "gradient", ("new",)),
        LazyGradientList("no_sums", "gradient", ()),
    ],
)
def test_a_plan_for_another_net_is_refused(start):
    with pytest.raises(NetError, match="another function"):
        begun(listed(), start)
