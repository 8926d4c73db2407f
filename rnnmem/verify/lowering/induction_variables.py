"""Lowering of induction variables: the rewritten Net as if it saved what its gradient loops count.

    final i - c, less c in each iteration    is    i, pushed in each iteration, popped in each
    a number that stays                      is    that number, pushed and popped

A list that begins empty and gains what ``i`` is once in each iteration gives back, popped once in
each, ``final i - c``, then ``c`` less every time; whole numbers of 32 bits wrap around both ways.
What the marks say is only a hint. Where it is not shown to be so, the variable stays, and the
comparison with the original refuses it.
"""

from __future__ import annotations

from collections.abc import Iterable

from rnnmem.analysis.shapes import KnownNet, known_net
from rnnmem.ir.editor import LoopEditor, NetEditor
from rnnmem.ir.graph import DType, Net, Op
from rnnmem.ir.marks import COUNTED
from rnnmem.ir.op_table import EMPTY, LOOPS, POP, PUSH
from rnnmem.verify.lowering.patterns import Variable, behind, made_by, maker, number, variables

_DTYPE = "int32"
_KIND = {"element_dtype": DType(_DTYPE)}
_LIST = ("variant", ())
_UNDONE = {"Add": "Sub", "AddV2": "Sub", "Sub": "AddV2"}
_OF_LISTS = ("TensorListElementShape", "TensorListLength")


def lower_induction_variables(original: Net, rewritten: Net) -> Net:
    """The rewritten Net with lists again, where its gradient loops count whole numbers themselves.

    Args:
      original: the Net as imported.
      rewritten: what a rewrite made of it.
    """
    hinted = [op for op in rewritten.ops if COUNTED in op.attributes and op.type in LOOPS]
    if not hinted:
        return rewritten
    known, editor = known_net(original), NetEditor(rewritten)
    for op in hinted:
        forward = _forward(original, op.name)
        if forward is None or forward.name not in rewritten.op_by_name:
            continue
        counting = _Counting(known, forward, rewritten, op)
        shown = [hint for hint in op.attributes[COUNTED] if counting.is_shown(hint)]
        if shown:
            _save(editor, counting, shown)
    return editor.net()


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


class _Counting:
    """A gradient loop of the rewritten Net, and what it says of its whole numbers."""

    def __init__(self, known: KnownNet, forward: Op, rewritten: Net, loop: Op):
        self.known, self.rewritten, self.loop = known, rewritten, loop
        self.was, self.forward = forward, rewritten.op_by_name[forward.name]
        self.before = forward.nets["body"]  # the forward step net as it was
        self.body, self.back = self.forward.nets["body"], loop.nets["body"]
        self.variables = {one.argument: one for one in variables(self.forward)}

    def is_shown(self, hint: bytes) -> bool:
        """Whether an argument is what a blob of the forward step net was in that iteration."""
        argument, _, blob = hint.decode().partition("\n")
        found = [one for one in variables(self.loop) if one.argument == argument]
        if len(found) != 1 or self.back.blobs[argument].dtype != _DTYPE:
            return False
        if blob in self.variables and self._invariant(blob) is None:
            return self._falls(found[0], self.variables[blob])
        return self._stays(found[0]) and self._starts(found[0], blob)

    def _falls(self, one: Variable, forward: Variable) -> bool:
        """Whether a variable falls from where the forward loop's ended as that one grew."""
        op = maker(self.body, forward.following)
        if (
            op is None
            or op.type not in _UNDONE
            or self.body.blobs[forward.argument].dtype != _DTYPE
        ):
            return False
        first, second = (behind(self.body, given) for given in op.inputs)
        if op.type != "Sub" and second == forward.argument:
            first, second = second, first
        if first != forward.argument:
            return False
        added, around = number(self.body, second), self._invariant(second)
        start, following = maker(self.rewritten, one.start), maker(self.back, one.following)
        if start is None or following is None or {start.type, following.type} != {_UNDONE[op.type]}:
            return False
        if behind(self.rewritten, start.inputs[0]) != forward.final:
            return False
        if behind(self.back, following.inputs[0]) != one.argument:
            return False
        if around is None:
            less = number(self.rewritten, behind(self.rewritten, start.inputs[1]))
            also = number(self.back, behind(self.back, following.inputs[1]))
            return type(added) is int and added == less == also
        held = [
            given.start
            for given in variables(self.loop)
            if given.argument == behind(self.back, following.inputs[1])
            and behind(self.back, given.following) == given.argument
        ]
        return {behind(self.rewritten, start.inputs[1]), *held} == {around} and bool(held)

    def _stays(self, one: Variable) -> bool:
        """Whether the variable becomes the larger of itself and itself."""
        op = made_by(self.back, behind(self.back, one.following), "Maximum")
        return op is not None and {behind(self.back, given) for given in op.inputs} == {
            one.argument
        }

    def _starts(self, one: Variable, blob: str) -> bool:
        """Whether the variable starts as what the blob always is."""
        around, op = self._invariant(blob), self.before.producer.get(blob)
        if around is not None and behind(self.rewritten, one.start) == around:
            return True
        start = maker(self.rewritten, one.start)
        if start is None or not self._has(blob, op):
            return False
        if start.type == "Const":
            inside = self.known.inner.get((self.was.name, "body"))
            fact = None if inside is None else inside.facts.get(blob)
            value = None if fact is None else fact.value
            return value is not None and number(self.rewritten, start.outputs[0]) == value
        if op is None or start.type not in _OF_LISTS or op.type != start.type:
            return False
        held = self._invariant(behind(self.before, op.inputs[0]))
        return held is not None and behind(self.rewritten, start.inputs[0]) == held

    def _invariant(self, blob: str) -> str | None:
        """The blob around the forward loop that an argument is in every iteration."""
        one = self.variables.get(blob)
        stays = one is not None and behind(self.body, one.following) == blob
        return behind(self.rewritten, one.start) if one is not None and stays else None

    def _has(self, blob: str, op: Op | None) -> bool:
        """Whether the forward step net still has the blob, or all that its op reads."""
        return self.is_made(blob) or op is not None and all(map(self.is_made, op.inputs))

    def is_made(self, blob: str) -> bool:
        """Whether the forward step net still has the blob."""
        return blob in self.body.producer or blob in self.variables


def _save(editor: NetEditor, counting: _Counting, hints: Iterable[bytes]) -> None:
    """Saves what the loop counts in lists that it pops."""
    forward = LoopEditor(editor, editor.ops[counting.forward.name])
    loop = LoopEditor(editor, editor.ops[counting.loop.name])
    for hint in hints:
        argument, _, blob = hint.decode().partition("\n")
        new = editor.add(EMPTY, (), (_LIST,), _KIND, name="counted/list").outputs[0]
        held, final = forward.add_variable(new, "counted_list")
        made = counting.before.producer.get(blob)
        if made is not None and not counting.is_made(blob):
            again = forward.body.add(
                made.type,
                made.inputs,
                ((_DTYPE, counting.before.blobs[blob].shape),),
                made.attributes,
                name="counted/again",
                device=made.device,
            )
            blob = again.outputs[0]
        pushed = forward.body.add(PUSH, (held, blob), (_LIST,), _KIND, name="counted/push")
        forward.set_next(held, pushed.outputs[0])
        emptied, _ = loop.add_variable(final, "counted_list")
        kind = loop.body.blobs[argument]
        results = (_LIST, (_DTYPE, kind.shape))
        pop = loop.body.add(POP, (emptied,), results, _KIND, name="counted/pop")
        loop.set_next(emptied, pop.outputs[0])
        loop.remove_variable(argument)
        loop.body.rename(argument, pop.outputs[1])
    forward.finish()
    loop.finish()
