"""Which projections run by chunks of tokens, how long the chunks are, and whether that pays."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from rnnmem.analysis.machine import Machine
from rnnmem.analysis.row_rules import Partial, Rows, product
from rnnmem.analysis.shapes import KnownNet, filled, known_net
from rnnmem.errors import BudgetError, CheckError, NetError
from rnnmem.ir.graph import BYTES_PER_ELEMENT, Net
from rnnmem.passes.chunked_loss.region import NoRegion, Region, find, projections
from rnnmem.planning.options import Options
from rnnmem.planning.plan import ChunkedLoss, Plan
from rnnmem.planning.search import NEGLIGIBLE, Decision, decide, least_of
from rnnmem.simulate.timeline import simulate

CHUNK_BYTES = 4 * 2**20
"""Bytes of logits that a chunk is to have, about; each chunk needs a few times as much."""
FEWEST, MOST = 256, 1024
"""Tokens that a chunk has at least, for products to be fast, and at most."""

_ONE_CHUNK = "all tokens fit in one chunk"
_NO_GAIN = "no smaller predicted peak in the time allowed"
_SUMS = "sums over tokens (gradients of weights and biases) are added up in another order"


def losses_of(net: Net, machine: Machine) -> tuple[ChunkedLoss, ...]:
    """What may be decided for each projection with a softmax loss, closed where nothing can be.

    Args:
      net: the whole step, inlined.
      machine: what estimates of time assume.
    """
    known = known_net(net)
    found, taken = [], set()
    for op in projections(net):
        kind = known.net.blobs[op.outputs[0]]
        loss = ChunkedLoss(
            projection=op.name,
            blob=kind.name,
            dtype=kind.dtype,
            shape=kind.shape,
            bytes=kind.bytes,
            line=op.source,
        )
        try:
            region = find(known, op.name)
            if not taken.isdisjoint(region.ops):
                raise NoRegion("another projection's chunks hold some of its ops")
            loss = _opened(loss, known, region, machine)
            taken |= region.ops if not loss.closed else set()
        except NoRegion as error:
            loss = dataclasses.replace(loss, closed=str(error))
        found.append(loss)
    return tuple(found)


def _opened(loss: ChunkedLoss, known: KnownNet, region: Region, machine: Machine) -> ChunkedLoss:
    logits = region.values[loss.blob]
    assert isinstance(logits, Rows)
    columns = logits.shape[-1].number
    if columns is None:
        raise NoRegion("the size of the vocabulary is known only at run time")
    size = BYTES_PER_ELEMENT[loss.dtype]
    tokens = min(MOST, max(FEWEST, CHUNK_BYTES // (columns * size)))
    # Tokens in a row whose number only a run can tell are taken for 64.
    per_row = product(logits.shape[:-1]).factor * 64 ** (
        len(product(logits.shape[:-1]).symbols) - 1
    )
    length = max(1, tokens // max(1, per_row))
    if region.whole is not None and length >= region.whole:
        return dataclasses.replace(loss, closed=_ONE_CHUNK)
    opened = dataclasses.replace(
        loss,
        source=region.source,
        length=length,
        rows=region.whole,
        loops=len(region.phases),
    )
    return dataclasses.replace(opened, seconds=_seconds(opened, known, region, machine))


def _seconds(loss: ChunkedLoss, known: KnownNet, region: Region, machine: Machine) -> float:
    """Time for what runs in both loops, for adding sums up, and for starting ops once a chunk."""
    net = filled(known)
    chunks = -(-(64 if loss.rows is None else loss.rows) // loss.length)
    seen: set[str] = set()
    again = 0.0
    for phase in region.phases:
        again += sum(
            machine.seconds(net.op_by_name[name], net) for name in phase.ops if name in seen
        )
        again += (chunks - 1) * len(phase.ops) * machine.launch_seconds
        seen.update(phase.ops)
        for blob in phase.sums:
            value = region.values[blob]
            assert isinstance(value, Partial)
            elements = product(value.shape).factor
            again += chunks * 12.0 * elements / machine.bytes_per_second
    return again


def decide_with_losses(
    net: Net,
    losses: tuple[ChunkedLoss, ...],
    chunked: Callable[[tuple[ChunkedLoss, ...]], Net],
    decision: Callable[..., Decision],
    options: Options,
) -> tuple[Decision, Plan, Net | None]:
    """The plan that the options ask for, with losses by chunks where the peak falls by that.

    Args:
      net: the whole step.
      losses: of :func:`losses_of`.
      chunked: the Net with these losses by chunks.
      decision: makes a Decision of a Net and, as ``losses`` and ``beside``, what was done to it.
      options: what the user asks for.

    Returns:
      The Decision that was taken, the plan, and the rewritten Net; None: unchanged.

    Raises:
      BudgetError: no plan is predicted to stay within the budget.
    """
    plain = decision(net)
    if all(loss.closed for loss in losses):
        plan, rewritten = decide(plain, options)
        return plain, dataclasses.replace(plan, losses=losses), rewritten
    try:
        cut = decision(chunked(losses), losses=losses, beside=plain)
    except (CheckError, NetError) as error:
        losses = _all_closed(losses, f"it was not understood: {str(error).splitlines()[0]}")
        plan, rewritten = decide(plain, options)
        return plain, dataclasses.replace(plan, losses=losses), rewritten
    found, failed = [], []
    for one in (plain, cut):
        try:
            found.append((one, *decide(one, options)))
        except BudgetError as error:
            failed.append(error)
    if not found:
        raise least_of(failed)
    taken = _better(found, options) if len(found) == 2 else found[0]
    if taken[0] is cut and taken[2] is not None:
        plan = dataclasses.replace(taken[1], notes=(*taken[1].notes, _SUMS))
        return cut, plan, taken[2]
    one, plan, rewritten = found[0]
    return one, dataclasses.replace(plan, losses=_all_closed(losses, _NO_GAIN)), rewritten


def _all_closed(losses: tuple[ChunkedLoss, ...], reason: str) -> tuple[ChunkedLoss, ...]:
    return tuple(dataclasses.replace(one, closed=one.closed or reason) for one in losses)


def _better(found, options: Options):
    """Of the plan without and the one with chunks: the smaller, or within a budget the faster."""
    (_, plain, _), (_, cut, rewritten) = found
    if rewritten is None:
        return found[0]
    if options.budget is not None:
        unknown = None in (plain.predicted_peak, cut.predicted_peak)
        return found[1] if unknown or cut.slowdown < plain.slowdown else found[0]
    peaks = _alive(found[0]), _alive(found[1])
    if None in peaks:
        return found[1]
    # Where the peak is elsewhere, as predicted, whole logits still stand in the way of it.
    return found[1] if peaks[1] <= peaks[0] + NEGLIGIBLE else found[0]


def _alive(found) -> int | None:
    """Most bytes alive at once, as simulated; how they lie in memory is left to chance."""
    one, _, rewritten = found
    return simulate(one.net if rewritten is None else rewritten).peak_bytes
