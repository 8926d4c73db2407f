"""Lowering of induction variables: the rewritten Net as if it saved what its gradient loops count.

    final i - c, less c in each iteration    is    i, pushed in each iteration, popped in each
    a number that stays                      is    that number, pushed and popped

A list that begins empty and gains what ``i`` is once in each iteration gives back, popped once in
each, ``final i - c``, then ``c`` less every time; whole numbers of 32 bits wrap around both ways.
What the marks say is only a hint. Where it is not shown to be so, the variable stays, and the
comparison with the original refuses it.
"""

from __future__ import annotations

import dataclasses

from rnnmem.analysis.shapes import KnownNet, known_net
from rnnmem.ir.editor import LoopEditor, NetEditor
from rnnmem.ir.graph import DType, Net, Op
from rnnmem.ir.marks import COUNTS
from rnnmem.ir.op_table import EMPTY, LOOPS, POP, PUSH
from rnnmem.verify.lowering.patterns import Variable, behind, made_by, maker, number, variables

_DTYPE = "int32"
_KIND = {"element_dtype": DType(_DTYPE)}
_LIST = ("variant", ())
_UNDONE = {"Add": "Sub", "AddV2": "Sub", "Sub": "AddV2"}
_OF_LISTS = ("TensorListElementShape", "TensorListLength")


@dataclasses.dataclass(frozen=True)
class _Claim:
    """That an argument of a gradient loop is what a list of the forward loop would give back.

    Attributes:
      loop: the gradient loop; ``forward``: the forward loop.
      argument: of the gradient loop's body.
      pushed: the blob of the forward step net that is in the list.
      final: the list behind the forward loop.
    """

    loop: str
    forward: str
    argument: str
    pushed: str
    final: str


def lower_induction_variables(original: Net, rewritten: Net) -> Net:
    """The rewritten Net with lists again, where its gradient loops count whole numbers themselves.

    Args:
      original: the Net as imported.
      rewritten: what a rewrite made of it.
    """
    hinted = [op for op in rewritten.ops if COUNTS in op.attributes and op.type in LOOPS]
    if not hinted:
        return rewritten
    editor = NetEditor(rewritten)
    claims = [claim for op in hinted for claim in _with_lists(editor, original, op)]
    filled = editor.net()
    known, editor = known_net(filled), NetEditor(filled)
    for claim in claims:
        if _Proof(known, filled, claim).holds():
            _pop(editor, claim)
    return editor.net()


def _with_lists(editor: NetEditor, original: Net, op: Op) -> list[_Claim]:
    """Has the forward loop save what the gradient loop says that it counts."""
    was = _forward(original, op.name)
    if was is None or was.name not in editor.ops or editor.ops[was.name].type not in LOOPS:
        return []
    forward, claims = LoopEditor(editor, editor.ops[was.name]), []
    for hint in op.attributes[COUNTS]:
        argument, _, blob = hint.decode().partition("\n")
        pushed = _made(forward.body, was.nets["body"], blob)
        if pushed is not None:
            new = editor.add(EMPTY, (), (_LIST,), _KIND, name="counted/list").outputs[0]
            held, final = forward.add_variable(new, "counted_list")
            longer = forward.body.add(PUSH, (held, pushed), (_LIST,), _KIND, name="counted/push")
            forward.set_next(held, longer.outputs[0])
            claims.append(_Claim(op.name, was.name, argument, pushed, final))
    forward.finish()
    return claims


def _made(body: NetEditor, before: Net, blob: str) -> str | None:
    """The blob of a step net; made as it was before, where nobody read it any more."""
    there = {*body.inputs, *(one for op in body.ops.values() for one in op.outputs)}
    if blob in there:
        return blob
    op = before.producer.get(blob)
    if op is None or op.nets or not there.issuperset(op.inputs):
        return None
    kind = before.blobs[blob]
    results = ((kind.dtype, kind.shape),)
    again = body.add(
        op.type, op.inputs, results, op.attributes, name="counted/again", device=op.device
    )
    return again.outputs[0]


def _pop(editor: NetEditor, claim: _Claim) -> None:
    """Has the gradient loop pop what it counted."""
    loop = LoopEditor(editor, editor.ops[claim.loop])
    emptied, _ = loop.add_variable(claim.final, "counted_list")
    results = (_LIST, (_DTYPE, loop.body.blobs[claim.argument].shape))
    pop = loop.body.add(POP, (emptied,), results, _KIND, name="counted/pop")
    loop.set_next(emptied, pop.outputs[0])
    loop.remove_variable(claim.argument)
    loop.body.rename(claim.argument, pop.outputs[1])
    loop.finish()


def _forward(original: Net, name: str) -> Op | None:
    """The loop that fills a list which the loop of that name empties."""
    loop = original.op_by_name.get(name)
    if loop is None or loop.type not in LOOPS:
        return None
    body = loop.nets["body"]
    for one in variables(loop):
        pop, forward = made_by(body, behind(body, one.following), POP), maker(original, one.start)
        if pop is None or behind(body, pop.inputs[0]) != one.argument or forward is None:
            continue
        if forward.type in LOOPS:
            return forward
    return None


class _Proof:
    """That a claim holds, by the Net in which the list is filled and not yet emptied."""

    def __init__(self, known: KnownNet, net: Net, claim: _Claim):
        self.known, self.net, self.claim = known, net, claim
        loop, forward = net.op_by_name[claim.loop], net.op_by_name[claim.forward]
        self.body, self.back = forward.nets["body"], loop.nets["body"]
        self.forward = {one.argument: one for one in variables(forward)}
        self.gradient = {one.argument: one for one in variables(loop)}

    def holds(self) -> bool:
        """Whether the argument is what the blob was in that iteration."""
        one, blob = self.gradient.get(self.claim.argument), self.claim.pushed
        if one is None or {self.back.blobs[one.argument].dtype, self.body.blobs[blob].dtype} != {
            _DTYPE
        }:
            return False
        if blob in self.forward and self._invariant(blob) is None:
            return self._falls(one, self.forward[blob])
        return self._stays(one) and self._starts(one, blob)

    def _falls(self, one: Variable, forward: Variable) -> bool:
        """Whether a variable falls from where the forward loop's ended as that one grew."""
        op = maker(self.body, forward.following)
        start, following = maker(self.net, one.start), maker(self.back, one.following)
        if op is None or start is None or following is None or op.type not in _UNDONE:
            return False
        first, second = (behind(self.body, given) for given in op.inputs)
        if op.type != "Sub" and second == forward.argument:
            first, second = second, first
        if first != forward.argument or {start.type, following.type} != {_UNDONE[op.type]}:
            return False
        final, less = (behind(self.net, given) for given in start.inputs)
        before, also = (behind(self.back, given) for given in following.inputs)
        if final != forward.final or before != one.argument:
            return False
        around = self._invariant(second)
        if around is not None:
            held = self.gradient.get(also)
            if held is None or behind(self.back, held.following) != also:
                return False
            return {less, behind(self.net, held.start)} == {around}
        added = number(self.body, second)
        return type(added) is int and added == number(self.net, less) == number(self.back, also)

    def _stays(self, one: Variable) -> bool:
        """Whether the variable becomes the larger of itself and itself."""
        op = made_by(self.back, behind(self.back, one.following), "Maximum")
        given = () if op is None else op.inputs
        return {behind(self.back, each) for each in given} == {one.argument}

    def _starts(self, one: Variable, blob: str) -> bool:
        """Whether the variable starts as what the blob always is."""
        around, begins = self._invariant(blob), behind(self.net, one.start)
        start, op = self.net.producer.get(begins), self.body.producer.get(blob)
        if around == begins:
            return True
        if start is not None and start.type == "Const":
            fact = self.known.inner[self.claim.forward, "body"].facts.get(blob)
            return (
                fact is not None
                and fact.value is not None
                and fact.value == number(self.net, begins)
            )
        if start is None or op is None or start.type not in _OF_LISTS or op.type != start.type:
            return False
        held = self._invariant(behind(self.body, op.inputs[0]))
        return held is not None and behind(self.net, start.inputs[0]) == held

    def _invariant(self, blob: str) -> str | None:
        """The blob around the forward loop that an argument is in every iteration."""
        one = self.forward.get(blob)
        stays = one is not None and behind(self.body, one.following) == blob
        return behind(self.net, one.start) if one is not None and stays else None
