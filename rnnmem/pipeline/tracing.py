"""Traces all stages for one shape of batch, before anything runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from rnnmem.analysis.variable_effects import ANY, Writers
from rnnmem.errors import NotUnderstood, OptionError
from rnnmem.ir.graph import Net
from rnnmem.ir.inline import inline
from rnnmem.pipeline.calling import call, layers_of, takes
from rnnmem.pipeline.schedule import HOST, Topology
from rnnmem.pipeline.wiring import INPUTS, LABELS, Leaf, Stage, bundles_of, topology_of
from rnnmem.tf import private
from rnnmem.tf.functions import net_of


@dataclasses.dataclass(frozen=True)
class Gradient:
    """The gradient of one stage.

    Attributes:
      halves: the stage's forward and backward; None where no gradient comes to it.
      places: which of its results a gradient comes back to, in order.
      reads: by tensor that the stage takes, whether it has a gradient.
      trained: by trained variable, the same.
    """

    halves: private.Halves | None
    places: list[int]
    reads: list[bool]
    trained: list[bool]


@dataclasses.dataclass(frozen=True)
class Traced:
    """One stage for one shape of micro-batch.

    Attributes:
      reads: the tensors that it takes, in order.
      function: (tensors) -> its results, flat; a stage's own penalty, a scalar, comes last.
      results: how many results go to other stages.
      has_loss: whether a scalar follows them: the loss, or what regularizers add to it.
      restored: variables that the forward writes, which a recomputation must find as they were.
      gradient: of a training step.
    """

    reads: list[Leaf]
    function: Any
    results: int
    has_loss: bool
    restored: list[tf.Variable]
    gradient: Gradient | None = None

    @property
    def its_gradient(self) -> Gradient:
        """The gradient of a stage that was traced for training."""
        assert self.gradient is not None
        return self.gradient


@dataclasses.dataclass(frozen=True)
class Program:
    """All stages for one shape of micro-batch.

    Attributes:
      stages: by stage.
      topology: who sends what to whom.
      bundles: (from, to) -> the tensors that go that way.
      structure: what the last stage returns, as numbers of its results; None under a loss.
    """

    stages: list[Traced]
    topology: Topology
    bundles: dict[tuple[int, int], list[Leaf]]
    structure: Any


@dataclasses.dataclass(frozen=True)
class Purpose:
    """What a trace is for.

    Attributes:
      training: whether layers run as in training, and gradients follow.
      loss: whether the last stage ends in the loss, and not in its predictions.
    """

    training: bool
    loss: bool


def feeds_of(x: Any, y: Any) -> tuple[dict[str, Any], list[Any]]:
    """Numbers the parts of x and y: structures of numbers, and the parts; None has none."""
    flat: list[Any] = []

    def number(leaf):
        flat.append(leaf)
        return len(flat) - 1

    structures = {
        name: None if given is None else tf.nest.map_structure(number, given)
        for name, given in ((INPUTS, x), (LABELS, y))
    }
    return structures, flat


def trace(
    stages: list[Stage],
    devices: list[str],
    feeds: dict[str, Any],
    specs: list[tf.TensorSpec],
    loss: Callable[..., Any] | None,
    purpose: Purpose,
) -> Program:
    """Traces every stage on its device with the specs of what it reads.

    Args:
      stages: the user's; builders have already been called.
      devices: by stage.
      feeds: "x" and "y" as structures of places in ``specs``.
      specs: of one micro-batch.
      loss: (labels, predictions) -> loss, or None where the last stage returns it.
      purpose: what the trace is for.

    Raises:
      OptionError: a stage cannot take what it is given, or cannot run again though it should.
    """
    known = {
        name: None
        if structure is None
        else tf.nest.map_structure(lambda place: Leaf(HOST, place, specs[place]), structure)
        for name, structure in feeds.items()
    }
    traced: list[Traced] = []
    before, structure = known[INPUTS], None
    for i, stage in enumerate(stages):
        inputs = [before] if stage.inputs is None else [known[name] for name in stage.inputs]
        tracer = _Tracer(i, stage, devices[i], inputs, purpose, len(stages) == i + 1)
        tracer.add_labels(loss, known[LABELS])
        one, structure = tracer.trace()
        traced.append(one)
        before = structure
        known.update(_named(i, stage, structure))
    reads = [one.reads for one in traced]
    recompute = [i for i, stage in enumerate(stages) if stage.recompute and purpose.training]
    places = None if purpose.loss else tf.nest.map_structure(lambda leaf: leaf.place, structure)
    return Program(traced, topology_of(reads, recompute), bundles_of(reads), places)


def differentiated(program: Program, trained: list[list[tf.Variable]]) -> Program:
    """Adds the gradients of all stages, the last one's first.

    Args:
      program: traced for training.
      trained: by stage, the variables that are trained.
    """
    stages = list(program.stages)
    for i in reversed(range(len(stages))):
        places = {
            leaf.place
            for after in stages[i + 1 :]
            for leaf, connected in zip(after.reads, after.its_gradient.reads, strict=True)
            if connected and leaf.stage == i
        }
        stages[i] = with_gradient(stages[i], sorted(places), trained[i])
    return dataclasses.replace(program, stages=stages)


def with_gradient(traced: Traced, places: list[int], trained: list[tf.Variable]) -> Traced:
    """Adds a stage's gradient.

    Args:
      traced: the stage.
      places: which of its results a gradient comes back to.
      trained: its variables that are trained.
    """
    graph = traced.function.graph
    inside = {id(outside): placeholder for outside, placeholder in graph.captures}
    wanted = [
        placeholder if leaf.has_gradient else None
        for leaf, placeholder in zip(traced.reads, graph.inputs, strict=False)
    ]
    wanted += [inside.get(id(variable.handle)) for variable in trained]
    sources = [one for one in wanted if one is not None]
    targets = [*places, *([traced.results] if traced.has_loss else [])]
    halves = private.Halves(traced.function, targets, sources) if targets else None
    found = iter(halves.connected if halves is not None else [False] * len(sources))
    connected = [one is not None and next(found) for one in wanted]
    count = len(traced.reads)
    gradient = Gradient(halves, places, connected[:count], connected[count:])
    return dataclasses.replace(traced, gradient=gradient)


class _Tracer:
    def __init__(self, index, stage, device, inputs, purpose, last):
        self.index = index
        self.stage = stage
        self.device = device
        self.inputs = inputs
        self.purpose = purpose
        self.ends_in_loss = last and purpose.loss
        self.last = last
        self.loss = None
        self.labels = None
        self.structure: Any = ()
        self.has_loss = False

    def add_labels(self, loss: Callable[..., Any] | None, labels: Any) -> None:
        """Gives the last stage the labels: to the loss, or to itself where it computes the loss."""
        if not self.last:
            return
        stage, where = self.stage, f"stage {self.index} ({self.stage.name})"
        if loss is not None:
            self.loss, self.labels = loss, labels if self.ends_in_loss else None
            if self.ends_in_loss and labels is None:
                raise OptionError("y=None: the loss needs labels")
        elif labels is None or LABELS in (stage.inputs or ()):
            return
        elif takes(stage.fn, len(self._arguments()) + 1):
            self.inputs = [*self._arguments(), labels]
        else:
            raise OptionError(
                f"loss=None, and {where} does not take the labels: pass a loss (a callable of "
                "labels and predictions, or a name that Keras knows), or let the last stage take "
                "the labels as its last argument and return the loss"
            )

    def _arguments(self) -> list[Any]:
        """The inputs, one by one."""
        spread = len(self.inputs) == 1 and type(self.inputs[0]) in (tuple, list)
        return list(self.inputs[0]) if spread else self.inputs

    def trace(self) -> tuple[Traced, Any]:
        given = [self.inputs, [] if self.labels is None else [self.labels]]
        reads = list(
            {
                (one.stage, one.place): one for one in tf.nest.flatten(given) if one is not None
            }.values()
        )
        places = {(leaf.stage, leaf.place): i for i, leaf in enumerate(reads)}

        def body(*tensors):
            def fill(leaf):
                return None if leaf is None else tensors[places[leaf.stage, leaf.place]]

            inputs, labels = tf.nest.map_structure(fill, given)
            results = self.run(inputs, labels)
            private.run_loops_in_turn(tf.compat.v1.get_default_graph())
            return results

        try:
            with tf.device(self.device):
                function = tf.function(body, autograph=False)
                concrete = function.get_concrete_function(*(leaf.spec for leaf in reads))
        except OptionError:
            raise
        except Exception as error:
            raise OptionError(self.text_of(error, reads)) from error
        results = len(concrete.outputs) - self.has_loss
        specs = [tf.TensorSpec(one.shape, one.dtype) for one in concrete.outputs[:results]]
        structure = tf.nest.map_structure(
            lambda place: Leaf(self.index, place, specs[place]), self.structure
        )
        return Traced(reads, concrete, results, self.has_loss, self.restored(concrete)), structure

    def run(self, inputs: list[Any], labels: list[Any]) -> list[tf.Tensor]:
        """What is traced: the stage on its tensors; flat results, then a loss or penalty."""
        fn, training = self.stage.fn, self.purpose.training
        found = call(fn, inputs, training)
        if self.ends_in_loss:
            loss = self.loss(labels[0], found) if self.loss is not None else found
            loss = tf.convert_to_tensor(loss)
            loss = loss if loss.shape.rank == 0 else tf.reduce_mean(loss)
            return [self.with_penalty(loss)]
        flat = [_tensor(leaf) for leaf in tf.nest.flatten(found)]
        self.structure = tf.nest.pack_sequence_as(found, list(range(len(flat))))
        penalty = self.with_penalty(None) if self.purpose.loss else None
        return flat if penalty is None else [*flat, penalty]

    def with_penalty(self, loss: tf.Tensor | None) -> tf.Tensor | None:
        """Adds what the stage's layers ask for, as Keras does: weight and activity regularizers."""
        penalties = _penalties(self.stage.fn)
        for penalty in penalties:
            penalty = tf.convert_to_tensor(penalty)
            loss = penalty if loss is None else loss + tf.cast(penalty, loss.dtype)
        self.has_loss = loss is not None
        return loss

    def text_of(self, error: Exception, reads: list[Leaf]) -> str:
        given = ", ".join(
            f"{leaf.spec.dtype.name}{leaf.spec.shape} of "
            + ("the batch" if leaf.stage == HOST else f"stage {leaf.stage}")
            for leaf in reads
        )
        reason = next((line for line in str(error).splitlines() if line.strip()), "")
        return (
            f"stages[{self.index}] ({self.stage.name}) cannot take what it is given, "
            f"{given}: {type(error).__name__}: {reason.strip()}"
        )

    def restored(self, concrete: Any) -> list[tf.Variable]:
        """What must be put back before the forward runs again."""
        if not (self.stage.recompute and self.purpose.training):
            return []
        where = f"stages[{self.index}] ({self.stage.name}) cannot be recomputed"
        try:
            net = inline(net_of(concrete))
        except NotUnderstood as error:
            raise OptionError(f"{where}: {error}") from error
        stray = _drawn_anew(net)
        if stray is not None:
            raise OptionError(
                f"{where}: it holds the op {stray}, which gives another result when it runs again; "
                "use Keras' dropout or tf.random.stateless_*, or leave the stage out of recompute"
            )
        variables = {id(v.handle): v for v in concrete.graph.variables}
        captured = {
            inside.name: variables.get(id(outside)) for outside, inside in concrete.graph.captures
        }
        written = sorted(set().union(*Writers(net).written.values()))
        if ANY in written or any(captured.get(name) is None for name in written):
            raise OptionError(f"{where}: it writes a variable that cannot be told from the graph")
        return [captured[name] for name in written]


def _named(index: int, stage: Stage, structure: Any) -> dict[str, Any]:
    """The names that a stage gives to its results."""
    names = stage.outputs
    if names is None:
        return {}
    if len(names) == 1:
        return {names[0]: structure}
    if type(structure) not in (tuple, list) or len(structure) != len(names):
        count = len(structure) if isinstance(structure, (tuple, list)) else 1
        raise OptionError(
            f"stages[{index}] ({stage.name}): outputs={names!r} names {len(names)} values, "
            f"it returns {count}"
        )
    return dict(zip(names, structure, strict=True))


def _tensor(leaf: Any) -> tf.Tensor:
    if isinstance(leaf, (tf.RaggedTensor, tf.SparseTensor)) or leaf is None:
        raise TypeError(f"it returns a {type(leaf).__name__}, only tensors go between stages")
    return tf.convert_to_tensor(leaf)


def _penalties(fn: Any) -> list[Any]:
    layers = layers_of(fn)
    inner = {id(one) for layer in layers for one in _sublayers(layer)}
    return [loss for layer in layers if id(layer) not in inner for loss in layer.losses]


def _sublayers(layer: keras.layers.Layer) -> list[Any]:
    return [one for one in layer._flatten_layers(include_self=False)]  # noqa: SLF001


def _drawn_anew(net: Net) -> str | None:
    """The type of an op whose second run would differ from its first, or None."""
    for op in net.ops:
        for inner in op.nets.values():
            found = _drawn_anew(inner)
            if found is not None:
                return found
        handles = any(net.blobs[blob].dtype == "resource" for blob in op.inputs)
        if (
            op.stateful
            and not op.nets
            and not handles
            and op.type != "Assert"
            and op.type != "VarHandleOp"
        ):
            return op.type
    return None
