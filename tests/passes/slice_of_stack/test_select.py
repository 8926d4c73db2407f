"""One row of a stacked list is read from the list, and its gradient put into one, where that shows.

``rnn`` whose loops also have a list each, of which one row is used:

    rows ─► loop ─► Stack ─► StridedSlice = last ─► ... ─► StridedSliceGrad ─► cut ─► gradient
"""

import dataclasses

import pytest

from rnnmem.analysis.loops import loop_pairs
from rnnmem.analysis.machine import CPU
from rnnmem.errors import CheckError, NetError
from rnnmem.ir.graph import DType, bytes_of
from rnnmem.passes.schedule.gradient_start import LARGE
from rnnmem.passes.slice_of_stack.apply import apply
from rnnmem.passes.slice_of_stack.decision import SliceOfStack
from rnnmem.passes.slice_of_stack.select import slices_of_stacks
from rnnmem.planning.pareto import plan_net
from rnnmem.planning.plan import Plan
from rnnmem.simulate.timeline import simulate
from rnnmem.verify import check
from tests.handmade import CONTEXT, const, edited, encoded, make_net, op, rnn

U, LENGTH = 128, 8
ROW, ROWS = f"f[{U},{U}]", f"f[{LENGTH},{U},{U}]"
LIST = {"element_dtype": DType("float32")}
SLICED = {"shrink_axis_mask": 1, "begin_mask": 0, "new_axis_mask": 0, "ellipsis_mask": 0}
SLICED |= {"end_mask": 0, "T": DType("float32"), "Index": DType("int32")}
PUT = op("put", "TensorListSetItem", "rows i m", "v[]", attributes=LIST)
BACK = [
    const("dims", (U, U)),
    op("taken", "TensorListGetItem", "rows i dims", ROW, attributes=LIST),
    op("more", "AddV2", "d taken", ROW),
    op("put", "TensorListSetItem", "rows i d", "v[]", attributes=LIST),
]


def sliced(row=-1, step=1, forward=(), outputs=(), masks=None, between=(), inside=(), cut="of_row"):
    """The Net; the arguments are what differs from the picture."""
    masks = SLICED if masks is None else {**SLICED, **masks}
    net = rnn(units=U, limit=LENGTH)
    outside = make_net(
        {"loop:1": ROW, "loop:6": "v[]", "gradient:6": "v[]"},
        [
            const("shape", (U, U)),
            const("length", LENGTH),
            const("begin", (row,)),
            const("end", (row + 1,)),
            const("step", (step,)),
            const("whole", (LENGTH, U, U)),
            op("new", "TensorListReserve", "shape length", "v[]", attributes=LIST),
            op("all", "TensorListStack", "loop:6 shape", ROWS, attributes=LIST),
            op("last", "StridedSlice", "all begin end step", ROW, attributes=masks),
            op("squared", "Square", "last", ROW),
            *forward,
            op("of_row", "StridedSliceGrad", "whole begin end step loop:1", ROWS, attributes=masks),
            *between,
            op("cut", "TensorListFromTensor", f"{cut} shape", "v[]", attributes=LIST),
        ],
        ["squared", *outputs],
    )
    ops = {one.name: one for one in (*outside.ops, *net.ops)}
    ops["loop"] = _carrying(ops["loop"], "new", [PUT])
    ops["gradient"] = _carrying(ops["gradient"], "cut", [*BACK, *inside])
    first = ("shape", "length", "new")
    order = [*first, *(one.name for one in net.ops if one.name != "gradient")]
    order += [one.name for one in outside.ops if one.name not in first]
    made = net.replace(
        ops=tuple(ops[name] for name in [*order, "gradient"]),
        outputs=(*net.outputs, *outside.outputs),
        blobs={**outside.blobs, **net.blobs},
    )
    return edited(made, "back", inputs=("more", "pop_w:1"))


def _carrying(loop, start, ops):
    """The loop with a list as one more variable, and what its body does to it."""
    nets = {}
    for key, inner in loop.nets.items():
        body = key == "body"
        place = next((at for at, one in enumerate(inner.ops) if one.name == "back"), len(inner.ops))
        kinds = {name: _text(blob) for name, blob in inner.blobs.items() if body}
        more = make_net({**kinds, "rows": "v[]"}, ops if body else [], [])
        nets[key] = inner.replace(
            inputs=(*inner.inputs, "rows"),
            outputs=(*inner.outputs, "put") if body else inner.outputs,
            ops=(*inner.ops[:place], *more.ops, *inner.ops[place:]),
            blobs={**more.blobs, **inner.blobs},
        )
    attributes = {**loop.attributes, "T": (*loop.attributes["T"], DType("variant"))}
    del attributes["output_shapes"]
    made = {"inputs": (*loop.inputs, start), "outputs": (*loop.outputs, f"{loop.name}:6")}
    return loop.replace(**made, nets=nets, attributes=attributes)


def _text(blob):
    letter = {"float32": "f", "int32": "i", "variant": "v", "bool": "b"}[blob.dtype]
    sizes = ("?" if size is None else str(size) for size in blob.shape or ())
    return f"{letter}[{','.join(sizes)}]"


def found(net):
    return slices_of_stacks(net, loop_pairs(net, net, {}))


def applied(net, *chosen, keeps_alive=True):
    context = dataclasses.replace(CONTEXT, keeps_alive=keeps_alive)
    return apply(net, chosen or found(net), context)


LAST = SliceOfStack("last", "all", LENGTH - 1)
PUT_BACK = SliceOfStack("cut", "of_row", LENGTH - 1)


@pytest.mark.parametrize(("row", "number"), [(-1, LENGTH - 1), (0, 0), (3, 3), (-LENGTH, 0)])
def test_a_row_and_its_gradient_need_no_stack(row, number):
    net = sliced(row)
    assert [one.row for one in found(net)] == [number, number]
    changed = applied(net)
    check(net, changed)
    ops = changed.op_by_name
    assert (ops["last"].type, ops["cut"].type) == ("TensorListGetItem", "TensorListSetItem")


def test_it_is_part_of_the_plan_and_holds_less():
    net = sliced()
    assert found(net) == (LAST, PUT_BACK)
    plan = plan_net(net, CPU, 1.1)
    assert plan.of("slice_of_stack") == (LAST, PUT_BACK)
    assert Plan.from_json(plan.to_json()) == plan
    whole = bytes_of("float32", (LENGTH, U, U))
    assert whole >= LARGE
    assert simulate(applied(net)).peak_bytes <= simulate(net).peak_bytes - whole // 2
    assert applied(net, keeps_alive=False) == net  # XLA does it by itself


READ = op("read", "Square", "all", ROWS)
SUMMED = (op("three", "AddN", "last x w", ROW), op("more_three", "AddN", "loop:1 x w", ROW))


@pytest.mark.parametrize(
    ("net", "left"),
    [
        (sliced(row=LENGTH), ()),
        (sliced(step=2), ()),
        (sliced(masks={"shrink_axis_mask": 0}), ()),
        (sliced(masks={"new_axis_mask": 1}), ()),
        (sliced(forward=[READ], outputs=["read"]), ()),
        (sliced(outputs=["all"]), ()),
        (sliced(outputs=["of_row"]), (LAST,)),
        (sliced(outputs=["cut"]), (LAST,)),
        (sliced(between=[op("other", "Neg", "of_row", ROWS)], cut="other"), (LAST,)),
        (sliced(inside=[op("popped", "TensorListLength", "put", "i[]")]), (LAST, PUT_BACK)),
        (sliced(inside=[op("zeros", "ZerosLike", "rows", "v[]")]), (LAST,)),
        (sliced(inside=[op("three", "AddN", "taken g d", ROW)]), (LAST,)),
    ],
)
def test_it_is_left_where_more_is_read(net, left):
    assert found(net) == left


def test_an_addend_of_three_stays_in_its_buffer():
    three = make_net({"last": ROW, "x": ROW, "w": ROW, "loop:1": ROW}, SUMMED, ["three"])
    net = sliced()
    outputs = (*net.outputs, "three", "more_three")
    blobs = {**three.blobs, **net.blobs}
    assert found(net.replace(ops=(*net.ops, *three.ops), outputs=outputs, blobs=blobs)) == ()


@pytest.mark.parametrize("name", ["last", "cut"])
def test_another_row_is_refused(name):
    net = sliced()
    changed = applied(net)
    other = changed.op_by_name[name].inputs[1].removesuffix(":0")
    constant = {"dtype": DType("int32"), "value": encoded(2, "int32")}
    with pytest.raises(CheckError):
        check(net, edited(changed, other, attributes=constant))


@pytest.mark.parametrize(
    "net",
    [
        sliced(step=2),
        sliced(masks={"shrink_axis_mask": 0}),
        sliced(inside=[op("zeros", "ZerosLike", "rows", "v[]")], outputs=["gradient:6"]),
        sliced(outputs=["cut"]),
    ],
)
def test_what_is_not_the_same_is_refused(net):
    for one in {LAST, PUT_BACK} - set(found(net)):
        with pytest.raises(CheckError):
            check(net, applied(net, one))


def test_a_shorter_list_is_refused():
    net = sliced()
    changed = applied(net, PUT_BACK)
    new = changed.producer[changed.op_by_name["cut"].inputs[0]]
    length = changed.producer[new.inputs[1]].name
    constant = {"dtype": DType("int32"), "value": encoded(LENGTH + 1, "int32")}
    with pytest.raises(CheckError):
        check(net, edited(changed, length, attributes=constant))


@pytest.mark.parametrize("one", [LAST, PUT_BACK])
@pytest.mark.parametrize("field", ["op", "whole"])
def test_a_plan_for_another_net_is_refused(one, field):
    for name in ("none", "squared"):
        with pytest.raises(NetError, match="the plan is for another function"):
            applied(sliced(), dataclasses.replace(one, **{field: name}))
