"""What mutants are made of: rewritten Nets, each with its original and a way to run both.

Nets drawn by hand run in the interpreter of the tests; what TensorFlow traced is exported, and runs
twice in a row from the first state, on two inputs, at TensorFlow's default and without its fusions.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from itertools import starmap
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

import rnnmem
from rnnmem.ir.graph import Net
from rnnmem.passes.accumulated_products import select as products
from rnnmem.passes.chunked_loss import select as losses_by_chunks
from rnnmem.passes.straight_line import select as regions
from rnnmem.tf.attributes import constant
from rnnmem.tf.functions import function_of
from tests.conformance.harness import set_fusions
from tests.conformance.programs import build, sized, train_step
from tests.drawing import encoded
from tests.forced_segments import forced_segments
from tests.random_step_nets import Built
from tests.test_random_step_nets import Trial
from tests.verify.mutants import ESCAPED, FUSED, HARMLESS, STOPS
from tests.verify.test_fuzz import PAIRS, SCHEDULED, results

SMALL = {"T": 6, "B": 3, "D": 2, "H": 4}
STEPS = 2
TWICE = 2
"""How often a result that differs is computed, so that a race of the original is none of ours."""


class Source:
    """A rewritten Net with its original."""

    chunks = roundings = False
    constant = staticmethod(encoded)

    def __init__(self, name: str, original: Net, rewritten: Net):
        self.name, self.original, self.rewritten = name, original, rewritten
        self.made = frozenset(_made(original, rewritten))

    def compared(self, net: Net) -> str:
        """What a Net that the verifier let through is, beside the original."""
        raise NotImplementedError


def _made(original: Net, rewritten: Net) -> Iterator[int]:
    """Ids of the ops that the original has not, at the same place, in the same words."""
    places = dict(original.walk())
    for path, net in rewritten.walk():
        before = places[path].op_by_name if path in places else {}
        for op in net.ops:
            old = before.get(op.name)
            if old is None or old.inputs != op.inputs or old.controls != op.controls:
                yield id(op)


class Drawn(Source):
    """Nets drawn by hand."""

    @functools.cached_property
    def _expected(self) -> list:
        return results(self.original)

    def compared(self, net: Net) -> str:
        try:
            found = results(net)
        except (IndexError, TypeError):  # a list where a number is read, or the other way round
            return STOPS
        if repr(found) == repr(self._expected):
            return HARMLESS
        pairs = zip(found, self._expected, strict=True)
        other = [one for one, expected in pairs if repr(one) != repr(expected)]
        return STOPS if all(isinstance(one, str) for one in other) else ESCAPED


class Traced(Source):
    """A train step that TensorFlow traced."""

    constant = staticmethod(constant)

    def __init__(self, name: str, step: Callable, inputs, variables, allow=None, setting=None):
        self.inputs = [inputs, tf.nest.map_structure(_beside, inputs)]
        options = {"max_slowdown": 1e9, **({} if allow is None else {"allow": allow})}
        with setting or contextlib.nullcontext():
            traced = step if hasattr(step, "get_concrete_function") else tf.function(step)
            self._optimized = rnnmem.optimize(traced, **options)
            made = self._optimized._trace_of(tuple(inputs), {})
            plan, (net, rewritten) = made.plan(), made.work.nets()
        assert rewritten is not None, (name, plan.notes)
        super().__init__(name, net, rewritten)
        self.chunks, self.roundings = plan.sums_by_chunks, plan.rounds
        self._concrete = made.original
        known = [*variables, *made.original.graph.variables]
        self._variables = list({id(one): one for one in known}.values())
        self._start = [one.numpy() for one in self._variables]

    def run(self, net: Net) -> list:
        """What it leaves behind, or what TensorFlow says where it stops."""
        try:
            function = function_of(net, self._concrete)
        except Exception as error:  # no graph that TensorFlow takes, or marks that say nonsense
            return [f"stops: {type(error).__name__}"]
        found = []
        for inputs in self.inputs:
            for variable, value in zip(self._variables, self._start, strict=True):
                variable.assign(value)
            for _ in range(STEPS):
                try:
                    returned = self._optimized.call_traced(function, inputs, {})
                except tf.errors.OpError as error:
                    return [f"stops: {type(error).__name__}"]
                leaves = tf.nest.flatten(returned, expand_composites=True)
                found += [np.asarray(one) for one in [*leaves, *self._variables]]
        return found

    @property
    def _tolerance(self) -> float:
        """By how much results may differ: sums by chunks, copies that are rounded; else nothing."""
        return 0.05 if self.roundings else 1e-4 if self.chunks else 0.0

    @functools.cached_property
    def expected(self) -> dict[bool, list]:
        """What the original leaves behind, with TensorFlow's fusions and without.

        Where bits are not promised, it is the rewritten Net, so that mutants are held against less.
        """
        net = self.rewritten if self._tolerance else self.original
        found = {}
        for fused in (True, False):
            with fusions(fused):
                found[fused] = self.run(net)
        assert not any(isinstance(one, str) for one in found[True]), self.name
        return found

    def compared(self, net: Net) -> str:
        for _ in range(TWICE):
            with fusions(True):
                found = self.run(net)
            if self._agree(found, self.expected[True]):
                return HARMLESS
        if isinstance(found[0], str) and not isinstance(self.expected[True][0], str):
            return STOPS
        with fusions(False):
            return FUSED if self._agree(self.run(net), self.expected[False]) else ESCAPED

    def _agree(self, found: list, expected: list) -> bool:
        """Whether results have the same bits, or where bits are not promised, are near."""
        if len(found) != len(expected):
            return False
        return all(
            starmap(self._near if self._tolerance else _same, zip(found, expected, strict=True))
        )

    def _near(self, one, other) -> bool:
        if isinstance(one, str) or isinstance(other, str) or one.dtype.kind not in "fc":
            return _same(one, other)
        least = self._tolerance * np.max(np.abs(other), initial=0.0)
        return one.shape == other.shape and np.allclose(one, other, self._tolerance, least)


@contextlib.contextmanager
def fusions(on: bool):
    """With TensorFlow's fusions by neighbourhood, or without."""
    set_fusions(on)
    try:
        yield
    finally:
        set_fusions(True)


def _beside(one):
    """Another input of the same kind: other numbers, whole ones as they are."""
    return one * 0.5 - 0.125 if tf.is_tensor(one) and one.dtype.is_floating else one


def _same(one, other) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str)
    same_kind = one.shape == other.shape and one.dtype == other.dtype
    if one.dtype == object:
        return same_kind and one.tolist() == other.tolist()
    return same_kind and one.tobytes() == other.tobytes()


def by_hand() -> list[Drawn]:
    """Nets drawn by hand: dropout, two gradients, loops in loops, segments, schedules."""
    return [Drawn(name, *pair) for name, pair in {**PAIRS, **SCHEDULED}.items()]


def program(name: str, allow=None, segments: dict | None = None, **sizes: int) -> Traced:
    """A program of the conformance tests, small."""
    with sized(**{**SMALL, **sizes}):
        case = build(name)
        return Traced(
            " ".join([name, *(allow or ()), *(segments or ())]),
            train_step(case),
            case.inputs,
            [*case.variables, *case.state],
            allow,
            None if segments is None else forced_segments(**segments),
        )


def chunked_loss(name: str, allow=None) -> Traced:
    """A softmax loss by chunks: with the same bits, or where allowed with sums of chunks."""
    random = np.random.default_rng(0)
    words, units = 48, 8
    made = [
        tf.Variable(random.normal(size=shape) * 0.5, dtype=tf.float32)
        for shape in ((units, units), (units, words), (words,))
    ]

    def step(x, y):
        with tf.GradientTape() as tape:
            hidden = tf.tanh(tf.matmul(x, made[0]))
            logits = tf.nn.bias_add(tf.matmul(hidden, made[1]), made[2])
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
            loss = tf.reduce_mean(losses)
        return loss, tape.gradient(loss, made)

    rows = 144
    x = tf.constant(random.normal(size=(rows, units)), tf.float32)
    y = tf.constant(random.integers(0, words, rows), tf.int32)
    sizes = {"CHUNK_BYTES": 1} if allow is None else {"FEWEST": 20, "MOST": 20}
    return Traced(name, step, (x, y), made, allow, mock.patch.multiple(losses_by_chunks, **sizes))


def straight_line() -> Traced:
    """Layers outside of any loop, whose residuals run again."""
    made = [tf.Variable(tf.constant(_numbers(16, 16, seed))) for seed in range(6)]

    def step(x):
        with tf.GradientTape() as tape:
            h = x
            for kernel in made:
                h = h + tf.nn.gelu(tf.tanh(h @ kernel) * 0.5)
            loss = tf.reduce_mean(tf.square(h))
        return loss, tape.gradient(loss, made)

    small = mock.patch.multiple(regions, LEAST=1)
    return Traced("straight line", step, (tf.constant(_numbers(64, 16, 9)),), made, None, small)


def accumulated_product() -> Traced:
    """The gradient of a projection of a sequence, added up item by item."""
    made = [tf.Variable(_numbers(64, 128, 1)), tf.Variable(_numbers(1, 128, 2)[0])]

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.tanh(x @ made[0] + made[1])))
        return loss, tape.gradient(loss, made)

    x = tf.constant(np.stack([_numbers(16, 64, 10 + item) for item in range(19)]))
    small = mock.patch.multiple(products, LEAST_BYTES=1, MOST_STARTING=1e9)
    return Traced("accumulated product", step, (x,), made, None, small)


def unstacked_list() -> Traced:
    """A Keras layer whose list is cut from a sequence."""
    keras.utils.set_random_seed(0)
    layer = keras.layers.LSTM(4, return_sequences=True)
    x = tf.constant(np.stack([_numbers(6, 3, item) for item in range(2)]))
    layer(x)
    made = [one.value for one in layer.trainable_variables]

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(layer(x, training=True)))
        return loss, tape.gradient(loss, made)

    return Traced("unstacked list", step, (x,), made)


def random_step_net(number: int, segments: dict | None = None) -> Traced:
    """A random step net, of either generation."""
    built = Built(Trial.of_number(number).recipe)
    setting = None if segments is None else forced_segments(**segments)
    name = " ".join([f"random step net {number}", *(segments or ())])
    assert not built.is_forward, "its gradient is no part of the step"
    return Traced(name, built.original, built.inputs, built.kept, None, setting)


def _numbers(rows: int, columns: int, seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(rows, columns))
    return (drawn * 0.5).astype(np.float32)


RANDOM = (10000000, 10000003, 10000004, 10000010, 10000012, 10000013, 1)
SCHEDULES = ({}, {"tails": True}, {"scheduled": True}, {"scheduled": True, "online": True})
PROGRAMS = (
    "while.known_trips",
    "while.data_dependent",
    "while.complex_state",
    "while.rotation",
    "functional.scan",
    "tensorarray.gather_scatter",
    "tensorarray.reads_earlier_steps",
    "nested.two_deep",
    "nested.inner_trips_vary",
    "branch.cond",
    "branch.switch_case",
    "branch.loop_in_cond_in_body",
    "several.encoder_decoder",
    "gradients.two_losses",
    "gradients.custom_gradient",
    "training.loop",
    "sparse.embedding_in_body",
    "random.stateful",
    "effects.assign",
    "effects.weight_changes_in_body",
    "straight.language_model",
    "keras.GRU",
)
ENCODED = (
    ("while.pointwise_zoo", ("bits",)),
    ("while.pointwise_zoo", ("bfloat16",)),
    ("random.nn_dropout", ("default", "bits")),
    ("random.nn_dropout", ("bits", "bfloat16")),
)
LARGE_ENOUGH = {"T": 8, "B": 16, "D": 8, "H": 32}
"""Sizes at which it pays to encode what is saved."""


def a_few() -> list[Source]:
    """Some of each kind, made in seconds."""
    return [
        *by_hand(),
        program("while.known_trips", segments=SCHEDULES[-1]),
        program("branch.cond"),
        program("effects.assign"),
        program("random.nn_dropout", ("default", "bits"), **LARGE_ENOUGH),
        chunked_loss("row chunks"),
        accumulated_product(),
        straight_line(),
    ]


def all_sources() -> list[Source]:
    """All sources, made in about a minute."""
    tf.config.experimental.enable_op_determinism()
    return [
        *by_hand(),
        *(program(name) for name in PROGRAMS),
        *(program("while.known_trips", segments=one) for one in SCHEDULES),
        *(program("while.dense_relu_chain", segments=one) for one in SCHEDULES),
        *(program(name, allow, **LARGE_ENOUGH) for name, allow in ENCODED),
        chunked_loss("row chunks"),
        chunked_loss("chunked loss", ("default", "chunked_loss")),
        accumulated_product(),
        straight_line(),
        unstacked_list(),
        *map(random_step_net, RANDOM),
        *(random_step_net(number, SCHEDULES[-1]) for number in RANDOM[:2]),
    ]


SOURCES: dict[str, Callable[[], list[Source]]] = {
    "hand": by_hand,
    "few": a_few,
    "all": all_sources,
}
