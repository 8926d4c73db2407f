"""Loop variables that no run needs are taken out; what is left computes the same."""

from rnnmem.check import check
from rnnmem.net.loops import loop_pairs
from rnnmem.net.order import without_dead_ops
from rnnmem.rewrite.dead import without_dead_variables
from tests.handmade import const, make_net, op, rnn, while_op

F = "f[4]"


def body_of(net, name="loop"):
    return net.op_by_name[name].nets["body"]


def summing(outputs, extra=(), extra_outputs=()):
    """A loop over i, a sum, a product of the sum, and a blob that stays what it is."""
    body = make_net(
        {"i": "i[]", "sum": F, "product": F, "same": F},
        [
            const("one", 1),
            op("next", "AddV2", "i one", "i[]"),
            op("more", "AddV2", "sum same", F),
            op("times", "Mul", "product sum", F),
            *extra,
        ],
        ["next", "more", "times", "same"],
        control_outputs=tuple(extra_outputs),
    )
    return make_net(
        {"x": F, "y": F, "z": F},
        [const("zero", 0), while_op("loop", "zero x y z", body)],
        outputs,
    )


def test_a_variable_that_nobody_reads_goes_with_what_computes_it():
    net = without_dead_variables(summing(["loop:1"]))
    loop = net.op_by_name["loop"]
    assert loop.inputs == ("zero", "x", "z")
    assert loop.outputs == ("loop:0", "loop:1", "loop:3")
    assert "times" not in body_of(net).op_by_name
    assert len(loop.nets["cond"].inputs) == len(loop.attributes["T"]) == 3
    assert net.outputs == ("loop:1",)


def test_a_variable_that_a_needed_one_is_made_from_stays():
    net = summing(["loop:2"])
    assert without_dead_variables(net) is net


def test_a_variable_that_an_effect_reads_stays():
    printed = op("print", "PrintV2", "product", "", stateful=True)
    net = summing(["loop:1"], [printed], ["print"])
    assert without_dead_variables(net) is net


def test_variables_that_only_feed_each_other_are_all_dead():
    body = make_net(
        {"i": "i[]", "a": F, "b": F, "h": F},
        [
            const("one", 1),
            op("next", "AddV2", "i one", "i[]"),
            op("a2", "Tanh", "b", F),
            op("b2", "Mul", "a h", F),
            op("h2", "Sin", "h", F),
        ],
        ["next", "a2", "b2", "h2"],
    )
    net = make_net({"x": F}, [const("zero", 0), while_op("loop", "zero x x x", body)], ["loop:3"])
    pruned = without_dead_variables(net)
    assert pruned.op_by_name["loop"].outputs == ("loop:0", "loop:3")
    assert {one.type for one in body_of(pruned).ops} == {"Const", "AddV2", "Sin"}


def test_an_accumulator_whose_pops_nobody_needs_goes_from_both_loops():
    whole = rnn()
    # Without the gradient of the weight, h is popped in vain.
    net = without_dead_ops(whole.replace(outputs=whole.outputs[:2]))
    pruned = without_dead_variables(net)
    assert "push_h" not in body_of(pruned).op_by_name
    assert {"sum", "pop_h"}.isdisjoint(body_of(pruned, "gradient").op_by_name)
    (pair,) = loop_pairs(pruned, pruned, {})
    assert {link.pushed for link in pair.gradients[0].links} == {"t", "w"}
    check(net, pruned)


def test_a_dead_variable_of_a_nested_loop_goes_too():
    inner = summing(["loop:1"])
    body = make_net(
        {"n": "i[]", "h": F},
        [
            const("one", 1),
            op("on", "AddV2", "n one", "i[]"),
            *(op("zero", "Const", "", "i[]"),),
            while_op("loop", "zero h h h", body_of(inner)),
        ],
        ["on", "loop:1"],
    )
    net = make_net({"x": F}, [const("start", 0), while_op("outer", "start x", body)], ["outer:1"])
    pruned = without_dead_variables(net)
    assert len(body_of(body_of(pruned, "outer").replace()).inputs) == 3
