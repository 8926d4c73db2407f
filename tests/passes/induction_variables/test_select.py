"""Which saved whole numbers a gradient loop counts itself, and that the verifier proves it.

forward     i ─► next = i + 2 ─► i, i ─► push     gradient    list ─► pop ─► a number that is read
"""

import pytest

from rnnmem.analysis.loops import own_loop_pairs
from rnnmem.errors import CheckError, NetError
from rnnmem.ir.devices import ACCELERATOR
from rnnmem.ir.marks import COUNTS
from rnnmem.ir.order import without_dead_ops
from rnnmem.passes.decision import Context, Site
from rnnmem.passes.induction_variables.apply import apply
from rnnmem.passes.induction_variables.decision import InductionVariable
from rnnmem.passes.induction_variables.select import MOST, induction_variables, offer
from rnnmem.verify import check
from tests.drawing import encoded
from tests.handmade import const, empty_list, make_net, op, pop, push, while_op

ROW = "f[4]"


def saving(pushed="i", inside=(), kind="i[]", grows="two", add="AddV2", outside=()):
    """A Net whose loop saves a whole number, which the gradient loop reads as a float.

    Args:
      pushed: the blob of the forward step net that is saved.
      inside: ops of the forward step net that make it.
      kind: of it.
      grows: what is added to ``i`` in each iteration.
      add: the op by which it grows.
      outside: what else the forward loop is given and hands on.
    """
    more = {name: "i[]" for name in outside}
    state = {"k": "i[]", "i": "i[]", "h": ROW, "acc": "v[]", **more}
    body = make_net(
        state,
        [
            const("one", 1),
            const("two", 2),
            op("count", "AddV2", "k one", "i[]"),
            op("next", add, f"i {grows}", "i[]"),
            op("t", "Tanh", "h", ROW),
            *inside,
            push("push", "acc", pushed),
        ],
        ["count", "next", "t", "push", *outside],
        name="body",
    )
    back = make_net(
        {"k": "i[]", "g": ROW, "acc": "v[]"},
        [
            const("one", 1),
            const("any", -1),
            op("count", "AddV2", "k one", "i[]"),
            pop("pop", "acc", kind),
            op("place", "Cast", "pop:1", kind.replace("i", "f")),
            op("sum", "Sum", "place none", "f[]"),
            op("scaled", "Mul", "g sum", ROW),
            const("none", -1),
        ],
        ["count", "scaled", "pop:0"],
        name="back",
    )
    return make_net(
        {"x": ROW, "n": "i[]"},
        [
            const("zero", 0),
            const("three", 3),
            const("any", -1),
            empty_list("list"),
            while_op("loop", " ".join(["zero n x list", *["three"] * len(outside)]), body),
            while_op("gradient", "zero loop:2 loop:3", back),
        ],
        ["loop:2", "gradient:1"],
    )


def constant(value, dtype):
    return encoded(value, dtype)


def counted(net, decided=None):
    """What becomes of the Net; by its own decisions unless others are given."""
    if decided is None:
        decided = induction_variables(net, own_loop_pairs(net), {})
    return without_dead_ops(apply(net, decided, Context(lambda _: (), constant, True)))


PACKED = [op("later", "Sub", "i one", "i[]"), op("both", "Pack", "i later", "i[2]")]
CASES = {
    "a counter": saving(),
    "one that falls": saving(add="Sub"),
    "by what stays": saving(grows="stride", outside=("stride",)),
    "computed from it": saving("both", PACKED, "i[2]"),
    "a size": saving("size", [op("size", "Shape", "h", "i[1]")], "i[1]"),
    "what stays": saving("stride", outside=("stride",)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_loop_has_it_and_the_verifier_proves_it(name):
    net = CASES[name]
    rewritten = counted(net)
    loop, gradient = rewritten.op_by_name["loop"], rewritten.op_by_name["gradient"]
    assert gradient.attributes[COUNTS]
    assert not [one for one in gradient.nets["body"].ops if one.type == "TensorListPopBack"]
    assert not [one for one in loop.nets["body"].ops if one.type == "TensorListPushBack"]
    check(net, rewritten)


LEFT = {
    "it grows otherwise": saving(add="Mul"),
    "by what changes": saving(grows="k"),
    "data": saving("all", [op("all", "Tile", "two two", f"i[{MOST + 1}]")], f"i[{MOST + 1}]"),
    "a matrix": saving("all", [op("all", "Reshape", "i i", "i[1,1]")], "i[1,1]"),
    "a float, which the device has": saving("wide", [op("wide", "Cast", "i", "f[]")], "f[]"),
}


@pytest.mark.parametrize("name", LEFT)
def test_nothing_is_counted_where(name):
    assert induction_variables(LEFT[name], own_loop_pairs(LEFT[name]), {}) == ()


def test_the_host_saves_numbers_for_next_to_nothing():
    net = saving()
    pairs = own_loop_pairs(net)
    site = Site(net, pairs, lambda *_: 0.0)
    assert offer(site).decide(pairs, lambda _: ()) == ()
    there = Site(net, pairs, lambda *_: 0.0, device=ACCELERATOR)
    assert offer(there).decide(pairs, lambda _: ()) == (InductionVariable("loop", "i"),)


def test_sentences():
    assert InductionVariable("loop", "i").sentence == (
        "loop: i is counted in the gradient loop, and in no list"
    )
    assert InductionVariable("loop", "n", (3, 4)).sentence == (
        "loop: n is always 3, 4, and in no list"
    )


def test_a_decision_for_another_function_is_refused():
    with pytest.raises(NetError, match="no loop 'other'"):
        counted(saving(), (InductionVariable("other", "i"),))


def changed(net, name, **fields):
    """The Net with an op of the gradient loop's body, or of its own, changed."""
    if name in net.op_by_name:
        return net.replace(ops=tuple(o.replace(**fields) if o.name == name else o for o in net.ops))
    gradient = net.op_by_name["gradient"]
    body = changed(gradient.nets["body"], name, **fields)
    return changed(net, "gradient", nets={**gradient.nets, "body": body})


def step_of(rewritten, outer):
    """The op that makes the counted variable's next value, or its first."""
    net = rewritten if outer else rewritten.op_by_name["gradient"].nets["body"]
    (found,) = [
        one
        for one in net.ops
        if one.name.startswith("rnnmem/") and one.type in ("Sub", "AddV2", "Maximum")
    ]
    return found


@pytest.mark.parametrize("outer", [False, True])
def test_a_counter_that_falls_otherwise_is_refused(outer):
    net = saving()
    rewritten = counted(net)
    wrong = changed(rewritten, step_of(rewritten, outer).name, type="AddV2")
    with pytest.raises(CheckError, match="value-changed"):
        check(net, wrong)


def test_a_counter_that_begins_elsewhere_is_refused():
    net = saving()
    rewritten = counted(net)
    start = step_of(rewritten, True)
    wrong = changed(rewritten, start.name, inputs=("loop:0", start.inputs[1]))
    with pytest.raises(CheckError, match="value-changed"):
        check(net, wrong)


def test_another_number_is_refused():
    net = CASES["a size"]
    wrong = counted(net, (InductionVariable("loop", "size", (5,)),))
    with pytest.raises(CheckError, match="value-changed"):
        check(net, wrong)


def test_a_constant_that_grows_is_refused():
    net = CASES["a size"]
    rewritten = counted(net)
    wrong = changed(rewritten, step_of(rewritten, False).name, type="AddV2")
    with pytest.raises(CheckError, match="value-changed"):
        check(net, wrong)


def test_what_has_the_name_of_a_constant_and_is_none_is_refused():
    always = op("four", "Size", "h", "i[]")
    net, other = saving("i", [always]), saving("four", [always])
    assert counted(other).op_by_name["gradient"].attributes[COUNTS]
    rewritten = counted(other)
    loop = rewritten.op_by_name["loop"]
    body = loop.nets["body"]
    named = make_net({"i": "i[]"}, [op("four", "Identity", "i", "i[]")], ["four"])
    body = body.replace(
        ops=(*body.ops, *named.ops), blobs={**body.blobs, "four": named.blobs["four"]}
    )
    wrong = changed(rewritten, "loop", nets={**loop.nets, "body": body})
    with pytest.raises(CheckError, match="value-changed"):
        check(net, wrong)
