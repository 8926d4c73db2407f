"""Softmax losses of a traced function by chunks of rows: all of which that is proven."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator

from rnnmem.analysis.machine import CPU
from rnnmem.compiled import Target, waits_for_gradient
from rnnmem.errors import CheckError, NetError
from rnnmem.grappler.neutral import as_simplified
from rnnmem.passes.chunked_loss.apply import apply_chunks
from rnnmem.passes.chunked_loss.decision import ChunkedLoss
from rnnmem.passes.chunked_loss.select import losses_of
from rnnmem.passes.registry import BY_NAME
from rnnmem.planning.losses import all_closed
from rnnmem.planning.search import Search
from rnnmem.tf.attributes import constant
from rnnmem.tf.optimized import folds_constants
from rnnmem.verify import check


def searches_by_chunks(
    plain: Search, target: Target
) -> tuple[tuple[Search, ...], dict[str, tuple[ChunkedLoss, ...]]]:
    """The searches where softmax losses run by chunks; and the losses that do not, by pass."""
    searches, left = [], {}
    machine = plain.setting.machine
    for name in target.chunk_passes:
        exact = BY_NAME[name].exact
        if exact and (machine.device != CPU.device or waits_for_gradient(plain.net)):
            continue  # whose rows keep their bits was measured on a CPU
        find = functools.partial(losses_of, plain.net, machine, exact, target.by_xla)
        losses = find()
        try:
            search, losses = _proven(plain, losses, target, find)
        except (CheckError, NetError) as error:
            search, losses = None, all_closed(losses, _not_understood(error))
        if search is None:
            left[name] = losses
        else:
            searches.append(search)
    return tuple(searches), left


def _proven(
    plain: Search,
    losses: tuple[ChunkedLoss, ...],
    target: Target,
    find: Callable[..., tuple[ChunkedLoss, ...]],
) -> tuple[Search | None, tuple[ChunkedLoss, ...]]:
    """The search with all losses by chunks of which that is proven, and the losses; None: no such.

    The ops of one that is not proven may be among those of another.

    Raises:
      CheckError: together they are not proven, though each is alone.
      NetError: the Net does not have what they name.
    """
    if all(loss.closed for loss in losses):
        return None, losses
    try:
        return by_chunks(plain, losses, target), losses
    except (CheckError, NetError):
        refused = {loss.projection: loss.closed for loss in _alone(plain, losses, target)}
        if not refused:
            raise
    found = find(refused)
    search = None if all(loss.closed for loss in found) else by_chunks(plain, found, target)
    return search, found


def _alone(plain: Search, losses: tuple[ChunkedLoss, ...], target: Target) -> Iterator[ChunkedLoss]:
    """The losses that are not proven alone, closed with the reason."""
    for loss in losses:
        if not loss.closed:
            try:
                by_chunks(plain, (loss,), target)
            except (CheckError, NetError) as error:
                yield dataclasses.replace(loss, closed=_not_understood(error))


def _not_understood(error: Exception) -> str:
    return f"it was not understood: {str(error).splitlines()[0]}"


def by_chunks(plain: Search, losses: tuple[ChunkedLoss, ...], target: Target) -> Search:
    """The search for the Net with these losses by chunks.

    Raises:
      CheckError: they are not proven to compute the same.
      NetError: the Net does not have what they name, or they were made for another compiler.
    """
    if any(not one.closed and one.compiled != target.by_xla for one in losses):
        raise NetError("its chunks were made for another compiler")
    cut = apply_chunks(plain.net, losses, constant)
    cut = as_simplified(cut, constant) if folds_constants() else cut
    sums = any(not one.closed and not one.exact for one in losses)
    check(plain.net, cut, chunks=sums, compiled=target.by_xla)
    return Search(cut, plain.setting, losses=losses, beside=plain)
