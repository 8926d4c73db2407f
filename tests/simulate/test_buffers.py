"""Lists, and the series of equal buffers that they share."""

from rnnmem.simulate.buffers import Buffer, Ledger, ListValue, Origin, Series, series_like, shares

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


def test_a_series_of_lists_is_of_all_that_its_lists_hold():
    """A loop in a loop: of each list the first buffer is the outer loop's, the others are not."""
    ledger, outer, inner = Ledger(), Origin(op="h"), Origin(op="g")
    one = ListValue(ledger, None)
    one.append(Buffer(ledger, K, outer))
    for _ in range(2):
        one.append(Buffer(ledger, K, inner))
    series = series_like(one)
    assert shares(series, 5 * series.bytes) == [(outer, 5 * K), (inner, 5 * K), (inner, 5 * K)]
    assert shares(series, -series.bytes) == [(outer, -K), (inner, -K), (inner, -K)]
    assert shares(Series(ledger, K, outer), 4 * K) == [(outer, 4 * K)]
