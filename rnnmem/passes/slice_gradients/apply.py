"""Puts gradients of slices side by side, and adds a zero that TensorFlow does not know to be one.

The sum keeps its name, by which its readers sort it. Of what a ConcatV2 joins along an axis that
is known, TensorFlow's graph optimizer takes the other sizes for equal, everywhere in the function,
which it did not know of sums; where a size is unknown it does not see the axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rnnmem.errors import NetError
from rnnmem.grappler.barrier import hidden
from rnnmem.ir.builders import Encode, number
from rnnmem.ir.editor import NetEditor, edit_step_nets
from rnnmem.ir.graph import DType, Net, Shape
from rnnmem.ir.op_table import slots
from rnnmem.passes.decision import Context, await_no_more, planned_op
from rnnmem.passes.slice_gradients.decision import Part, SliceGradients
from rnnmem.passes.slice_gradients.select import SUM

_GIVEN = slots("windows")
"""Op type -> which of its inputs it puts between zeros."""


def apply(net: Net, sums: Iterable[SliceGradients], context: Context) -> Net:
    """Applies the decisions of a plan; XLA makes no part whole.

    Raises:
      NetError: a decision names an op that the Net does not have, or that does something else.
    """
    return _joined(net, sums, context.constant) if context.keeps_alive else net


def _joined(net: Net, sums: Iterable[SliceGradients], constant: Encode) -> Net:
    editor = NetEditor(net)
    here = edit_step_nets(editor, sums, lambda inner, some: _joined(inner, some, constant))
    shared: dict[tuple, str] = {}
    for one in here:
        _Sum(editor, one, constant, shared).write()
    return editor.net()


class _Sum:
    """One sum of slices' gradients, while it is written anew."""

    def __init__(
        self,
        editor: NetEditor,
        sums: SliceGradients,
        constant: Encode,
        shared: dict[tuple, str],
    ):
        self.editor, self.sums, self.constant, self.shared = editor, sums, constant, shared
        self.op = planned_op(editor, sums.total, SUM)
        self.kind = editor.blobs[self.op.outputs[0]]
        self.parts = [planned_op(editor, one.op) for some in sums.layers for one in some]
        read = {blob for one in self.parts for blob in one.outputs}
        self.others = [blob for blob in self.op.inputs if blob not in read]
        known = all(one.type in _GIVEN for one in self.parts) and read <= set(self.op.inputs)
        if not known or len(self.others) + len(sums.layers) > 2:
            raise NetError(f"the plan is for another function: {sums.total!r} adds up others")

    def write(self) -> None:
        """Puts the slices' gradients side by side in the place of the sum."""
        terms = (*self.others, *map(self._layer, self.sums.layers))
        kind = {"T": DType(self.kind.dtype)}
        total = terms[0]
        if len(terms) > 1:
            total = self._add(SUM, terms, self.kind.shape, {"N": len(terms)}, self._named("all"))
        self.editor.ops[self.op.name] = self.op.replace(
            type="AddV2",
            inputs=(total, self._hidden("zero", 0.0, self.kind.dtype)),
            attributes=kind,
        )
        for one in self.parts:
            await_no_more(self.editor, one)
            self.editor.remove(one.name)

    def _layer(self, parts: Sequence[Part]) -> str:
        """Slices' gradients side by side."""
        pieces = list(map(self._piece, parts))
        controls = (name for one in parts for name in self.editor.ops[one.op].controls)
        return self._add(
            "ConcatV2",
            (*pieces, self._axis()),
            self.kind.shape,
            {"N": len(pieces), "Tidx": DType("int32")},
            self._named("joined"),
            tuple(dict.fromkeys(controls)),
        )

    def _named(self, name: str) -> str:
        return f"{self.op.name}/rnnmem/{name}"

    def _piece(self, part: Part) -> str:
        """What a part was given, with its axis and with zeros where no other part stands."""
        op, axis = self.editor.ops[part.op], self.sums.axis
        blob, beside = op.inputs[_GIVEN[op.type]], (part.before, part.behind)
        if op.attributes.get("shrink_axis_mask"):
            attributes = {"Tdim": DType("int32")}
            blob = self._add("ExpandDims", (blob, self._number(axis)), None, attributes)
        if beside == (0, 0):
            return blob
        around = tuple(beside if at == axis else (0, 0) for at in range(self.sums.rank))
        attributes = {"Tpaddings": DType("int32")}
        return self._add("Pad", (blob, self._number(around)), None, attributes)

    def _axis(self) -> str:
        """Along which parts are joined."""
        axis, shape = self.sums.axis, self.kind.shape
        known = shape is not None and None not in (*shape[:axis], *shape[axis + 1 :])
        return self._number(axis) if known else self._hidden("axis", axis, "int32")

    def _hidden(self, name: str, value: float, dtype: str) -> str:
        """A number, one for all sums, which no graph optimizer sees."""
        key = name, dtype, value
        if key not in self.shared:
            shown = number(self.editor, value, self.constant, dtype=dtype)
            self.shared[key] = hidden(
                self.editor, shown, (), name=f"rnnmem/{name}", stands_for=name, optional=True
            )
        return self.shared[key]

    def _number(self, value: object) -> str:
        return number(self.editor, value, self.constant)

    def _add(
        self,
        type: str,
        inputs: tuple[str, ...],
        shape: Shape,
        attributes: Mapping[str, object],
        name: str = "rnnmem/piece",
        controls: tuple[str, ...] = (),
    ) -> str:
        return self.editor.add(
            type,
            inputs,
            ((self.kind.dtype, shape),),
            {"T": DType(self.kind.dtype), **attributes},
            name=name,
            device=self.op.device,
            source=self.op.source,
            controls=controls,
        ).outputs[0]
