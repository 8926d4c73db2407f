"""Two Nets as one, and one as two: a function and its gradient, planned together.

A function that somebody differentiates later is traced twice by TensorFlow, forward and backward,
and the backward Net reads blobs of the forward one. Joined they are one step like any other; after
the rewrite they are split again, and exchange only what the rewrite still saves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from rnnmem.ir.awaited import with_awaited_results
from rnnmem.ir.builders import handed_on
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import Blob, DType, Net, Op
from rnnmem.ir.inline import inline
from rnnmem.ir.marks import GIVEN
from rnnmem.ir.op_table import is_pure
from rnnmem.ir.order import all_needed_by

BACKWARD = "rnnmem_backward"
"""Name scope of the gradient in the joint Net."""
_HANDED_ON = f"{BACKWARD}/rnnmem/handed_on"


def join(forward: Net, backward: Net, feeds: Mapping[str, str]) -> Net:
    """One Net that runs ``forward`` and then ``backward``, inlined.

    Args:
      forward: the function.
      backward: its gradient.
      feeds: input of ``backward`` -> blob of ``forward`` whose value it takes; every other input
        becomes an input of the joint Net.

    Returns:
      The joint Net: inputs are those of ``forward``, then the open ones of ``backward``; outputs
      are those of ``forward``, then those of ``backward``.
    """
    opened = {blob: f"{BACKWARD}/{blob}" for blob in backward.inputs if blob not in feeds}
    blobs = dict(forward.blobs)
    for blob, name in opened.items():
        blobs[name] = Blob(name, backward.blobs[blob].dtype, backward.blobs[blob].shape)
    results = []
    for index, blob in enumerate(backward.outputs):
        name = f"{BACKWARD}:{index}"
        blobs[name] = Blob(name, backward.blobs[blob].dtype, backward.blobs[blob].shape)
        results.append(name)
    call = Op(
        name=BACKWARD,
        type="StatefulPartitionedCall",
        inputs=tuple(feeds.get(blob, opened.get(blob, "")) for blob in backward.inputs),
        outputs=tuple(results),
        attributes={"Tout": tuple(DType(blobs[name].dtype) for name in results)},
        nets={"f": backward},
    )
    joint = forward.replace(
        inputs=(*forward.inputs, *opened.values()),
        outputs=(*forward.outputs, *results),
        ops=(*forward.ops, call),
        blobs=blobs,
        control_outputs=(*forward.control_outputs, BACKWARD),
    )
    return inline(joint)


def is_joint(net: Net) -> bool:
    """Whether a function and its gradient were joined: who reads which gradient is not known."""
    return any(map(_is_backward, net.ops))


def hand_on(editor: NetEditor, held: str) -> str:
    """An op by which the gradient's half is handed a list that it does not read.

    Where only the halves stand side by side, the list is a result of the forward one; where a
    caller has both inlined, TensorFlow prunes it as it prunes others of which nobody reads.
    """
    return handed_on(editor, held, _HANDED_ON).name


def await_in_gradient(editor: NetEditor, held: Iterable[str]) -> list[str]:
    """Has loops and branches of the gradient wait for lists of those whose results they read.

    A caller that asks for no gradient prunes these lists with it, as it prunes what TensorFlow
    saves: ops that are fused then are fused here too.

    Args:
      editor: a joint Net.
      held: lists, results of its loops and branches, that must not be pruned before.

    Returns:
      The lists that nothing in the gradient waits for.
    """
    made_by = {blob: op for op in editor.ops.values() for blob in op.outputs}
    lists: dict[str, list[str]] = {}
    left: list[str] = []
    for blob in held:
        maker = made_by[editor.resolve(blob)]
        (left if _is_backward(maker) else lists.setdefault(maker.name, [])).append(blob)
    awaited = set()
    for op in [op for op in editor.ops.values() if op.nets and _is_backward(op)]:
        for name, place in _read_places(editor, op, made_by, lists).items():
            inputs = list(editor.ops[op.name].inputs)
            inputs[place] = _awaiting(editor, inputs[place], lists[name])
            editor.ops[op.name] = editor.ops[op.name].replace(inputs=tuple(inputs))
            awaited.add(name)
    return left + [blob for name, blobs in lists.items() if name not in awaited for blob in blobs]


def _read_places(
    editor: NetEditor, op: Op, made_by: Mapping[str, Op], names: Collection[str]
) -> dict[str, int]:
    """Name of an op -> where another one reads it, a list if it reads any: what is made as late."""
    found: dict[str, int] = {}
    for is_list in (True, False):
        for place, blob in enumerate(map(editor.resolve, op.inputs)):
            maker = made_by.get(blob)
            while maker is not None and maker.type == "Identity":
                maker = made_by.get(editor.resolve(maker.inputs[0]))
            if maker is not None and maker.name in names:
                if (editor.blobs[blob].dtype == "variant") is is_list:
                    found.setdefault(maker.name, place)
    return found


def _awaiting(editor: NetEditor, blob: str, lists: Iterable[str]) -> str:
    """A blob of the gradient that is there when the lists are."""
    held = [handed_on(editor, one, f"{BACKWARD}/rnnmem/hold").name for one in lists]
    return handed_on(editor, blob, f"{BACKWARD}/rnnmem/awaiting", held).outputs[0]


@dataclasses.dataclass(frozen=True)
class Halves:
    """A joint Net split in two.

    Attributes:
      forward: its outputs are the function's, then ``exchanged``.
      backward: its inputs are the gradient's own, then ``exchanged``.
      exchanged: blobs that the forward Net hands to the backward one.
    """

    forward: Net
    backward: Net
    exchanged: tuple[str, ...]


def split(joint: Net, inputs: int, outputs: int, fed: Collection[str] = ()) -> Halves:
    """The inverse of :func:`join`.

    Args:
      joint: a joint Net, rewritten or not.
      inputs: how many of its inputs are the function's.
      outputs: how many of its outputs are the function's.
      fed: blobs that the forward Net hands to the backward one wherever this reads them: a graph
        optimizer that saw how they are made would compute what reads them in another way.
    """
    read_behind = {blob for op in joint.ops if _is_backward(op) for blob in op.inputs}
    fed = read_behind.intersection(fed)
    before = _forward_ops(joint, [*joint.outputs[:outputs], *sorted(fed)])
    forward_ops = tuple(op for op in joint.ops if op.name in before)
    backward_ops = [op for op in joint.ops if op.name not in before]
    constants = {
        op.outputs[0]: op for op in forward_ops if op.type == "Const" and fed.isdisjoint(op.outputs)
    }
    own = {blob for op in backward_ops for blob in op.outputs} | set(joint.inputs[inputs:])
    read = [blob for op in backward_ops for blob in op.inputs] + list(joint.outputs[outputs:])
    needed = dict.fromkeys(blob for blob in read if blob not in own)
    backward_ops = [op for op in backward_ops if not op.name.startswith(_HANDED_ON)]
    copied = [constants[blob].replace(controls=()) for blob in needed if blob in constants]
    exchanged = tuple(blob for blob in needed if blob not in constants)
    forward = joint.replace(
        inputs=joint.inputs[:inputs],
        outputs=(*joint.outputs[:outputs], *exchanged),
        ops=forward_ops,
        control_outputs=tuple(name for name in joint.control_outputs if name in before),
    )
    after = {op.name for op in (*copied, *backward_ops)}
    backward = joint.replace(
        inputs=(*joint.inputs[inputs:], *exchanged),
        outputs=joint.outputs[outputs:],
        ops=tuple(
            op.replace(controls=tuple(name for name in op.controls if name in after))
            for op in (*copied, *backward_ops)
        ),
        control_outputs=tuple(name for name in joint.control_outputs if name in after),
    )
    backward = _as_it_was_called(backward)
    backward = with_awaited_results(backward, prunable=True)
    return Halves(with_awaited_results(forward), backward, exchanged)


def _as_it_was_called(backward: Net) -> Net:
    """The gradient under its own names: nobody calls it from here, and sums sort by names."""
    start = f"{BACKWARD}/"
    taken = {op.name for op in backward.ops}
    taken.update(blob.partition(":")[0] for blob in backward.inputs)  # of ops of the forward half
    short = {
        name: name.removeprefix(start)
        for name in taken
        if name.startswith(start) and _is_free(name.removeprefix(start), taken)
    }
    if not short:
        return backward

    def named(blob: str) -> str:
        maker = backward.producer.get(blob)
        if maker is None or maker.name not in short:
            return blob
        return blob.removeprefix(start)

    return backward.replace(
        outputs=tuple(named(blob) for blob in backward.outputs),
        control_outputs=tuple(short.get(name, name) for name in backward.control_outputs),
        ops=tuple(
            op.replace(
                name=short.get(op.name, op.name),
                inputs=tuple(named(blob) for blob in op.inputs),
                outputs=tuple(named(blob) for blob in op.outputs),
                controls=tuple(short.get(name, name) for name in op.controls),
                attributes=_called_by_nobody(op.attributes, start, short),
            )
            for op in backward.ops
        ),
        blobs={
            named(name): Blob(named(name), blob.dtype, blob.shape)
            for name, blob in backward.blobs.items()
        },
    )


def _is_free(name: str, taken: set[str]) -> bool:
    """Whether an op may be called so; inputs get names later, and none of theirs has a slash."""
    return "/" in name and name not in taken


def _called_by_nobody(attributes: Mapping, start: str, short: Mapping[str, str]) -> Mapping:
    """An op's attributes where what they name has its own name again."""
    found = dict(attributes)
    if GIVEN in found:
        own = f"{BACKWARD}:".encode()
        given = tuple(
            b"" if one.startswith(own) else one.removeprefix(start.encode()) for one in found[GIVEN]
        )
        found[GIVEN] = given
        if not any(given):
            del found[GIVEN]
    if "_class" in found:
        found["_class"] = tuple(_colocated(mark, short) for mark in found["_class"])
    return found


def _colocated(mark: bytes, short: Mapping[str, str]) -> bytes:
    name = mark.decode().removeprefix("loc:@")
    return f"loc:@{short[name]}".encode() if name in short else mark


def _is_backward(op: Op) -> bool:
    return op.name.startswith(f"{BACKWARD}/")


def _forward_ops(joint: Net, handed_out: Iterable[str]) -> set[str]:
    """Names of the ops that the function itself needs: for its results and its side effects."""
    producer = joint.producer
    wanted = [producer[blob].name for blob in handed_out if blob in producer]
    wanted += [op.name for op in joint.ops if not is_pure(op) and not _is_backward(op)]
    found = all_needed_by(joint, wanted)
    for name in joint.control_outputs:
        op = joint.op_by_name[name]
        if (
            not _is_backward(op)
            and all(producer[blob].name in found for blob in op.inputs if blob in producer)
            and all(one in found for one in op.controls)
        ):
            found.add(name)
    return found
