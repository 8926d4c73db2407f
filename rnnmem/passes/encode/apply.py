"""Encodes the accumulators of a loop pair, on both sides."""

from __future__ import annotations

from rnnmem.errors import NetError
from rnnmem.ir.builders import Encode, element_shape, empty_list, pop, push
from rnnmem.ir.devices import ACCELERATOR, host_of, kind_of, where_is
from rnnmem.ir.editor import LoopEditor, NetEditor
from rnnmem.ir.graph import Op
from rnnmem.ir.marks import SAVES
from rnnmem.ir.op_table import POP, PUSH
from rnnmem.passes.encode.codecs import Codec, decoded, encoded
from rnnmem.passes.encode.decision import OFFLOAD, Encoding


class Encoder:
    """The accumulators of one pair, once everything else of its rewrite is done."""

    def __init__(
        self, forward: LoopEditor, gradients: list[LoopEditor], constant: Encode, keeps_alive: bool
    ):
        self.forward = forward
        self.gradients = gradients
        self.constant = constant
        self.keeps_alive = keeps_alive

    def encode(self, one: Encoding, pushed: list[str], popped: list[tuple[int, str]]) -> str:
        """Keeps a blob in another form; returns what is pushed for it.

        Args:
          one: the blob and its form.
          pushed: arguments of the forward step net that are its accumulators.
          popped: (gradient loop, argument of its step net) for each of those that pop it.

        Raises:
          NetError: the blob cannot be kept so.
        """
        body = self.forward.body
        home = where_is(body.original, one.blob, ACCELERATOR) if OFFLOAD in one.techniques else ""
        if kind_of(home) == "CPU":
            raise NetError(f"{one.blob!r} is on the host already and cannot be offloaded")
        if not pushed or not popped:
            raise NetError(f"no accumulator keeps {one.blob!r}")
        codec = Codec(body.blobs[one.blob], one.techniques, home)
        blob = encoded(body, one.blob, codec, self.constant, self.keeps_alive)
        self._name_line(one.blob, blob)
        for argument in pushed:
            self._push(argument, blob, one, codec)
        for number, argument in popped:
            self._pop(self.gradients[number], argument, codec)
        return blob

    def _name_line(self, blob: str, pushed: str) -> None:
        """Tells of what is pushed for a blob which line of the user's made the blob."""
        made = self.forward.body.original.producer.get(blob)
        (last,) = [op for op in self.forward.body.ops.values() if pushed in op.outputs]
        if made is not None:
            self.forward.body.ops[last.name] = last.replace(source=made.source)

    def _push(self, argument: str, blob: str, one: Encoding, codec: Codec) -> None:
        """Pushes the encoded blob into an accumulator, which starts as a list of such."""
        loop, body = self.forward, self.forward.body
        place = body.inputs.index(argument)
        old = _op_at(body, argument, PUSH)
        device = host_of(codec.home) if codec.home else old.device
        fields = {"device": device, "controls": old.controls}
        longer = push(body, argument, blob, name="rnnmem/push", **fields)
        pushing = _op_at(body, argument, PUSH, but=old)
        marked = {**pushing.attributes, SAVES: one.blob.encode()}
        body.ops[pushing.name] = pushing.replace(attributes=marked)
        body.swap(old.name, pushing.name)
        loop.set_next(argument, longer)
        loop.inputs[place] = self._start(loop.inputs[place], codec)

    def _start(self, start: str, codec: Codec) -> str:
        """An empty list of what is pushed, as long as the one that the accumulator started as."""
        outer = self.forward.outer
        made = {blob: op for op in outer.ops.values() for blob in op.outputs}
        old = made[outer.resolve(start)]
        while old.type == "Identity":
            old = made[outer.resolve(old.inputs[0])]
        dtype, shape = codec.pushed
        return empty_list(
            outer,
            dtype,
            shape,
            self.constant,
            name="rnnmem/accumulator",
            most=old.inputs[1],
            device=host_of(codec.home) if codec.home else old.device,
        )

    def _pop(self, loop: LoopEditor, argument: str, codec: Codec) -> None:
        """Pops what was pushed; what it stands for is read in place of what was popped."""
        body = loop.body
        old = _op_at(body, argument, POP)
        dtype, shape = codec.pushed
        device = host_of(codec.home) if codec.home else old.device
        wanted = element_shape(body, shape, self.constant)
        fields = {"device": device, "controls": old.controls}
        rest, popped = pop(body, argument, dtype, shape, wanted, name="rnnmem/pop", **fields)
        body.swap(old.name, _op_at(body, argument, POP, but=old).name)
        body.rename(old.outputs[1], decoded(body, popped, codec, self.constant, self.keeps_alive))
        loop.set_next(argument, rest)


def _op_at(net: NetEditor, argument: str, type: str, but: Op | None = None) -> Op:
    """The one op of a type that reads an accumulator, but for another."""
    found = [op for op in net.ops.values() if op.type == type and op.inputs[0] == argument]
    (op,) = [op for op in found if but is None or op.name != but.name]
    return op
