"""What the user asked of a step net's blobs, as bounds on the choice of its saved set.

A blob that is to be kept has an op that never runs again. One that is to be recomputed is not
saved; that is refused where it could then not be had at all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from rnnmem.ir.graph import BYTES_PER_ELEMENT, Net, Op
from rnnmem.ir.op_table import facts, why_never_twice
from rnnmem.ir.requests import KEEP, asks_inside, requests_of
from rnnmem.passes.rematerialise.min_cut import Step, is_constant, may_be_saved

NOT_FROM_SAVED = "what it is computed from can be neither saved nor computed again"
READ_ELSEWHERE = "its accumulator is read elsewhere, or keeps a sum in order"
STATE = "it is a state at the start of the iteration"
SUM_ORDER = "a sum whose order the gradient step net would not keep"
OTHERWISE = "TensorFlow's graph optimizer would compute it in another way"


def ops_kept(body: Net, opened: Collection[str] = ()) -> frozenset[str]:
    """Names of the ops of a Net that do not run again because the user asked to keep a value.

    Args:
      body: the Net.
      opened: names of loops in it that are planned by themselves.
    """
    asked = requests_of(body)
    made = (body.producer.get(blob) for blob, request in asked.items() if request == KEEP)
    found = {op.name for op in made if op is not None and op.type != "Identity"}
    inside = (op for op in body.ops if op.nets and op.name not in opened)
    return frozenset(found | {op.name for op in inside if asks_inside(op, KEEP)})


def asked(body: Net, request: str, opened: Collection[str] = ()) -> frozenset[str]:
    """Blobs of a Net of which the user asked this; of what branches and loops keep, the lists.

    Args:
      body: the Net.
      request: ``keep`` or ``recompute``.
      opened: names of loops in it that are planned by themselves.
    """
    found = {blob for blob, one in requests_of(body).items() if one == request}
    for op in body.ops:
        if op.nets and op.name not in opened and asks_inside(op, request):
            found.update(
                one for one in op.outputs if body.blobs[one].dtype not in BYTES_PER_ELEMENT
            )
    return frozenset(found)


def granting(step: Step, wanted: Collection[str]) -> Step:
    """The same step where those of the blobs are not saved that can be had without.

    Args:
      step: the step net, with what is to be kept among `Step.never`.
      wanted: blobs that the user asked to recompute.
    """
    if not wanted:
        return step
    places = {blob: at for at, op in enumerate(step.body.ops) for blob in op.outputs}
    refused: dict[str, str] = {}
    for blob in sorted(wanted, key=lambda one: places.get(one, -1)):
        if step.is_given(blob):
            continue
        tried = dataclasses.replace(step, recomputed=step.recomputed | {blob})
        reason = _why_refused(tried, blob)
        if reason:
            refused[blob] = reason
        else:
            step = tried
    return dataclasses.replace(step, refused=refused)


def _why_refused(step: Step, blob: str) -> str:
    """Why the blob cannot be computed again; empty where it can."""
    op = step.body.producer.get(blob)
    if op is None:
        return STATE
    if blob in step.free:
        return READ_ELSEWHERE
    if is_constant(op):
        return ""
    if not step.may_run_twice(op):
        if op.name in step.otherwise:
            return OTHERWISE
        impure = facts(op) is None and op.name not in step.reading
        return why_never_twice(op) if impure else SUM_ORDER
    return "" if _may_run(step, op, {}) else NOT_FROM_SAVED


def _may_run(step: Step, op: Op, known: dict[str, bool]) -> bool:
    """Whether all that the op needs when it runs again can be had."""
    if op.name not in known:
        known[op.name] = False
        known[op.name] = step.may_run_twice(op) and all(
            _may_be_had(step, blob, op, known) for blob in step.rematerialised_inputs(op)
        )
    return known[op.name]


def _may_be_had(step: Step, blob: str, reader: Op, known: dict[str, bool]) -> bool:
    producer = step.body.producer.get(blob)
    if step.is_given(blob) or producer is not None and is_constant(producer):
        return True
    saved = may_be_saved(step, blob) and not step.folds_into(producer, reader)
    return saved or producer is not None and _may_run(step, producer, known)
