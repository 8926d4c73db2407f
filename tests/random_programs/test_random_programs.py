"""Programs thrown from a few seeds do the same under rnnmem; by hand, many more are judged:

python -m tests.random_programs FIRST LAST
"""

import pytest
import tensorflow as tf

from tests.random_programs.modes import MODES
from tests.random_programs.programs import program
from tests.random_programs.runner import judge

SEEDS = (1002, 1007, 1008, 1009, 1010, 1013, 1014)


@pytest.fixture(scope="module", autouse=True)
def determinism():
    tf.config.experimental.enable_op_determinism()


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_wrong_with(seed):
    verdict = judge(program(seed).text)
    assert not verdict.findings, program(seed).text


def test_a_seed_makes_one_program():
    assert program(7) == program(7) != program(8)


def test_every_program_is_python_and_every_mode_is_thrown():
    modes = set()
    for seed in range(400):
        thrown = program(seed)
        modes.add(thrown.mode)
        compile(thrown.text, f"program {seed}", "exec")
    assert modes == set(MODES)
