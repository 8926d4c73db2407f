"""Softmax losses by chunks of rows with the same bits, on Nets made by hand."""

import dataclasses

import pytest

from rnnmem.analysis.machine import CPU
from rnnmem.analysis.shapes import known_net
from rnnmem.errors import CheckError
from rnnmem.ir.marks import CHUNKS, OWNED
from rnnmem.ir.op_table import OVERWRITES
from rnnmem.passes.chunked_loss.apply import apply_chunks
from rnnmem.passes.chunked_loss.region import NoRegion, find
from rnnmem.passes.chunked_loss.select import ALIGNED, losses_of
from rnnmem.planning.plan import Plan
from rnnmem.simulate.timeline import simulate
from rnnmem.verify import check
from tests.handmade import const, encoded, op
from tests.passes.chunked_loss.test_region import TOKENS, UNITS, WORDS, changed, loops, step


def chunked(net, **changes):
    (loss,) = losses_of(net, CPU, exact=True)
    assert not loss.closed, loss.closed
    return apply_chunks(net, (dataclasses.replace(loss, **changes),), encoded)


def mean_of_losses():
    return [
        op("weight", "Exp", "total", "f[]"),
        op("late", "Mul", "scale weight", f"f[{TOKENS},1]"),
    ]


def counting_hits():
    return [const("wide", 1), op("hits", "ArgMax", "biased wide", f"i[{TOKENS}]")]


def test_only_what_acts_on_rows_runs_by_chunks():
    region = find(known_net(step()), "logits", exact=True)
    (phase,) = region.phases
    assert region.source == "biased" and region.owned == ("logits", "biased")
    assert phase.ops == ("loss", "d") and phase.placed == "d"
    assert phase.rows == ("loss:0",) and not phase.sums


def test_what_is_written_passes_the_verifier_without_a_word():
    net = step()
    rewritten = chunked(net)
    check(net, rewritten)
    (loop,) = loops(rewritten)
    kept = {one.type for one in rewritten.ops} & {"MatMul", "BiasAddGrad"}
    assert kept == {"MatMul", "BiasAddGrad"}
    assert not any("MatMul" in one.type for one in loop.nets["body"].ops)


def test_the_logits_exist_once():
    net = step()
    whole = TOKENS * WORDS * 4
    assert whole < simulate(chunked(net)).peak_bytes < 1.5 * whole


def test_a_gradient_that_depends_on_the_loss_reads_the_logits_twice():
    net = step(*mean_of_losses(), scale="late")
    forward, gradient = find(known_net(net), "logits", exact=True).phases
    assert not forward.placed and gradient.placed == "d"
    rewritten = chunked(net)
    first, second = loops(rewritten)
    assert first.name in second.controls
    check(net, rewritten)


def test_an_argmax_reads_its_rows_before_they_are_written_over():
    net = step(*counting_hits(), outputs=["hits"])
    rewritten = chunked(net)
    (loop,) = loops(rewritten)
    (write,) = (one for one in loop.nets["body"].ops if one.type == OVERWRITES)
    assert [name for name in write.controls if name.startswith("hits")]
    check(net, rewritten)

    wrong = changed(rewritten, write.name, lambda one: one.replace(controls=()))
    with pytest.raises(CheckError, match="still read"):
        check(net, wrong)


@pytest.mark.parametrize(
    "reader",
    [
        op("other", "Tanh", "logits", f"f[{TOKENS},{WORDS}]"),
        op("other", "Mul", "loss:1 loss:1", f"f[{TOKENS},{WORDS}]"),
    ],
    ids=["the product", "another gradient"],
)
def test_whoever_reads_as_much_besides_leaves_the_logits_as_they_were(reader):
    net = step(reader, outputs=["other"])
    (loss,) = losses_of(net, CPU, exact=True)
    if "biased" not in loss.closed and not loss.closed:
        check(net, chunked(net))  # the product alone has another reader: the sum stays outside
        with pytest.raises(NoRegion):
            find(known_net(net), "logits", "biased", exact=True)
    else:
        assert "read" in loss.closed


def test_logits_that_are_a_result_stay_as_they_were():
    (loss,) = losses_of(step(outputs=["biased"]), CPU, exact=True)
    assert loss.closed


def test_small_logits_are_not_spoken_of():
    assert losses_of(step(tokens=128), CPU, exact=True) == ()


def test_chunks_have_a_multiple_of_what_kernels_take_at_once():
    (loss,) = losses_of(step(), CPU, exact=True)
    assert loss.length % ALIGNED == 0 and loss.exact
    plan = Plan().having(row_chunks=(loss,))
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.cuts_rows and not plan.sums_by_chunks


# --- what the verifier refuses


def test_chunks_that_end_between_are_refused():
    net = step()
    with pytest.raises(CheckError, match="last bits"):
        check(net, chunked(net, length=100))


def test_sums_over_chunks_are_refused():
    net = step()
    (loss,) = losses_of(net, CPU)
    with pytest.raises(CheckError):
        check(net, apply_chunks(net, (loss,), encoded))


def with_op(net, name, change):
    return net.replace(ops=tuple(change(one) if one.name == name else one for one in net.ops))


@pytest.mark.parametrize("name", ["logits", "biased"])
def test_a_buffer_that_may_be_another_op_s_too_is_refused(name):
    net = step()

    def unmarked(one):
        kept = {key: value for key, value in one.attributes.items() if key != OWNED}
        return one.replace(attributes=kept)

    with pytest.raises(CheckError, match="others may read"):
        check(net, with_op(chunked(net), name, unmarked))


def test_a_reader_of_what_is_written_over_is_refused():
    net = step(op("other", "Tanh", "x", f"f[{TOKENS},{UNITS}]"), outputs=["other"])
    right = chunked(net)
    stolen = [blob for blob in right.blobs if blob.startswith("rnnmem/logits")]
    wrong = with_op(right, "other", lambda one: one.replace(inputs=(min(stolen),)))
    with pytest.raises(CheckError):
        check(net, wrong)


def test_a_second_loop_that_does_not_wait_is_refused():
    net = step(*mean_of_losses(), scale="late")
    right = chunked(net)
    second = loops(right)[1]
    with pytest.raises(CheckError, match="others may read"):
        check(net, with_op(right, second.name, lambda one: one.replace(controls=())))


def test_rows_in_another_place_are_refused():
    net = step()
    right = chunked(net)
    (loop,) = loops(right)
    place = next(one for one in loop.nets["body"].ops if one.type == "Range")
    wrong = changed(
        right, place.name, lambda one: one.replace(inputs=(one.inputs[1], *one.inputs[1:]))
    )
    with pytest.raises(CheckError):
        check(net, wrong)


def test_fewer_chunks_than_rows_are_refused():
    net = step()
    right = chunked(net)
    (loop,) = loops(right)
    longer = {**loop.attributes, CHUNKS: 2 * loop.attributes[CHUNKS]}
    with pytest.raises(CheckError):
        check(net, with_op(right, loop.name, lambda one: one.replace(attributes=longer)))
