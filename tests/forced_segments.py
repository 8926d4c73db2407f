"""Cuts every loop into segments that can be, however short it is and whatever it costs."""

import contextlib
from unittest import mock

from rnnmem.recompute import planner, segments


@contextlib.contextmanager
def forced_segments(scheduled=False):
    """Plans made inside choose segments wherever a loop pair has any.

    Args:
      scheduled: whether they are to keep the states of some segments only, where that can be.
    """
    choices = planner._choices

    def cut(*args):
        plans = choices(*args)
        plans = tuple(plan for plan in plans if plan.segments is not None) or plans
        some = tuple(plan for plan in plans if plan.segments is not None and plan.segments.slots)
        return scheduled and some or plans

    wanted = {"LEAST_TRIPS": 2, "REPEATS": (3.0,), "WORTH": 2.0**40} if scheduled else {}
    with (
        mock.patch.multiple(segments, LEAST_GAIN=-(2**40), **wanted),
        mock.patch.object(planner, "_choices", cut),
    ):
        yield
