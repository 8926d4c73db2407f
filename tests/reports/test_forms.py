"""The forms of a report: text of 80 columns, JSON, a picture, a trace."""

import html
import json
import xml.etree.ElementTree as ElementTree

import pytest

from rnnmem.errors import OptionError
from rnnmem.ir.edges import Edge
from rnnmem.passes.accumulated_products.decision import AccumulatedProduct
from rnnmem.passes.implicit_broadcast.decision import ImplicitBroadcast
from rnnmem.passes.late_products.decision import LateProduct
from rnnmem.passes.saved_shapes.decision import SavedShape
from rnnmem.passes.straight_line.decision import Region
from rnnmem.planning.plan import Plan
from rnnmem.reports.data import KINDS, SAVED, LoopSpan, Part, Side
from rnnmem.reports.explain import explain
from rnnmem.reports.report import Report
from rnnmem.sizes import format_bytes
from tests.reports.handmade_report import report


@pytest.fixture(scope="module")
def told() -> Report:
    return report(budget=3 << 20, notes=("a note to the reader",))


def test_the_text_fits_in_80_columns_and_names_the_peaks(told):
    text = str(told)
    assert max(map(len, text.splitlines())) <= 80
    for size in (told.before.peak_bytes, told.after.peak_bytes, told.budget):
        assert format_bytes(size) in text
    assert "note: a note to the reader" in text
    assert "weights: variables that are trained" in text
    assert text.startswith("train_step: 1 loop rewritten, predicted peak -")


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_text_fits_the_terminal_and_says_the_same(told, monkeypatch, width):
    whole = str(told)
    monkeypatch.setenv("COLUMNS", str(width))
    assert str(told) == whole  # it goes elsewhere
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    text = str(told)
    assert text == told.text(width) and told.text(80) == whole
    assert max(map(len, text.splitlines())) <= width
    assert characters(text) == characters(whole)
    curves = [line for line in text.splitlines() if line.startswith("          0 ┤")]
    assert len(curves) == 2
    assert max(map(len, curves)) > min(width, 132) - 14  # a curve is as wide as sentences are


def test_in_a_terminal_that_is_too_narrow_text_has_60_columns(told, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert str(told) == told.text(60)


def characters(text):
    """All that is not drawn, in some order: rows are parted differently."""
    return sorted(one for one in text if not one.isspace() and one not in "▁▂▃▄▅▆▇█")


OUTSIDE = Plan(original_peak=2**22, predicted_peak=2**20).having(
    straight_line=(Region(("Tanh", "Exp"), ("gradient/Mul",), ("gradient/x:0",), 2**21, 0.1),) * 6
)
EDGES = Plan(original_peak=2**22, predicted_peak=2**20).having(
    scheduling_edges=(Edge("mul", None, "sum"),)
)
BROADCAST = Plan().having(broadcast_outside=(ImplicitBroadcast("mul", 1),))
LATE = Plan().having(late_products=(LateProduct("mul", 1, "awaited:0", 2**19),))
SHAPE = Plan().having(saved_shapes=(SavedShape((), "gradient", "shapes", None),))
SUM = Plan().having(accumulated_products=(AccumulatedProduct("product", "sum", 8, 2**20),))


@pytest.mark.parametrize(
    ("plan", "changed"),
    [
        (OUTSIDE, "6 regions outside of loops run again"),
        (EDGES, "1 control edge added"),
        (LATE, "1 product made late"),
        (SHAPE, "1 shape saved instead of its blob"),
        (SUM, "1 product added up item by item"),
        (BROADCAST, "1 operand not made whole"),
    ],
)
def test_report_and_explain_tell_alike_what_was_changed(plan, changed):
    before, after = Side("before", 2**22), Side("after", 2**20)
    assert str(Report("step", before, after, plan)).startswith(f"step: {changed}, predicted peak")
    assert str(explain(plan, name="step")).startswith(f"step: {changed}\n")


def test_the_curve_is_as_high_as_the_peak(told):
    lines = str(told).splitlines()
    start = lines.index("before, over one run:")
    assert lines[start + 1].split("┤")[0].strip() == format_bytes(told.before.peak_bytes)
    assert any(block in lines[start + 1] for block in "▁▂▃▄▅▆▇█")


def test_the_text_has_one_row_for_parts_that_are_alike():
    gates = [
        Part(f"cell: g{i}", SAVED, 2**20, "Tanh", "float32", (512, 512), f"cell.py:{i}", ("cell",))
        for i in (7, 8, 8)
    ]
    before = Side("before", 3 * 2**20, parts=tuple(gates), peak_source="cell.py:9")
    text = str(Report("step", before, before, Plan()))
    rows = [" ".join(line.split()) for line in text.splitlines() if "Tanh" in line]
    assert rows == ["3.0 MiB 3 × Tanh float32[512,512] cell.py:7, 8 saved"]


def test_the_head_of_the_column_of_blobs_says_what_it_counts(told):
    heads = [" ".join(line.split()) for line in str(told).splitlines() if line.endswith("decision")]
    assert heads == ["at the peak blob where decision"] * 2


def gate(layer, kind="Sigmoid", line="train.py:8"):
    loop = f"model/{layer}/while"
    label = f"{loop}: {loop}/{kind}:0"
    return Part(label, SAVED, 2**20, kind, "float32", (512, 512), line, (loop,))


def rows_of(*parts):
    spans = tuple(LoopSpan(part.loops, 0.0, 1.0, 9, "train.py:8") for part in parts)
    before = Side("before", len(parts) * 2**20, parts=parts, peak_source="train.py:8", spans=spans)
    text = str(Report("step", before, before, Plan()))
    heading, *rows = text[text.index("at the peak") :].strip().splitlines()
    return heading.split()[4], [" ".join(row.split()[3:]) for row in rows]


def test_rows_that_have_the_same_line_are_told_apart_by_their_layers():
    """A Keras model has one line, that of ``fit``."""
    heading, rows = rows_of(gate("encoder"), gate("reader"), gate("reader", "Tanh", "cell.py:3"))
    assert heading == "where"
    assert rows == [
        "float32[512,512] encoder saved",
        "float32[512,512] reader saved",
        "float32[512,512] cell.py:3 saved",
    ]
    heading, rows = rows_of(gate("encoder"), gate("encoder", "Tanh"))
    assert heading == "line" and rows == ["float32[512,512] train.py:8 saved"] * 2


def test_a_row_without_a_line_is_told_by_its_layer():
    """A SavedModel has no lines; in their place are names of ops."""
    heading, rows = rows_of(gate("encoder", line="call/encoder/Sigmoid"), gate("reader"))
    assert heading == "where"
    assert rows == ["float32[512,512] encoder saved", "float32[512,512] train.py:8 saved"]


def test_where_nothing_was_changed_there_is_one_side():
    text = str(report(changed=False))
    assert text.startswith("train_step: runs as TensorFlow runs it")
    assert "after" not in text


def test_an_unknown_peak_is_a_question_mark_and_says_what_is_unknown():
    side = Side("before", None, unknown=("trip count of while",))
    text = str(Report("f", side, side, Plan()))
    assert "?" in text
    assert "unknown: trip count of while" in text


def test_json_holds_all_and_the_sums_agree(told):
    held = json.loads(told.to_json())
    for side in ("before", "after"):
        peak = held[side]["peak_bytes"]
        assert sum(part["bytes"] for part in held[side]["parts"]) == peak
        assert sum(held[side]["peak_by_kind"].values()) == peak
        assert max(held[side]["timeline"]["bytes_in_use"]) == peak
    assert held["budget_bytes"] == told.budget
    assert Plan.from_json(json.dumps(held["plan"])) == told.plan


def test_the_png_is_a_picture_of_both_sides(told):
    pytest.importorskip("matplotlib")
    content = told.to_png()
    assert content.startswith(b"\x89PNG")
    assert len(content) > 20_000


def test_the_svg_names_the_five_largest_blobs_and_the_budget(told):
    pytest.importorskip("matplotlib")
    content = told.to_svg()
    texts = " ".join(
        element.text or ""
        for element in ElementTree.fromstring(content).iter()
        if element.tag.endswith("text")
    )
    assert "before" in texts and "after" in texts
    assert f"budget {format_bytes(told.budget)}" in texts
    for part in [part for part in told.before.parts if part.op_type][:5]:
        assert f"{part.op_type} {part.dtype}" in texts
    assert told.to_svg() == content  # the same report gives the same file


def test_the_trace_counts_what_is_in_use_and_has_a_slice_for_each_loop(told):
    events = json.loads(told.to_trace())["traceEvents"]
    counters = [event for event in events if event["ph"] == "C" and event["pid"] == 1]
    assert max(sum(event["args"].values()) for event in counters) == told.before.peak_bytes
    assert set(counters[0]["args"]) == set(KINDS)
    loops = [event for event in events if event.get("cat") == "loop" and event["pid"] == 1]
    assert [event["name"] for event in loops] == ["loop", "gradient"]
    assert all(event["dur"] > 0 for event in events if event["ph"] == "X")
    slices = [event for event in events if event.get("cat") == "saved"]
    assert slices and all(event["args"]["reason"] for event in slices if event["pid"] == 1)


def test_a_file_gets_the_form_of_its_ending(told, tmp_path):
    for ending in ("json", "html", "txt", "trace.json"):
        told.save(tmp_path / f"memory.{ending}")
    assert json.loads((tmp_path / "memory.json").read_text())["name"] == "train_step"
    assert "traceEvents" in json.loads((tmp_path / "memory.trace.json").read_text())
    assert (tmp_path / "memory.txt").read_text() == str(told)
    with pytest.raises(OptionError, match=r"path='.*memory.pdf' must end in one of .*\.html"):
        told.save(tmp_path / "memory.pdf")


def test_without_matplotlib_the_error_says_what_to_install(told, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(OptionError, match=r"rnnmem\[report\]"):
        told.to_png()


def test_a_path_that_cannot_be_written_is_named(told, tmp_path):
    with pytest.raises(OptionError, match="path='.*nodir/x.html' cannot be written: No such file"):
        told.save(tmp_path / "nodir" / "x.html")
    with pytest.raises(OptionError, match="path='a.x00.html' cannot be written: embedded null"):
        told.save("a\0.html")
    with pytest.raises(OptionError, match="path=3 must be the path of a file"):
        told.save(3)
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(OptionError, match="cannot be written: Is a directory"):
        told.save(tmp_path / "folder.json")


def test_a_notebook_shows_the_page_in_a_frame(told):
    frame = told._repr_html_()
    assert frame.startswith('<iframe sandbox="allow-scripts"')
    page = frame.partition('srcdoc="')[2].removesuffix('"></iframe>')
    assert html.unescape(page) == told.to_html()
    assert '"' not in page
