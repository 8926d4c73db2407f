"""Softmax losses by chunks where XLA compiles them: chunks of one size, the product among them."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.analysis.machine import CPU
from rnnmem.analysis.shapes import known_net
from rnnmem.errors import CheckError, PlanError
from rnnmem.passes.chunked_loss.apply import apply_chunks
from rnnmem.passes.chunked_loss.region import find
from rnnmem.passes.chunked_loss.select import losses_of
from rnnmem.verify import check
from tests.allocations import asked_for
from tests.handmade import encoded, op
from tests.passes.chunked_loss.test_region import TOKENS, WORDS, changed, loops, step


def chunked(net, **changes):
    (loss,) = losses_of(net, CPU, exact=True, compiled=True)
    assert not loss.closed, loss.closed
    return apply_chunks(net, (dataclasses.replace(loss, **changes),), encoded)


def test_the_gradient_alone_leaves_whole_and_nothing_is_added_up():
    region = find(known_net(step()), "logits", exact=True, compiled=True)
    (phase,) = region.phases
    assert phase.ops == ("logits", "biased", "loss", "d")
    assert phase.rows == ("loss:0", "d") and not phase.sums and not phase.placed


def test_every_chunk_has_as_many_rows():
    net = step(tokens=1500)
    (loss,) = losses_of(net, CPU, exact=True, compiled=True)
    assert loss.length > 1 and not 1500 % loss.length
    rewritten = chunked(net)
    (loop,) = loops(rewritten)
    shapes = {kind.shape for kind in loop.nets["body"].blobs.values() if kind.shape is not None}
    assert (loss.length, WORDS) in shapes
    assert not any(None in shape for shape in shapes)
    check(net, rewritten, compiled=True)


def test_as_xla_rounds_rows_as_it_likes_only_it_may_have_chunks_of_any_length():
    net = step(tokens=1500)
    with pytest.raises(CheckError, match="last bits"):
        check(net, chunked(net))


def test_sums_still_keep_their_order():
    net = step()
    (loss,) = losses_of(net, CPU, compiled=True)
    summed = apply_chunks(net, (loss,), encoded)
    check(net, summed, chunks=True, compiled=True)
    with pytest.raises(CheckError, match="another order"):
        check(net, summed, compiled=True)


def test_a_number_of_rows_without_parts_is_left():
    (loss,) = losses_of(step(tokens=1999), CPU, exact=True, compiled=True)
    assert "1999 rows have no such parts" in loss.closed


def test_a_number_that_only_a_run_can_tell_is_left():
    (loss,) = losses_of(step(tokens="?"), CPU, exact=True, compiled=True)
    assert "XLA compiles one number" in loss.closed


@pytest.mark.parametrize("whole", ["biased", "logits"])
def test_logits_that_others_read_are_left(whole):
    other = op("other", "Tanh", whole, f"f[{TOKENS},{WORDS}]")
    (loss,) = losses_of(step(other, outputs=["other"]), CPU, exact=True, compiled=True)
    assert "read" in loss.closed


def test_chunks_that_leave_rows_out_are_refused():
    net = step()
    rewritten = chunked(net)
    (loop,) = loops(rewritten)
    body = loop.nets["body"]
    count = next(one for one in body.ops if one.type == "Minimum")
    short = body.producer[count.inputs[1]]
    wrong = changed(
        rewritten,
        short.name,
        lambda one: one.replace(attributes={**one.attributes, "value": encoded(8, "int32")}),
    )
    with pytest.raises(CheckError):
        check(net, wrong, compiled=True)


@pytest.mark.slow
def test_xla_holds_one_blob_of_the_logits_size_and_gives_the_same(tmp_path):
    tokens, units, words = 960, 32, 4000
    weights = [
        tf.Variable(np.random.RandomState(n).standard_normal([units, n]) / 8, dtype="float32")
        for n in (words, units)
    ]
    hidden = tf.constant(np.random.RandomState(1).standard_normal([48, 20, units]), tf.float32)
    labels = tf.constant(np.random.RandomState(2).randint(0, words, [48, 20]))

    def train(hidden, labels):
        with tf.GradientTape() as tape:
            state = tf.while_loop(
                lambda t, _: t < 3,
                lambda t, h: (t + 1, tf.tanh(tf.tensordot(h, weights[1], 1))),
                (0, hidden),
                maximum_iterations=3,
            )[1]
            logits = tf.tensordot(state, weights[0], 1)
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(each)
        return loss, tape.gradient(loss, weights)

    plain = tf.function(train, jit_compile=True)
    optimised = rnnmem.optimize(tf.function(train, jit_compile=True), max_slowdown=2.0)
    (decided,) = optimised.plan(hidden, labels).of("row_chunks")
    assert not decided.closed and decided.compiled
    before, after = plain(hidden, labels), optimised(hidden, labels)
    for one, other in zip(tf.nest.flatten(before), tf.nest.flatten(after), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)
    held = [
        asked_for(one, (hidden, labels), tmp_path / name)
        for name, one in (("before", plain), ("after", optimised))
    ]
    assert held[1] < 1.5 * 4 * tokens * words < held[0]

    plan = rnnmem.Plan.from_json(optimised.plan(hidden, labels).to_json())
    again = rnnmem.optimize(tf.function(train, jit_compile=True), plan=plan)
    assert again(hidden, labels)[0].numpy() == after[0].numpy()
    with pytest.raises(PlanError, match="another compiler"):
        rnnmem.optimize(tf.function(train), plan=plan)(hidden, labels)
