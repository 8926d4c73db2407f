import keras
import numpy as np
import pytest

from rnnmem.errors import BudgetError, OptionError
from rnnmem.pipeline import Pipeline, balance


def stack(widths=(512, 16, 16, 512)):
    keras.utils.set_random_seed(1)
    return [keras.layers.Dense(width, activation="tanh") for width in widths]


X = np.ones([256, 512], "float32")


def test_layers_are_cut_by_what_was_measured():
    layers = stack()
    found = balance(layers, 2, X, micro_batches=4, repeats=1)
    assert [len(chain.layers) for chain in found.stages] == list(np.diff(found.cut.bounds))
    assert sum((chain.layers for chain in found.stages), []) == layers
    assert found.cut.seconds[0] == pytest.approx(
        sum(cost.seconds for cost in found.costs[: found.cut.bounds[1]])
    )
    first = found.costs[0]
    # Weights, two of Adam's slots and the sum of gradients.
    assert 4 * 4 * 513 * 512 <= first.state_bytes <= 4 * 4 * 513 * 512 + 1024
    assert first.scope_bytes >= 64 * 512 * 4 and first.sent_bytes == 64 * 512 * 4
    assert first.seconds > 0
    assert "stage 1: layers" in str(found)
    pipeline = Pipeline(found.stages, ["CPU:0"] * 2, 4, "adam", loss="mse")
    assert float(pipeline.train_step(X, X)) > 0


def test_a_budget_decides_and_one_that_cannot_be_met_is_refused():
    layers = stack((512, 512, 512))
    with pytest.raises(BudgetError, match="for each device is the least that would") as raised:
        balance(layers, 2, X, micro_batches=4, budget="1MiB", repeats=1)
    assert int(str(raised.value).split(" bytes (")[0].split()[-1]) > 4 * 4 * 512 * 512
    found = balance(layers, 2, X, micro_batches=4, budget=["7MiB", None], repeats=1)
    assert found.cut.bounds == (0, 1, 3)


def test_bad_arguments():
    for change, text in [
        (dict(stages=9), "stages=9 are more than the 4 layers"),
        (dict(micro_batches=1), "too few for 2 stages"),
        (dict(repeats=0), "repeats=0"),
        (dict(budget="much"), "budget='much'"),
        (dict(budget=[None]), "names 1 devices"),
        (dict(schedule="no"), "schedule='no'"),
    ]:
        arguments = dict(layers=stack(), stages=2, x=X, micro_batches=4) | change
        with pytest.raises(OptionError, match=text):
            balance(**arguments)
