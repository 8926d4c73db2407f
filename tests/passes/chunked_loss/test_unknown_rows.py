"""Softmax losses of batches and lengths that only a run can tell: one loop, any size, same bits."""

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.analysis.machine import CPU
from rnnmem.analysis.row_rules import ROW, rows_of
from rnnmem.analysis.shapes import known_net
from rnnmem.ir.graph import Blob, DType
from rnnmem.ir.marks import CHUNKS
from rnnmem.ir.order import all_waiting_for
from rnnmem.passes.chunked_loss import select
from rnnmem.passes.chunked_loss.apply import apply_chunks
from rnnmem.passes.chunked_loss.early_sizes import asked_earlier
from rnnmem.passes.chunked_loss.region import find
from rnnmem.passes.chunked_loss.slicing import NoRegion
from rnnmem.tf.attributes import constant
from rnnmem.tf.functions import function_of, net_of
from rnnmem.verify import check
from rnnmem.verify.lowering.overwriting import is_owned
from rnnmem.verify.lowering.row_counts import RowCounts
from tests.handmade import const, make_net, op
from tests.passes.chunked_loss.test_exact_losses import assert_same

pytestmark = pytest.mark.usefixtures("small_chunks")

WORDS, UNITS = 48, 8
SIZES = [(4, 33), (0, 5), (5, 0), (1, 1), (3, 5), (8, 8), (1, 64), (13, 5), (16, 33)]
"""Batch and time: none, fewer than a chunk, just one, one and some, several."""


def batch(size, seed):
    random = np.random.default_rng(seed)
    return tf.constant(random.integers(1, WORDS, size), tf.int32)


def masked(logits, labels, tokens):
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    mask = tf.cast(labels > 3, tf.float32)
    return tf.reduce_sum(losses * mask) / (1.0 + tf.reduce_sum(mask))


def by_lengths(logits, labels, tokens):
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    real = tf.sequence_mask(tf.reduce_sum(tokens, 1) % 7, tf.shape(labels)[1], tf.float32)
    return tf.reduce_sum(losses * real) / (1.0 + tf.reduce_sum(real))


def mean(logits, labels, tokens):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def flat(loss):
    def flattened(logits, labels, tokens):
        return loss(tf.reshape(logits, [-1, WORDS]), tf.reshape(labels, [-1]), tokens)

    return flattened


def smoothed(logits, labels, tokens):
    logs = tf.nn.log_softmax(logits)
    picked = tf.gather(logs, labels, batch_dims=1)
    return -tf.reduce_mean(0.9 * picked + 0.1 * tf.reduce_mean(logs, 1))


LOSSES = {
    "masked": masked,
    "by lengths": by_lengths,
    "mean": mean,
    "flat": flat(masked),
    "flat mean": flat(mean),
    "smoothed": flat(smoothed),
}


def train_step(loss, signature):
    random = np.random.default_rng(0)
    table, kernel = (
        tf.Variable(random.normal(size=size).astype(np.float32))
        for size in ((WORDS, UNITS), (UNITS, WORDS))
    )

    def step(tokens, labels):
        with tf.GradientTape() as tape:
            hidden = tf.tanh(tf.gather(table, tokens))
            value = loss(tf.einsum("bth,hv->btv", hidden, kernel), labels, tokens)
        gradients = tape.gradient(value, [table, kernel])
        return value, [tf.convert_to_tensor(one) for one in gradients]

    return step, [tf.TensorSpec(size, tf.int32) for size in signature]


@pytest.mark.parametrize("open_axes", [(None, None), (None, 33), (16, None)], ids=str)
@pytest.mark.parametrize("name", LOSSES)
def test_any_size_keeps_its_bits(name, open_axes):
    step, signature = train_step(LOSSES[name], [open_axes, open_axes])
    plain = tf.function(step, input_signature=signature)
    optimized = rnnmem.optimize(max_slowdown=100.0)(tf.function(step, input_signature=signature))
    plan = optimized.plan(batch((16, 33), 0), batch((16, 33), 1))
    cut = [one for one in plan.of("row_chunks") if not one.closed]
    assert cut, (plan.losses, plan.notes)
    assert cut[0].loops == 1 and cut[0].rows is None  # no gradient waits for a loss's size
    for size in SIZES:
        if all(
            open_axis in (None, given) for open_axis, given in zip(open_axes, size, strict=True)
        ):
            args = batch(size, 0), batch(size, 1)
            assert_same(optimized(*args), plain(*args))


def normalised_step(signature):
    """Logits of a normalised residual connection, whose shape is that of several blobs."""
    random = np.random.default_rng(0)
    table, mixed, offset, kernel = made = [
        tf.Variable(random.normal(size=size).astype(np.float32))
        for size in ((WORDS, UNITS), (UNITS, UNITS), (1, 1, UNITS), (UNITS, WORDS))
    ]

    def step(tokens, labels):
        with tf.GradientTape() as tape:
            hidden = tf.gather(table, tokens)
            hidden = hidden + tf.tanh(tf.einsum("bth,hv->btv", hidden, mixed))
            mean, variance = tf.nn.moments(hidden, [-1], keepdims=True)
            scale = tf.math.rsqrt(variance + 1e-3)
            hidden = hidden * scale + (offset + -mean * scale)
            rows = tf.reshape(hidden, [-1, UNITS]) @ kernel
            logits = tf.reshape(rows, tf.concat([tf.shape(hidden)[:2], [WORDS]], 0))
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            value = tf.reduce_mean(losses)
        return value, [tf.convert_to_tensor(one) for one in tape.gradient(value, made)]

    return step, [tf.TensorSpec(size, tf.int32) for size in signature]


@pytest.mark.slow
def test_the_shape_of_a_normalised_residual_connection_is_proven():
    step, signature = normalised_step([(None, None)] * 2)
    plain = tf.function(step, input_signature=signature)
    optimized = rnnmem.optimize(max_slowdown=100.0)(tf.function(step, input_signature=signature))
    plan = optimized.plan(batch((16, 33), 0), batch((16, 33), 1))
    assert any(not one.closed for one in plan.of("row_chunks")), (plan.losses, plan.notes)
    for size in SIZES:
        args = batch(size, 0), batch(size, 1)
        assert_same(optimized(*args), plain(*args))


def test_shapes_in_front_of_the_logits_are_asked_as_they_were():
    step, signature = normalised_step([(None, None)] * 2)
    net = net_of(tf.function(step, input_signature=signature).get_concrete_function())
    logits = next(one for one in net.ops if one.type == "MatMul")
    seen = asked_earlier(net, logits.name)
    behind = all_waiting_for(net, [logits.name])
    asks = [one for one in net.ops if one.type == "Shape" and one.name not in behind]
    assert asks and all(seen.op_by_name[one.name] == one for one in asks)


def test_labels_of_another_number_fail_as_they_did():
    step, signature = train_step(flat(masked), [(None, None)] * 2)
    optimized = rnnmem.optimize(max_slowdown=100.0)(tf.function(step, input_signature=signature))
    optimized(batch((4, 33), 0), batch((4, 33), 1))
    with pytest.raises(tf.errors.InvalidArgumentError):
        optimized(batch((4, 33), 0), batch((4, 32), 1))


# --- on Nets


def picked(*more, weights="narrow", inputs=()):
    """Log-probabilities picked by labels of which only a run can tell how many there are."""
    logits = f"f[?,{WORDS}]"
    ops = [
        op("logits", "MatMul", "h w", logits, attributes={"T": DType("float32")}),
        op("logs", "LogSoftmax", "logits", logits),
        const("last", 1),
        op("picked", "GatherV2", "logs labels last", "f[?]", attributes={"batch_dims": 1}),
        op("narrow", "Cast", "labels", "f[?]", attributes={"DstT": DType("float32")}),
        *more,
        op("column", "ExpandDims", f"{weights} last", "f[?,1]"),
        op("d", "Mul", "column logs", logits),
        op("dw", "MatMul", "h d", f"f[{UNITS},{WORDS}]", attributes={"transpose_a": True}),
    ]
    given = {"h": f"f[?,{UNITS}]", "w": f"f[{UNITS},{WORDS}]", "labels": "i[?]", **dict(inputs)}
    return make_net(given, ops, ["picked", "dw"])


def cut(net):
    (loss,) = select.losses_of(net, CPU, exact=True)
    assert not loss.closed, loss.closed
    return apply_chunks(net, (loss,), constant)


def loops(net):
    return [one for one in net.ops if CHUNKS in one.attributes]


def test_what_is_made_of_labels_has_a_number_for_each_row():
    net = picked()
    (phase,) = find(known_net(net), "logits", exact=True).phases
    assert phase.placed == "d" and phase.rows == ("picked",)
    rewritten = cut(net)
    assert len(loops(rewritten)) == 1
    check(net, rewritten)


def behind_a_mask(rows="?", others=()):
    """Logits of which some are none, by a mask, before their loss."""
    logits = f"f[{rows},{WORDS}]"
    ops = [
        op("logits", "MatMul", "h w", logits, attributes={"T": DType("float32")}),
        const("none", 0.0),
        op("kept", "SelectV2", "mask logits none", logits),
        op("logs", "LogSoftmax", "kept", logits),
        op("d", "Exp", "logs", logits),
        op("e", "Mul", "d logs", logits),
        op("masked", "SelectV2", "mask e none", logits),
        op("dw", "MatMul", "h masked", f"f[{UNITS},{WORDS}]", attributes={"transpose_a": True}),
        *others,
    ]
    given = {"h": f"f[{rows},{UNITS}]", "w": f"f[{UNITS},{WORDS}]", "mask": f"z[{rows},1]"}
    return make_net(given, ops, ["dw", *(one.op.outputs[0] for one in others[-1:])])


def test_behind_a_mask_of_any_number_of_rows_the_loss_is_cut():
    net = behind_a_mask()
    region = find(known_net(net), "logits", exact=True)
    assert region.source == "kept" and region.owned == ("logits", "kept")
    assert [phase.placed for phase in region.phases] == ["e"]
    check(net, cut(net))


def test_before_the_mask_where_it_has_a_row_for_each():
    net = behind_a_mask(rows=512)
    region = find(known_net(net), "logits", exact=True)
    assert region.source == "logits" and {"kept", "masked"} <= region.ops
    check(net, cut(net))


def test_a_masked_buffer_that_another_reads_is_not_written_over():
    by = {"transpose_a": True}
    net = behind_a_mask(
        others=[op("seen", "MatMul", "h kept", f"f[{UNITS},{WORDS}]", attributes=by)]
    )
    (loss,) = select.losses_of(net, CPU, exact=True)
    assert loss.closed


def test_a_buffer_is_owned_where_a_mask_picks_of_one_blob_and_a_number():
    rewritten = cut(behind_a_mask())
    picks = rewritten.op_by_name["kept"]

    def owned(*inputs):
        other = op("other", "MatMul", "h w", f"f[?,{WORDS}]")
        changed = picks.replace(inputs=inputs)
        ops = (other.op, *(changed if one is picks else one for one in rewritten.ops))
        blobs = {**rewritten.blobs, "other": Blob("other", "float32", (None, WORDS))}
        return is_owned(rewritten.replace(ops=ops, blobs=blobs), "kept")

    assert owned("mask", "logits", "none") and owned("mask", "none", "logits")
    assert not owned("mask", "logits", "other")
    assert not owned("mask", "other", "none")


def test_one_loop_that_gives_nothing_but_as_much_is_not_worth_it():
    logits = f"f[?,{WORDS}]"
    ops = [
        op("logits", "MatMul", "h w", logits, attributes={"T": DType("float32")}),
        op("bent", "Tanh", "logits", logits),
        op("dw", "MatMul", "h bent", f"f[{UNITS},{WORDS}]", attributes={"transpose_a": True}),
    ]
    net = make_net({"h": f"f[?,{UNITS}]", "w": f"f[{UNITS},{WORDS}]"}, ops, ["dw"])
    with pytest.raises(NoRegion, match="nothing else as large as the logits"):
        find(known_net(net), "logits", exact=True)


def test_what_may_be_of_another_number_is_not_cut():
    net = picked(weights="others", inputs={"others": "f[?]"})
    (loop,) = loops(cut(net))
    assert "column" not in loop.inputs  # a row of it may stand for all: that product stays whole


def test_a_shape_of_losses_is_asked_of_the_labels():
    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, 1])])
    def losses(labels, mask):
        logs = tf.nn.log_softmax(tf.reshape(tf.cast(labels, tf.float32), [-1, 1]) @ tf.ones([1, 9]))
        one = tf.gather(logs, tf.reshape(labels, [-1]), batch_dims=1)
        two = tf.reshape(-one, tf.shape(labels))
        return tf.shape(one), tf.shape(two), tf.shape(two * 2.0), tf.shape(two * mask)

    concrete = losses.get_concrete_function()
    net = net_of(concrete)
    (product,) = (one for one in net.ops if one.type == "MatMul")
    seen = asked_earlier(net, product.name)
    needed, pending = set(), list(seen.outputs)
    while pending:
        made = seen.producer.get(pending.pop())
        if made is not None and made.name not in needed:
            needed.add(made.name)
            pending += made.inputs
    types = {one.type for one in seen.ops if one.name in needed}
    assert "MatMul" not in types and "BroadcastArgs" in types
    rewritten = function_of(seen, concrete)
    for size in [(2, 3), (1, 1), (0, 3), (3, 0)]:
        for rows in {1, size[0]}:
            labels, mask = batch(size, 0) % 9, tf.ones([rows, 1])
            assert_same(rewritten(labels, mask), losses(labels, mask))


def test_what_must_be_alike_fails_otherwise():
    """The word of the table, held against the kernel."""
    raw, two = tf.raw_ops, tf.zeros([2])
    for rows in (1, 3):
        with pytest.raises(tf.errors.InvalidArgumentError):
            raw.Select(condition=tf.ones([2], bool), x=two, y=tf.zeros([rows]))
        with pytest.raises(tf.errors.InvalidArgumentError):
            raw.Select(condition=tf.ones([rows], bool), x=two, y=two)
        with pytest.raises(tf.errors.InvalidArgumentError):
            raw.Select(condition=tf.ones([rows], bool), x=two[:, None], y=two[:, None])
    for rows in (1, 3):
        labels = tf.zeros([rows], tf.int32)
        with pytest.raises(tf.errors.InvalidArgumentError):
            raw.GatherV2(params=tf.zeros([2, 4]), indices=labels, axis=1, batch_dims=1)
        with pytest.raises(tf.errors.InvalidArgumentError):
            raw.SparseSoftmaxCrossEntropyWithLogits(features=tf.zeros([2, 4]), labels=labels)
        with pytest.raises(tf.errors.InvalidArgumentError):
            raw.InTopKV2(predictions=tf.zeros([2, 4]), targets=labels, k=1)


def test_labels_of_what_is_counted_by_them_prove_nothing():
    """They are as many as the source's rows only where they are read with these."""
    sizes = {"logs": f"f[?,{WORDS}]", "labels": "i[?]", "given": f"f[?,{WORDS}]", "others": "i[?]"}
    ops = [
        const("last", 1),
        op("one", "GatherV2", "logs labels last", "f[?]", attributes={"batch_dims": 1}),
        op("two", "GatherV2", "given others last", "f[?]", attributes={"batch_dims": 1}),
    ]
    body = make_net(sizes, ops, ["one", "two"])
    values = {
        name: rows_of(name, (None, WORDS) if name in ("logs", "given") else (None,), ROW)
        for name in sizes
    }
    cuts = {name: (name, ROW) for name in ("labels", "given", "others")}
    counts = RowCounts(body, values, cuts, body.ops)
    assert set(counts.told(known_net(body))) == {"labels"}
    assert not RowCounts(body, values, cuts, ()).told(known_net(body))  # the original runs none
    assert counts.unknown(known_net(body), counts.told(known_net(body))) == "given"


def test_sizes_that_the_trace_does_not_tell_stay_untold():
    """A loop's length is found out here; of constants TensorFlow would fold more than before."""
    random = np.random.default_rng(0)
    table = tf.Variable(random.normal(size=(WORDS, UNITS)).astype(np.float32))
    times, size = 33, 16

    @tf.function(
        input_signature=[tf.TensorSpec([times, size, UNITS]), tf.TensorSpec([528], tf.int32)]
    )
    def step(given, labels):
        with tf.GradientTape() as tape:
            states = tf.TensorArray(tf.float32, tf.shape(given)[0], element_shape=[None, UNITS])
            _, states = tf.while_loop(
                lambda t, _: t < times,
                lambda t, states: (t + 1, states.write(t, tf.tanh(given[t] + table[0]))),
                (0, states),
            )
            logits = tf.matmul(tf.reshape(states.stack(), [-1, UNITS]), table, transpose_b=True)
            value = flat(smoothed)(logits, labels, None)
        return value, tf.convert_to_tensor(tape.gradient(value, table))

    given = tf.constant(random.normal(size=[times, size, UNITS]).astype(np.float32))
    labels = tf.reshape(batch((times, size), 0), [-1])
    optimized = rnnmem.optimize(max_slowdown=100.0)(step)
    plan = optimized.plan(given, labels)
    (loss,) = plan.of("row_chunks")
    assert not loss.closed and loss.rows == times * size, (loss, plan.notes)
    assert plan.predicted_peak is not None
    assert_same(optimized(given, labels), step(given, labels))
