"""``rnnmem.keras.optimize``: what Keras does with a model stays the same to the bit."""

import keras
import numpy as np
import pytest

import rnnmem.keras
from tests.conformance.expectations import hold
from tests.conformance.harness import EVERYTHING, first_gap
from tests.conformance.programs import B, D, H, T

L = keras.layers
MODELS = {
    "keras.LSTM_stacked": lambda: [L.LSTM(H, return_sequences=True), L.LSTM(H)],
    "keras.dropout": lambda: [L.GRU(H, dropout=0.2, recurrent_dropout=0.1)],
    "keras.Bidirectional": lambda: [L.Bidirectional(L.LSTM(H)), L.BatchNormalization()],
}


def make(name, **compiled):
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((T, D)), *MODELS[name](), L.Dense(1)])
    model.compile(optimizer="adam", loss="mse", metrics=["mae"], **compiled)
    return model


def data():
    random = np.random.RandomState(0)
    return (
        random.standard_normal((4 * B, T, D)).astype("float32"),
        random.standard_normal((4 * B, 1)).astype("float32"),
    )


def everything(model) -> list[np.ndarray]:
    """What fit, evaluate, predict and train_on_batch leave behind and return."""
    x, y = data()
    history = model.fit(x, y, batch_size=B, epochs=1, verbose=0, shuffle=False).history
    evaluated = model.evaluate(x, y, batch_size=B, verbose=0)
    predicted = model.predict(x, batch_size=B, verbose=0)
    trained = model.train_on_batch(x[:B], y[:B])
    numbers = [*(np.asarray(one) for one in history.values()), np.asarray(evaluated), predicted]
    return [*numbers, np.asarray(trained), *model.get_weights()]


@pytest.mark.parametrize(
    ("name", "compiled"),
    [*((name, {}) for name in MODELS), ("keras.LSTM_stacked", {"steps_per_execution": 8})],
)
def test_a_model_trains_to_the_same_bits(name, compiled):
    expected = everything(make(name, **compiled))
    optimised = rnnmem.keras.optimize(make(name, **compiled), max_slowdown=EVERYTHING)
    hold(name, ", ".join(["fit", *compiled]), first_gap(expected, everything(optimised)))


def test_a_compiled_model_trains_to_close_numbers():
    expected = everything(make("keras.LSTM_stacked", jit_compile=True))
    found = everything(
        rnnmem.keras.optimize(make("keras.LSTM_stacked", jit_compile=True), max_slowdown=EVERYTHING)
    )
    close = all(
        np.allclose(one, other, rtol=1e-3, atol=1e-5)
        for one, other in zip(expected, found, strict=True)
    )
    hold("keras.LSTM_stacked", "fit, jit_compile, close", "" if close else "other numbers")


def test_optimised_before_it_is_compiled_and_saved_and_loaded(tmp_path):
    x, y = data()
    expected = make("keras.LSTM_stacked")
    expected.fit(x, y, batch_size=B, epochs=2, verbose=0, shuffle=False)
    model = make("keras.LSTM_stacked")
    rnnmem.keras.optimize(model, max_slowdown=EVERYTHING)
    model.compile(optimizer="adam", loss="mse")
    model.fit(x, y, batch_size=B, epochs=1, verbose=0, shuffle=False)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    rnnmem.keras.optimize(loaded, max_slowdown=EVERYTHING)
    loaded.fit(x, y, batch_size=B, epochs=1, verbose=0, shuffle=False)
    problem = first_gap(expected.get_weights(), loaded.get_weights())
    hold("keras.LSTM_stacked", "save and load", problem)
