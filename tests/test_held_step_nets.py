"""A number at which a process dies is told, and the others are held by another one."""

import os

from tests import held_step_nets as held


def one_dies(numbers, telling):
    for number in numbers:
        if number == 3:
            telling.send(held.RAN)
        if number in (3, 5):
            os._exit(1)
        telling.send(({held.CASES: number}, f"number {number}"))


def test_it_goes_on_behind_a_number_that_dies(capfd):
    counts = held._held(range(1, 9, 2), one_dies)
    assert counts == {held.CASES: 1 + 7, held.HUNG: 1, held.NEVER_RAN: 1}
    text = capfd.readouterr().out.split("\n")
    assert text[:4] == ["number 1", "HUNG 3", "HUNG 5 in the original", "number 7"]
