import itertools
import random

import pytest

from rnnmem.errors import BudgetError, OptionError
from rnnmem.pipeline.cut import LayerCost, cut, stage_bytes


def layer(seconds, scope=0, working=0, state=0, sent=0):
    return LayerCost(seconds, scope, working, state, sent)


def test_the_slowest_stage_is_as_fast_as_can_be():
    found = cut([layer(s) for s in (4, 1, 1, 2, 2, 2)], 3, [None] * 3, micro_batches=8)
    assert found.bounds == (0, 1, 4, 6)
    assert found.seconds == (4, 4, 4)


def test_against_all_cuts():
    draw = random.Random(7)
    for _ in range(60):
        count, stages = draw.randint(2, 7), draw.randint(1, 4)
        stages = min(stages, count)
        costs = [
            layer(draw.randint(1, 9), *(draw.randint(0, 20) for _ in range(4)))
            for _ in range(count)
        ]
        budget = draw.randint(40, 300)

        def size(i, j, s, costs=costs, stages=stages):
            received = costs[i - 1].sent_bytes if i else 0
            return stage_bytes(costs[i:j], min(stages - s, 8), received)

        times = []
        for inner in itertools.combinations(range(1, count), stages - 1):
            bounds = (0, *inner, count)
            spans = list(itertools.pairwise(bounds))
            if all(size(i, j, s) <= budget for s, (i, j) in enumerate(spans)):
                times.append(max(sum(c.seconds for c in costs[i:j]) for i, j in spans))
        if times:
            found = cut(costs, stages, [budget] * stages, micro_batches=8)
            assert max(found.seconds) == min(times)
            assert max(found.bytes) <= budget
        else:
            with pytest.raises(BudgetError, match="is the least that would") as raised:
                cut(costs, stages, [budget] * stages, micro_batches=8)
            least = int(str(raised.value).split(" bytes (")[0].split()[-1])
            cut(costs, stages, [least] * stages, micro_batches=8)
            with pytest.raises(BudgetError):
                cut(costs, stages, [least - 1] * stages, micro_batches=8)


def test_early_stages_hold_more_scopes():
    costs = [layer(1, scope=100) for _ in range(4)]
    assert cut(costs, 2, [None, None], micro_batches=8).bytes == (400, 200)
    later = cut(costs, 2, [200, None], micro_batches=8)
    assert later.bounds == (0, 1, 4)
    all_at_once = cut(costs, 2, [None, None], "forward-then-backward", micro_batches=8)
    assert all_at_once.bytes == (1600, 1600)


def test_more_stages_than_layers():
    with pytest.raises(OptionError, match="stages=3 are more than the 2 layers"):
        cut([layer(1), layer(1)], 3, [None] * 3)
