"""Random step nets some of whose values are marked: to be kept, or to be recomputed."""

from __future__ import annotations

import zlib

import rnnmem
from tests.random_step_nets import Built

REQUESTS = (rnnmem.keep, rnnmem.recompute, lambda value: value)


class Marked(Built):
    """A train step of which each value is marked or not, as the recipe's seed has it."""

    def _value(self, one, pool, around, number):
        drawn = zlib.crc32(f"{self.recipe.seed} {number} {one}".encode())
        return REQUESTS[drawn % len(REQUESTS)](super()._value(one, pool, around, number))
