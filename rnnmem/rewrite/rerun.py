"""Writes the branch in which a gradient loop runs one segment of the forward loop again.

It is given ``[start, lists of starts and states, lists to fill, j, reads, invariants]`` and makes

    start, states = popped from their lists
    While r < j - start:  states = step(states), pushing what the gradient reads

and hands out ``[start, the shorter lists, the filled lists, lists of anchors]``. The step is the
forward step net as it is, without what nobody needs here. Its neighbourhoods are kept as in
`rnnmem.rewrite.pair`: anchors where a blob has lost all readers but one, barriers that know the
shapes of the states.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from rnnmem.errors import NetError
from rnnmem.net.loops import Loop
from rnnmem.net.nouns import BYTES_PER_ELEMENT, Blob, DType, FunctionRef, Net, Op, ShapeValue
from rnnmem.net.optypes import OPAQUE_SOURCES
from rnnmem.net.segments import AGAIN, MARK
from rnnmem.plan import Segments
from rnnmem.rewrite.anchors import Anchors
from rnnmem.rewrite.editor import LoopEditor, NetEditor
from rnnmem.rewrite.lists import Encode, element_shape, number, pop, push
from rnnmem.rewrite.materialise import BARRIER


def branch_like(body: NetEditor, name: str, given: Sequence[str]) -> NetEditor:
    """A new Net whose inputs are like the given blobs of ``body``."""
    net = NetEditor(Net(name=name, inputs=(), outputs=(), ops=(), blobs={}))
    for blob in given:
        add_input(net, body.blobs[blob])
    return net


def add_input(net: NetEditor, kind: Blob) -> str:
    """Gives the Net one more input, like another Net's blob; returns its name."""
    name = net.fresh_input("given")
    net.blobs[name] = Blob(name, kind.dtype, kind.shape)
    net.inputs.append(name)
    return name


class RerunWriter:
    """Writes the branch into a Net that has its inputs."""

    def __init__(self, net: NetEditor, forward: Loop, segments: Segments, constant: Encode):
        self.net = net
        self.forward = forward
        self.segments = segments
        self.constant = constant

    def write(self, kept: Sequence[Blob], pushed: Sequence[str], anchored: bool) -> list[str]:
        """Writes the ops and the outputs.

        Args:
          kept: what the lists of starts and states hold.
          pushed: blob of the forward step net for each list to fill.
          anchored: whether a graph optimizer that fuses by neighbourhood runs afterwards.

        Returns:
          The dtypes of the lists of anchors, which are the last outputs.
        """
        given = iter(self.net.inputs[1:])
        checkpoints = list(itertools.islice(given, len(kept)))
        lists = list(itertools.islice(given, len(pushed)))
        left, *steady = given
        shorter, (start, *states) = self._pop(checkpoints, kept)
        trips = self.net.add(
            "Sub", (left, start), (("int32", ()),), {"T": DType("int32")}, name="rnnmem/trips"
        ).outputs[0]
        zero = number(self.net, 0, self.constant)
        starts = [zero, trips, *states, *lists, *steady]
        loop = LoopEditor(self.net, self._loop(starts, pushed))
        anchors = self._anchors(loop) if anchored else Anchors(loop, self.constant)
        held = anchors.write()
        filled = loop.finish().outputs[2 + len(states) :]
        self.net.outputs = [start, *shorter, *filled[: len(lists)], *held]
        return anchors.dtypes

    def _pop(self, checkpoints: Sequence[str], kept: Sequence[Blob]) -> tuple[list[str], list[str]]:
        """The lists without their last elements, and those: what the segment starts from."""
        shorter, popped = [], []
        for held, kind in zip(checkpoints, kept, strict=True):
            shape = element_shape(self.net, kind.shape, self.constant)
            rest, value = pop(
                self.net, held, kind.dtype, kind.shape, shape, name="rnnmem/checkpoint"
            )
            shorter.append(rest)
            popped.append(barrier(self.net, value, kind))
        return shorter, popped

    def _loop(self, starts: Sequence[str], pushed: Sequence[str]) -> Op:
        """The loop that runs the segment's iterations."""
        body = self._body(pushed)
        kinds = [body.blobs[blob] for blob in body.inputs]
        cond = branch_like(body, f"{body.original.name}_cond", body.inputs)
        cond.outputs = [
            cond.add(
                "Less",
                cond.inputs[:2],
                (("bool", ()),),
                {"T": DType("int32")},
                name="rnnmem/more",
            ).outputs[0]
        ]
        return self.net.add(
            "StatelessWhile",
            starts,
            tuple((kind.dtype, kind.shape) for kind in kinds),
            {
                "T": tuple(DType(kind.dtype) for kind in kinds),
                "output_shapes": tuple(ShapeValue(kind.shape) for kind in kinds),
                "parallel_iterations": 1,
                "_name_of/body": FunctionRef(body.original.name, b""),
                "_name_of/cond": FunctionRef(cond.original.name, b""),
                "_lower_using_switch_merge": True,
                MARK: AGAIN,
            },
            name="rnnmem/again",
            nets={"body": body.net(), "cond": cond.net()},
            source=self.forward.op.source,
        )

    def _body(self, pushed: Sequence[str]) -> NetEditor:
        """The forward step net over ``[r, trips, states, lists, reads, invariants]``."""
        forward, segments = self.forward.body, self.segments
        net = NetEditor(forward.replace(name="rnnmem_step", control_outputs=(), attributes={}))
        net.ops = self._needed(pushed)
        net.inputs, net.outputs = [], []
        count = add_input(net, Blob("", "int32", ()))
        trips = add_input(net, Blob("", "int32", ()))
        net.inputs += segments.states
        lists = [add_input(net, Blob("", "variant", ())) for _ in pushed]
        reads = [add_input(net, forward.blobs[blob]) for blob in segments.reads]
        net.inputs += segments.invariants
        one = number(net, 1, self.constant)
        following = net.add(
            "AddV2", (count, one), (("int32", ()),), {"T": DType("int32")}, name="rnnmem/count"
        ).outputs[0]
        for blob, given in zip(segments.reads, reads, strict=True):
            net.rename(blob, barrier(net, given, forward.blobs[blob]))
        net.outputs = [
            following,
            trips,
            *(forward.outputs[forward.inputs.index(blob)] for blob in segments.states),
            *(
                push(net, held, blob, name="rnnmem/push")
                for held, blob in zip(lists, pushed, strict=True)
            ),
            *reads,
            *segments.invariants,
        ]
        return net

    def _needed(self, pushed: Sequence[str]) -> dict[str, Op]:
        """The forward step net's ops that the pushed blobs and the states take."""
        body, segments = self.forward.body, self.segments
        given = {*segments.states, *segments.reads, *segments.invariants}
        following = (body.outputs[body.inputs.index(blob)] for blob in segments.states)
        pending = [*pushed, *following]
        needed: set[str] = set()
        while pending:
            blob = pending.pop()
            if blob in given:
                continue
            op = body.producer.get(blob)
            if op is None:
                raise NetError(f"the plan does not keep the state {blob!r} of its segments")
            if op.name not in needed:
                needed.add(op.name)
                pending += op.inputs
        return {op.name: op for op in body.ops if op.name in needed}

    def _anchors(self, loop: LoopEditor) -> Anchors:
        """Anchors for blobs that have one reader here and more in the forward step net."""
        anchors = Anchors(loop, self.constant)
        net, forward = loop.body.net(), self.forward.body
        anchors.add(
            blob
            for blob, kind in net.blobs.items()
            if kind.dtype in BYTES_PER_ELEMENT
            and blob in forward.blobs
            and net.fan_out(blob) == 1 < forward.fan_out(blob)
            and (blob not in forward.producer or forward.producer[blob].type not in _NEVER_FUSED)
        )
        return anchors


_NEVER_FUSED = OPAQUE_SOURCES | {"Const"}


def barrier(net: NetEditor, blob: str, kind: Blob) -> str:
    """The blob behind an op that the graph optimizer neither removes nor looks through."""
    if kind.dtype not in BYTES_PER_ELEMENT:
        return blob
    return net.add(
        BARRIER,
        (blob,),
        ((kind.dtype, kind.shape),),
        {"T": DType(kind.dtype), "shape": ShapeValue(kind.shape)},
        name="rnnmem/barrier",
    ).outputs[0]
