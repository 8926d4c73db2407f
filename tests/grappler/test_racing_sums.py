"""Sums that race with the other readers of what they add up are told from those that do not."""

from rnnmem.analysis.loops import Loop
from rnnmem.grappler.summation_races import racing
from tests.handmade import const, make_net, op, while_op


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
