"""Working copies: a Net, and a loop in it, while they are being rewritten."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from rnnmem.errors import NetError
from rnnmem.ir.graph import Blob, DType, Net, Op, Shape, ShapeValue
from rnnmem.ir.marks import GIVEN
from rnnmem.ir.order import order_shows, topological


class Located(Protocol):
    """A frozen dataclass that says in which step net an edit is to be made."""

    @property
    def path(self) -> tuple[str, ...]:
        """Names of ops and attributes in turn; of the Net itself, empty."""


Edit = TypeVar("Edit", bound=Located)


class NetEditor:
    """A Net that is being changed; ``net()`` freezes it again."""

    def __init__(self, net: Net):
        self.original = net
        self.inputs = list(net.inputs)
        self.outputs = list(net.outputs)
        self.ops = {op.name: op for op in net.ops}
        self.blobs = dict(net.blobs)
        self.control_outputs = list(net.control_outputs)
        self.attributes = dict(net.attributes)
        self._renamed: dict[str, str] = {}
        self._taken: dict[str, int] = {}  # stem -> a number up to which names of it are taken

    def fresh(self, stem: str) -> str:
        """An op name that is not taken."""
        name, number = stem, self._taken.get(stem, 0)
        while name in self.ops:
            number += 1
            name = f"{stem}_{number}"
        self._taken[stem] = max(0, number - 1)
        return name

    def fresh_input(self, stem: str) -> str:
        """A name for a new input; letters, digits and underscores only, as functions demand."""
        stem = re.sub(r"\W", "_", stem).lower()
        name, number = stem, 0
        while name in self.blobs:
            number += 1
            name = f"{stem}_{number}"
        return name

    def add(
        self,
        type: str,
        inputs: Iterable[str],
        results: Iterable[tuple[str, Shape]],
        attributes: Mapping[str, Any],
        *,
        name: str,
        controls: Iterable[str] = (),
        **fields: Any,
    ) -> Op:
        """Adds an op; ``results`` are ``(dtype, shape)`` of what it writes."""
        name = self.fresh(name)
        results = tuple(results)
        outputs = tuple(self.new_blob(f"{name}:{i}", *result) for i, result in enumerate(results))
        op = Op(name, type, tuple(inputs), outputs, attributes, tuple(controls), **fields)
        self.ops[name] = op
        return op

    def new_blob(self, name: str, dtype: str, shape: Shape) -> str:
        """Declares a blob under a name that is not taken, and returns the name."""
        while name in self.blobs:
            name += "_"
        self.blobs[name] = Blob(name, dtype, shape)
        return name

    def rename(self, old: str, new: str) -> None:
        """From now on ``new`` stands for ``old`` wherever it is read."""
        self._renamed[old] = new

    def swap(self, op_name: str, by: str) -> None:
        """Takes an op out; whoever waited for it now waits for the op ``by``."""
        for name, op in self.ops.items():
            if op_name in op.controls:
                controls = (by if one == op_name else one for one in op.controls)
                self.ops[name] = op.replace(controls=tuple(dict.fromkeys(controls)))
        del self.ops[op_name]

    def remove(self, op_name: str) -> None:
        """Takes an op out; whoever waited for it no longer does."""
        del self.ops[op_name]
        self._taken.clear()

    def resolve(self, blob: str) -> str:
        """What stands for the blob now."""
        while blob in self._renamed:
            blob = self._renamed[blob]
        return blob

    def net(self) -> Net:
        """The edited Net, its ops in an order in which they may run."""
        ops = [self._as_it_stands(op) for op in self.ops.values()]
        outputs = tuple(self.resolve(blob) for blob in self.outputs)
        used = {*self.inputs, *(blob for op in ops for blob in op.outputs)}
        return self.original.replace(
            inputs=tuple(self.inputs),
            outputs=outputs,
            ops=topological(ops),
            blobs={name: blob for name, blob in self.blobs.items() if name in used},
            control_outputs=tuple(self.control_outputs),
            attributes=self.attributes,
        )

    def go_on_with(self, net: Net) -> None:
        """Goes on with a Net that was made of the edited one; what was renamed stays so."""
        self.inputs, self.outputs = list(net.inputs), list(net.outputs)
        self.ops = {op.name: op for op in net.ops}
        self.blobs = dict(net.blobs)
        self._taken.clear()

    def _as_it_stands(self, op: Op) -> Op:
        """The op with what stands for its inputs now, waiting for no op that is gone."""
        inputs, controls = op.inputs, op.controls
        if not controls and self._renamed.keys().isdisjoint(inputs):
            return op
        if not self._renamed.keys().isdisjoint(inputs):
            inputs = tuple([self.resolve(blob) for blob in inputs])
        if controls:
            controls = tuple([name for name in controls if name in self.ops])
        if inputs == op.inputs and controls == op.controls:
            return op
        return op.replace(inputs=inputs, controls=controls)


class LoopEditor:
    """A loop op that is being changed, with its body and cond.

    A loop variable touches the op's inputs, outputs and attributes and both signatures; they are
    kept in step here and nowhere else.
    """

    def __init__(self, outer: NetEditor, op: Op):
        self.outer = outer
        self.op = op
        self.body = NetEditor(op.nets["body"])
        self.cond = NetEditor(op.nets["cond"])
        self.inputs = list(op.inputs)
        self.outputs = list(op.outputs)
        self.positions: list[int | None] = list(range(len(op.inputs)))  # None: a new variable
        self.one_at_a_time = False

    def add_variable(self, start: str, stem: str) -> tuple[str, str]:
        """Adds a variable that starts as the outer blob ``start``; its next value is set later.

        Returns:
          ``(body argument, outer blob)``: what the body reads, and what the loop hands outside.
        """
        blob = self.outer.blobs[start]
        argument = self.body.fresh_input(stem)
        self.body.blobs[argument] = Blob(argument, blob.dtype, blob.shape)
        condition = self.cond.fresh_input(stem)
        self.cond.blobs[condition] = Blob(condition, blob.dtype, blob.shape)
        result = self.outer.new_blob(f"{self.op.name}/{stem}", blob.dtype, blob.shape)
        self.body.inputs.append(argument)
        self.body.outputs.append(argument)
        self.cond.inputs.append(condition)
        self.inputs.append(start)
        self.outputs.append(result)
        self.positions.append(None)
        return argument, result

    def invariant(self, start: str) -> str:
        """The argument of the variable that stays the outer blob ``start``; added if missing."""
        for position, held in enumerate(self.inputs):
            argument = self.body.inputs[position]
            if held == start and self.body.outputs[position] == argument:
                return argument
        return self.add_variable(start, "invariant")[0]

    def set_next(self, argument: str, blob: str) -> None:
        """The body's variable ``argument`` is ``blob`` in the next iteration."""
        self.body.outputs[self.body.inputs.index(argument)] = blob

    def remove_variable(self, argument: str) -> None:
        """Takes the variable out everywhere; nobody may read it any more."""
        index = self.body.inputs.index(argument)
        for names in (
            self.body.inputs,
            self.body.outputs,
            self.cond.inputs,
            self.inputs,
            self.outputs,
            self.positions,
        ):
            del names[index]

    def finish(self, **attributes: Any) -> Op:
        """Writes the loop back into the outer Net."""
        arguments = [self.body.blobs[name] for name in self.body.inputs]
        changed: dict[str, Any] = {
            "T": tuple(DType(blob.dtype) for blob in arguments),
            "output_shapes": self._output_shapes(),
        }
        if "_read_only_resource_inputs" in self.op.attributes:
            read_only = set(self.op.attributes["_read_only_resource_inputs"])
            changed["_read_only_resource_inputs"] = tuple(
                new for new, old in enumerate(self.positions) if old in read_only
            )
        if "_num_original_outputs" in self.op.attributes:
            count = self.op.attributes["_num_original_outputs"]
            changed["_num_original_outputs"] = sum(
                1 for old in self.positions if old is not None and old < count
            )
        if GIVEN in self.op.attributes:
            given = self.op.attributes[GIVEN]
            changed[GIVEN] = tuple(b"" if old is None else given[old] for old in self.positions)
        if self.one_at_a_time and not order_shows(self.op.nets["body"]):
            attributes["parallel_iterations"] = 1
        for net in (self.body, self.cond):
            net.attributes = self._signature_attributes(net)
        op = self.op.replace(
            inputs=tuple(self.inputs),
            outputs=tuple(self.outputs),
            attributes={**self.op.attributes, **changed, **attributes},
            nets={"body": self.body.net(), "cond": self.cond.net()},
        )
        self.outer.ops[op.name] = op
        return op

    def _output_shapes(self) -> tuple[ShapeValue, ...]:
        old = self.op.attributes.get("output_shapes", ())
        return tuple(
            old[position]
            if position is not None and position < len(old)
            else ShapeValue(self.body.blobs[name].shape)
            for position, name in zip(self.positions, self.body.inputs, strict=True)
        )

    def _signature_attributes(self, net: NetEditor) -> dict[str, Any]:
        """Drops what described the old signature, keeps what belongs to a surviving argument."""
        kept = dict(net.attributes)
        old = kept.get("argument_attributes")
        if old:
            kept["argument_attributes"] = tuple(
                old[position] if position is not None else {} for position in self.positions
            )
        function = dict(kept.get("attributes", {}))
        function.pop("_input_shapes", None)
        kept["attributes"] = function
        return kept


def edit_step_nets(
    editor: NetEditor, edits: Iterable[Edit], apply: Callable[[Net, list[Edit]], Net]
) -> list[Edit]:
    """Applies what is to be edited in step nets; returns the edits of the Net itself.

    Args:
      editor: of the Net.
      edits: their paths begin at the Net.
      apply: gives a step net with its edits, whose paths begin at it.

    Raises:
      NetError: the Net has no such step net.
    """
    here: list[Edit] = []
    inside: dict[tuple[str, ...], list[Edit]] = {}
    for edit in edits:
        if edit.path:
            # A protocol cannot say that its classes are dataclasses.
            deeper = dataclasses.replace(edit, path=edit.path[2:])  # type: ignore[type-var]
            inside.setdefault(edit.path[:2], []).append(deeper)
        else:
            here.append(edit)
    for (name, key), some in inside.items():
        if name not in editor.ops:
            raise NetError(f"the plan is for another function: no op {name!r}")
        op = editor.ops[name]
        if key not in op.nets:
            raise NetError(f"the plan is for another function: {name!r} has no {key!r}")
        editor.ops[name] = op.replace(nets={**op.nets, key: apply(op.nets[key], some)})
    return here
