"""Control edges stay away from sums whose order they could show in."""

import pytest

from rnnmem.analysis.machine import CPU
from rnnmem.grappler.summation_order import sums_of
from rnnmem.grappler.summation_races import (
    held_below,
    not_to_wait,
    summed_later,
    sums_beside_shapes,
)
from rnnmem.passes.schedule.serialise import edges_of
from tests.analysis.test_loops import STEP, accumulating
from tests.handmade import const, empty_list, make_net, op, pop, push, while_op

STATE = "f[4,4]"


def body(kind):
    return make_net(
        {"i": "i[]", "h": STATE, "g": STATE},
        [
            const("one", 1),
            op("next", "AddV2", "i one", "i[]"),
            op("t", "Tanh", "h", STATE),
            op("sum", kind, "h t g", STATE),
        ],
        ["next", "sum", "g"],
    )


def two_loops(kind, *, ordered=False):
    """while ─┬─► rows        gradient: a sum of the state and two others, in each iteration
    └─► gradient"""
    start = "rows" if ordered else "x"
    return make_net(
        {"x": STATE},
        [
            const("zero", 0),
            const("axis", 1),
            while_op("loop", "zero x x", body("Select")),
            op("other", "Sum", "x axis", "f[4]"),
            op("rows", "Sum", "loop:1 axis", "f[4]"),
            op("wide", "BroadcastTo", f"{start} axis", STATE),
            while_op("gradient", "zero loop:1 wide", body(kind)),
        ],
        ["rows", "gradient:1", "other"],
    )


@pytest.mark.parametrize(
    "net, changes",
    [
        (two_loops("AddN"), True),
        (two_loops("Select"), False),  # nothing is added up
        (two_loops("AddN", ordered=True), False),  # whatever waits, the sum comes after it
    ],
)
def test_an_op_that_holds_a_state_may_not_be_held_up(net, changes):
    assert ("rows" in not_to_wait(net)) is changes


def beside_a_sum(*ops, reads, gate="y"):
    """A sum of three that waits, and a reader of something else that nothing orders with it."""
    return make_net(
        {"x": STATE, "y": STATE},
        [
            const("axis", 1),
            const("any", 0),
            op("a", "Tanh", "x", STATE),
            op("b", "Sin", "y", STATE),
            op("u", "Cos", "x", STATE),
            *ops,
            op("other", "Sum", "y axis", "f[4]"),
            op("rows", "Sum", f"{reads} axis", "f[4]"),
            op("gate", "EnsureShape", gate, STATE),
            op("total", "AddN", "a b gate", STATE),
        ],
        ["rows", "other", "total"],
    )


def test_a_sum_may_not_be_held_up_that_races_with_another_reader():
    racing = not_to_wait(beside_a_sum(reads="a"))
    assert {"total", "rows", "a"} <= racing and racing.isdisjoint({"u", "other"})
    assert not not_to_wait(beside_a_sum(reads="x"))


def behind_barriers(blob):
    return [
        op("wrapped", "OptionalFromValue", blob, "v[]"),
        op("shown", "OptionalGetValue", "wrapped", STATE),
        empty_list("list"),
        push("pushed", "list", "shown"),
        pop("popped", "pushed", STATE),
    ]


@pytest.mark.parametrize(
    "ops, reads, changes",
    [
        ([], "u", False),
        (behind_barriers("u"), "u", False),
        (behind_barriers("u"), "popped:1", False),
        (behind_barriers("a"), "popped:1", True),
        ([empty_list("list"), push("kept", "list", "u")], "u", False),
    ],
    ids=[
        "another value",
        "one behind a barrier",
        "through it",
        "an addend through it",
        "in a list of which none is added up",
    ],
)
def test_a_reader_of_what_no_list_hands_on_races_with_no_sum_of_other_values(ops, reads, changes):
    net = beside_a_sum(*ops, reads=reads)
    assert ("total" in not_to_wait(net)) is changes


def test_what_hands_on_several_values_hands_on_their_buffers():
    ops = [op("handed", "IdentityN", "x u", f"{STATE} {STATE}")]
    assert "total" in not_to_wait(beside_a_sum(*ops, reads="u", gate="handed:1"))


@pytest.mark.parametrize(
    "put",
    [
        [empty_list("list"), push("kept", "list", "u")],
        [const("shape", 2), op("kept", "TensorListFromTensor", "u shape", "v[]")],
    ],
    ids=["pushed", "cut into rows"],
)
def test_what_went_into_a_list_may_be_any_addend_that_came_out_of_one(put):
    taken = [pop("taken", "kept", STATE), op("length", "TensorListLength", "kept", "i[]")]
    net = beside_a_sum(*put, *taken, reads="u", gate="taken:1")
    assert "total" in not_to_wait(net)


def test_a_reader_of_a_row_holds_the_whole_addend():
    ops = [
        op("part", "Unpack", "a", "f[4] f[4] f[4] f[4]"),
        op("packed", "Pack", "part:1 part:1 part:1 part:1", STATE),
    ]
    net = beside_a_sum(*ops, reads="part:0", gate="packed")  # rows are cut before the sum begins
    assert "total" in not_to_wait(net)


def test_what_is_held_outside_of_a_loop_may_be_read_whenever():
    def carrying(weight):
        inner = make_net(
            {"i": "i[]", "h": STATE, "w": STATE},
            [
                const("one", 1),
                op("next", "AddV2", "i one", "i[]"),
                op("a", "Tanh", "w", STATE),
                op("b", "Sin", "h", STATE),
                op("sum", "AddN", "h b b", STATE),
            ],
            ["next", "sum", "w"],
        )
        return make_net(
            {"x": STATE, "v": "r[]"},
            [
                const("zero", 0),
                op("read", "ReadVariableOp", "v", STATE),
                op("made", "Cos", "x", STATE),
                while_op("loop", f"zero x {weight}", inner),
            ],
            ["loop:1"],
        )

    for weight, held in {"read": {"w"}, "x": {"w"}, "made": set()}.items():
        net = carrying(weight)
        body = net.op_by_name["loop"].nets["body"]
        inside = dict(held_below(net))[("loop", "body")]
        assert inside == held
        assert ("a" in not_to_wait(body, ("loop", "body"), inside)) is not bool(held)


def products(count, summed):
    """x @ w, as often as that, each summed by rows; some of them are added up as well."""
    ops = [const("axis", 1)]
    for number in range(count):
        ops += [
            op(f"m{number}", "MatMul", f"x w{number}", "f[512,2048]"),
            op(f"r{number}", "Sum", f"m{number} axis", "f[512]"),
        ]
    rows = [f"r{number}" for number in range(count)]
    if summed:
        ops.append(op("total", "AddN", " ".join(f"m{n}" for n in range(summed)), "f[512,2048]"))
        rows = [*rows[:1], *rows[summed:], "total"]
    inputs = {"x": "f[512,256]"} | {f"w{n}": "f[256,2048]" for n in range(count)}
    return make_net(inputs, ops, rows)


def test_no_edges_beside_a_sum_that_could_show_them():
    assert edges_of(products(3, summed=3), CPU, 10.0) is None


def test_an_edge_that_could_show_takes_no_other_with_it():
    apart = {edge.op for edge in edges_of(products(3, summed=0), CPU, 10.0).edges}
    beside_a_sum = {edge.op for edge in edges_of(products(6, summed=3), CPU, 10.0).edges}
    assert apart == {"m1", "m2"} and beside_a_sum <= {"m3", "m4", "m5"}


def beside(*ops):
    """Names of the sums beside shapes in a forward loop that pushes ``h`` and what ``ops`` name."""
    body = make_net(
        {"i": "i[]", "h": "f[?,4]", "list": "v[]", "shapes": "v[]"},
        [
            *(const("one", 1), op("n", "AddV2", "i one", "i[]")),
            *(op("a", "Sin", "h", "f[?,4]"), op("b", "Cos", "h", "f[?,4]")),
            op("put", "TensorListPushBack", "list h", "v[]"),
            *ops,
        ],
        ["n", "s", "put", "pushed"],
    )
    outer = [
        *(const("zero", 0), op("e", "EmptyTensorList", "", "v[]")),
        *(op("f", "EmptyTensorList", "", "v[]"), while_op("loop", "zero x e f", body)),
    ]
    net = make_net({"x": "f[?,4]"}, outer, ["loop:1", "loop:2", "loop:3"])
    return [one.ops[0].name for one in sums_beside_shapes(net)]


SUM = op("s", "AddN", "h a b", "f[?,4]")
SHAPE = op("shape", "Shape", "a", "i[2]")
KEPT_SHAPE = op("pushed", "TensorListPushBack", "shapes shape", "v[]")


def test_a_sum_of_what_only_its_shape_is_asked_of_besides_depends_on_which_is_first():
    assert beside(SUM, SHAPE, KEPT_SHAPE) == ["s"]


@pytest.mark.parametrize(
    "ops",
    [
        [SUM, op("pushed", "TensorListPushBack", "shapes a", "v[]")],  # held in any case
        [
            SUM,
            op("t", "Tanh", "a", "f[?,4]"),
            op("pushed", "TensorListPushBack", "shapes t", "v[]"),
        ],
        [op("s", "AddN", "h a", "f[?,4]"), SHAPE, KEPT_SHAPE],  # two have no order
        [SUM, op("shape", "Shape", "h", "i[2]"), KEPT_SHAPE],  # what is pushed is held
        [SUM, SHAPE, KEPT_SHAPE, op("held", "TensorListPushBack", "shapes a", "v[]")],
    ],
)
def test_other_sums_do_not(ops):
    assert not beside(*ops)


def stateful(*after):
    """A loop over (i, h, acc) with h = tanh(h), which is pushed; ``loop:1`` is the last h."""
    return accumulating(
        *(*STEP, op("t", "Tanh", "h", "f[4]"), push("list", "acc", "t")),
        outputs="next t list",
        after=after,
    )


BEHIND = op("s", "AddN", "x loop:1 x", "f[4]")
LATER = make_net(
    {"j": "i[]", "a": "f[4]", "b": "f[4]"},
    [*STEP[:1], op("next", "AddV2", "j one", "i[]"), op("u", "AddN", "a b b", "f[4]")],
    ["next", "a", "u"],
)


@pytest.mark.parametrize(
    "after",
    [
        [BEHIND],
        [op("copy", "Identity", "loop:1", "f[4]"), op("s", "AddN", "x copy x", "f[4]")],
        [while_op("later", "zero loop:1 x", LATER)],
        [while_op("later", "zero x loop:1", LATER)],
    ],
)
def test_a_last_state_may_be_added_up_behind_the_loop(after):
    assert summed_later(stateful(*after)) == {"t"}


@pytest.mark.parametrize(
    "after",
    [
        [],
        [op("s", "AddV2", "x loop:1", "f[4]")],
        [op("r", "Sin", "loop:1", "f[4]"), op("s", "AddN", "x r x", "f[4]")],
    ],
)
def test_a_last_state_that_is_not_added_up_is_of_no_account(after):
    assert not summed_later(stateful(*after))


def test_what_the_loop_itself_adds_up_is_not_behind_it():
    loop = accumulating(
        *(*STEP, op("t", "AddN", "h h h", "f[4]"), push("list", "acc", "t")),
        outputs="next t list",
    )
    assert sums_of(loop.body).addends and not summed_later(loop)
