"""Whatever is marked in whatever step net, the bits stay."""

import os

import pytest
import tensorflow as tf

from tests import test_random_step_nets
from tests.marked_step_nets import Marked
from tests.random_step_nets import Thrown
from tests.test_random_step_nets import Trial, hold

STEP_NETS = int(os.environ.get("RNNMEM_FUZZ_CASES") or 140) // 10


@pytest.mark.slow
@pytest.mark.fuzz
def test_any_marks_keep_the_bits(monkeypatch):
    tf.config.experimental.enable_op_determinism()
    monkeypatch.setattr(test_random_step_nets, "Built", Marked)
    test_random_step_nets.DIFFER.clear()
    kept = sum(hold(Trial.drawn(Thrown(f"marked {seed}"))) for seed in range(STEP_NETS))
    assert kept > STEP_NETS // 2
    assert not test_random_step_nets.DIFFER
