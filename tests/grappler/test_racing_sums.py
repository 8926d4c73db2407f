"""Sums that race with the other readers of what they add up are told from those that do not."""

import pytest

from rnnmem.analysis.loops import Loop
from rnnmem.grappler.summation_races import racing
from tests.handmade import const, empty_list, make_net, op, pop, push, while_op


def racing_in(inputs, ops, outputs):
    body = make_net(
        {"i": "i[]", "h": "f[4]", "x": "f[4]"},
        [const("one", 1), op("n", "AddV2", "i one", "i[]"), *ops],
        ["n", *outputs],
    )
    drawn = while_op("loop", inputs, body)
    net = make_net({"a": "f[4]", "b": "f[4]"}, [const("z", 0), drawn], ["loop:1"])
    return racing(Loop(net, net.op_by_name["loop"]))


def test_a_sum_races_with_other_readers_of_what_nobody_holds():
    # h ◄─ h + sin x + cos x, and tanh h reads h: done before the sum begins, or not
    read = [op("s", "Sin", "x", "f[4]"), op("c", "Cos", "x", "f[4]"), op("t", "Tanh", "h", "f[4]")]
    sum_of = op("u", "AddN", "h s c", "f[4]")
    more = op("v", "Mul", "u t", "f[4]")
    assert racing_in("z a b", [*read, sum_of, more], ["v", "x"]) == {"u"}
    # nobody else reads h; or all three are the same in each iteration
    assert not racing_in("z a b", [*read[:2], sum_of], ["u", "x"])
    steady = op("u", "AddN", "x s c", "f[4]")
    assert not racing_in("z a b", [*read, steady, more], ["v", "x"])


def adding_what_is_the_same(made="Sin", after=(), outputs=("loop:1",)):
    """A loop with h ◄─ sin h + cos h + c, where c stays as it was made outside."""
    read = [op("s", "Sin", "h", "f[4]"), op("o", "Cos", "h", "f[4]")]
    body = make_net(
        {"i": "i[]", "h": "f[4]", "c": "f[4]"},
        [
            const("one", 1),
            op("n", "AddV2", "i one", "i[]"),
            *read,
            op("u", "AddN", "s o c", "f[4]"),
        ],
        ["n", "u", "c"],
    )
    start = [const("z", 0), op("c0", made, "b", "f[4]"), while_op("loop", "z a c0", body)]
    net = make_net({"a": "f[4]", "b": "f[4]"}, [*start, *after], list(outputs))
    return racing(Loop(net, net.op_by_name["loop"]))


def test_what_is_the_same_in_each_iteration_may_be_let_go_before_the_last():
    # the loop's counter runs ahead, and c with it: nobody holds it while the last sums add it up
    assert adding_what_is_the_same() == {"u"}
    assert adding_what_is_the_same(after=[op("m", "Mean", "loop:2 z", "f[]")]) == {"u"}


@pytest.mark.parametrize(
    "held",
    [
        {"made": "Identity"},  # an argument of the function
        {"made": "ReadVariableOp"},
        {"outputs": ("loop:1", "loop:2")},
        {"after": [op("m", "Mul", "loop:1 c0", "f[4]")]},  # begins when the loop is over
        {"after": [op("m", "Mul", "loop:1 loop:2", "f[4]")]},
        {"after": [op("e", "EmptyTensorList", "", "v[]"), push("p", "e", "c0")]},
    ],
)
def test_what_somebody_outside_holds_is_there_in_every_iteration(held):
    assert not adding_what_is_the_same(**held)


def test_a_sum_races_with_what_only_one_branch_keeps():
    # a branch hands out tanh sin h, and keeps it, or the sine
    inner = [op("s", "Sin", "h", "f[4]"), op("t", "Tanh", "s", "f[4]")]

    def of(*kept):
        labels = ("then_branch", "else_branch")
        nets = {
            label: make_net(
                {"h": "f[4]"}, [*inner, op("o", "OptionalFromValue", blob, "v[]")], ["t", "o"]
            )
            for label, blob in zip(labels, kept, strict=True)
        }
        chosen = [const("p", 1), op("if", "StatelessIf", "p h", "f[4] v[]", nets=nets)]
        others = [op("a", "Sin", "x", "f[4]"), op("b", "Cos", "x", "f[4]")]
        return racing_in(
            "z a b", [*chosen, *others, op("u", "AddN", "a b if:0", "f[4]")], ["u", "x"]
        )

    assert of("t", "s") == {"u"}
    assert not of("t", "t")
    assert not of("s", "s")


def pushing(after, outputs=("loop:1",)):
    """A loop with h ◄─ sin h + tanh sin h + x, where sin h is pushed."""
    body = make_net(
        {"i": "i[]", "h": "f[4]", "x": "f[4]", "acc": "v[]"},
        [
            *(const("one", 1), op("n", "AddV2", "i one", "i[]")),
            *(op("m", "Sin", "h", "f[4]"), op("t", "Tanh", "m", "f[4]")),
            *(op("u", "AddN", "m t x", "f[4]"), push("list", "acc", "m")),
        ],
        ["n", "u", "x", "list"],
    )
    start = [const("z", 0), empty_list("e"), while_op("loop", "z a b e", body)]
    net = make_net({"a": "f[4]", "b": "f[4]"}, [*start, *after], list(outputs))
    return racing(Loop(net, net.op_by_name["loop"]))


def popping(*reads, result="g"):
    """A loop that pops what was pushed, ``p:1``."""
    body = make_net(
        {"i": "i[]", "g": "f[4]", "held": "v[]"},
        [
            *(const("one", 1), op("n", "AddV2", "i one", "i[]")),
            *(pop("p", "held", "f[4]"), *reads),
        ],
        ["n", result, "p:0"],
    )
    return [while_op("later", "z a loop:3", body)]


def test_a_list_that_nobody_reads_is_let_go_of_in_the_last_iteration():
    read = popping(op("r", "Cos", "p:1", "f[4]"), result="r")
    assert pushing([]) == {"u"}
    assert pushing(popping(), ["later:1"]) == {"u"}
    assert not pushing(read, ["later:1"])
    assert not pushing([], ["loop:1", "loop:3"])
