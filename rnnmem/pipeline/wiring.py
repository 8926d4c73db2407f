"""Which stage reads what: the user's stages, and the values that go between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from rnnmem.errors import OptionError
from rnnmem.pipeline.calling import Chain, name_of
from rnnmem.pipeline.schedule import HOST, Topology

INPUTS, LABELS = "x", "y"


@dataclasses.dataclass(frozen=True)
class Stage:
    """A stage with more said about it than what it computes.

    Attributes:
      fn: a Keras layer, a callable, or a builder: a callable without arguments that returns one,
        called on the stage's device.
      inputs: names of the values that it takes, one argument each. ``"x"`` and ``"y"`` are what
        ``train_step`` is given; others are ``outputs`` of any stage before, so that connections
        may skip stages. By default what the stage before returns; the first stage takes ``"x"``.
      outputs: names for what it returns; several name the parts of a returned tuple or list.
      recompute: whether only its inputs are kept between forward and backward, and the forward runs
        again in the backward.
      name: for errors and reports.
    """

    fn: Callable[..., Any]
    inputs: Sequence[str] | str | None = None
    outputs: Sequence[str] | str | None = None
    recompute: bool = False
    name: str | None = None


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One tensor that a stage, or the host, gives.

    Attributes:
      stage: who gives it; ``HOST`` for parts of x and y.
      place: which of its tensors.
      spec: shape and dtype, of one micro-batch.
    """

    stage: int
    place: int
    spec: tf.TensorSpec

    @property
    def has_gradient(self) -> bool:
        """Whether a gradient goes back to who gave it."""
        return self.stage != HOST and (self.spec.dtype.is_floating or self.spec.dtype.is_complex)


def stages_of(stages: Iterable[Any], recompute: bool | Iterable[int]) -> list[Stage]:
    """The user's stages as ``Stage``s, checked.

    Raises:
      OptionError: there are none, one is no stage, or names are not right.
    """
    if callable(stages) or isinstance(stages, (str, bytes)) or not isinstance(stages, Iterable):
        raise OptionError(f"stages={stages!r} is not a list of stages")
    found = [_stage(stage, i) for i, stage in enumerate(stages)]
    if not found:
        raise OptionError("stages=[] holds no stage")
    known = {INPUTS, LABELS}
    for i, stage in enumerate(found):
        for name in stage.inputs or ():
            if name not in known:
                raise OptionError(
                    f"stages[{i}]: inputs={stage.inputs!r}: no stage before it has the output "
                    f"{name!r}; there are {', '.join(sorted(known))}"
                )
        for name in stage.outputs or ():
            if name in known:
                raise OptionError(f"stages[{i}]: outputs={stage.outputs!r}: {name!r} is taken")
            known.add(name)
    again = _recomputed(recompute, len(found))
    return [
        dataclasses.replace(stage, recompute=stage.recompute or i in again)
        for i, stage in enumerate(found)
    ]


def topology_of(reads: list[list[Leaf]], recompute: Iterable[int]) -> Topology:
    """Who sends to whom, from the tensors that each stage reads."""
    values = {(leaf.stage, stage) for stage, leaves in enumerate(reads) for leaf in leaves}
    gradients = {
        (leaf.stage, stage)
        for stage, leaves in enumerate(reads)
        for leaf in leaves
        if leaf.has_gradient
    }
    return Topology(len(reads), tuple(sorted(values)), frozenset(gradients), frozenset(recompute))


def bundles_of(reads: list[list[Leaf]]) -> dict[tuple[int, int], list[Leaf]]:
    """(from, to) -> the tensors that go that way, each once, in the order of their places."""
    bundles: dict[tuple[int, int], dict[int, Leaf]] = {}
    for stage, leaves in enumerate(reads):
        for leaf in leaves:
            bundles.setdefault((leaf.stage, stage), {})[leaf.place] = leaf
    return {pair: [found[place] for place in sorted(found)] for pair, found in bundles.items()}


def _stage(given: Any, place: int) -> Stage:
    if isinstance(given, (list, tuple)) and given and all(callable(layer) for layer in given):
        given = Chain(given)
    stage = given if isinstance(given, Stage) else Stage(given)
    if not callable(stage.fn):
        raise OptionError(
            f"stages[{place}]={given!r} is neither a Keras layer, a callable nor a builder"
        )
    return dataclasses.replace(
        stage,
        inputs=_names(stage.inputs, place, "inputs"),
        outputs=_names(stage.outputs, place, "outputs"),
        name=stage.name or name_of(stage.fn),
    )


def _names(given: Any, place: int, argument: str) -> tuple[str, ...] | None:
    if given is None:
        return None
    names = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise OptionError(f"stages[{place}]: {argument}={given!r} is not a list of names")
    return names


def _recomputed(recompute: bool | Iterable[int], stages: int) -> set[int]:
    if isinstance(recompute, bool):
        return set(range(stages)) if recompute else set()
    try:
        chosen: set[Any] = set(recompute)
    except TypeError:
        chosen = {None}
    if not all(isinstance(stage, int) and 0 <= stage < stages for stage in chosen):
        raise OptionError(
            f"recompute={recompute!r} must be True, False or numbers of stages from 0 to "
            f"{stages - 1}"
        )
    return chosen
