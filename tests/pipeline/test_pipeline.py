import keras
import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.errors import OptionError, PipelineError, RnnmemWarning
from rnnmem.pipeline import Pipeline, Stage, connect
from rnnmem.pipeline.executor import WorkerGone
from rnnmem.tf.private import Halves

FEATURES, TIME, CLASSES = 6, 5, 3


@pytest.fixture(autouse=True)
def deterministic():
    keras.utils.set_random_seed(3)
    tf.config.experimental.enable_op_determinism()


def data(count=16, seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=[count, TIME, FEATURES]).astype("float32")
    return x, random.integers(0, CLASSES, [count])


def loss(labels, predictions):
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(labels, tf.int32), predictions)
    )


def layers(**options):
    keras.utils.set_random_seed(5)
    return [
        keras.layers.LSTM(8, return_sequences=True, **options),
        keras.layers.GRU(7, return_sequences=True),
        keras.layers.LSTM(8),
        keras.layers.Dense(CLASSES),
    ]


def here(count):
    return ["CPU:0"] * count


def unsplit(run, variables, optimizer, batches, micro_batches):
    """Gradient accumulation with the model in one piece; losses, and the last mean gradients."""

    @tf.function
    def gradient(x, y):
        with tf.GradientTape() as tape:
            one = loss(y, run(x))
        return one, tape.gradient(one, variables())

    losses = []
    for x, y in batches:
        size = len(x) // micro_batches
        total, sums = 0.0, None
        for start in range(0, len(x), size):
            part = slice(start, start + size)
            one, found = gradient(tf.constant(x[part]), tf.constant(y[part]))
            total += one
            found = [tf.convert_to_tensor(g) for g in found]
            sums = found if sums is None else [a + b for a, b in zip(sums, found, strict=True)]
        means = [a / micro_batches for a in sums]
        optimizer.apply_gradients(zip(means, variables(), strict=True))
        losses.append(float(total / micro_batches))
    return losses, means


def assert_same_bits(found, wanted):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


DROPPING = {"dropout": 0.2, "recurrent_dropout": 0.1}


@pytest.fixture(scope="module")
def in_one_piece():
    """Batches; and the losses, gradients and weights after twenty steps of the unsplit model."""
    tf.config.experimental.enable_op_determinism()
    batches = [data(seed=i) for i in range(20)]
    model = keras.Sequential(layers(**DROPPING))
    model.build((None, TIME, FEATURES))
    losses, gradients = unsplit(
        lambda x: model(x, training=True),
        lambda: model.trainable_variables,
        keras.optimizers.Adam(0.01),
        batches,
        8,
    )
    return batches, losses, gradients, [v.numpy() for v in model.trainable_variables]


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"schedule": "forward-then-backward"}, marks=pytest.mark.slow),
        pytest.param({"recompute": True, "prefetch": True}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_twenty_steps_have_the_bits_of_the_model_in_one_piece(options, in_one_piece):
    batches, losses, gradients, weights = in_one_piece
    pipeline = Pipeline(
        layers(**DROPPING), here(4), 8, keras.optimizers.Adam(0.01), loss=loss, **options
    )
    assert [float(pipeline.train_step(x, y)) for x, y in batches] == losses
    assert_same_bits(pipeline.gradients, gradients)
    assert_same_bits(pipeline.trainable_variables, weights)
    most = [8] * 4 if options.get("schedule") else [4, 3, 2, 1]
    assert pipeline.most_scopes == most


@pytest.fixture
def no_rewrites():
    """Without Grappler's passes that sort the addends of a sum."""
    passes = ("arithmetic_optimization", "constant_folding", "remapping")
    tf.config.optimizer.set_experimental_options(dict.fromkeys(passes, False))
    yield
    tf.config.optimizer.set_experimental_options(dict.fromkeys(passes, True))


def test_uneven_stages_with_several_values_and_skips(no_rewrites):
    keras.utils.set_random_seed(1)
    dense = [keras.layers.Dense(6, activation="tanh") for _ in range(4)]
    for layer in dense:
        layer.build((None, 6))

    def model(x):
        first = dense[0](x)
        second = dense[1](first)
        third = dense[2](second + first)
        return dense[3](third * first + second) + x

    def variables():
        return [v for layer in dense for v in layer.trainable_variables]

    start = [v.numpy() for v in variables()]
    batches = [
        (np.random.default_rng(i).normal(size=[12, 6]).astype("float32"), np.arange(12) % 3)
        for i in range(4)
    ]
    wanted, gradients = unsplit(model, variables, keras.optimizers.SGD(0.1), batches, 4)
    trained = [v.numpy() for v in variables()]
    for variable, value in zip(variables(), start, strict=True):
        variable.assign(value)

    def split(x):
        first = dense[0](x)
        return first, dense[1](first)

    stages = [
        Stage(split, outputs=("first", "second")),
        Stage(lambda a, b: dense[2](b + a), inputs=("first", "second"), outputs="third"),
        Stage(lambda c, a, b, x: dense[3](c * a + b) + x, inputs=("third", "first", "second", "x")),
    ]
    pipeline = Pipeline(stages, here(3), 4, keras.optimizers.SGD(0.1), loss=loss)
    assert [float(pipeline.train_step(x, y)) for x, y in batches] == wanted
    by_layer = {
        v.ref(): g for v, g in zip(pipeline.trainable_variables, pipeline.gradients, strict=True)
    }
    assert_same_bits([by_layer[v.value.ref()] for v in variables()], gradients)
    assert_same_bits([v.value for v in variables()], trained)
    assert (0, 2) in pipeline.schedule.topology.gradients


def test_tuples_go_from_stage_to_stage_and_whole_numbers_without_gradient():
    weight = tf.Variable(tf.ones([FEATURES, 4]))

    def first(x, lengths):
        return {"h": tf.einsum("btf,fg->btg", x, weight), "lengths": lengths}

    def second(values):
        mask = tf.sequence_mask(values["lengths"], TIME, tf.float32)
        return [tf.reduce_sum(values["h"] * mask[..., None], 1), values["h"]]

    pipeline = Pipeline(
        [first, second, lambda a, b: tf.reduce_mean(a) + tf.reduce_mean(b)], here(3), 4, "sgd"
    )
    x, _ = data()
    lengths = np.arange(16) % TIME
    found = float(pipeline.train_step((x, lengths)))
    mask = (np.arange(TIME) < lengths[:, None])[..., None]
    h = x.sum(-1, keepdims=True)
    assert found == pytest.approx(float((h * mask).sum(1).mean() + h.mean()), rel=1e-4)
    sums = (x * mask).sum(1).mean(0) / 4 + x.mean((0, 1)) / 4
    np.testing.assert_allclose(
        pipeline.gradients[0], np.repeat(sums[:, None], 4, 1), rtol=1e-4, atol=1e-6
    )


@pytest.mark.slow
def test_builders_optimized_stages_and_stages_that_return_the_loss():
    x, y = data()

    def make(wrap):
        keras.utils.set_random_seed(5)
        lstm = wrap(keras.layers.LSTM(8, return_sequences=True))

        def build_last():
            keras.utils.set_random_seed(6)
            head = keras.Sequential([keras.layers.LSTM(8), keras.layers.Dense(CLASSES)])
            return lambda h, labels: loss(labels, head(h))

        pipeline = Pipeline([lstm, build_last], here(2), 4, "adam")
        return [float(pipeline.train_step(x, y)) for _ in range(3)], pipeline.get_weights()

    losses, weights = make(lambda layer: layer)
    others, other_weights = make(rnnmem.optimize)
    assert losses == others
    assert_same_bits(weights, other_weights)


def test_regularizers_and_unused_variables_count_as_in_keras():
    class Odd(keras.layers.Layer):
        def build(self, shape):
            self.used = self.add_weight(shape=(), initializer="ones")
            self.unused = self.add_weight(shape=(), initializer="ones")
            self.frozen = self.add_weight(shape=(), initializer="ones", trainable=False)

        def call(self, x):
            return x * self.used * self.frozen

    first = keras.layers.Dense(4, kernel_regularizer="l2")
    pipeline = Pipeline([first, Odd(), keras.layers.Dense(CLASSES)], here(3), 4, "sgd", loss=loss)
    x = data()[0][:, 0]
    before = float(pipeline.train_step(x, data()[1]))
    regular = first.losses[0]
    assert before == pytest.approx(pipeline.evaluate(x, data()[1]), rel=0.2) and float(regular) > 0
    state = pipeline.stages[1]
    assert [g is None for g in state.gradients] == [False, True]
    assert len(state.variables) == 3 and len(state.trainable_variables) == 2


@pytest.mark.slow
def test_fit_evaluate_predict():
    x, y = data(32)
    pipeline = Pipeline(layers(), here(4), 4, keras.optimizers.Adam(0.02), loss=loss)
    seen = []
    history = pipeline.fit(
        x,
        y,
        batch_size=16,
        epochs=4,
        shuffle=True,
        seed=1,
        validation_data=(x, y),
        callbacks=[lambda epoch, logs: seen.append((epoch, sorted(logs)))],
    )
    assert history["loss"][-1] < history["loss"][0]
    assert history["val_loss"][-1] == pytest.approx(pipeline.evaluate(x, y), rel=1e-5)
    assert seen == [(i, ["loss", "val_loss"]) for i in range(4)]
    predictions = pipeline.predict(x, batch_size=8)
    assert predictions.shape == (32, CLASSES)
    assert float(loss(y, predictions)) == pytest.approx(pipeline.evaluate(x, y), rel=1e-5)
    stream = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)
    assert len(pipeline.fit(stream, epochs=2)["loss"]) == 2


@pytest.mark.slow
def test_saving_and_restoring_goes_on_with_the_same_bits(tmp_path):
    x, y = data()
    first = Pipeline(layers(), here(4), 4, keras.optimizers.Adam(0.02), loss=loss)
    with pytest.raises(PipelineError, match="nothing to save yet"):
        first.save(tmp_path / "none")
    first.train_step(x, y)
    path = first.save(tmp_path / "ck")
    wanted = [float(first.train_step(x, y)) for _ in range(2)]
    second = Pipeline(layers(), here(4), 4, keras.optimizers.Adam(0.02), loss=loss)
    second.restore(path)
    assert [float(second.train_step(x, y)) for _ in range(2)] == wanted
    first.restore(path)
    assert [float(first.train_step(x, y)) for _ in range(2)] == wanted
    other = Pipeline(layers()[2:], here(2), 4, "adam", loss=loss)
    other.build(x, y)
    before = other.get_weights()
    with pytest.raises(OptionError, match="does not fit stage 1 .dense"):
        other.restore(path)
    assert_same_bits(other.get_weights(), before)
    with pytest.raises(OptionError, match="no checkpoint that can be read"):
        other.restore(tmp_path / "absent")


def memory(schedule, micro_batches):
    """What three stages asked for, and their peaks by whole chunks."""
    keras.utils.set_random_seed(1)
    stack = [keras.layers.LSTM(UNITS, return_sequences=True) for _ in range(3)]
    pipeline = Pipeline(stack, here(3), micro_batches, "sgd", schedule, loss="mse")
    x = np.ones([EACH * micro_batches, TOKENS, UNITS], "float32")
    found = pipeline.measure(x, x, requests=True)
    assert [one.scopes for one in found] == (
        [3, 2, 1] if schedule == "1f1b" else [micro_batches] * 3
    )
    assert all(one.peak_bytes > 0.9 * one.requested_bytes for one in found)
    return [one.requested_bytes for one in found]


UNITS, EACH, TOKENS = 8, 32, 24
STATES = EACH * TOKENS * UNITS * 4
"""Bytes of a state of all tokens of a micro-batch.

Which of two gradients of weights a loop makes first is a race, so the weights are small beside it.
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_micro_batches():
    few, many = memory("1f1b", 3), memory("1f1b", 12)
    for one, other in zip(few, many, strict=True):
        assert other == pytest.approx(one, rel=0.02)
    grown = memory("forward-then-backward", 12)
    for before, after in zip(few, grown, strict=True):
        # A scope holds gates and states, eight or so, and no copy of the weights.
        assert 9 * 7 * STATES < after - before < 12 * 16 * STATES


def test_a_gradient_loop_makes_its_zeros_last():
    layer = keras.layers.LSTM(4, return_sequences=True)
    layer.build((2, TIME, FEATURES))
    traced = tf.function(layer).get_concrete_function(tf.TensorSpec([2, TIME, FEATURES]))
    graph = Halves(traced, [0], [traced.graph.inputs[0]])._backward.graph
    loop = next(op for op in graph.get_operations() if op.type in ("While", "StatelessWhile"))
    zeros = [one.op for one in loop.inputs if one.op.type == "ZerosLike"]
    assert zeros
    for op in zeros:
        assert "TensorListFromTensor" in [before.type for before in op.control_inputs]


def test_the_loss_of_a_stage_that_is_a_loop_is_the_loss():
    x, _ = data()
    layer = keras.layers.LSTM(FEATURES, return_sequences=True)
    layer.build((None, TIME, FEATURES))
    wanted = float(np.mean((layer(x) - x) ** 2))
    pipeline = Pipeline([layer], here(1), 2, "sgd", loss="mse")
    assert float(pipeline.train_step(x, x)) == pytest.approx(wanted, rel=1e-5)


BAD = [
    (dict(stages=[]), "stages=.. holds no stage"),
    (dict(stages=3), "stages=3 is not a list"),
    (dict(stages=[3]), r"stages\[0\]=3 is neither"),
    (dict(devices=here(3)), "3 devices for 4 stages"),
    (dict(devices=["CPU:0", "CPU:0", "CPU:0", "CPU:9"]), r"devices\[3\]='CPU:9' is unknown"),
    (dict(devices=["/job:worker/task:7"] * 4), "'/job:worker/task:7' is unknown; known: .*connect"),
    (dict(devices=["localhost:1"] * 4), "nothing listens at 'localhost:1'"),
    (dict(micro_batches=3), "micro_batches=3 are too few for 4 stages"),
    (dict(micro_batches=0), "micro_batches=0"),
    (dict(schedule="zigzag"), "schedule='zigzag' is none of 1f1b"),
    (dict(optimizer="no such"), "optimizer='no such'"),
    (dict(optimizer=3), "optimizer=3 is neither"),
    (dict(optimizer=keras.optimizers.SGD(global_clipnorm=1.0)), "global_clipnorm=1.0"),
    (dict(loss="no such"), "loss='no such'"),
    (dict(timeout=0), "timeout=0 is no number of seconds"),
    (dict(timeout=float("nan")), "timeout=nan is no number of seconds"),
    (dict(timeout="1"), "timeout='1' is no number of seconds"),
    (dict(devices=["far.example:1"] * 4), "'far.example:1' is reached over a network"),
    (dict(recompute=[7]), "recompute="),
    (dict(stages=[Stage(abs, inputs="q")]), "no stage before it has the output 'q'"),
    (dict(stages=[Stage(abs, inputs=3)]), r"stages\[0\]: inputs=3 is not a list of names"),
    (dict(devices=["///"] * 4), r"devices\[0\]='///' is unknown"),
]


@pytest.mark.parametrize("change, text", BAD, ids=[text for _, text in BAD])
def test_bad_arguments_are_refused_at_once(change, text, monkeypatch):
    monkeypatch.setattr("rnnmem.pipeline.devices.PROBE_SECONDS", 0.1)
    arguments = dict(stages=layers(), devices=here(4), micro_batches=4, optimizer="sgd", loss=loss)
    with pytest.raises(OptionError, match=text):
        Pipeline(**(arguments | change))


def test_bad_workers_are_refused():
    for workers, text in [
        ("localhost:1", "workers='localhost:1' is not a list"),
        ([], "names no worker"),
        (["nonsense"], "'nonsense' is no address"),
        (["localhost:1", "localhost:1"], "'localhost:1' is named twice"),
    ]:
        with pytest.raises(OptionError, match=text):
            connect(workers, timeout=0.1)


@pytest.mark.slow
def test_bad_batches_are_refused_and_nothing_changes():
    pipeline = Pipeline(layers(), here(4), 4, "sgd", loss=loss)
    x, y = data()
    pipeline.train_step(x, y)
    before = pipeline.get_weights()
    for bad, text in [
        ((x[:15], y[:15]), "15 examples does not divide into micro_batches=4"),
        ((x[:8], y), "8, 16 examples"),
        ((x[:0], y[:0]), "0 examples"),
        ((x[:, :, :4], y), r"stages\[0\] .* cannot take what it is given, float32\(4, 5, 4\)"),
        ((x, None), "the loss needs labels"),
        ((3.0, 4), "has no first axis"),
    ]:
        with pytest.raises(OptionError, match=text):
            pipeline.train_step(*bad)
    with pytest.raises(OptionError, match="does not divide"):
        pipeline.fit(*data(30), batch_size=16)
    assert_same_bits(pipeline.get_weights(), before)


def test_stages_that_do_not_meet_are_named_before_anything_runs():
    ran = []
    head = keras.layers.Dense(CLASSES)
    head.build((None, 99))

    def first(x):
        tf.py_function(lambda: ran.append(1), [], [])
        return tf.reduce_sum(x, 1)

    pipeline = Pipeline([first, head], here(2), 4, "sgd", loss=loss)
    before = head.get_weights()
    with pytest.raises(OptionError, match=r"stages\[1\] \(dense.*float32\(4, 6\) of stage 0"):
        pipeline.train_step(*data())
    assert not ran
    assert_same_bits(head.get_weights(), before)


def test_what_cannot_be_split_is_refused():
    x, y = data()
    with pytest.raises(OptionError, match=r"stages\[0\] .* is a builder that failed: ZeroDiv"):
        Pipeline([lambda: 1 / 0], here(1), 2, "sgd", loss="mse").train_step(x, x)
    shared = keras.layers.Dense(FEATURES)
    with pytest.raises(OptionError, match=r"stages\[0\] and stages\[1\] share the variable"):
        Pipeline([shared, shared], here(2), 4, "sgd", loss="mse").train_step(x, x)
    draws = [lambda x: x * tf.random.uniform([]), keras.layers.Dense(FEATURES)]
    Pipeline(draws, here(2), 4, "sgd", loss="mse").train_step(x, x)
    with pytest.raises(OptionError, match="cannot be recomputed: it holds the op RandomUniform"):
        Pipeline(draws, here(2), 4, "sgd", loss="mse", recompute=[0]).train_step(x, x)
    with pytest.raises(OptionError, match="loss=None, and stage 1"):
        Pipeline(layers()[2:], here(2), 4, "sgd").train_step(x, y)


def test_a_stage_that_fails_is_named():
    def fail(x):
        tf.debugging.assert_less(tf.reduce_max(x), 100.0, "too large")
        return x

    x, _ = data()
    pipeline = Pipeline([keras.layers.Dense(FEATURES), fail], here(2), 4, "sgd", loss="mse")
    pipeline.train_step(x, x)
    before = pipeline.get_weights()
    with pytest.raises(PipelineError, match="stage 1 .fail. on .*CPU:0 failed.*InvalidArgument"):
        pipeline.train_step(x * 1e6, x)
    assert_same_bits(pipeline.get_weights(), before)
    assert np.isfinite(float(pipeline.train_step(x, x)))


def test_a_worker_that_dies_after_the_schedule_ran_is_named_too(monkeypatch):
    x, _ = data()
    pipeline = Pipeline([keras.layers.Dense(FEATURES)], here(1), 2, "sgd", loss="mse")
    pipeline.train_step(x, x)

    def poisoned():
        raise tf.errors.InternalError(None, None, "Remote address found to be poisoned")

    monkeypatch.setattr(pipeline.stages[0], "loss_sum", poisoned)
    with pytest.raises(tf.errors.InternalError, match="poisoned"):
        pipeline.train_step(x, x)  # no worker is gone
    gone = WorkerGone("lost stage 0 (dense)")
    monkeypatch.setattr("rnnmem.pipeline.pipeline.worker_gone", lambda states: gone)
    with pytest.raises(PipelineError, match="lost stage 0"):
        pipeline.train_step(x, x)
    with pytest.raises(PipelineError, match="this pipeline is lost: lost stage 0"):
        pipeline.save("never written")


@pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning")
def test_variables_on_the_right_device_give_no_warning():
    weight = tf.Variable(tf.ones([FEATURES]))
    pipeline = Pipeline([lambda x: x * weight], here(1), 2, "sgd", loss="mse")
    pipeline.train_step(data()[0], data()[0])
    assert issubclass(RnnmemWarning, UserWarning)
