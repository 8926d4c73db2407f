"""Models of Keras 2 (tf_keras): the same bits in less memory; and Keras 3 on another backend."""

import keras as keras_3
import numpy as np
import pytest

import rnnmem.keras
from rnnmem.errors import OptionError

BATCH, LENGTH = 8, 60


@pytest.fixture(scope="module")
def keras():
    return pytest.importorskip("tf_keras", reason="tf_keras (Keras 2) is not installed")


def model_of(keras, **options):
    keras.utils.set_random_seed(0)
    layers = keras.layers.LSTM(48), keras.layers.Dense(1)
    made = keras.Sequential([keras.Input((LENGTH, 4)), *layers])
    made.compile("adam", "mse", metrics=["mae"], **options)
    return made


def data(examples=5 * BATCH - 2):
    """The last batch is smaller, so the batch dimension is open."""
    random = np.random.default_rng(0)
    shapes = (examples, LENGTH, 4), (examples, 1)
    return [random.normal(size=shape).astype("float32") for shape in shapes]


def fitted(made, *callbacks):
    """Losses and metrics of two epochs, and the weights after them, as bytes."""
    options = {"batch_size": BATCH, "epochs": 2, "verbose": 0, "shuffle": False}
    history = made.fit(*data(), callbacks=list(callbacks), **options).history
    told = {name: history[name] for name in ("loss", "mae")}
    return told, [weight.tobytes() for weight in made.get_weights()]


@pytest.mark.slow
def test_fit_gives_the_same_bits_in_less_memory(keras):
    plain, optimised = rnnmem.keras.MemoryCallback(verbose=False), rnnmem.keras.MemoryCallback()
    expected = fitted(model_of(keras), plain)
    model = rnnmem.keras.optimize(model_of(keras), max_slowdown=2.0)
    assert fitted(model, optimised) == expected
    assert len(optimised.plan.loops) == 1 and not optimised.plan.changes_nothing
    assert len(optimised.peaks) == len(plain.peaks) == 10
    assert max(optimised.peaks) < 0.6 * max(plain.peaks)
    assert plain.report is not None  # of what would be done


@pytest.mark.slow
def test_single_batches_evaluate_predict_and_save_work_as_before(keras, tmp_path):
    x, y = data(BATCH)
    plain, model = model_of(keras), rnnmem.keras.optimize(model_of(keras), max_slowdown=2.0)
    for _ in range(2):
        assert model.train_on_batch(x, y) == plain.train_on_batch(x, y)
    assert model.evaluate(x, y, verbose=0) == plain.evaluate(x, y, verbose=0)
    assert (model.predict(x, verbose=0) == plain.predict(x, verbose=0)).all()
    assert not any(one.plan.changes_nothing for one in model.train_function.inspect_all())
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert (again.predict(x, verbose=0) == plain.predict(x, verbose=0)).all()


@pytest.mark.slow
def test_the_first_batch_is_verified(keras):
    model = rnnmem.keras.optimize(model_of(keras), max_slowdown=2.0, verify=True)
    assert fitted(model) == fitted(model_of(keras))


def test_a_model_that_runs_eagerly_is_left(keras):
    model = rnnmem.keras.optimize(model_of(keras, run_eagerly=True))
    model.train_on_batch(*data(2))
    assert not isinstance(model.train_function, rnnmem.Optimized)


def test_a_wrong_option_is_refused_at_once(keras):
    with pytest.raises(OptionError, match="max_slowdown"):
        rnnmem.keras.optimize(model_of(keras), max_slowdown=0.5)


def test_keras_3_on_another_backend_gets_one_sentence(monkeypatch):
    model = keras_3.Sequential([keras_3.layers.Dense(1)])
    monkeypatch.setattr("keras.config.backend", lambda: "jax")
    with pytest.raises(OptionError, match="backend 'jax'.*set KERAS_BACKEND=tensorflow before"):
        rnnmem.keras.optimize(model)
