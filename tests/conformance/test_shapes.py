"""Batch and time that are only known at the call, traced once or again as TensorFlow would."""

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from tests.conformance.expectations import hold
from tests.conformance.harness import EVERYTHING, first_gap
from tests.conformance.programs import Cell, D, H, squares, update, values


def step_over(cell):
    def step(x, h):
        with tf.GradientTape() as tape:
            tape.watch([x, h])
            states = tf.TensorArray(x.dtype, 0, dynamic_size=True)
            state = h
            for i in tf.range(tf.shape(x)[0]):
                state = cell(x[i], state)
                states = states.write(i, state)
            loss = squares(states.stack())
        gradients = tape.gradient(loss, [*cell.variables, x, h])
        update(cell.variables, gradients)
        return loss, gradients

    return step


def counted(step, traces):
    def run(x, h):
        traces.append(1)
        return step(x, h)

    return run


SIZES = [(5, 3), (5, 4), (2, 3), (7, 1), (1, 3), (5, 3)]


@pytest.mark.parametrize("how", ["signature", "retraced", "relaxed"])
def test_batch_and_time_change_from_call_to_call(how):
    options = {}
    if how == "signature":
        specs = [tf.TensorSpec([None, None, D]), tf.TensorSpec([None, H])]
        options = {"input_signature": specs}
    elif how == "relaxed":
        options = {"reduce_retracing": True}
    outcomes, counts = [], []
    for optimised in (False, True):
        cell = Cell(D, H, "float32")
        count = []

        function = tf.function(counted(step_over(cell), count), **options)
        if optimised:
            function = rnnmem.optimize(function, max_slowdown=EVERYTHING, verify=True)
        outcome = []
        for time, batch in SIZES:
            results = function(values(time, batch, D), values(batch, H))
            outcome.append([np.asarray(one) for one in tf.nest.flatten(results)])
        outcomes.append(outcome)
        counts.append(len(count))
    gaps = [first_gap(before, after) for before, after in zip(*outcomes, strict=True)]
    assert counts[0] == counts[1]
    hold("tensorarray.dynamic_size", f"dynamic shapes, {how}", "".join(gaps))
