"""Cuts every loop into segments that can be, however short it is and whatever it costs."""

import contextlib
import itertools
from unittest import mock

from rnnmem.passes.checkpoint import select as segments
from rnnmem.planning import pareto as planner
from rnnmem.planning.search import Search


@contextlib.contextmanager
def forced_segments(scheduled=False, online=False, tails=False):
    """Plans made inside choose segments wherever a loop pair has any.

    Args:
      scheduled: whether they are to keep the states of some segments only, where that can be; else
        they keep those of each.
      online: whether they do so as if no trip count were known.
      tails: whether the last iterations are to save what is wanted, where that can be.
    """
    choices = planner._choices
    with_slots = segments.with_slots

    def cut(pair, *args):
        plans = choices(pair, *args)
        if tails:
            ended = (segments.with_tails(plan, pair.forward) for plan in plans)
            plans = (*plans, *itertools.chain(*ended))
        cut = [plan for plan in plans if plan.segments is not None]
        chosen = [plan for plan in cut if bool(plan.segments.slots) == scheduled]
        ended = [plan for plan in chosen if bool(plan.segments.end) == tails]
        return tuple(ended or chosen or cut or plans)

    wanted = {"LEAST_TRIPS": 2} if tails else {}
    if scheduled:
        wanted = {"LEAST_TRIPS": 2, "LONG_TRIPS": 8, "REPEATS": (3.0,), "WORTH": 2.0**40}
    if online:
        wanted["with_slots"] = lambda cut, trips: with_slots(cut, None)
    with (
        mock.patch.multiple(segments, LEAST_GAIN=-(2**40), **wanted),
        mock.patch.object(planner, "_choices", cut),
        # Segments of a short loop may hold more than it does; what is asked here is their bits.
        mock.patch.object(Search, "_is_larger", lambda decision, plan: False),
    ):
        yield
