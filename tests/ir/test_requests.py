"""What users ask of values, from marks and from patterns of names."""

import pytest

from rnnmem.ir.graph import DType
from rnnmem.ir.marks import REQUEST
from rnnmem.ir.order import without_pruned_ops
from rnnmem.ir.requests import (
    KEEP,
    RECOMPUTE,
    asks_inside,
    requests_of,
    with_requests,
    without_a_name,
)
from rnnmem.ir.text import parse
from tests.handmade import make_net, op, rnn


def mark(name, blob, request):
    return op(name, "Identity", blob, "f[3]", attributes={"T": DType("float32"), REQUEST: request})


def test_a_mark_asks_of_what_it_reads_and_goes_with_what_is_pruned():
    ops = [op("a", "Sin", "x", "f[3]"), op("b", "Cos", "a", "f[3]")]
    net = make_net(
        {"x": "f[3]"}, [*ops, mark("m", "a", b"keep"), mark("n", "b", b"recompute")], ["b"]
    )
    asked = without_pruned_ops(with_requests(net, {}))
    assert requests_of(asked) == {"a": KEEP, "b": RECOMPUTE}
    assert asked.ops == make_net({"x": "f[3]"}, ops, ["b"]).ops


def test_a_net_of_which_nothing_is_asked_is_the_same():
    net = rnn()
    assert with_requests(net, {KEEP: ("*/nobody",)}) is net
    assert requests_of(net) == {}


def test_a_mark_behind_an_identity_asks_of_what_it_stands_for():
    ops = [op("a", "Sin", "x", "f[3]"), op("i", "Identity", "a", "f[3]")]
    net = make_net({"x": "f[3]"}, [*ops, mark("m", "i", b"keep")], ["i"])
    assert requests_of(with_requests(net, {})) == {"a": KEEP, "i": KEEP}


def test_to_keep_counts_more_than_to_recompute_and_a_mark_more_than_a_pattern():
    ops = [op("s/a", "Sin", "x", "f[3]"), op("s/b", "Cos", "s/a", "f[3]")]
    net = make_net({"x": "f[3]"}, [*ops, mark("m", "s/b", b"recompute")], ["s/b"])
    asked = with_requests(net, {KEEP: ("s",), RECOMPUTE: ("s/a",)})
    assert requests_of(asked) == {"s/a": KEEP, "s/b": RECOMPUTE}
    both = make_net(
        {"x": "f[3]"}, [*ops, mark("m", "s/b", b"recompute"), mark("n", "s/b", b"keep")], ["s/b"]
    )
    assert requests_of(with_requests(both, {})) == {"s/b": KEEP}


@pytest.mark.parametrize("pattern", ["t", "loop/t", "*/t", "lo?p/[st]"])
def test_patterns_name_ops_in_step_nets_alone_and_behind_their_loop(pattern):
    asked = with_requests(rnn(), {RECOMPUTE: (pattern,)})
    loop = asked.op_by_name["loop"]
    assert requests_of(loop.nets["body"]) == {"t": RECOMPUTE}
    assert requests_of(asked) == {}
    assert asks_inside(loop, RECOMPUTE) and not asks_inside(loop, KEEP)


def layered(*loops):
    """Loops of the step net of `rnn`, whose op ``t`` stands in a scope of its own."""
    (drawn,) = [one for one in rnn().ops if one.name == "loop"]
    ops = []
    for loop in loops:
        body = drawn.nets["body"]
        inside = body.op_by_name["t"].replace(name=f"{loop}/cell_1/Tanh_2")
        body = body.replace(ops=tuple(inside if one.name == "t" else one for one in body.ops))
        outputs = tuple(blob.replace("loop", loop) for blob in drawn.outputs)
        ops.append(
            drawn.replace(
                name=loop, outputs=outputs, nets={**drawn.nets, "body": body}, source=None
            )
        )
    net = rnn()
    blobs = {
        new: net.blobs[old]
        for one in ops
        for old, new in zip(drawn.outputs, one.outputs, strict=True)
    }
    kept = tuple(one for one in net.ops if one.name not in ("loop", "grad"))
    return net.replace(
        ops=(*kept, *ops), blobs={**net.blobs, **blobs}, outputs=(ops[0].outputs[1],)
    )


def loops_asked(net):
    """The loops in which something is asked of the cell."""
    return [op.name for op in net.ops if op.nets and "t" in requests_of(op.nets["body"])]


ENCODER, DECODER = "fc_1/encoder_1/while", "fc_1/decoder_1/while"


@pytest.mark.parametrize(
    "pattern",
    [
        "encoder",
        "encoder_1",
        "encoder_1/*",
        "encoder_1/cell_1/Tanh_2",
        "encoder/*",
        "*/encoder",
        "*/encoder/*",
        "fc/encoder",
        "encoder/cell",
    ]
    + ["encoder › cell", "encoder/cell/Tanh_2", "fc_1/encoder_1", f"{ENCODER}/cell_1"],
)
def test_a_pattern_may_be_what_a_layer_is_told_by(pattern):
    net = layered(ENCODER, DECODER)
    assert loops_asked(with_requests(net, {KEEP: (pattern,)})) == [ENCODER]
    assert without_a_name(net, {KEEP: (pattern,)}) == ()


@pytest.mark.parametrize("pattern", ["cell_1", "cell_1/Tanh_2", "cell_1/*", "cell", "cell/Tanh_2"])
def test_a_pattern_may_leave_out_the_loop(pattern):
    net = layered(ENCODER, DECODER)
    assert loops_asked(with_requests(net, {KEEP: (pattern,)})) == [ENCODER, DECODER]


@pytest.mark.parametrize("pattern", ["encode", "Tanh_2", "encoder/cell/Tanh", "while"])
def test_what_nothing_is_told_by_names_nothing(pattern):
    assert without_a_name(layered(ENCODER, DECODER), {KEEP: (pattern,)}) == (pattern,)


def test_a_name_counts_more_than_what_another_is_told_by():
    net = layered("fc/lstm/while", "fc/lstm_1/while")
    for pattern, loop in (("lstm", "lstm"), ("*/lstm", "lstm"), ("lstm_1", "lstm_1")):
        asked = with_requests(net, {KEEP: (pattern,)})
        assert loops_asked(asked) == [f"fc/{loop}/while"]


def test_gradients_are_not_told_by_their_layer():
    ops = [op("fc_1/dense_1/Sin", "Sin", "x", "f[3]")]
    ops += [op("gradient_tape/fc_1/dense_1/Cos", "Cos", "fc_1/dense_1/Sin", "f[3]")]
    net = make_net({"x": "f[3]"}, ops, ["gradient_tape/fc_1/dense_1/Cos"])
    for pattern in ("dense", "*/dense"):
        assert requests_of(with_requests(net, {KEEP: (pattern,)})) == {"fc_1/dense_1/Sin": KEEP}


def test_a_pattern_of_a_scope_names_all_in_it():
    asked = with_requests(rnn(), {KEEP: ("loop",)})
    body = asked.op_by_name["loop"].nets["body"]
    assert {"m", "t", "next"} <= requests_of(body).keys()
    assert not requests_of(body).keys() & {"push_h", "push_t"}  # lists are no values


def test_patterns_that_name_nothing_are_told():
    patterns = {KEEP: ("loop/t", "lop/t"), RECOMPUTE: ("gradient",)}
    assert without_a_name(rnn(), patterns) == ("lop/t",)


def test_requests_are_in_the_text_of_a_net():
    asked = with_requests(rnn(), {RECOMPUTE: ("t",)})
    again = parse(str(asked))
    assert requests_of(again.op_by_name["loop"].nets["body"]) == {"t": RECOMPUTE}
