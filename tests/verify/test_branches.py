"""Branches that go the same way: what one was given by the other is proven way by way."""

import pytest

from rnnmem.analysis.branch_pairs import branch_pairs
from rnnmem.analysis.shapes import known_net
from rnnmem.errors import CheckError
from rnnmem.ir.graph import DType, Net
from rnnmem.verify import check
from tests.handmade import Drawn, const, make_net, op

KIND = "f[4]"
FLOATS = {"Tout": (DType("float32"),)}


def way(given: str, *drawn: Drawn) -> Net:
    kinds = {name: KIND for name in given.split()}
    return make_net(kinds, drawn, [drawn[-1].op.name if drawn else given.split()[0]])


def branch(name: str, inputs: str, then: Net, other: Net) -> Drawn:
    count = len(inputs.split()) - 1
    attributes = {"Tin": (DType("float32"),) * count, **FLOATS}
    nets = {"then_branch": then, "else_branch": other}
    return op(name, "StatelessIf", inputs, KIND, nets=nets, attributes=attributes)


def net(*more: Drawn) -> Net:
    """y is sin x one way and cos x the other."""
    first = branch(
        "y", "p x", way("a", op("s", "Sin", "a", KIND)), way("a", op("c", "Cos", "a", KIND))
    )
    ops = [first, *more]
    return make_net({"p": "z[]", "q": "z[]", "x": KIND}, ops, [more[-1].op.name])


TAKES = way("b", op("e", "Exp", "b", KIND))
ORIGINAL = net(branch("z", "p y", TAKES, way("b")))


def again(*, decides: str = "p", then: str = "Sin", other: str = "Cos") -> Net:
    """The same, where each way computes what the first branch gave it."""
    return net(
        branch(
            "z",
            f"{decides} x",
            way("b", op("n", then, "b", KIND), op("e", "Exp", "n", KIND)),
            way("b", op("n", other, "b", KIND)),
        )
    )


def test_what_the_same_way_gave_is_known():
    check(ORIGINAL, again())


@pytest.mark.parametrize(
    "change",
    [{"decides": "q"}, {"then": "Cos"}, {"other": "Sin"}, {"then": "Cos", "other": "Sin"}],
    ids=["another predicate", "one way", "the other way", "both ways"],
)
def test_what_another_way_gave_is_refused(change):
    with pytest.raises(CheckError) as caught:
        check(ORIGINAL, again(**change))
    assert caught.value.reason == "value-changed"


def test_a_value_that_the_ways_have_in_turn_is_followed():
    def number(value: int) -> Net:
        return make_net({"a": KIND}, [const("n", value)], ["n"])

    nets = {"then_branch": number(3), "else_branch": number(5)}
    counts = op("counts", "StatelessIf", "p x", "i[]", nets=nets)
    hand = make_net({"m": "i[]"}, [], ["m"])
    inner = {"then_branch": hand, "else_branch": hand}
    same = op("same", "StatelessIf", "p counts", "i[]", nets=inner)
    other = op("other", "StatelessIf", "q counts", "i[]", nets=inner)
    drawn = make_net({"p": "z[]", "q": "z[]", "x": KIND}, [counts, same, other], ["same", "other"])
    known = known_net(drawn)
    assert known.inner["same", "then_branch"].facts["m"].value == 3
    assert known.inner["same", "else_branch"].facts["m"].value == 5
    assert known.inner["other", "then_branch"].facts["m"].value is None


def test_branches_without_loops_hold_no_pairs():
    assert branch_pairs(ORIGINAL) == ()
