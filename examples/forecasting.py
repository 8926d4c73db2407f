"""Forecasting with Keras: two GRU layers, ``fit``, and the peak of every batch in the logs.

python -m examples.forecasting --epochs=3 --log_dir=runs/forecasting
"""

from __future__ import annotations

import argparse

import keras
import numpy as np

import rnnmem
import rnnmem.keras

rnnmem.enable_cpu_memory_stats()  # before TensorFlow's first op

BATCH, LENGTH, SERIES = 32, 120, 256


def data() -> tuple[np.ndarray, np.ndarray]:
    """Sums of two waves with noise, [SERIES, LENGTH, 1], and the value that comes next."""
    drawn = np.random.default_rng(0)
    time = np.arange(LENGTH + 1)[None] / drawn.uniform(5, 20, [SERIES, 1])
    waves = np.sin(time) + 0.5 * np.sin(3 * time + drawn.uniform(0, 6, [SERIES, 1]))
    waves = (waves + 0.1 * drawn.standard_normal(waves.shape))[..., None].astype("float32")
    return waves[:, :-1], waves[:, -1]


def build() -> keras.Model:
    """The model, compiled and under rnnmem."""
    model = keras.Sequential(
        [
            keras.Input((LENGTH, 1)),
            keras.layers.GRU(96, return_sequences=True, dropout=0.1),
            keras.layers.GRU(96),
            keras.layers.Dense(1),
        ]
    )
    model.compile("adam", "mse")
    return rnnmem.keras.optimize(model)


def main(arguments: list[str] | None = None) -> rnnmem.keras.MemoryCallback:
    """Trains, prints what it took, and returns the callback that watched."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=3, help="epochs of training")
    parser.add_argument("--log_dir", default=None, help="write TensorBoard's files here")
    parser.add_argument("--report", default="", help="write the report here, e.g. memory.html")
    options = parser.parse_args(arguments)
    keras.utils.set_random_seed(0)
    memory = rnnmem.keras.MemoryCallback(options.log_dir, batch_size=BATCH)
    build().fit(*data(), batch_size=BATCH, epochs=options.epochs, callbacks=[memory], verbose=2)
    print(memory.report)
    if options.report:
        memory.report.save(options.report)
    return memory


if __name__ == "__main__":
    main()
