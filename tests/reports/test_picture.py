"""The geometry of the picture: each listed number is drawn, and nothing lies on what is written."""

import dataclasses
import itertools

import pytest

from rnnmem.reports.data import SAVED, TEMPORARY, WEIGHTS, Area, Curve, Part, Side
from rnnmem.reports.labels import Box, Task, placed
from rnnmem.reports.report import Report
from rnnmem.reports.rows import largest
from tests.reports.handmade_report import report

pytest.importorskip("matplotlib")


def side(name, sizes, *, at=3, width=10, height=1.0, **fields):
    """Blobs of some KiB, all alive at one moment; before and behind it a tenth of that."""
    parts = [
        Part(
            f"b{i}", TEMPORARY if i % 2 else SAVED, size << 10, f"Op{i}", "float32", (size,), f"{i}"
        )
        for i, size in enumerate(sizes)
    ]
    curve = [max(0.1, height if i == at else 0.1) for i in range(width)]
    areas = [Area(p, tuple(int(share * p.bytes) for share in curve)) for p in parts]
    peak = sum(part.bytes for part in parts)
    parts.sort(key=lambda part: -part.bytes)
    axis = tuple(map(float, range(width)))
    return Side(name, peak, peak, tuple(parts), float(at), "", "", axis, tuple(areas), **fields)


def handmade(before, after, **fields):
    return Report("step", before, after, report().plan, **fields)


def programs():
    yield "loop", report()
    yield "budget", report(budget=3 << 20)
    yield "segments", report(segments=True, budget=600 << 10)
    yield "short", report(trips=12, units=128)
    yield "unchanged", report(changed=False)
    high = side("before", [9000, 3000, 900, 80, 8], gradient_x=2.5)
    for place in (0, 1, 5, 8, 9):
        low = side("after", [90, 80, 70, 60, 50], at=place, gradient_x=max(0.5, place - 0.2))
        yield f"low at {place}", handmade(high, low, budget=400 << 10)
        swapped = dataclasses.replace(low, name="before"), dataclasses.replace(high, name="after")
        yield f"high after {place}", handmade(*swapped, resident=(Part("w", WEIGHTS, 1 << 20),))
    even = side("before", [500] * 3 + [40] * 9, gradient_x=3.0, measured=Curve((0.0, 9.0), (0, 9)))
    yield "thin ones between", handmade(even, side("after", [300] * 9, at=9))


PROGRAMS = dict(programs())


def drawn(told):
    from rnnmem.reports import picture

    made = picture.figure(told)
    made.canvas.draw()
    (axes,) = made.axes
    return axes


def box(text):
    """What a text covers, its field included."""
    renderer = text.figure.canvas.get_renderer()
    text.update_bbox_position_size(renderer)
    extent = (text.get_bbox_patch() or text).get_window_extent(renderer)
    return Box(extent.x0, extent.y0, extent.x1, extent.y1)


def named(artists, what):
    return {one.get_gid(): one for one in artists if what in (one.get_gid() or "")}


@pytest.mark.parametrize("told", PROGRAMS.values(), ids=PROGRAMS)
def test_every_listed_number_is_drawn_at_its_area_or_led_to_it(told):
    axes = drawn(told)
    sides = [told.before] if told.plan.changes_nothing else [told.before, told.after]
    texts, leaders = named(axes.texts, "-number-"), named(axes.lines, "-leader-")
    listed = {f"{s.name}-number-{n}" for s in sides for n, _ in enumerate(largest(s.parts), 1)}
    assert set(texts) == listed and len(listed) >= 2
    for name, text in texts.items():
        assert text.get_visible() and text.get_text() == name.rpartition("-")[2]
        leader = leaders.get(name.replace("number", "leader"))
        if leader is not None:
            end = axes.transData.transform(leader.get_xydata()[-1])
            assert text.get_window_extent().contains(*end)


@pytest.mark.parametrize("told", PROGRAMS.values(), ids=PROGRAMS)
def test_no_text_lies_on_another_and_no_leader_goes_through_one(told):
    axes = drawn(told)
    boxes = {text.get_gid() or text.get_text(): box(text) for text in axes.texts}
    for (one, first), (other, second) in itertools.combinations(boxes.items(), 2):
        assert not first.meets(second), (one, other)
    for name, line in named(axes.lines, "-leader-").items():
        points = tuple(map(tuple, axes.transData.transform(line.get_xydata())))
        for label, where in boxes.items():
            if label != name.replace("leader", "number"):
                assert not where.is_crossed(points), (name, label)


@pytest.mark.parametrize("told", PROGRAMS.values(), ids=PROGRAMS)
def test_both_axes_say_what_they_count(told):
    axes = drawn(told)
    sides = [told.before] if told.plan.changes_nothing else [told.before, told.after]
    texts = named(axes.texts, "-axis")
    assert set(texts) == {f"{one.name}-axis" for one in sides}
    (legend,) = axes.figure.legends
    below = legend.get_window_extent()
    bottom = axes.get_window_extent().y0
    for text in texts.values():
        assert text.get_text() == "allocations and releases, in order"
        assert below.y1 < box(text).bottom and box(text).top <= bottom
    assert axes.get_ylabel() == "MiB above the resident state"


@pytest.mark.parametrize("told", PROGRAMS.values(), ids=PROGRAMS)
def test_texts_stand_clear_of_the_budget_and_of_where_the_gradient_begins(told):
    axes = drawn(told)
    marks = [line for line in axes.lines if line.get_linestyle() in ("--", ":")]
    for line in marks:
        path = line.get_transform().transform(line.get_xydata())
        for name, text in named(axes.texts, "-peak").items():
            assert not box(text).is_crossed(tuple(map(tuple, path))), name


@pytest.mark.slow
def test_long_names_stand_in_their_own_room():
    from rnnmem.reports import picture

    def longer(part):
        return dataclasses.replace(part, op_type=70 * "Op", source=f"{90 * 'a'}.py:8")

    def with_longer(one):
        areas = tuple(dataclasses.replace(area, part=longer(area.part)) for area in one.areas)
        return dataclasses.replace(one, parts=tuple(map(longer, one.parts)), areas=areas)

    made = handmade(side("before", [90, 80]), side("after", [20, 10]))
    for name in ("step", "the train step of " + 8 * "long_", 60 * "step"):
        before, after = with_longer(made.before), with_longer(made.after)
        told = dataclasses.replace(made, name=name, before=before, after=after)
        figure = picture.figure(told)
        boxes = {text.get_text(): box(text) for text in (*figure.texts, *figure.axes[0].texts)}
        for (one, first), (other, second) in itertools.combinations(boxes.items(), 2):
            assert not first.meets(second), (one, other)
        assert all(one.left > 0 and one.right < figure.bbox.width for one in boxes.values())
        assert any(text.startswith("1 ") and "…" in text for text in boxes)


def test_a_line_crosses_what_it_goes_through():
    there = Box(10, 10, 20, 20)
    assert there.is_crossed(((0, 15), (30, 15)))
    assert there.is_crossed(((0, 0), (12, 12)))
    assert there.is_crossed(((15, 15), (16, 16)))
    assert not there.is_crossed(((0, 9), (30, 9), (30, 30)))
    assert not there.is_crossed(((0, 10), (30, 10)))
    assert not there.is_crossed(((0, 12), (8, 30)))


def test_where_there_is_room_nowhere_something_is_placed_all_the_same():
    task = Task((50, 5), (80, 20), (10, 10), (1, 2, 3), Box(0, 0, 100, 8))
    column = placed(task).column
    assert len(column.numbers) == len(column.leaders) == 3
