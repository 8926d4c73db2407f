"""Rewrites a loop pair between two branch ops: what one hands to the other changes with it."""

from __future__ import annotations

from collections.abc import Callable

from rnnmem.analysis.branch_pairs import BranchPair
from rnnmem.analysis.variable_effects import Writers
from rnnmem.ir.branch_editor import BranchEditor
from rnnmem.ir.builders import Encode
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import BYTES_PER_ELEMENT, DType, ShapeValue
from rnnmem.ir.op_table import UNWRAP, WRAP
from rnnmem.ir.order import through_identities
from rnnmem.passes.rematerialise.apply import Surroundings, rewrite_pair
from rnnmem.passes.rematerialise.decision import LoopPlan
from rnnmem.passes.rematerialise.hoisted_reads import InnerRead
from rnnmem.passes.rematerialise.select import Outside

_LIST = (("variant", ()),)


def outside_of(one: BranchPair, writers: Writers) -> Outside:
    """What the decisions for a pair between branches depend on of the Nets around it."""
    net, op = one.pair.forward.net, one.forward

    def available(blob: str) -> bool:
        blob = through_identities(net, blob)
        made = net.producer.get(blob)
        known = blob in net.inputs if made is None else made.type == "Const"
        return known and net.blobs[blob].dtype in BYTES_PER_ELEMENT

    def unchanged(blob: str) -> bool:
        blob = through_identities(net, blob)
        if blob not in net.inputs:
            return False
        return writers.unchanged_by(op, op.inputs[1 + net.inputs.index(blob)])

    return Outside(available, unchanged)


def rewrite_branch_pair(
    editor: NetEditor,
    one: BranchPair,
    plan: LoopPlan,
    read: Callable[[InnerRead, str], str],
    constant: Encode,
    keeps_alive: bool,
) -> list[str]:
    """Applies the plan to one pair; edits the Net in place.

    Args:
      editor: the Net with both branch ops.
      one: the pair.
      plan: the decisions.
      read: (read op, blob of the Net that holds the handle) -> what one read beside the forward
        branch op gives.
      constant: encodes a number: (value, dtype) -> Constant.
      keeps_alive: whether a graph optimizer that fuses runs afterwards.

    Returns:
      Blobs of the Net that must not be pruned.
    """
    return _Rewrite(editor, one, plan, read, constant, keeps_alive).run()


class _Rewrite:
    def __init__(self, editor, one, plan, read, constant, keeps_alive):
        self.one, self.plan = one, plan
        self.read, self.constant, self.keeps_alive = read, constant, keeps_alive
        self.forward = BranchEditor(editor, editor.ops[one.forward.name])
        self.gradient = BranchEditor(editor, editor.ops[one.gradient.name])
        self.constants: dict[str, str] = {}

    def run(self) -> list[str]:
        label = self.one.label
        left = rewrite_pair(
            self.one.pair,
            self.plan,
            Surroundings(
                forward=self.forward.nets[label],
                gradients=(self.gradient.nets[label],),
                bring=lambda _, blob: self._bring(blob),
                carry=lambda _, blob: self._carry(blob),
                read=lambda _, read, handle: self._given(self.read(read, self._outside(handle))),
                constant=self.constant,
                keeps_alive=self.keeps_alive,
            ),
        )
        self._drop_lists()
        held = [self._hand_out(self.forward, blob) for blob in left.forward]
        held += [self._hand_out(self.gradient, blob) for blob in left.gradients[0]]
        self.forward.finish()
        self.gradient.finish()
        return held

    def _outside(self, blob: str) -> str:
        """The outer blob that an argument of the forward branch holds."""
        net = self.one.pair.forward.net
        return self.one.forward.inputs[1 + net.inputs.index(through_identities(net, blob))]

    def _given(self, outer: str) -> str:
        return self.gradient.give(outer)[self.one.label]

    def _bring(self, blob: str) -> str:
        """A constant or an argument of the forward branch, in the gradient branch."""
        net = self.one.pair.forward.net
        made = net.producer.get(through_identities(net, blob))
        if made is None:
            return self._given(self._outside(blob))
        if made.name not in self.constants:
            (kind,) = (net.blobs[one] for one in made.outputs)
            self.constants[made.name] = (
                self.gradient.nets[self.one.label]
                .add(
                    made.type,
                    (),
                    ((kind.dtype, kind.shape),),
                    made.attributes,
                    name=f"rnnmem/again/{made.name}",
                    device=made.device,
                    source=made.source,
                )
                .outputs[0]
            )
        return self.constants[made.name]

    def _carry(self, held: str) -> str:
        """A list of the forward branch, in the gradient branch."""
        outer = self._hand_out(self.forward, held)
        attributes = {"output_types": (DType("variant"),), "output_shapes": (ShapeValue(()),)}
        net = self.gradient.nets[self.one.label]
        given = (self._given(outer),)
        return net.add(UNWRAP, given, _LIST, attributes, name="rnnmem/unwrapped").outputs[0]

    def _hand_out(self, editor: BranchEditor, held: str) -> str:
        """The optional outside that holds a list of a branch, or nothing."""
        kind = {"Toutput_types": (DType("variant"),)}
        made = {
            label: net.add(WRAP, (held,), _LIST, kind, name="rnnmem/wrapped_list")
            if label == self.one.label
            else net.add("OptionalNone", (), _LIST, {}, name="rnnmem/none")
            for label, net in editor.nets.items()
        }
        return editor.hand_out({label: op.outputs[0] for label, op in made.items()}, "handed")

    def _drop_lists(self) -> None:
        """Takes out what was handed over and is not saved any more."""
        pair = self.one.pair
        handed = {one.held: one for one in self.one.handed}
        for link in pair.gradients[0].links:
            if link.pushed in self.plan.saved:
                continue
            gone = handed[pair.forward.op.outputs[link.accumulator]]
            self.gradient.nets[self.one.label].remove(gone.unwrap.name)
            self.gradient.drop_input(gone.outer)
            self.forward.drop_output(gone.outer)
