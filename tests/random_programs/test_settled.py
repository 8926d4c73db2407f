"""What the random programs tell is no more than what is there, and no less: mutants are reported.

A mutant stands for an optimised function that is wrong, or larger, on purpose.
"""

import functools
import types

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from tests.random_programs import runner, settled
from tests.random_programs.runner import BITS, PEAK, PEAK_OFTEN, verify

TEXT = """\
import tensorflow as tf

W = tf.Variable(tf.linspace(0.0, 1.0, 150_000))
STATE = [W]
ARGUMENTS = (tf.linspace(0.1, 1.1, 150_000),)
OPTIONS = {}
ALSO_WITHOUT_FUSIONS = False


def step(x):
    # The peak is here, where nothing else runs: it is the same in every run.
    first = tf.reduce_sum(tf.sin(x[:, tf.newaxis] + tf.range(16.0)))
    with tf.control_dependencies([first]):
        x = tf.identity(x)
        weights = tf.identity(W)
    with tf.GradientTape() as tape:
        tape.watch(weights)
        loss = tf.reduce_sum(tf.tanh(x * weights))
    told = tf.strings.format("loss {}", tf.shape(x))
    return loss + first, tape.gradient(loss, weights), told


def use(fn):
    return fn


def function():
    return tf.function(step)
"""

SMALL = TEXT.replace("150_000", "1_500")
"""The same where no peak is asked for."""


class Mutant:
    """What ``optimize`` would have made of a function; ``changed`` runs in its place."""

    def __init__(self, changed, often, changes_nothing, base):
        self.base = base
        self.changed = tf.function(functools.partial(changed, base.python_function))
        self.often = often
        self.changes_nothing = changes_nothing
        self.calls = 0

    def __call__(self, *arguments):
        self.calls += 1
        part = self.calls * self.often
        return (self.changed if int(part) > int(part - self.often) else self.base)(*arguments)

    def plan(self, *_):
        return types.SimpleNamespace(changes_nothing=self.changes_nothing)


def wrong(step, x):
    loss, gradient, told = step(x)
    return loss, gradient * (1 + 1e-6), told


def larger(step, x):
    held = tf.sin(x[:, tf.newaxis] - tf.range(32.0))
    loss, gradient, told = step(x + 0.0 * held[:, 0])
    with tf.control_dependencies([loss, gradient]):
        return loss, gradient + 0.0 * tf.reduce_sum(held), told


def says_something_else(step, x):
    loss, gradient, told = step(x)
    return loss, gradient, tf.strings.join([told, "!"])


def same(step, x):
    return step(x)


@pytest.fixture(autouse=True)
def determinism(monkeypatch):
    tf.config.experimental.enable_op_determinism()
    monkeypatch.setattr(settled, "TRACES", 2)
    monkeypatch.setattr(settled, "IN_EACH", 6)
    monkeypatch.setattr(settled, "RARE", 6)
    monkeypatch.setattr(settled, "LONG", 6)
    for name, few in {"AGAIN": 12, "PEAKS": 4, "MANY": 20}.items():
        monkeypatch.setattr(runner, name, few)


def categories(monkeypatch, changed, often=1.0, changes_nothing=False, text=TEXT):
    made = functools.partial(Mutant, changed, often, changes_nothing)
    monkeypatch.setattr(rnnmem, "optimize", made)
    verdict = verify(text)
    return {one.category for one in verdict.findings}, verdict.notes


@pytest.mark.slow
@pytest.mark.parametrize(("often", "changes_nothing"), [(1.0, True), (0.4, False)])
def test_a_wrong_function_is_found(monkeypatch, often, changes_nothing):
    assert BITS in categories(monkeypatch, wrong, often, changes_nothing, SMALL)[0]


@pytest.mark.slow
def test_another_string_is_found(monkeypatch):
    assert BITS in categories(monkeypatch, says_something_else, text=SMALL)[0]


@pytest.mark.slow
@pytest.mark.parametrize("changes_nothing", [True, False])
def test_a_larger_function_is_found(monkeypatch, changes_nothing):
    assert PEAK in categories(monkeypatch, larger, 1.0, changes_nothing)[0]


@pytest.mark.slow
def test_a_function_that_is_larger_in_most_runs_is_found(monkeypatch):
    monkeypatch.setattr(settled, "IN_EACH", 12)
    found, notes = categories(monkeypatch, larger, 0.8)
    assert PEAK_OFTEN in found, notes


@pytest.mark.slow
def test_nothing_is_found_in_the_function_itself(monkeypatch):
    assert categories(monkeypatch, same) == (set(), [])


class Fake:
    """A subject that is a function of TensorFlow's."""

    def __init__(self, run, changes_nothing=True):
        self.run = run
        self.changes_nothing = changes_nothing

    def anew(self):
        return Fake(tf.function(self.run.python_function), self.changes_nothing)


def test_only_what_runs_op_by_op_as_the_original_does_is_the_original():
    tanh = Fake(tf.function(lambda: tf.tanh(tf.eye(2, num_columns=3))))
    other = Fake(tf.function(lambda: tf.sinh(tf.eye(2, num_columns=3))))
    claims_to_be_rewritten = Fake(tanh.run, changes_nothing=False)
    assert settled.runs_the_original(tanh, tanh.anew())
    assert not settled.runs_the_original(tanh, other)
    assert not settled.runs_the_original(tanh, claims_to_be_rewritten)


def test_eager_ops_beside_the_graphs_count():
    tanh = Fake(tf.function(lambda: tf.tanh(tf.eye(2, num_columns=3))))

    class Beside(Fake):
        def anew(self):
            inner = Fake.anew(self)
            return Fake(lambda: inner.run() * 1.5)

    assert not settled.runs_the_original(tanh, Beside(tanh.run))


class Racing:
    """A function with a result that is another number in every so many runs: {runs: number}."""

    changes_nothing = False

    def __init__(self, others):
        self.others = others
        self.runs = 0

    def run(self):
        self.runs += 1
        numbers = [number for often, number in self.others.items() if not self.runs % often]
        return [np.float32(numbers[-1] if numbers else 1.0)[np.newaxis]], 0

    def anew(self):
        return self


@pytest.mark.parametrize("often", [40, 10**9])
@pytest.mark.parametrize(("others", "found"), [({3: 2.0}, False), ({3: 9.0}, True)])
def test_a_race_that_the_original_rarely_loses_is_no_finding(monkeypatch, often, others, found):
    monkeypatch.setattr(settled, "RARE", 900)
    original = Racing({often: 1.001, 400: 2.0})
    start = [original.run()[0] for _ in range(3)]
    verdict = runner.Verdict()
    optimised = Racing(others)
    after = [optimised.run()[0] for _ in range(3)]
    runner._compare_bits(start, after, original, optimised, BITS, verdict)
    assert bool(verdict.findings) == found
    assert original.runs > 300


def test_slow_programs_are_not_run_for_ever():
    assert list(settled.in_time(3, 60.0)) == [0, 1, 2]
    assert list(settled.in_time(3, -1.0)) == [0]
