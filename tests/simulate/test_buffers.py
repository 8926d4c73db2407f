"""Lists, and the series of equal buffers that they share."""

from rnnmem.simulate.buffers import Account, ListValue, Origin, Series

K = 1024


def two_lists(count):
    account = Account()
    series = Series(account, K, Origin())
    lists = ListValue(account, None), ListValue(account, None)
    for one in lists:
        one.extend(series, count)
    return account, *lists


def test_a_series_in_two_lists_counts_once():
    account, first, second = two_lists(5)
    assert account.live == 5 * K
    first.drop()
    assert account.live == 5 * K
    second.drop()
    assert account.live == 0


def test_what_was_popped_outlives_the_other_list():
    account, first, second = two_lists(5)
    popped = [first.pop() for _ in range(3)]
    assert account.live == 5 * K
    second.drop()
    assert account.live == 5 * K
    for one in popped:
        one.drop()
    assert account.live == 2 * K


def test_what_only_one_list_has_is_its_popper_s_own():
    account, first, second = two_lists(2)
    second.drop()
    popped = first.pop()
    assert (account.live, popped.bytes) == (2 * K, K)
    popped.drop()
    assert account.live == K
