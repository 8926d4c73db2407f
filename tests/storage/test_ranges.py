import itertools
import random

import pytest

from rnnmem.errors import OptionError
from rnnmem.storage import ALGORITHMS, Range, assign, interference, lower_bound


def classes(assignment):
    return {frozenset(one.name for one in shared_storage) for shared_storage in assignment.storages}


def test_13_three_copies_in_a_row():
    # Three ops Copy(b1) -> b1 over one name: each copy is alive until the last reader.
    ranges = [Range("b1", 0, 3, 1), Range("b1", 1, 3, 1), Range("b1", 2, 3, 1)]
    assert interference(ranges) == [(0, 1), (0, 2), (1, 2)]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_15_four_ranges(algorithm):
    ranges = [
        Range("b1", 1, 3, 10),
        Range("b2", 3, 4, 1),
        Range("b3", 5, 6, 1),
        Range("b4", 5, 7, 10),
    ]
    found = assign(ranges, algorithm)
    assert found.usage == 11
    assert classes(found) == {frozenset({"b1", "b4"}), frozenset({"b2", "b3"})}


def test_16_the_first_pair_is_not_the_best():
    ranges = [Range("b1", 1, 2, 10), Range("b2", 4, 6, 1), Range("b3", 5, 6, 10)]
    assert assign(ranges, "greedy").usage == 20
    found = assign(ranges, "exact")
    assert found.usage == 11 and found.optimal


def drawn(count, seed, longest=8):
    draw = random.Random(seed)
    return [
        Range(f"b{i}", start := draw.randrange(count), start + draw.randrange(longest), size)
        for i in range(count)
        for size in [draw.choice([draw.randint(1, 9), draw.randint(1, 1000)])]
    ]


def clash(shared_storage):
    return any(
        one.defined <= other.used and other.defined <= one.used
        for one, other in itertools.combinations(shared_storage, 2)
    )


@pytest.mark.parametrize("seed", range(20))
def test_exact_is_never_worse_and_nothing_alive_shares(seed):
    ranges = drawn(20, seed)
    found = {algorithm: assign(ranges, algorithm) for algorithm in ALGORITHMS}
    for one in found.values():
        assert not any(map(clash, one.storages))
        assert sorted(r.name for shared_storage in one.storages for r in shared_storage) == sorted(
            r.name for r in ranges
        )
        assert one.usage >= lower_bound(ranges)
    assert found["exact"].optimal
    assert found["exact"].usage <= min(one.usage for one in found.values())


@pytest.mark.parametrize("seed", range(15))
def test_exact_is_the_least_of_all_assignments(seed):
    ranges = drawn(7, seed, longest=4)

    def all_ways(rest, shared_storages):
        if not rest:
            yield sum(max(one.size for one in shared_storage) for shared_storage in shared_storages)
            return
        for index, shared_storage in enumerate(shared_storages):
            if not clash([*shared_storage, rest[0]]):
                yield from all_ways(
                    rest[1:],
                    [
                        *shared_storages[:index],
                        [*shared_storage, rest[0]],
                        *shared_storages[index + 1 :],
                    ],
                )
        yield from all_ways(rest[1:], [*shared_storages, [rest[0]]])

    assert assign(ranges, "exact").usage == min(all_ways(ranges, []))


def test_55_ranges_are_exact():
    for seed in range(3):
        ranges = drawn(55, seed, longest=20)
        found = assign(ranges, "exact")
        assert found.optimal
        assert found.usage <= assign(ranges, "greedy").usage


def test_thousands_take_a_fast_method():
    ranges = drawn(5000, 1, longest=40)
    exact, greedy = assign(ranges, "exact"), assign(ranges, "greedy")
    assert exact.usage <= greedy.usage
    assert lower_bound(ranges) <= exact.usage
    assert not any(
        clash(sorted(shared_storage, key=lambda one: one.defined))
        for shared_storage in exact.storages
    )


def test_bad_ranges():
    with pytest.raises(OptionError, match="algorithm='magic'"):
        assign([], "magic")
    with pytest.raises(OptionError, match="no range"):
        assign([Range("a", 3, 2, 1)])
    assert assign([], "exact").usage == 0
