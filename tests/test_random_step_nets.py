"""Whatever step net a train step loops over, and whatever is saved of it, the bits stay."""

import dataclasses
import os
import warnings
import zlib
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rnnmem
from rnnmem.net.cost import CPU, Machine
from tests.random_step_nets import Built, Recipe, recipes

CASES = int(os.environ.get("RNNMEM_FUZZ_CASES") or 60)
FUSIONS = ("arithmetic_optimization", "constant_folding", "remapping")


@dataclasses.dataclass(frozen=True)
class Dice(Machine):
    """A machine that says of each op, at random, how long it takes: any saved set may be best."""

    seed: int = 0

    def seconds(self, op, net):
        drawn = zlib.crc32(f"{self.seed} {op.name}".encode()) / 2**32
        return 10.0 ** (6.0 * drawn - 8.0)


def dice(seed: int) -> Machine:
    return Dice(**dataclasses.asdict(CPU), seed=seed)


@pytest.fixture(scope="module", autouse=True)
def determinism():
    tf.config.experimental.enable_op_determinism()


def fusions(on: bool) -> None:
    tf.config.optimizer.set_experimental_options(dict.fromkeys(FUSIONS, on))


def bits(built: Built, function, start) -> list[np.ndarray]:
    """Everything one step leaves behind, from the state ``start``."""
    variables = [*built.variables, built.average]
    for variable, value in zip(variables, start, strict=True):
        variable.assign(value)
    flat = tf.nest.flatten(function(*built.inputs), expand_composites=True)
    return [one.numpy() for one in [*flat, *variables]]


def difference(expected, found) -> str:
    """Empty where all bits are equal."""
    for index, (one, other) in enumerate(zip(expected, found, strict=True)):
        if one.shape != other.shape:
            return f"result {index} has the shape {other.shape}, not {one.shape}"
        if one.tobytes() != other.tobytes():
            gap = np.max(np.abs(one.astype(np.float64) - other.astype(np.float64)))
            return f"result {index} of {len(expected)} is off by up to {gap}"
    return ""


def hold(recipe: Recipe, slowdown: float, seed: int, also_without_fusions: bool) -> bool:
    """Fails unless the optimised step leaves the original's bits; whether it was rewritten."""
    built = Built(recipe)
    original = tf.function(built.step, autograph=False)
    start = [one.numpy() for one in [*built.variables, built.average]]
    with warnings.catch_warnings(), mock.patch("rnnmem.api._machine", lambda: dice(seed)):
        warnings.simplefilter("error", rnnmem.RnnmemWarning)
        optimised = rnnmem.optimize(original, max_slowdown=slowdown)
        plan = optimised.plan(*built.inputs)
    if plan.changes_nothing:
        return False
    for on in (True, False) if also_without_fusions else (True,):
        fusions(on)
        try:
            found = difference(bits(built, original, start), bits(built, optimised, start))
        finally:
            fusions(True)
        assert not found, f"{'default' if on else 'fusions off'}: {found}"
    return True


@pytest.mark.slow
@pytest.mark.fuzz
@settings(max_examples=CASES, suppress_health_check=list(HealthCheck))
@given(
    recipes(),
    st.sampled_from([1.02, 1.1, 1.3, 2.0, 1e9]),
    st.integers(0, 99),
    st.integers(0, 3),
)
def test_any_step_net_keeps_its_bits(recipe, slowdown, seed, quarter):
    hold(recipe, slowdown, seed, also_without_fusions=quarter == 0)
