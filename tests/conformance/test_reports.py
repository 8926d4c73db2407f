"""The report of a program: its parts add up, and every form of it can be made."""

import json

import pytest
import tensorflow as tf

import rnnmem
from tests.conformance.harness import chosen
from tests.conformance.programs import build, train_step

SOME = ("while.known_trips", "several.encoder_decoder", "effects.numpy_function")


@pytest.mark.slow
@pytest.mark.parametrize("name", chosen(SOME))
def test_a_program_is_told_of_in_every_form(name):
    case = build(name)
    told = rnnmem.report(tf.function(train_step(case)), *case.inputs, measure=False)
    for side in (told.before, told.after):
        if side.peak_bytes is None:
            assert side.unknown
            continue
        assert sum(part.bytes for part in side.parts) == side.peak_bytes
        assert max(side.totals, default=0) == side.peak_bytes
        assert all(part.bytes > 0 for part in side.parts)
    assert max(map(len, str(told).splitlines())) <= 80
    assert json.loads(told.to_json())["name"]
    assert json.loads(told.to_trace())["traceEvents"]
    assert "<svg" in told.to_html()
