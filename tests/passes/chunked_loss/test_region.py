"""What of a projection with its softmax loss runs by chunks: found on Nets made by hand."""

import pytest

from rnnmem.analysis.machine import CPU
from rnnmem.analysis.shapes import known_net
from rnnmem.errors import CheckError, NetError
from rnnmem.ir.graph import DType
from rnnmem.ir.marks import CHUNKS
from rnnmem.ir.order import without_dead_ops
from rnnmem.passes.chunked_loss.apply import apply_chunks
from rnnmem.passes.chunked_loss.decision import ChunkedLoss
from rnnmem.passes.chunked_loss.region import NoRegion, find
from rnnmem.passes.chunked_loss.select import losses_of
from rnnmem.planning.plan import Plan
from rnnmem.simulate.timeline import simulate
from rnnmem.verify import check
from tests.handmade import const, encoded, make_net, op

TOKENS, UNITS, WORDS = 2048, 32, 5000


def step(*more, tokens=TOKENS, gradient=True, outputs=(), loss="loss:0", scale="scale"):
    """A projection, its loss and, where asked, its gradient."""
    f = DType("float32")
    logits = f"f[{tokens},{WORDS}]"
    ops = [
        op("h", "Tanh", "x", f"f[{tokens},{UNITS}]"),
        op("logits", "MatMul", "h w", logits, attributes={"T": f}),
        op("biased", "BiasAdd", "logits b", logits, attributes={"T": f}),
        op(
            "loss",
            "SparseSoftmaxCrossEntropyWithLogits",
            "biased labels",
            f"f[{tokens}] {logits}",
        ),
        const("axis", 0),
        op("total", "Sum", "loss:0 axis", "f[]"),
        *more,
    ]
    results = ["total", *outputs]
    if gradient:
        ops += [
            op("d", "Mul", f"{scale} loss:1", logits),
            op("dh", "MatMul", "d w", f"f[{tokens},{UNITS}]", attributes={"transpose_b": True}),
            op("dw", "MatMul", "h d", f"f[{UNITS},{WORDS}]", attributes={"transpose_a": True}),
            op("db", "BiasAddGrad", "d", f"f[{WORDS}]"),
        ]
        results += ["dh", "dw", "db"]
    inputs = {
        "x": f"f[{tokens},{UNITS}]",
        "w": f"f[{UNITS},{WORDS}]",
        "b": f"f[{WORDS}]",
        "labels": f"i[{tokens}]",
        "scale": f"f[{tokens},1]",
    }
    return make_net(inputs, ops, results)


def chunked(net, **changes):
    (loss,) = losses_of(net, CPU)
    assert not loss.closed, loss.closed
    import dataclasses

    return apply_chunks(net, (dataclasses.replace(loss, **changes),), encoded)


def loops(net):
    return [one for one in net.ops if CHUNKS in one.attributes]


def test_forward_and_gradient_run_in_one_loop():
    net = step()
    region = find(known_net(net), "logits")
    (phase,) = region.phases
    assert region.source == "h" and region.whole == TOKENS
    assert set(phase.rows) == {"loss:0", "dh"} and set(phase.sums) == {"dw", "db"}


def test_what_is_written_passes_the_verifier_where_it_is_allowed():
    net = step()
    rewritten = chunked(net)
    check(net, rewritten, chunks=True)
    with pytest.raises(CheckError):
        check(net, rewritten)


def test_logits_are_never_whole_and_the_peak_falls():
    net = step()
    rewritten = chunked(net)
    (loop,) = loops(rewritten)
    (loss,) = losses_of(net, CPU)
    whole = TOKENS * WORDS
    shapes = [rewritten.blobs[blob].shape for one in rewritten.ops for blob in one.outputs]
    assert (TOKENS, WORDS) not in shapes and (TOKENS, UNITS) in shapes
    before, after = simulate(net).peak_bytes, simulate(rewritten).peak_bytes
    assert before >= 4 * whole and after < before / 2
    assert loop.attributes[CHUNKS] == loss.length < TOKENS


def test_an_unknown_number_of_tokens_is_cut_too():
    shaped = [
        op("like", "Shape", "loss:0", "i[1]", attributes={"out_type": DType("int32")}),
        op("flat", "Reshape", "scale like", "f[?]"),
        op("column", "ExpandDims", "flat last", "f[?,1]"),
    ]
    net = step(const("last", 1), *shaped, tokens="?", scale="column")
    assert len(find(known_net(net), "logits").phases) == 1  # a size needs no losses
    (loss,) = losses_of(net, CPU)
    assert not loss.closed and loss.rows is None and loss.bytes is None
    check(net, chunked(net), chunks=True)


def test_a_gradient_that_depends_on_the_loss_computes_the_logits_again():
    mean = [
        op("weight", "Exp", "total", "f[]"),
        op("late", "Mul", "scale weight", f"f[{TOKENS},1]"),
    ]
    net = step(*mean, scale="late")
    forward, gradient = find(known_net(net), "logits").phases
    assert "logits" in forward.ops and "logits" in gradient.ops
    assert forward.rows == ("loss:0",) and gradient.rows == ("dh",)
    (loss,) = losses_of(net, CPU)
    assert loss.loops == 2 and loss.seconds > 0
    check(net, chunked(net), chunks=True)


def test_an_argmax_of_the_logits_is_computed_by_chunks_too():
    accuracy = [const("last", 1), op("best", "ArgMax", "biased last", f"i[{TOKENS}]")]
    net = step(*accuracy, outputs=["best"])
    (phase,) = find(known_net(net), "logits").phases
    assert "best" in phase.rows
    check(net, chunked(net), chunks=True)


def test_evaluation_without_a_gradient_is_cut_too():
    net = step(gradient=False)
    (phase,) = find(known_net(net), "logits").phases
    assert phase.rows == ("loss:0",) and not phase.sums
    check(net, chunked(net), chunks=True)


@pytest.mark.parametrize(
    "reader",
    [
        op("other", "Cumsum", "biased axis", f"f[{TOKENS},{WORDS}]"),
        op("other", "Max", "biased axis", f"f[{WORDS}]"),
        op("other", "Softmax", "flat", "f[?]"),
        op("other", "PyFunc", "biased", "f[]", stateful=True),
    ],
    ids=lambda one: one.op.type,
)
def test_whoever_must_see_all_tokens_leaves_the_logits_whole(reader):
    flat = [const("all", (-1,)), op("flat", "Reshape", "biased all", f"f[{TOKENS * WORDS}]")]
    net = step(*flat, reader, outputs=["other"])
    (loss,) = losses_of(net, CPU)
    assert loss.closed
    with pytest.raises(NoRegion):
        find(known_net(net), "logits")


def test_logits_that_are_a_result_stay_whole():
    (loss,) = losses_of(step(outputs=["biased"]), CPU)
    assert "read as a whole" in loss.closed


def test_few_tokens_stay_in_one_piece():
    (loss,) = losses_of(step(tokens=128), CPU)
    assert loss.closed == "all tokens fit in one chunk"


def test_a_product_without_a_softmax_is_no_projection():
    net = make_net({"x": "f[4,4]", "w": "f[4,4]"}, [op("y", "MatMul", "x w", "f[4,4]")], ["y"])
    assert losses_of(net, CPU) == ()


def test_the_decisions_go_to_json_and_back():
    plan = Plan().having(chunked_loss=losses_of(step(), CPU))
    assert Plan.from_json(plan.to_json()) == plan
    assert not plan.changes_nothing


def test_a_plan_for_another_net_is_refused():
    with pytest.raises(NetError, match="another function"):
        apply_chunks(step(), (ChunkedLoss("nothing", source="h", length=8),), encoded)


# --- what the verifier refuses


def changed(net, name, change):
    """The Net with an op of the chunks' body changed."""
    (loop,) = loops(net)
    body = loop.nets["body"]
    ops = tuple(change(one) if one.name == name else one for one in body.ops)
    assert ops != body.ops
    new = loop.replace(nets={**loop.nets, "body": body.replace(ops=ops)})
    return net.replace(ops=tuple(new if one is loop else one for one in net.ops))


def test_another_product_is_refused():
    net = step()
    wrong = changed(
        chunked(net), "dw", lambda one: one.replace(inputs=(one.inputs[1], one.inputs[0]))
    )
    with pytest.raises(CheckError):
        check(net, wrong, chunks=True)


def test_another_op_is_refused():
    net = step()
    wrong = changed(chunked(net), "d", lambda one: one.replace(type="AddV2"))
    with pytest.raises(CheckError):
        check(net, wrong, chunks=True)


def test_a_part_that_leaves_rows_out_is_refused():
    net = step()
    right = chunked(net)
    (loop,) = loops(right)
    packs = [one for one in loop.nets["body"].ops if one.type == "Pack"]
    wrong = changed(
        right,
        packs[0].name,
        lambda one: one.replace(inputs=(one.inputs[1], *one.inputs[1:])),
    )
    with pytest.raises(CheckError):
        check(net, wrong, chunks=True)


def test_chunks_that_do_not_cover_all_rows_are_refused():
    net = step()
    right = chunked(net)
    most = next(one for one in right.ops if one.type == "AddV2")
    less = most.replace(inputs=(most.inputs[1], most.inputs[1]))
    wrong = right.replace(ops=tuple(less if one is most else one for one in right.ops))
    with pytest.raises(CheckError):
        check(net, wrong, chunks=True)


def test_a_sum_that_does_not_begin_as_zero_is_refused():
    net = step()
    right = chunked(net)
    zeros = next(one for one in right.ops if one.type == "Fill")
    zero = right.producer[zeros.inputs[1]]
    one = zero.replace(attributes={**zero.attributes, "value": encoded(1.0, "float32")})
    wrong = right.replace(ops=tuple(one if each is zero else each for each in right.ops))
    with pytest.raises(CheckError):
        check(net, wrong, chunks=True)


def test_a_blob_that_may_have_another_number_of_rows_is_not_cut():
    (loss,) = losses_of(step(tokens="?"), CPU)
    assert "reads the logits of all tokens" in loss.closed


def test_nothing_is_left_of_the_whole():
    rewritten = chunked(step())
    assert without_dead_ops(rewritten) is rewritten
