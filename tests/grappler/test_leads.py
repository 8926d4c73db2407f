"""Ops that run iterations ahead of a sum, or behind it, and edges that stand for the lead."""

import dataclasses

import pytest

from rnnmem.analysis.loops import Loop
from rnnmem.grappler.leads import head_starts, leads, rivals, way
from rnnmem.ir.edges import Edge
from tests.handmade import const, make_net, op, pop

F = "f[4]"
GIVEN = {"g": F, "grads": "v[]", "list": "v[]"}
POP = pop("p", "list", F)
STATE = op("t", "Mul", "g p:1", F)
GET = op("item", "TensorListGetItem", "grads i shape", F)
SET = op("set", "TensorListSetItem", "grads i zero", "v[]")
NUMBERS = [const("i", 0), const("shape", 4), op("zero", "Zeros", "", F)]
LIST = [*NUMBERS, GET, SET]


def body(ops, outputs, given=None):
    return make_net(given or GIVEN, ops, outputs)


def of_list(sum_="item g t", **fields):
    """A gradient step net that takes an item off a list and adds it up with its state."""
    ops = [POP, STATE, *LIST, op("s", "AddN", sum_, F, **fields)]
    return body(ops, ["s", "set", rest()])


def rest():
    return POP.op.outputs[0]


def test_a_list_that_needs_no_state_is_ahead_of_the_sum_that_begins_with_its_item():
    assert leads(of_list()) == (("set", "s"),)


def test_the_edge_goes_to_a_list_op_that_the_sum_waits_for_and_keeps_no_list_from_being_set():
    net = of_list()
    assert way(net, ("set", "s")) == Edge(POP.op.name, None, "set")


@pytest.mark.parametrize(
    "net",
    [
        of_list(controls=("set",)),
        of_list("item g"),
        body([POP, STATE, *LIST, op("s", "AddN", "item g t", F)], ["s", "grads", rest()]),
        body(
            [POP, op("t", "AddN", "g p:1", F), *LIST, op("s", "AddN", "item g t", F)],
            ["s", "set", rest()],
        ),
    ],
    ids=["it waits", "two addends", "the list stays", "the state is only added up"],
)
def test_no_lead(net):
    assert not leads(net)


@pytest.mark.parametrize("needed", [False, True])
@pytest.mark.parametrize("reader, inputs", [("Mul", "part t"), ("Sum", "part axes")])
def test_a_partial_sum_that_a_result_needs_elsewhere_is_no_part_of_a_larger_one(
    needed, reader, inputs
):
    # Where the other reader is only pushed, it may go, and TensorFlow adds up all three at once.
    # A reduction (the gradient of what was broadcast) may become a Reshape, which reads it as well.
    ops = [
        *(POP, STATE, *LIST),
        const("axes", 0),
        op("part", "AddN", "t p:1", F),
        op("s", "AddN", "item part", F),
        op("other", reader, inputs, F),
        op("both", "Mul", "s other", F),
        op("held", "TensorListPushBack", "kept other", "v[]"),
    ]
    result = "both" if needed else "s"
    net = body(ops, [result, "set", rest(), "held"], {**GIVEN, "kept": "v[]"})
    assert leads(net) == (() if needed else (("set", "s"),))


def test_a_sum_of_what_is_given_is_ahead_of_what_reads_the_state():
    ops = [
        POP,
        op("x", "Sin", "p:1", F),
        op("s", "AddN", "x p:1 p:1", F),
        op("later", "Mul", "x g", F),
        op("h", "Tanh", "later", F),
        op("held", "TensorListPushBack", "grads s", "v[]"),
    ]
    net = body(ops, ["h", "held", rest()])
    assert leads(net) == (("s", "later"),)
    assert way(net, ("s", "later")) is None  # to wait for the pop would be to wait for oneself


def test_what_others_read_may_be_waited_for_through_a_completion_proxy_and_what_one_reads_not():
    ops = [
        POP,
        op("x", "Sin", "q", F),
        op("early", "Mul", "x q", F),
        op("t", "Mul", "g p:1", F),
        op("s", "AddN", "x q t", F),
        op("pushed", "TensorListPushBack", "grads early", "v[]"),
    ]
    given = {**GIVEN, "q": F}
    one = body(ops, ["s", "pushed", rest(), "q"], given)
    assert leads(one) == (("early", "s"),)
    assert way(one, ("early", "s")) == Edge(POP.op.name, None, "pushed")
    more = [*ops, op("also", "Cos", "early", F)]
    two = body(more, ["s", "pushed", rest(), "q"], given)
    assert way(two, ("early", "s")) == Edge(POP.op.name, None, "early", by_proxy=True)
    nobody = dataclasses.replace(ops[-1].op, type="Cos", inputs=("early",))
    ops[-1] = op(nobody.name, "Cos", "early", F)
    assert way(body(ops, ["s", "grads", rest(), "q"], given), ("early", "s")) is None


def chain(*last, outputs=()):
    """A product reads an addend of a sum that waits for three more ops."""
    ops = [
        POP,
        op("x", "Sin", "p:1", F),
        op("dw", "MatMul", "x x", F),
        op("kept", "TensorListPushBack", "grads dw", "v[]"),
        op("y", "Cos", "x", F),
        op("z", "Tanh", "y", F),
        op("u", "Mul", "z z", "f[?,4]"),
        *last,
    ]
    return body(ops, ["s", "kept", rest(), *outputs])


def test_a_reader_of_an_addend_has_a_head_start_where_the_sum_has_far_to_go():
    far = chain(op("v", "Sum", "u i", F), op("s", "AddN", "x g v", F))
    assert head_starts(far) == (("dw", "s"),)
    assert way(far, ("dw", "s")) == Edge("v", None, "dw")


@pytest.mark.parametrize("sum_", ["x g y", "x g", "y g z"], ids=["near", "two", "another"])
def test_no_head_start(sum_):
    assert not head_starts(chain(op("s", "AddN", sum_, F)))


@pytest.mark.parametrize(
    "fresh, found",
    [
        (op("m", "Mul", "p:1 y", F), ()),
        (op("m", "Mul", "p:1 one", F), (("dw", "s"),)),
        (op("m", "Identity", "g", F), (("dw", "s"),)),
    ],
    ids=["made anew", "by a constant", "handed on"],
)
def test_what_stands_behind_an_addend_that_nobody_else_holds_matters_to_no_sum(fresh, found):
    one = const("one", 1.0)
    sum_ = op("s", "AddN", "m x v", F)
    assert head_starts(chain(one, fresh, op("v", "Sum", "u i", F), sum_)) == found
    second = op("s", "AddN", "x m v", F)
    assert head_starts(chain(one, fresh, op("v", "Sum", "u i", F), second)) == found
    late = op("s", "AddN", "x g m v", F)
    assert head_starts(chain(one, fresh, op("v", "Sum", "u i", F), late)) == (("dw", "s"),)
    tree = [op("b", "AddV2", "m x", F), op("s", "AddV2", "b v", F)]
    assert ("dw", "s") in head_starts(chain(one, fresh, op("v", "Sum", "u i", F), *tree))


def test_a_sum_begins_with_nothing_that_it_reads_twice():
    v = op("v", "Sum", "u i", F)
    assert not head_starts(chain(v, op("s", "AddN", "x x g v", F)))
    fresh = op("m", "Mul", "p:1 y", F)
    assert head_starts(chain(v, fresh, op("s", "AddN", "x z z m v", F))) == (("dw", "s"),)


FOUND = (("dw", "s"),)


def test_a_graph_optimizer_sorts_addends_by_name():
    fresh, v = op("zz", "Mul", "p:1 y", F), op("v", "Sum", "u i", F)
    assert head_starts(chain(fresh, v, op("s", "AddN", "zz x v", F))) == (("dw", "s"),)


@pytest.mark.parametrize(
    "more, found",
    [
        ([], ()),
        (
            [op("other", "Cos", "m", F), op("also", "TensorListPushBack", "kept other", "v[]")],
            FOUND,
        ),
        ([op("other", "Neg", "m", F), op("n", "Mul", "other y", F)], ()),
        ([op("other", "Neg", "m", F), op("b", "AddV2", "other y", F)], FOUND),
    ],
    ids=["done", "not done", "folded, done", "folded, not done"],
)
def test_an_addend_whose_other_readers_the_sum_waits_for_is_let_go(more, found):
    ops = {"n": op("n", "Tanh", "m", F)} | {one.op.name: one for one in more}
    last = [op("v", "Mul", "n z", F), op("s", "AddN", "m x v", F)]
    assert head_starts(chain(op("m", "Mul", "p:1 y", F), *ops.values(), *last)) == found


def test_a_sum_that_nothing_makes_another_of_may_wait_itself():
    far = op("w", "Mul", "z z", F), op("v", "Mul", "w y", F)
    held = chain(*far, op("s", "AddN", "x g v", F))
    assert head_starts(held) == FOUND
    assert way(held, *FOUND) == Edge("s", None, "dw")
    assert way(chain(*far, op("b", "AddV2", "g v", F), op("s", "AddV2", "x b", F)), *FOUND) is None


def test_a_sum_that_nothing_makes_another_of_may_be_waited_for():
    """As the sum over iterations of a bias' gradient, which nobody reads but the next of them."""
    far = op("w", "Mul", "z z", F), op("v", "Mul", "w y", F)
    for type_, found in (("AddN", Edge("s", None, "d")), ("AddV2", None)):
        net = chain(*far, op("d", type_, "g z", F), op("s", "AddN", "x g v", F), outputs=["d"])
        assert way(net, ("d", "s")) == found


def of_partial(beside="Mul", reader="SigmoidGrad", sum_="a t t y b"):
    """A partial sum is read by two ops, for one of which the whole sum waits."""
    ops = [
        POP,
        op("b", "Mul", "g p:1", F),
        op("late", "Cos", "g", F),
        op("t", "TanhGrad", "p:1 late", F),
        op("c", "Sin", "g", F),
        op("a", "AddN", "b c", F),
        op("x", beside, "a" if beside == "Cos" else "a g", F),
        op("y", "Mul", "a g", F),
        op("r", reader, "x g" if reader != "Cos" else "x", F),
        op("s", "AddN", sum_, F),
    ]
    return body(ops, ["s", "r", rest()])


def test_a_reader_of_a_partial_sum_is_done_as_one_of_its_kind_is_that_the_sum_waits_for():
    assert head_starts(of_partial()) == (("x", "s"),)
    assert not head_starts(of_partial(beside="Cos"))
    assert not head_starts(of_partial(sum_="a t t b"))


@pytest.mark.parametrize("beside, found", [("Mul", (("x", "s"),)), ("Cos", ())])
def test_so_is_a_reader_of_an_addend(beside, found):
    ops = [
        POP,
        op("t", "TanhGrad", "p:1 g", F),
        op("x", beside, "t" if beside == "Cos" else "t g", F),
        op("y", "Mul", "t p:1", F),
        op("r", "SigmoidGrad", "x g", F),
        op("s", "AddN", "g t y", F),
    ]
    assert head_starts(body(ops, ["s", "r", rest()])) == found


def test_what_a_calm_op_alone_reads_is_waited_for_through_a_completion_proxy():
    def waited(**fields):
        net = of_partial(**fields)
        apart = dataclasses.replace(net.op_by_name["late"], type="OptionalGetValue")
        ops = [apart if one.name == "late" else one for one in net.ops]
        return way(net.replace(ops=tuple(ops)), ("x", "s"))

    assert waited() == Edge("late", None, "x", by_proxy=True)
    assert waited(reader="Mul") is None
    assert waited(reader="AddV2") is None


def of_sum_in_sum(last="a c x", factor="TanhGrad"):
    """A sum that others read, too, has a reader of its addend among the next sum's addends."""
    ops = [
        POP,
        op("late", "OptionalGetValue", "q", F),
        op("t", "TanhGrad", "p:1 g", F),
        op("x", "Mul", "t g", F),
        op("y", "Mul", "t late", F),
        op("a", "AddN", "t y y", F),
        op("c", factor, "g y" if factor == "TanhGrad" else "g a", F),
        op("r", "Sin", "a", F),
        op("s", "AddN", last, F),
    ]
    return body(ops, ["s", "r", rest()], {**GIVEN, "q": "v[]"})


def test_a_sum_that_others_read_begins_by_itself_however_its_addends_readers_are_added():
    net = of_sum_in_sum()
    assert ("x", "a") in head_starts(net)
    assert way(net, ("x", "a")) == Edge("late", None, "x", by_proxy=True)
    assert way(of_sum_in_sum("x g g"), ("x", "a")) is None  # may begin while the proxy has x
    assert way(of_sum_in_sum("c x x", "Mul"), ("x", "a")) is None  # a factor may be taken out


def racing_sums(first="x p:1 p:1", second="x p:1 g", **fields):
    """A gradient loop two sums of which add up what one op makes."""
    ops = [
        POP,
        op("x", "Sin", "g", F),
        op("a", "Cos", "p:1", F),
        op("s", "AddN", first, F),
        op("t", "AddN", second, F, **fields),
        op("h", "Mul", "s t", F),
    ]
    inner = body(ops, ["h", "grads", rest()])
    loop = op("loop", "While", "g grads list", F, nets={"body": inner}).op
    return Loop(make_net(GIVEN, [], []), loop)


def test_two_sums_that_add_up_one_value_are_rivals():
    assert set(rivals(racing_sums())) == {("t", "s"), ("s", "t")}


@pytest.mark.parametrize(
    "loop",
    [
        racing_sums(second="a g g"),
        racing_sums(second="s x g"),
        racing_sums(controls=("s",)),
    ],
    ids=["no value in common", "the one adds up the other", "it waits"],
)
def test_no_rivals(loop):
    assert not rivals(loop)
