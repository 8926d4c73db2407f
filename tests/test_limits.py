"""The search of the benchmark that looks for the longest sentences under a limit."""

import pytest

from benchmarks.limits import bisected, largest_multiple


class Device:
    """Survives up to a length, and remembers what it was asked."""

    def __init__(self, most):
        self.most, self.asked = most, []

    def __call__(self, length):
        assert length not in self.asked
        self.asked.append(length)
        return length <= self.most


@pytest.mark.parametrize("most", [0, 1, 7, 64, 65, 100, 1000])
@pytest.mark.parametrize("start", [1, 64, 100])
def test_the_longest_that_survives_is_found(most, start):
    device = Device(most)
    assert bisected(device, start) == most
    assert len(device.asked) <= 2 + 2 * max(most, start).bit_length()


@pytest.mark.parametrize("most, multiple", [(112 * 9 + 5, 9), (112 * 8, 8), (600, 5), (111, 0)])
def test_multiples_are_tried_up_and_down(most, multiple):
    assert largest_multiple(Device(most), 112, 8, 16) == multiple
    assert largest_multiple(Device(most), 112, 8, 8) == min(multiple, 8)
