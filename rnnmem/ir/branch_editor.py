"""Working copy of a branch op: what it is given and what it hands out, in all of its Nets."""

from __future__ import annotations

from collections.abc import Mapping

from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import Blob, DType, Op, ShapeValue
from rnnmem.ir.marks import GIVEN


class BranchEditor:
    """A branch op that is being changed, with its Nets; their signatures are kept in step here."""

    def __init__(self, outer: NetEditor, op: Op):
        self.outer = outer
        self.op = op
        self.nets = {label: NetEditor(net) for label, net in op.nets.items()}
        self.inputs = list(op.inputs)
        self.outputs = list(op.outputs)
        self.sources: list[int | None] = list(range(len(op.inputs)))  # None: a new input
        self.results: list[int | None] = list(range(len(op.outputs)))  # None: a new output

    def give(self, start: str) -> Mapping[str, str]:
        """The arguments, by branch, that hold an outer blob; added where there are none."""
        if start not in self.inputs[1:]:
            kind = self.outer.blobs[start]
            self.inputs.append(start)
            self.sources.append(None)
            for net in self.nets.values():
                argument = net.fresh_input("given")
                net.blobs[argument] = Blob(argument, kind.dtype, kind.shape)
                net.inputs.append(argument)
        place = self.inputs.index(start, 1) - 1
        return {label: net.inputs[place] for label, net in self.nets.items()}

    def hand_out(self, blobs: Mapping[str, str], name: str) -> str:
        """The outer blob that is one of these, by branch."""
        for label, blob in blobs.items():
            self.nets[label].outputs.append(blob)
            kind = self.nets[label].blobs[blob]
        result = self.outer.new_blob(f"{self.op.name}/{name}", kind.dtype, kind.shape)
        self.outputs.append(result)
        self.results.append(None)
        return result

    def drop_input(self, blob: str) -> None:
        """Takes an input out, which no branch reads any more."""
        place = self.inputs.index(blob, 1)
        del self.inputs[place], self.sources[place]
        for net in self.nets.values():
            del net.inputs[place - 1]

    def drop_output(self, blob: str) -> None:
        """Takes an output out, and what makes it in each branch for nobody else."""
        place = self.outputs.index(blob)
        del self.outputs[place], self.results[place]
        for net in self.nets.values():
            made = net.original.producer.get(net.outputs.pop(place))
            if made is not None and sum(map(net.original.fan_out, made.outputs)) == 1:
                net.remove(made.name)

    def finish(self) -> Op:
        """Writes the op back into the outer Net."""
        attributes = dict(self.op.attributes)
        attributes["Tin"] = tuple(DType(self.outer.blobs[one].dtype) for one in self.inputs[1:])
        attributes["Tout"] = tuple(DType(self.outer.blobs[one].dtype) for one in self.outputs)
        shapes = attributes.get("output_shapes")
        if shapes:
            attributes["output_shapes"] = tuple(
                ShapeValue(self.outer.blobs[blob].shape) if old is None else shapes[old]
                for blob, old in zip(self.outputs, self.results, strict=True)
            )
        if given := attributes.get(GIVEN):
            attributes[GIVEN] = tuple(b"" if old is None else given[old] for old in self.sources)
        if read_only := attributes.get("_read_only_resource_inputs"):
            attributes["_read_only_resource_inputs"] = tuple(
                new for new, old in enumerate(self.sources) if old in read_only
            )
        if count := attributes.get("_num_original_outputs"):
            attributes["_num_original_outputs"] = sum(
                1 for old in self.results if old is not None and old < count
            )
        for net in self.nets.values():
            net.attributes = self._signature(net)
        op = self.op.replace(
            inputs=tuple(self.inputs),
            outputs=tuple(self.outputs),
            attributes=attributes,
            nets={label: net.net() for label, net in self.nets.items()},
        )
        self.outer.ops[op.name] = op
        return op

    def _signature(self, net: NetEditor) -> dict[str, object]:
        """The Net's attributes, without what described other arguments."""
        kept = dict(net.attributes)
        if described := kept.get("argument_attributes"):
            kept["argument_attributes"] = tuple(
                {} if old is None else described[old - 1] for old in self.sources[1:]
            )
        function = dict(kept.get("attributes", {}))
        function.pop("_input_shapes", None)
        kept["attributes"] = function
        return kept
