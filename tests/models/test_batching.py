import itertools
import random

import numpy as np
import pytest

from models.nmt.batching import Batches, Position, in_order, widths
from models.nmt.vocabulary import END, PAD, START


def pairs_of(count, seed=0, longest=20):
    draw = random.Random(seed)
    return [
        tuple([4 + i, *(draw.randrange(4, 99) for _ in range(draw.randrange(longest))), END]
              for _ in (0, 1))
        for i in range(count)
    ]  # fmt: skip


def padding(lengths, chosen):
    return sum(min(w for w in chosen if w >= n) for n in lengths)


def test_the_widths_are_those_that_need_the_least_padding():
    draw = random.Random(1)
    for _ in range(20):
        lengths = [draw.randrange(1, 12) for _ in range(30)]
        for most in (1, 2, 3):
            found = widths(lengths, most)
            assert found == sorted(set(found))
            assert found[-1] == max(lengths)
            best = min(
                padding(lengths, (*some, max(lengths)))
                for some in itertools.combinations(range(1, max(lengths)), most - 1)
            )
            assert padding(lengths, found) == best


def test_more_widths_than_lengths_are_the_lengths():
    assert widths([3, 5, 5, 9], 7) == [3, 5, 9]


def read_back(batches):
    """The pairs in all batches, those rows left out that only fill."""
    found = []
    for source, target in batches:
        for s, t in zip(source.numpy().tolist(), target.numpy().tolist(), strict=True):
            if any(t):
                assert t[0] == START
                found.append(tuple([i for i in side if i != PAD] for side in (s, t[1:])))
    return found


def test_an_epoch_holds_every_pair_once_in_few_shapes():
    pairs = pairs_of(100)
    data = Batches(pairs, 0, 120, seed=1, shapes=3)
    epoch = list(data.epoch(0))
    assert sorted(read_back(epoch)) == sorted(pairs)
    shapes = {(source.shape, target.shape) for source, target in epoch}
    assert len(shapes) <= 3
    for source, target in shapes:
        assert source == target
        assert source[0] == data.rows[data.widths.index(source[1])]
        assert 120 - 8 * source[1] < source[0] * source[1] <= 120


def test_without_tokens_batches_have_as_many_rows():
    data = Batches(pairs_of(30), 7, None, seed=1)
    assert {source.shape[0] for source, _ in data.epoch(0)} == {7}


def test_every_epoch_has_its_own_order_and_the_seed_fixes_it():
    pairs = pairs_of(50)
    first, again = (Batches(pairs, 4, None, seed=1) for _ in (0, 1))
    assert read_back(first.epoch(3)) == read_back(again.epoch(3))
    assert read_back(first.epoch(3)) != read_back(first.epoch(4))
    assert read_back(first.epoch(3)) != read_back(Batches(pairs, 4, None, seed=2).epoch(3))


def test_a_position_is_where_it_goes_on():
    data = Batches(pairs_of(20), 4, None, seed=1, shapes=2)
    through = list(itertools.islice(data.from_position(Position()), 17))
    assert through[-1][0].epoch >= 2
    for stop in (3, 9):
        position = through[stop - 1][0]
        resumed = list(itertools.islice(data.from_position(position), 17 - stop))
        for (p, batch), (q, other) in zip(through[stop:], resumed, strict=True):
            assert p == q
            np.testing.assert_array_equal(batch[0], other[0])
            np.testing.assert_array_equal(batch[1], other[1])


def test_what_cannot_be_batched_is_said():
    with pytest.raises(ValueError, match="pairs is empty"):
        Batches([], 4, None, 1)
    with pytest.raises(ValueError, match=r"longest pair has \d+ tokens, a batch only 5"):
        Batches(pairs_of(30), 0, 5, 1)


def test_evaluation_sees_each_sentence_once_and_padded():
    ids = [s for s, _ in pairs_of(21)]
    seen = []
    for chosen, batch in in_order(ids, 4):
        assert batch.shape[1] % 8 == 0
        for i, row in zip(chosen, batch.tolist(), strict=True):
            assert [x for x in row if x != PAD] == ids[i]
        seen += chosen
    assert sorted(seen) == list(range(21))
