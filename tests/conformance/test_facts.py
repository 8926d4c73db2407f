"""What is known of a program's blobs before it runs is so in the run, in every iteration."""

import pytest
import tensorflow as tf

from rnnmem.analysis.shapes import known_net
from rnnmem.ir.inline import inline
from rnnmem.ir.order import without_dead_ops
from rnnmem.tf.functions import net_of
from rnnmem.tf.workspace import Workspace
from tests.conformance.programs import PROGRAMS, build, train_step

NAMES = (
    *(name for name in PROGRAMS if name.startswith(("branch.", "nested.", "tensorarray."))),
    *("while.shape_invariants", "autograph.break_continue", "functional.scan", "ragged.map_fn"),
    *("keras.LSTM", "keras_like.unknown_batch_and_time"),
)
"""Branches, loops in loops, lists, and shapes that the trace leaves open."""


class Verified(Workspace):
    """Runs a Net and keeps what the run denies."""

    def __init__(self, net, known):
        super().__init__(net, poison=False)
        self.known = {}
        self.denied = []
        self._add(known, "")

    def _add(self, known, path):
        self.known[path] = known
        for (name, key), inner in known.inner.items():
            self._add(inner, f"{path}{name}/{key}/")

    def _net(self, net, inputs, path):
        self._verify(path, net.inputs, inputs)
        return super()._net(net, inputs, path)

    def _op(self, step, values, path):
        results = super()._op(step, values, path)
        self._verify(path, step.op.outputs, results)
        return results

    def _verify(self, path, names, values):
        for name, value in zip(names, values, strict=True):
            fact = self.known[path].facts[name]
            if value.dtype not in (tf.variant, tf.resource) and not agrees(fact, value):
                self.denied.append((path + name, fact, tuple(value.shape)))


def agrees(fact, value):
    if not value.shape.is_compatible_with(tf.TensorShape(fact.shape)):
        return False
    if fact.value is None:
        return True
    found = value.numpy().tolist()
    if not isinstance(fact.value, tuple):
        return found == fact.value
    return len(found) == len(fact.value) and all(
        known in (None, one) for known, one in zip(fact.value, found, strict=True)
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_run_denies_nothing(name):
    case = build(name)
    concrete = tf.function(train_step(case)).get_concrete_function(*case.inputs)
    net = without_dead_ops(inline(net_of(concrete)))
    verified = Verified(net, known_net(net))
    given = tf.nest.flatten(case.inputs, expand_composites=True)
    verified.run([*given, *concrete.captured_inputs])
    assert not verified.denied
