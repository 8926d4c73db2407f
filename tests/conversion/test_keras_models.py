"""Keras models train, predict, save and load in the new dtype, as if they were built in it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import rnnmem
import rnnmem.keras

STEPS, FEATURES = 3, 5
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(48, STEPS, FEATURES)).astype("float32")
Y = X.mean((1, 2), keepdims=True)[:, :, 0]

# TensorFlow has no QR decomposition in bfloat16, so Keras builds no orthogonal kernel in it.
PLAIN = {"recurrent_initializer": "glorot_uniform"}


def functional(dtype="float32"):
    keras.utils.set_random_seed(3)
    inputs = keras.Input((STEPS, FEATURES))
    x = keras.layers.GRU(4, dtype=dtype, **PLAIN)(inputs)
    x = keras.layers.LayerNormalization(dtype=dtype)(x)
    x = keras.layers.Dropout(0.1, seed=1, dtype=dtype)(x)
    return keras.Model(inputs, keras.layers.Dense(1, dtype=dtype)(x))


def sequential(dtype="float32"):
    keras.utils.set_random_seed(3)
    kinds = (keras.layers.LSTMCell, keras.layers.SimpleRNNCell)
    cells = [kind(4, dtype=dtype, **PLAIN) for kind in kinds]
    stacked = keras.layers.StackedRNNCells(cells, dtype=dtype)
    stack = keras.layers.RNN(stacked, return_sequences=True, dtype=dtype)
    return keras.Sequential(
        [
            keras.layers.Bidirectional(stack, dtype=dtype),
            keras.layers.BatchNormalization(dtype=dtype),
            keras.layers.GlobalAveragePooling1D(dtype=dtype),
            keras.layers.Dense(1, dtype=dtype),
        ]
    )


class Subclassed(keras.Model):
    def __init__(self, dtype="float32"):
        super().__init__(dtype=dtype)
        self.attention = keras.layers.MultiHeadAttention(2, 4, dtype=dtype)
        self.heads = {"a": [keras.layers.Dense(1, dtype=dtype)]}
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")
        self.offset = tf.constant(0.25, dtype)

    def call(self, x):
        return self.heads["a"][0](self.attention(x, x)[:, -1]) * self.scale + self.offset


def subclassed(dtype="float32"):
    keras.utils.set_random_seed(3)
    return Subclassed(dtype)


MODELS = [functional, sequential, subclassed]
LEFT_OUT = (keras.layers.InputLayer, keras.Sequential, type(functional()))


def compiled(model, optimizer=None):
    model.compile(optimizer or keras.optimizers.SGD(0.05, momentum=0.9), "mse", metrics=["mae"])
    return model


def train(model, steps=3):
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(16).repeat()
    return model.fit(data, steps_per_epoch=1, epochs=steps, verbose=0).history["loss"]


def dtypes(variables):
    return [str(v.dtype) for v in variables]


def policies(model):
    """Of layers; Keras saves none for models of layers and inputs, which compute nothing."""
    layers = (x for x in model._flatten_layers() if not isinstance(x, LEFT_OUT))
    return [layer.dtype_policy.name for layer in layers]


@pytest.mark.slow
@pytest.mark.parametrize("build", MODELS)
def test_a_converted_model_is_like_one_built_in_the_new_dtype(build):
    model = compiled(build())
    train(model)
    objects = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    values = [variable.value for variable in objects]
    layers = list(model._flatten_layers())
    expected = model.predict(X, verbose=0)
    evaluated = model.evaluate(X, Y, verbose=0)

    assert rnnmem.convert(model, "float16") is model

    now = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    assert all(a is b for a, b in zip(objects, now, strict=True))
    assert all(a is b.value for a, b in zip(values, now, strict=True))
    assert all(a is b for a, b in zip(layers, model._flatten_layers(), strict=True))
    found = model.predict(X, verbose=0)
    assert found.dtype == np.float16
    assert np.allclose(found, expected, atol=5e-3)
    assert np.allclose(model.evaluate(X, Y, verbose=0), evaluated, atol=1e-2)

    built = compiled(build("float16"))
    train(built, 1)
    assert dtypes(model.variables) == dtypes(built.variables)
    assert dtypes(model.optimizer.variables) == dtypes(built.optimizer.variables)
    assert dtypes(model.metrics_variables) == dtypes(built.metrics_variables)
    assert policies(model) == policies(built)
    if build is not subclassed:
        assert [t.dtype for t in model.outputs] == [t.dtype for t in built.outputs]
    assert np.isfinite(train(model, 5)).all()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_other_dtypes_and_back(dtype):
    model = compiled(functional(), "adam")
    train(model)
    expected = model.predict(X, verbose=0)
    rnnmem.convert(model, dtype)
    assert model.layers[1].cell.kernel.dtype == dtype
    assert np.isfinite(train(model, 2)).all()
    rnnmem.convert(model, "float32")
    assert set(policies(model)) == {"float32"}
    assert model.inputs[0].dtype == "float32"
    assert model.predict(X, verbose=0).dtype == np.float32
    assert np.allclose(model.predict(X, verbose=0), expected, atol=0.2)
    assert np.isfinite(train(model, 2)).all()


@pytest.mark.slow
def test_there_and_back_without_loss_is_bit_identical():
    model, twin = compiled(functional(), "adam"), compiled(functional(), "adam")
    train(model), train(twin)
    rnnmem.convert(model, "float64")
    rnnmem.convert(model, "float32")
    for one, other in zip(model.variables, twin.variables, strict=True):
        assert np.array_equal(one.numpy(), other.numpy())
    keras.utils.set_random_seed(1)
    assert train(model, 4) == train(twin, 4)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_fifty_steps_later_the_loss_is_that_of_a_model_built_in_the_dtype(dtype):
    model, built = functional(), functional(dtype)
    for one, other in zip(model.weights, built.weights, strict=True):
        other.assign(one.numpy())
    compiled(model), compiled(built)
    rnnmem.convert(model, dtype)
    losses, expected = train(model, 50), train(built, 50)
    tolerance = {"float16": 1e-2, "bfloat16": 5e-2, "float64": 1e-6}[dtype]
    assert losses[-1] < losses[0]
    assert abs(losses[-1] - expected[-1]) <= tolerance * max(1.0, expected[0])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("build", [functional, sequential])
def test_saved_and_loaded_again(build, dtype, tmp_path):
    model = compiled(build(), "adam")
    train(model, 1)
    rnnmem.convert(model, dtype)
    train(model, 1)
    expected = model.predict(X, verbose=0)

    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert policies(loaded) == policies(model)
    assert np.array_equal(loaded.predict(X, verbose=0), expected)
    assert dtypes(loaded.optimizer.variables) == dtypes(model.optimizer.variables)
    assert np.isfinite(train(loaded, 1)).all()

    model.save_weights(tmp_path / "model.weights.h5")
    fresh = build(dtype)
    fresh.build((None, STEPS, FEATURES))
    fresh.load_weights(tmp_path / "model.weights.h5")
    assert np.array_equal(fresh.predict(X, verbose=0), expected)

    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    path = checkpoint.save(str(tmp_path / "checkpoint"))
    train(model, 2)
    checkpoint.restore(path).assert_consumed()
    assert np.array_equal(model.predict(X, verbose=0), expected)


@pytest.mark.slow
def test_export_after_conversion(tmp_path):
    model = functional()
    rnnmem.convert(model, "float64")
    expected = model.predict(X, verbose=0)
    model.export(str(tmp_path), verbose=False)
    loaded = tf.saved_model.load(str(tmp_path))
    assert np.allclose(loaded.serve(tf.constant(X, tf.float64)), expected)


@pytest.mark.slow
def test_a_train_step_of_the_users_own_traces_again():
    model, optimizer = functional(), keras.optimizers.Adam(0.01)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.cast(model(x, training=True), tf.float32) - y))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    before = [float(step(X, Y)) for _ in range(2)]
    rnnmem.convert([model, optimizer], "float16")
    slots = [v for v in optimizer.variables if v.shape.rank]
    assert slots and all(v.dtype == "float16" for v in slots)
    after = [float(step(X, Y)) for _ in range(20)]
    assert after[-1] < before[0]
    assert int(optimizer.iterations) == 22


@pytest.mark.slow
def test_an_optimised_model_stays_optimised():
    model = rnnmem.keras.optimize(compiled(functional()))
    train(model, 1)
    rnnmem.convert(model, "float16")
    assert np.isfinite(train(model, 2)).all()


def test_a_frozen_layer_stays_frozen():
    model = functional()
    model.layers[1].trainable = False
    rnnmem.convert(compiled(model), "float16")
    kernel = model.layers[1].cell.kernel
    assert kernel.dtype == "float16"
    assert not any(kernel is v for v in model.trainable_variables)
    before = kernel.numpy()
    train(model, 2)
    assert np.array_equal(kernel.numpy(), before)


def test_a_layer_shared_by_two_models():
    shared = keras.layers.Dense(FEATURES, name="shared")
    models = [keras.Sequential([keras.Input((FEATURES,)), shared]) for _ in range(2)]
    rnnmem.convert(models, "float16")
    shared.kernel.assign(tf.eye(FEATURES, dtype="float16"))
    for model in models:
        assert model.layers[-1] is shared
        assert np.allclose(model.predict(X[:, 0], verbose=0), X[:, 0], atol=1e-2)


def test_a_layer_that_is_not_built_yet_is_built_in_the_new_dtype():
    layer = keras.layers.LSTM(4)
    assert rnnmem.convert(layer, "float16") is layer
    assert layer(X).dtype == tf.float16
    assert layer.cell.kernel.dtype == "float16"


@pytest.mark.slow
def test_mixed_precision_policies():
    model = compiled(functional("float16"))
    train(model, 1)
    rnnmem.convert(model, "mixed_bfloat16")
    kernel = model.layers[1].cell.kernel
    assert kernel.dtype == "float32"
    assert model.layers[1].compute_dtype == "bfloat16"
    assert model.predict(X, verbose=0).dtype.name == "bfloat16"
    assert np.isfinite(train(model, 2)).all()
    rnnmem.convert(model, "float32")
    assert model.layers[1].compute_dtype == "float32"


@pytest.mark.slow
def test_a_loss_scale_stays_in_float32():
    scaler = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01, momentum=0.5))
    model = compiled(functional("mixed_float16"), scaler)
    train(model, 1)
    scaler.dynamic_scale.assign(2.0**20)
    rnnmem.convert(model, "float16")
    assert model.optimizer is scaler
    assert scaler.dynamic_scale.dtype == "float32"
    assert scaler.dynamic_scale.numpy() == 2.0**20
    assert scaler.inner_optimizer.momentums[0].dtype == "float16"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_float8_weights_are_stored_and_cast_when_a_layer_computes(dtype):
    model = compiled(functional())
    before = model.predict(X, verbose=0)
    rnnmem.convert(model, dtype)
    assert {str(v.dtype) for v in model.trainable_variables} == {dtype}
    found = model.predict(X, verbose=0)
    assert found.dtype == np.float32
    assert np.allclose(found, before, atol=0.5)
    rnnmem.convert(model, "float32")
    assert np.allclose(model.predict(X, verbose=0), found, atol=1e-6)
    assert np.isfinite(train(model, 2)).all()


def test_token_ids_do_not_go_through_float16():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Embedding(5000, 1)])
    model.layers[0].embeddings.assign(np.arange(5000.0)[:, None] / 8)
    rnnmem.convert(model, "float16")
    assert model.predict(np.array([[4999.0]]), verbose=0).item() == np.float16(4999 / 8)


def test_inputs_are_not_cut_on_the_way_into_a_wider_model():
    model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones", dtype="float16")])
    model.build((None, 1))
    rnnmem.convert(model, "float64")
    value = 1 + 2.0**-40
    assert model(tf.constant([[value]], tf.float64)).numpy().item() == value


def test_normalization_keeps_its_statistics():
    layer = keras.layers.Normalization()
    layer.adapt(X[:, 0])
    expected = layer(X[:, 0]).numpy()
    rnnmem.convert(layer, "float16")
    found = layer(X[:, 0])
    assert found.dtype == tf.float16
    assert np.allclose(found, expected, atol=1e-2)


def test_layers_over_strings_and_integers_stay():
    lookup = keras.layers.StringLookup(vocabulary=["a", "b"])
    model = keras.Sequential([lookup, keras.layers.Embedding(3, 2)])
    model(tf.constant([["a", "b"]]))
    rnnmem.convert(model, "float16")
    assert lookup.compute_dtype == "string"
    assert model(tf.constant([["b", "z"]])).dtype == tf.float16


def test_a_map_of_policies():
    policy = keras.dtype_policies.DTypePolicyMap("float32")
    policy["d"] = keras.dtype_policies.DTypePolicy("mixed_float16")
    layers = [keras.layers.Dense(2, name=name, dtype=policy) for name in "ed"]
    model = keras.Sequential([keras.Input((FEATURES,)), *layers])
    rnnmem.convert(model, "bfloat16")
    assert [layer.compute_dtype for layer in layers] == ["bfloat16"] * 2
    assert [layer.variable_dtype for layer in layers] == ["bfloat16"] * 2
    assert layers[0]._dtype_policy is layers[1]._dtype_policy
    assert model.predict(X[:, 0], verbose=0).dtype.name == "bfloat16"


def test_a_quantized_layer_whose_policy_keras_does_not_know():
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(2, name="quantized")])
    model.quantize("int8")
    before = model.predict(X[:, 0], verbose=0)
    with pytest.raises(rnnmem.ConvertError, match="'quantized' is quantized.*othing was changed"):
        rnnmem.convert(model, "float16")
    assert np.array_equal(model.predict(X[:, 0], verbose=0), before)
    rnnmem.convert(model, "bfloat16")
    assert model.layers[0].kernel_scale.dtype == "bfloat16"
    assert np.allclose(model.predict(X[:, 0], verbose=0), before, atol=5e-2)


@pytest.mark.slow
def test_an_optimizer_alone_does_not_touch_the_model():
    model = compiled(functional(), "adam")
    train(model, 1)
    rnnmem.convert(model.optimizer, "bfloat16")
    assert {str(v.dtype) for v in model.trainable_variables} == {"float32"}
    slots = [v for v in model.optimizer.variables if v.shape.rank]
    assert slots and {str(v.dtype) for v in slots} == {"bfloat16"}
    assert np.isfinite(train(model, 2)).all()


@pytest.mark.slow
def test_keras_counts_on_whatever_is_asked():
    model = compiled(functional(), "adam")
    train(model, 2)
    rnnmem.convert(model, "float32", only_floats=False)
    assert model.optimizer.iterations.dtype == "int64"
    assert train(model, 1) and int(model.optimizer.iterations) == 3


def test_a_list_of_keras_variables():
    layer = keras.layers.Dense(2)
    layer.build((None, 3))
    rnnmem.convert(layer.weights, "float16")
    assert layer.kernel.dtype == "float16" and layer.kernel.value.dtype == tf.float16
    assert layer.dtype_policy.name == "float32"


def test_a_metric_alone():
    metric = keras.metrics.Mean()
    metric.update_state([1.0, 3.0])
    rnnmem.convert(metric, "float64")
    assert metric.total.dtype == "float64" and float(metric.result()) == 2.0


def test_a_mirrored_model_is_refused():
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        layer = keras.layers.Dense(2, name="mirrored")
        layer.build((None, 3))
    with pytest.raises(rnnmem.ConvertError, match="mirrored/kernel.* is distributed"):
        rnnmem.convert(layer, "float16")
    assert layer.kernel.dtype == "float32" and layer.dtype_policy.name == "float32"


def test_a_layer_around_a_saved_model_is_refused(tmp_path):
    inner = functional()
    inner.export(str(tmp_path), verbose=False)
    model = keras.Sequential([keras.layers.TFSMLayer(str(tmp_path), call_endpoint="serve")])
    expected = model(X)
    with pytest.raises(rnnmem.ConvertError, match="SavedModel"):
        rnnmem.convert(model, "float16")
    assert np.array_equal(model(X), expected)
