"""A decorated forward pass that an outer tape differentiates, eagerly and in a graph."""

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from tests.conformance.expectations import hold
from tests.conformance.harness import EVERYTHING, KIB, chosen, first_gap
from tests.conformance.programs import build, floats

# What the verifier catches is a defect of the rewrite, though the original runs then.
pytestmark = pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning")

SOME = (
    *("while.known_trips", "while.zero_trips", "while.data_dependent", "while.captured_tensor"),
    *("autograph.range", "functional.scan", "functional.map_fn", "tensorarray.write_read"),
    *("nested.two_deep", "branch.cond_then_more", "several.encoder_decoder", "several.stacked"),
    *("sparse.embedding_in_body", "ragged.lengths", "random.stateless", "random.generator"),
    *("effects.assign", "gradients.custom_gradient", "keras.LSTM", "keras.Bidirectional"),
    *("keras.recurrent_dropout", "keras.attention_decoder"),
)


def is_forward(program) -> bool:
    """Whether a program is a forward pass; the others bring steps of their own."""
    own = ("gradients.", "training.", "straight.training")
    return not program.name.startswith(own) or program.name in SOME


@pytest.mark.parametrize("name", chosen(SOME, is_forward))
def test_outer_tape(name):
    case = build(name)
    traced = tf.function(case.forward).get_concrete_function(*case.inputs)
    found = [*case.variables, *case.state, *traced.graph.variables]
    state = list({id(one): one for one in found}.values())
    start = [one.numpy() for one in state]

    def pair():
        """Both, traced again: TensorFlow differentiates a trace otherwise a second time."""
        optimised = rnnmem.optimize(tf.function(case.forward), max_slowdown=EVERYTHING)
        return tf.function(case.forward), optimised

    def differentiated(function):
        def step(*inputs):
            watched = floats(inputs)
            with tf.GradientTape() as tape:
                tape.watch(watched)
                loss, outputs = function(*inputs)
            gradients = tape.gradient(loss, [*case.variables, *watched])
            return loss, outputs, [one for one in gradients if one is not None]

        return step

    def outcome(step):
        for variable, value in zip(state, start, strict=True):
            variable.assign(value)
        flat = tf.nest.flatten(step(*case.inputs), expand_composites=True)
        return [np.asarray(one) for one in [*flat, *(one.numpy() for one in state)]]

    eager = [outcome(differentiated(one)) for one in pair()]
    hold(name, "outer tape, eager", first_gap(*eager))
    steps = [tf.function(differentiated(one)) for one in pair()]
    hold(name, "outer tape, graph", first_gap(*(outcome(one) for one in steps)))
    before, after = (rnnmem.measure(one, *case.inputs, repeats=3).peak_bytes for one in steps)
    rose = after > 1.1 * before + 256 * KIB  # chunks, which are chance
    hold(name, "outer tape, peak", f"{after} bytes, not {before}" if rose else "")
