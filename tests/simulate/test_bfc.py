"""The allocator's chunks."""

import random

from rnnmem.simulate.bfc import ADDRESS, Allocator, counted_peak, in_use, least_peak

MIB = 2**20


def size_of(chunk):
    return chunk >> ADDRESS


def address_of(chunk):
    return chunk & ((1 << ADDRESS) - 1)


class Held:
    def __init__(self, size):
        self.bytes = size


def test_a_request_takes_the_smallest_chunk_that_is_large_enough():
    allocator = Allocator()
    chunks = [allocator.take(size * 1024) for size in (100, 1, 60, 1)]
    allocator.give(chunks[0])
    allocator.give(chunks[2])
    taken = allocator.take(50 * 1024)
    assert taken == chunks[2]
    # Less than half would be left over, so the chunk is handed out whole.
    assert size_of(taken) == 60 * 1024
    assert allocator.in_use == (1 + 60 + 1) * 1024


def test_a_chunk_twice_as_large_is_split_and_joined_again():
    allocator = Allocator()
    first = allocator.take(MIB // 2)
    assert size_of(first) == MIB // 2
    second = allocator.take(MIB // 2)
    allocator.give(first)
    allocator.give(second)
    assert allocator.in_use == 0
    assert size_of(allocator.take(2 * MIB)) == 2 * MIB  # one region again


def test_regions_double():
    allocator = Allocator()
    assert size_of(allocator.take(2 * MIB)) == 2 * MIB
    assert size_of(allocator.take(3 * MIB)) == 4 * MIB
    assert size_of(allocator.take(100 * MIB)) == 128 * MIB
    # Of 1024 MiB more than 128 would be left over, so the rest is split off.
    assert size_of(allocator.take(600 * MIB)) == 600 * MIB


def test_at_worst_others_keep_a_little_of_each_region():
    held = Held(16 * MIB)
    log = [(held, held.bytes, held.bytes), (held, -held.bytes, 0)]
    assert counted_peak(log, held.bytes) == 16 * MIB
    assert counted_peak(log, held.bytes, is_worst=True) == 32 * MIB - 256


def test_what_is_in_use_is_never_less_than_what_was_asked_for():
    draw = random.Random(3)
    allocator, held, asked = Allocator(), [], 0
    for _ in range(3000):
        if held and draw.random() < 0.5:
            chunk, size = held.pop(draw.randrange(len(held)))
            asked -= size
            allocator.give(chunk)
        else:
            size = 256 * draw.randrange(1, 5000)
            held.append((allocator.take(size), size))
            asked += size
        assert asked <= allocator.in_use < 2 * asked + 1
    spans = sorted((address_of(one), address_of(one) + size_of(one)) for one, _ in held)
    assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:], strict=False))


def drawn(entries, sizes, seed=5):
    """A log of buffers of 256 bytes times one of these sizes, and the most that is alive."""
    draw = random.Random(seed)
    log, live, peak, held = [], 0, 0, []
    for _ in range(entries):
        if held and draw.random() < 0.45:
            one = held.pop(draw.randrange(len(held)))
            change = -one.bytes
        else:
            one = Held(256 * draw.choice(sizes))
            held.append(one)
            change = one.bytes
        live += change
        peak = max(peak, live)
        log.append((one, change, live))
    return log, peak


def test_the_counted_peak_is_above_the_asked_one_and_the_same_each_time():
    log, peak = drawn(400, range(1, 4000))
    counted = counted_peak(log, peak)
    assert peak <= counted <= 1.5 * peak
    assert counted == counted_peak(log, peak) == max(in_use(log))
    assert len(in_use(log)) == len(log)
    assert counted_peak([], 0) == 0


def test_many_buffers_charged_at_once_are_laid_out_one_by_one():
    one = Held(256 * 5)
    log = [(one, 100 * one.bytes, 100 * one.bytes), (one, -100 * one.bytes, 0)]
    assert counted_peak(log, 100 * one.bytes) >= 100 * one.bytes


def test_of_a_long_run_the_largest_buffers_are_laid_out(monkeypatch):
    log, peak = drawn(2000, [1, 2, 3, 4, 5, *range(3000, 4000, 300)])
    whole, least = counted_peak(log, peak), least_peak(log, peak)
    large = sum(one.bytes > 5 * 256 for one, _, _ in log)
    monkeypatch.setattr("rnnmem.simulate.bfc.LONGEST_LOG", large)
    assert peak < counted_peak(log, peak) == max(in_use(log))
    assert abs(counted_peak(log, peak) - whole) < 0.02 * whole
    assert peak <= least_peak(log, peak) and abs(least_peak(log, peak) - least) < 0.02 * least
    monkeypatch.setattr("rnnmem.simulate.bfc.LONGEST_LOG", 0)
    assert counted_peak(log, peak) == max(in_use(log)) == least_peak(log, peak) == peak
