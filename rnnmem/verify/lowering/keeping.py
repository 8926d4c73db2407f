"""How a branch of a loop keeps values on lists."""

from __future__ import annotations

import dataclasses

from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import PUSH
from rnnmem.verify.lowering.patterns import Variable, behind, made_by

PUT = "TensorListSetItem"


@dataclasses.dataclass(frozen=True)
class Keeping:
    """What a branch does to a list of states where it is taken.

    Attributes:
      branch: the branch.
      list: the input of ``then`` that is the list.
      value: the blob around the branch that is kept, if it is one.
      place: the blob of ``then`` that says where it is put; None where it is pushed.
    """

    branch: Op
    list: str
    value: str | None
    place: str | None

    @property
    def then(self) -> Net:
        """What runs where a value is kept."""
        return self.branch.nets["then_branch"]


def keeping_of(body: Net, variable: Variable) -> Keeping | None:
    """How a branch keeps a value on a list, which else stays as it is; None if it does not."""
    result = behind(body, variable.following)
    branch = made_by(body, result, "StatelessIf")
    if branch is None:
        return None
    position = branch.outputs.index(result)
    then, otherwise = branch.nets["then_branch"], branch.nets["else_branch"]
    op, kept = then.producer.get(then.outputs[position]), otherwise.outputs[position]
    if op is None or op.type not in (PUSH, PUT) or kept not in otherwise.inputs:
        return None
    given = dict(zip(then.inputs, branch.inputs[1:], strict=True))
    unchanged = branch.inputs[1 + otherwise.inputs.index(kept)]
    if {unchanged, given.get(op.inputs[0])} != {variable.argument}:
        return None
    place = op.inputs[1] if op.type == PUT else None
    return Keeping(branch, op.inputs[0], given.get(op.inputs[-1]), place)
