"""Whatever step net a train step loops over, and whatever is saved of it, the bits stay.

A case is a step net with one saved set. By hand, many more than hypothesis makes, and none twice:

    python -m tests.test_random_step_nets FIRST LAST
"""

import contextlib
import ctypes
import dataclasses
import os
import sys
import warnings
import zlib
from collections.abc import Callable
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rnnmem
from rnnmem.analysis.machine import CPU, Machine
from rnnmem.ir.inline import inline
from rnnmem.tf.functions import net_of
from tests import random_step_net_kinds as second
from tests.forced_segments import forced_segments
from tests.random_step_nets import (
    Built,
    Draw,
    Drawn,
    Instruction,
    Recipe,
    Thrown,
    every_instruction,
    random_recipe,
)

SAVED_SETS = 3
"""Saved sets that are tried of one step net."""
CASES = int(os.environ.get("RNNMEM_FUZZ_CASES") or 140)
STEP_NETS = CASES * 10 // 22
"""A step net makes 2.2 cases: some are left alone, and two saved sets may turn out the same."""
PARTS = 12
"""Tests among which they are dealt out, so that no process ends long behind the others."""
DIFFER: list[str] = []
"""Step nets whose bits differ with TensorFlow's fusions on; with them off no bit may differ."""
KNOWN_TO_DIFFER: dict[int, str] = {}
"""Number of a trial -> why its bits may differ with fusions on. No other trial's may."""
AGAIN = 1000
"""Runs of an original that are compared where an optimised step has other bits: some differ in one
of twenty runs on a busy machine, and in fewer on an idle one."""
OF_A_TRACE = 50
"""Runs of one trace of the original, until it is traced again: early runs win other races."""
RACES: list[str] = []
"""Optimised steps with other results where the original's own runs differ."""
SECOND_GENERATION = 10_000_000
"""The first number whose step net is drawn from the kinds of the second generation, too."""
FUSIONS = ("arithmetic_optimization", "constant_folding", "remapping")
SEGMENTS = (False, False, True, "scheduled", "online")
SLOWDOWNS = (1.02, 1.1, 1.3, 2.0, 1e9, 1e9)


@dataclasses.dataclass(frozen=True)
class Dice(Machine):
    """A machine that says of each op, at random, how long it takes: any saved set may be best."""

    seed: int = 0

    def seconds(self, op, net):
        drawn = zlib.crc32(f"{self.seed} {op.name}".encode()) / 2**32
        return 10.0 ** (6.0 * drawn - 8.0)


@dataclasses.dataclass(frozen=True)
class Trial:
    """A step net and the bounds, with the dice, under which saved sets are chosen.

    A choice is ``(bound, seed of the dice, whether loops are cut into segments)``; the last may be
    a word of `SEGMENTS` for those whose states are kept by a schedule, or "tails".
    """

    recipe: Recipe
    choices: tuple[tuple[float, int, bool | str], ...]
    also_without_fusions: bool

    @staticmethod
    def drawn(draw: Draw, generation: int = 1) -> "Trial":
        drawn = (
            (draw.one_of(SLOWDOWNS), draw.whole(0, 999), draw.one_of(SEGMENTS))
            for _ in range(SAVED_SETS)
        )
        choices = tuple(
            (bound, seed, "tails" if cut is True and generation > 1 and seed % 2 else cut)
            for bound, seed, cut in drawn
        )
        return Trial(random_recipe(draw, generation), choices, draw.whole(0, 3) == 3)

    @staticmethod
    def of_number(number: int) -> "Trial":
        """What the number draws, the same each time."""
        return Trial.drawn(Thrown(number), 1 + (number >= SECOND_GENERATION))


@pytest.fixture(scope="module", autouse=True)
def determinism():
    tf.config.experimental.enable_op_determinism()


@contextlib.contextmanager
def fusions(on: bool):
    tf.config.optimizer.set_experimental_options(dict.fromkeys(FUSIONS, on))
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options(dict.fromkeys(FUSIONS, True))


@contextlib.contextmanager
def all_frames():
    """An error has the frames of TensorFlow, too."""
    filtering = tf.debugging.is_traceback_filtering_enabled()
    tf.debugging.disable_traceback_filtering()
    try:
        yield
    finally:
        if filtering:
            tf.debugging.enable_traceback_filtering()


def bits(built: Built, function, start) -> list[np.ndarray]:
    """Everything one step leaves behind, from the state ``start``."""
    for variable, value in zip(built.kept, start, strict=True):
        variable.assign(value)
    flat = tf.nest.flatten(built.run(function), expand_composites=True)
    return [one.numpy() for one in [*flat, *built.kept]]


def differing(expected, found) -> set[int]:
    """The results whose shapes or bits are not equal."""
    return {
        index
        for index, (one, other) in enumerate(zip(expected, found, strict=True))
        if one.shape != other.shape or one.tobytes() != other.tobytes()
    }


def told(expected, found, index: int) -> str:
    one, other = expected[index], found[index]
    if one.shape != other.shape:
        return f"result {index} has the shape {other.shape}, not {one.shape}"
    gap = np.max(np.abs(one.astype(np.float64) - other.astype(np.float64)))
    return f"result {index} of {len(expected)} is off by up to {gap}"


def difference(built: Built, functions, start) -> str:
    """Empty where each result has the bits that the original gives it.

    The original's own runs need not agree: where a sum begins may depend on which reader of an
    addend is done first. A result in which they differ has no bits that could be kept.
    """
    expected = bits(built, built.original, start)
    found = [bits(built, function, start) for function in functions]
    wrong = [differing(expected, one) for one in found]
    runs, original = 0, built.original
    while any(wrong) and runs < AGAIN:
        runs += 1
        if runs % OF_A_TRACE == 0:
            original = built.traced()
        varying = differing(expected, bits(built, original, start))
        wrong = [left - varying for left in wrong]
    if runs and not any(wrong):
        RACES.append(f"run {runs} of the original differed in the last of its results")
    lasting = [(one, min(left)) for one, left in zip(found, wrong, strict=True) if left]
    return max((told(expected, one, index) for one, index in lasting), default="")


def optimised(built: Built, trial: Trial) -> list:
    """One function for each different saved set that changes anything.

    The step is imported once, and only the first rewrite is simulated; all that decides what runs
    is as it is for a user.
    """
    net = inline(net_of(built.original.get_concrete_function()))
    made = {}
    for number, (slowdown, seed, in_segments) in enumerate(trial.choices):
        with contextlib.ExitStack() as patches:
            patches.enter_context(warnings.catch_warnings())
            warnings.simplefilter("error", rnnmem.RnnmemWarning)
            known = {field.name: getattr(CPU, field.name) for field in dataclasses.fields(CPU)}
            machine = Dice(**known, seed=seed)
            patches.enter_context(
                mock.patch("rnnmem.compile.machine_here", lambda one=machine: one)
            )
            patches.enter_context(mock.patch("rnnmem.compile.with_costs", lambda one: one))
            patches.enter_context(mock.patch("rnnmem.compile.net_of", lambda concrete: net))
            if in_segments:
                online = in_segments == "online"
                scheduled = online or in_segments == "scheduled"
                tails = in_segments == "tails"
                patches.enter_context(forced_segments(scheduled, online, tails))
            if number:
                patches.enter_context(
                    mock.patch("rnnmem.planning.search.counted_peak", lambda net, **_: None)
                )
            function = rnnmem.optimize(built.original, max_slowdown=slowdown)
            if function.get_concrete_function() is built.original.get_concrete_function():
                break
            if function._trace_of((), {}).gradient_only and not built.is_forward:
                break  # it holds no loop pair
            plan = function.plan(*built.inputs)
            if not plan.loops:
                break
            made.setdefault((plan.loops, plan.start_edges), function)
    return list(made.values())


def hold(trial: Trial, ran: Callable[[], None] = lambda: None) -> int:
    """Fails unless all optimised steps leave the original's bits; how many there are.

    Args:
      trial: the step net, and how it is rewritten.
      ran: called when the original has run.
    """
    built = Built(trial.recipe)
    start = [one.numpy() for one in built.kept]
    try:
        with all_frames():
            built.original.get_concrete_function()
            built.run(built.original)
    except IndexError as error:  # while an op was added to a graph, which stays locked
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(error))  # who frees that waits for ever
        return 0
    except (LookupError, AssertionError, tf.errors.InvalidArgumentError):
        return 0  # TensorFlow has no gradient of some op's gradient or in a branch, or a wrong one
    ran()
    functions = optimised(built, trial)
    if not functions:
        return 0
    with fusions(True):
        gap = difference(built, functions, start)
    if gap:
        DIFFER.append(f"{gap}: {trial}")
    if gap or trial.also_without_fusions:
        with fusions(False):
            gap = difference(built, functions, start)
        assert not gap, f"fusions off: {gap}"
    return len(functions)


@settings(
    max_examples=STEP_NETS,
    suppress_health_check=list(HealthCheck),
    derandomize="RNNMEM_FUZZ_CASES" not in os.environ,  # CI tries the same each time
)
@given(st.composite(lambda draw: Trial.drawn(Drawn(draw)))())
def many_keep_their_bits(trial):
    hold(trial)


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(PARTS))
def test_any_step_net_keeps_its_bits(part, monkeypatch):
    hold_any = hold

    def hold_its_own(trial):
        if zlib.crc32(repr(trial).encode()) % PARTS == part:
            hold_any(trial)

    # Each part draws all of them; the text of the function that is given decides what is drawn.
    monkeypatch.setitem(globals(), "hold", hold_its_own)
    DIFFER.clear()
    many_keep_their_bits()
    assert not DIFFER, "\n".join(DIFFER)


def plain(kind, a=0, b=0, n=0, inner=()):
    return Instruction(kind, a, b, n, inner, ())


ONCE_WRONG = {
    "a loop that ran no iteration handed on what the sum behind it begins with": Trial(
        Recipe(
            dtype="bfloat16",
            trips=0,
            known="data",
            states=3,
            instructions=(
                plain("gather", 5, 0, 0),
                plain("captured", 3, 5, 5),
                plain("random", 3, 5, 3),
            ),
            following=((4, True), (6, True), (5, False)),
            stacked=True,
            gradients=1,
            of_inputs=False,
            dynamic=False,
            after=(plain("scale", 1, 2, 3),),
            seed=873,
            tapes="outside",
        ),
        choices=((1.3, 211, True),),
        also_without_fusions=False,
    ),
    "the way to a segment held a read of a variable that no state needs": Trial(
        Recipe(
            dtype="float64",
            trips=3,
            known="data",
            states=3,
            instructions=(plain("stateless_random", 3, 3, 3), plain("scale", 3, 5, 1)),
            following=((1, True), (5, False), (4, False)),
            stacked=False,
            gradients=1,
            of_inputs=False,
            dynamic=False,
            after=(plain("split", 0, 1, 2), plain("tile", 5, 0, 5)),
            seed=206,
        ),
        choices=((1.1, 673, "online"),),
        also_without_fusions=False,
    ),
    "an iteration began before the last one's sum was done": Trial(
        Recipe(
            dtype="float32",
            trips=4,
            known="constant",
            states=3,
            instructions=(
                plain("abs"),
                plain("add_tree", 0, 3),
                plain("abs"),
                plain("abs"),
                plain("abs", 3),
                plain("abs"),
                plain("abs", 4),
            ),
            following=((2, False), (0, False), (0, False)),
            stacked=False,
            gradients=1,
            of_inputs=True,
            dynamic=False,
            after=(plain("abs"),),
            seed=0,
        ),
        choices=((1.02, 386, False), (1.02, 0, False)),
        also_without_fusions=True,
    ),
    "nobody waited any more for a sum that the gradient of a logarithm waits for": Trial(
        Recipe(
            dtype="float64",
            trips=4,
            known="data",
            states=2,
            instructions=(
                plain("logarithm", 2, 4, 3),
                plain("negative", 2, 1, 3),
                plain("tape", 5, 3, 1),
                plain("negative", 4, 0, 1),
                plain("einsum", 4, 3, 4),
                plain("concat", 0, 2, 4),
            ),
            following=((3, False), (2, True)),
            stacked=True,
            gradients=1,
            of_inputs=True,
            dynamic=False,
            after=(),
            seed=838,
        ),
        choices=((1.3, 114, True), (1e9, 0, False)),
        also_without_fusions=True,
    ),
    "the shape of a zero was seen, and a sum was taken into another": Trial(
        Recipe(
            dtype="float32",
            trips=2,
            known="constant",
            states=1,
            instructions=(
                plain("negative", 2, 1, 4),
                plain(
                    "function",
                    4,
                    5,
                    2,
                    (plain("negative", 0, 4), plain("negative", 0, 3, 4), plain("add_n", 3, 2, 5)),
                ),
            ),
            following=((0, False),),
            stacked=False,
            gradients=2,
            of_inputs=True,
            dynamic=False,
            after=(),
            seed=543,
        ),
        choices=((2.0, 130, True),),
        also_without_fusions=True,
    ),
}


@pytest.mark.parametrize("why", ONCE_WRONG)
def test_what_once_went_wrong_no_longer_does(why):
    listed = len(DIFFER)
    assert hold(ONCE_WRONG[why])
    assert not DIFFER[listed:]


BY_CHANCE = Trial(
    Recipe(
        dtype="bfloat16",
        trips=5,
        known="limit",
        states=2,
        instructions=(
            plain("gather", 1, 4, 3),
            plain("read_array", 1, 4, 3),
            plain("maximum", 4, 4, 3),
            plain("elu", 2, 0, 4),
            plain("read_array", 2, 4),
            plain("function", 0, 4, 2, (plain("add_n", 4, 0, 2),)),
            plain("where", 5, 1, 5),
        ),
        following=((1, True), (0, True)),
        stacked=False,
        gradients=1,
        of_inputs=True,
        dynamic=False,
        after=(plain("matmul_captured", 1, 0, 5),),
        seed=750,
    ),
    choices=((1.1, 735, True), (1.02, 654, False)),
    also_without_fusions=True,
)
"""Rewritten, it began its sum now with one addend, now with another; the original never does."""
BY_CHANCE_IN_A_TREE = Trial(
    Recipe(
        dtype="float32",
        trips=2,
        known="constant",
        states=3,
        instructions=(
            Instruction(
                "cond",
                2,
                2,
                5,
                inner=(
                    plain("cumulative_sum", 5, 5, 4),
                    plain("map", 4, 1, 1, (plain("add_rows", n=5),)),
                    plain("reduce_sum", 1, 1),
                ),
                other=(plain("cumulative_sum", 1, 0, 3),),
            ),
            plain("power", 4, 4, 1),
            plain("stateless_random", 2, 4, 2),
            plain("add_captured", 3, 4, 4),
            plain("add_pair", 5, 2, 3),
        ),
        following=((1, False), (0, True), (4, False)),
        stacked=True,
        gradients=1,
        of_inputs=True,
        dynamic=False,
        after=(plain("add_pair", 5, 0, 4),),
        seed=577,
        tapes="persistent",
    ),
    choices=((1.3, 25, "scheduled"), (2.0, 324, False), (1.3, 581, False)),
    also_without_fusions=False,
)
"""The same where TensorFlow makes one sum of additions; here the original varies, too."""


@pytest.mark.slow
@pytest.mark.parametrize("trial", [BY_CHANCE, BY_CHANCE_IN_A_TREE], ids=["AddN", "additions"])
def test_a_sum_that_depends_on_what_is_merged_leaves_the_step_as_it_was(trial):
    built = Built(trial.recipe)
    function = rnnmem.optimize(built.original)
    assert function.get_concrete_function() is built.original.get_concrete_function()
    (note,) = function.plan(*built.inputs).notes
    assert note.startswith("an addend of the sum at random_step_nets.py:")
    assert hold(trial) == 0


OF_THE_FIRST_GENERATION = {1: 1171537800, 7: 584134029, 300604: 4023987252, 1100757: 1234031562}
"""Number -> a checksum of the trial that it drew before there was a second generation."""


@pytest.mark.parametrize("number", OF_THE_FIRST_GENERATION)
def test_a_number_that_a_recorded_case_names_draws_what_it_drew(number):
    text = repr(Trial.of_number(number)).replace(", blurred=False", "")
    assert zlib.crc32(text.encode()) == OF_THE_FIRST_GENERATION[number]


OF_THE_SECOND_GENERATION = (10000003, 10000004, 10000007, 10000008, 10000020, 10000062)


@pytest.mark.slow
@pytest.mark.parametrize("number", OF_THE_SECOND_GENERATION)
def test_a_step_net_of_the_second_generation_keeps_its_bits(number):
    listed = len(DIFFER)
    assert hold(Trial.of_number(number))
    assert not DIFFER[listed:]


def test_those_have_every_kind_of_the_second_generation():
    recipes = [Trial.of_number(number).recipe for number in OF_THE_SECOND_GENERATION]
    kinds = {one.kind for recipe in recipes for one in every_instruction(recipe)}
    assert set(second.KINDS) <= kinds
    assert any(recipe.blurred for recipe in recipes)


def test_what_is_thrown_is_the_same_again():
    assert Trial.drawn(Thrown(7)) == Trial.drawn(Thrown(7)) != Trial.drawn(Thrown(8))


if __name__ == "__main__":
    from tests.held_step_nets import main

    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])) > 0)
