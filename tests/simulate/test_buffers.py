"""Lists, and the series of equal buffers that they share."""

from rnnmem.simulate.buffers import Ledger, ListValue, Origin, Series

K = 1024


def two_lists(count):
    ledger = Ledger()
    series = Series(ledger, K, Origin())
    lists = ListValue(ledger, None), ListValue(ledger, None)
    for one in lists:
        one.extend(series, count)
    return ledger, *lists


def test_a_series_in_two_lists_counts_once():
    ledger, first, second = two_lists(5)
    assert ledger.live == 5 * K
    first.drop()
    assert ledger.live == 5 * K
    second.drop()
    assert ledger.live == 0


def test_what_was_popped_outlives_the_other_list():
    ledger, first, second = two_lists(5)
    popped = [first.pop() for _ in range(3)]
    assert ledger.live == 5 * K
    second.drop()
    assert ledger.live == 5 * K
    for one in popped:
        one.drop()
    assert ledger.live == 2 * K


def test_what_only_one_list_has_is_its_popper_s_own():
    ledger, first, second = two_lists(2)
    second.drop()
    popped = first.pop()
    assert (ledger.live, popped.bytes) == (2 * K, K)
    popped.drop()
    assert ledger.live == K
