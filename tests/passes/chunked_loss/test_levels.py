"""After how many loops over the chunks ops can run, on a Net made by hand."""

from rnnmem.passes.chunked_loss.levels import levels
from tests.handmade import make_net, op

F = "f[4]"


def test_what_reads_the_region_as_a_whole_is_followed_by_another_loop():
    ops = [
        op("before", "Tanh", "x", F),
        op("a", "Tanh", "before", F),
        op("b", "Tanh", "a", F),
        op("whole", "Sum", "b", "f[]"),
        op("c", "Mul", "b whole", F),
        op("size", "Size", "b", "i[]"),
        op("d", "Mul", "b size", F),
        op("e", "Tanh", "b", F, controls=("whole",)),
        op("behind", "Tanh", "e", F),
    ]
    net = make_net({"x": F}, ops, ["c", "d", "behind"])
    chosen = {"a", "b", "c", "d", "e"}
    found = levels(net.ops, net, chosen, {"size"}, chosen.__contains__)
    assert {name: found[name] for name in chosen} == {"a": 0, "b": 0, "c": 1, "d": 0, "e": 1}
