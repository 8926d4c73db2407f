"""Reads of variables beside a loop, in place of the same read in each of its iterations.

Such a read must see the variable as the loop does, so it takes its turn among the ops that may
write the variable: after those that run before the loop, before those that run after it. What the
data already implies (an update waits for the gradient, which needs the read) gets no control edge.

    writer ──► read R ──► gradient loop ──► writer
       └─────► forward loop ──┴───────────────┘
"""

from __future__ import annotations

import dataclasses

from rnnmem.analysis.variable_effects import Writers
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import Blob, Op


@dataclasses.dataclass(frozen=True)
class InnerRead:
    """A read in a step net, and the blob that it writes there."""

    op: Op
    blob: Blob


@dataclasses.dataclass(frozen=True)
class _Hoisted:
    """A read that was added: its name, the loop it stands beside, and the variable."""

    read: str
    loop: Op
    variable: str


class HoistedReads:
    """The reads that a rewrite adds to the outermost Net, each made once."""

    def __init__(self, editor: NetEditor, variables: frozenset[str] | None = None):
        """Of the Net that is edited; ``variables`` as `Writers` takes them."""
        self.editor = editor
        self.variables = variables
        self.before = Writers(editor.original, variables)
        self.made: dict[tuple, Op] = {}
        self.added: list[_Hoisted] = []

    def beside(self, loop: Op, read: InnerRead, handle: str) -> str:
        """What ``read`` gives in each iteration of ``loop``.

        Args:
          loop: the forward loop of the outermost Net around the read.
          read: the read, in the loop's body or deeper.
          handle: the blob of the outermost Net that holds the variable's handle.
        """
        variable = self.before.variable_of(handle)
        op = read.op
        attributes = {key: value for key, value in op.attributes.items() if key != "_class"}
        key = (loop.name, variable, op.device, tuple(sorted(attributes.items())))
        if key not in self.made:
            # The name begins with the loop's, so that both are in one half of a function that is
            # split in two.
            self.made[key] = self.editor.add(
                op.type,
                (handle,),
                ((read.blob.dtype, read.blob.shape),),
                attributes,
                name=f"{loop.name}/rnnmem/read",
                controls=loop.controls,
                device=op.device,
                source=op.source,
            )
            self.added.append(_Hoisted(self.made[key].name, loop, variable))
        return self.made[key].outputs[0]

    def put_in_turn(self) -> None:
        """Adds the control edges that keep each read in its turn among the variable's writers."""
        if not self.added:
            return
        now = Writers(self.editor.net(), self.variables)
        for one in self.added:
            for writer in self.before.of(one.variable):
                self._put_between(one, writer, now)
            if one.read not in self.editor.control_outputs:
                self.editor.control_outputs.append(one.read)

    def _put_between(self, one: _Hoisted, writer: str, now: Writers) -> None:
        if writer in self.before.before(one.loop.name):
            first, second = writer, one.read
        else:
            first, second = one.read, writer
        if first not in now.before(second):
            op = self.editor.ops[second]
            self.editor.ops[second] = op.replace(controls=(*op.controls, first))
