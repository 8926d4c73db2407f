"""The report: one table, and a sentence for everything that was left."""

import dataclasses
import html.parser

import pytest

from rnnmem.ir.edges import Edge
from rnnmem.passes.checkpoint.decision import Segments
from rnnmem.passes.encode.decision import SAVED
from rnnmem.passes.rematerialise.decision import (
    INNER,
    INVARIANT,
    RECOMPUTED,
    LoopPlan,
    ResidualDecision,
)
from rnnmem.passes.straight_line.decision import Region
from rnnmem.planning.plan import NestedPlan, Plan
from rnnmem.reports.explain import explain


def decision(
    blob="b", decision=SAVED, *, bytes=1024, shape=(2, 128), was_saved=True, reason="because"
):
    return ResidualDecision(
        blob, "Tanh", "float32", shape, bytes, decision, was_saved, reason, "train.py:88"
    )


def loop(*residuals, **fields):
    fields = {"trips": 50, "source": "train.py:80", **fields}
    return LoopPlan(("while",), ("gradient/while",), residuals=residuals, **fields)


def report(*loops, **fields):
    return explain(Plan(loops=loops, **fields), name="train_step").text(132)


def row(text, word):
    return next(line for line in text.splitlines() if word in line)


def test_a_row_says_bytes_trips_type_shape_line_decision_and_reason():
    text = report(loop(decision(reason="worth keeping")))
    line = row(text, "Tanh")
    words = line.split()
    assert words[:2] == ["1.0", "KiB"] or words[0].startswith("1")
    assert "loop while (train.py:80), 50 iterations\n" in text
    assert "float32[2,128]" in words
    assert "train.py:88" in words
    assert "saved" in words
    assert line.rstrip().endswith("worth keeping")


@pytest.mark.parametrize(
    ("what", "was_saved", "word"),
    [
        (SAVED, True, "saved"),
        (SAVED, False, "saved now"),
        (RECOMPUTED, True, "recomputed"),
        (INVARIANT, True, "invariant"),
        (INNER, True, "inner"),
    ],
)
def test_each_decision_has_a_word(what, was_saved, word):
    assert f" {word} " in row(report(loop(decision(decision=what, was_saved=was_saved))), "Tanh")


def test_a_value_that_is_only_carried_along_has_the_line_of_its_loop():
    state = dataclasses.replace(decision(), op_type="state", source="")
    assert "train.py:80" in row(report(loop(state)), " state ")
    assert "train.py:80" in row(report(loop(decision("b"), segments=CUT)), " state ")


def test_what_is_unknown_is_a_question_mark_and_never_0():
    text = report(loop(decision(bytes=None, shape=(None, 4)), trips=None))
    words = row(text, "Tanh").split()
    assert words[0] == "?"
    assert "loop while (train.py:80), ? iterations" in text
    assert "float32[?,4]" in words
    assert "0" not in words
    assert "float32[?]" in report(loop(decision(bytes=None, shape=None)))


def test_the_largest_stands_first():
    text = report(
        loop(decision("small", bytes=10, reason="s"), decision("large", bytes=99999, reason="l"))
    )
    rows = [line for line in text.splitlines() if "Tanh" in line]
    assert rows[0].rstrip().endswith("l")


def test_without_a_loop_it_says_so_in_one_line():
    assert report() == "train_step: no loop with a gradient was found, nothing was to be done\n"


def test_what_runs_again_outside_of_loops_is_counted_and_told():
    region = Region(("Tanh", "Exp"), ("gradient_tape/Mul",), ("gradient_tape/x:0",), 2**21, 0.1)
    text = str(explain(Plan().having(straight_line=(region,)), name="train_step"))
    assert text.startswith("train_step: 1 region outside of loops runs again")
    whole = " ".join(text.split())
    assert "2 ops from Tanh to Exp run again near their gradient: 2.0 MiB" in whole


def test_a_closed_loop_is_named_with_its_line_and_reason():
    text = report(loop(closed="its gradient is differentiated again"))
    assert text.startswith("train_step: nothing was to be gained, the function runs as it was")
    assert "left as it was: loop while (train.py:80): its gradient is differentiated again" in text


def test_in_a_closed_loop_every_blob_is_left():
    text = report(loop(decision(decision=RECOMPUTED), closed="too odd"))
    assert " left " in row(text, "Tanh")
    assert "recomputed" not in text


def test_loops_inside_loops_are_told_and_counted():
    inner = LoopPlan(("while", "deep"), ("g",), trips=3, residuals=(decision(),))
    text = report(loop(decision(), inner=(inner,)))
    assert text.startswith("train_step: 2 loops rewritten")
    assert "loop while › deep" in text


def test_peaks_are_told_where_they_are_known():
    text = report(loop(decision()), original_peak=130 * 2**20, predicted_peak=42 * 2**20)
    assert "130.0 MiB as it was, 42.0 MiB now" in text
    assert "predicted peak: open, as sizes are" in report(loop(decision()))
    assert "? as it was" in report(loop(decision()), predicted_peak=1)


def test_a_peak_that_may_be_another_in_another_run_is_told_as_an_interval():
    mib = 2**20
    peaks = {"original_peak": 130 * mib, "predicted_peak": 42 * mib}
    intervals = {"original_interval": (130 * mib, 130 * mib)}
    text = report(loop(decision()), **peaks, **intervals, predicted_interval=(40 * mib, 44 * mib))
    assert "130.0 MiB as it was, 40.0 to 44.0 MiB now" in text


def test_time_is_told_where_something_changes():
    assert "estimated step time: 1.07x" in report(loop(decision()), slowdown=1.07)
    assert "step time" not in report(loop(closed="no"), slowdown=1.07)


def test_notes_stand_under_the_verdict():
    assert "note: RNNMEM_DISABLE is set" in report(notes=("RNNMEM_DISABLE is set",))


def test_words_with_brackets_are_printed_as_they_are():
    # rich would take [red] for a colour
    text = report(loop(decision(reason="[red] is [bold]not[/bold] markup")))
    assert "[red] is [bold]not[/bold] markup" in " ".join(text.split())


def test_a_report_prints_as_itself():
    told = explain(Plan(), name="f")
    assert repr(told) == str(told)
    assert (told.name, told.plan) == ("f", Plan())


def test_an_online_schedule_says_what_grows_with_the_loop():
    cut = Segments(length=4, bytes=2048, slots=6, count=256, replays=2.96, online=True)
    text = " ".join(report(loop(trips=None, segments=cut)).split())
    assert "4 iterations; 2.0 KiB of state kept for 6 at once, however many there are" in text
    assert "run again 3.0 times in the gradient where there are 1024, more often the more" in text


CUT = Segments(length=5, wanted=("b",), states=("h",), bytes=1088, saved_bytes=1024)


def test_what_runs_again_with_its_segment_is_not_called_kept():
    line = row(report(loop(decision("b", reason="not worth the time"), segments=CUT)), "Tanh")
    assert " replayed " in line
    assert "kept" not in line.split("replayed")[0]
    text = report(loop(decision("b", reason="not worth the time"), segments=CUT))
    assert "not worth the time" not in text
    assert "runs again with its segment of 5 iterations" in " ".join(text.split())


def test_a_state_says_where_it_is_kept_and_has_a_row_though_nobody_reads_it():
    line = row(report(loop(decision("h"), segments=CUT)), "Tanh")
    assert " checkpointed " in line
    text = report(loop(decision("b"), segments=CUT))
    assert " checkpointed " in row(text, "1.1 KiB  ")
    assert " state " in row(text, "1.1 KiB  ")


def test_one_iteration_and_several_are_told_as_such():
    one = Segments(length=1, bytes=2048, slots=3, count=30, replays=2.9)
    assert "while (train.py:80): 1 iteration; " in report(loop(segments=one))
    assert "while (train.py:80): 5 iterations; " in report(loop(segments=CUT))
    assert "loop while (train.py:80), 1 iteration\n" in report(loop(decision(), trips=1))


def frontier(*plans):
    """What is said of each of several plans, without its number, as one line."""
    lines = str(explain(Plan(notes=("another",)), name="f", frontier=plans)).splitlines()
    rows = []
    for line in lines[lines.index(next(one for one in lines if one.startswith("plan "))) + 1 :]:
        if line[:1].isdigit():
            rows.append("")
        rows[-1] += f" {' '.join(line.split()[1:] if line[:1].isdigit() else line.split())}"
    return rows


def plan_with(**fields):
    return Plan(
        loops=(loop(decision("b"), decision("h"), saved=("b", "h"), bytes=2048, **fields),),
        predicted_peak=2**20,
        original_peak=2**22,
    )


def test_plans_of_different_segments_read_differently():
    cuts = [
        None,
        Segments(length=5, wanted=("b", "h"), states=("h",), bytes=1088, saved_bytes=2048),
        Segments(length=9, wanted=("b", "h"), states=("h",), bytes=1088, saved_bytes=2048),
        Segments(length=5, wanted=("b",), states=("h",), bytes=9, saved_bytes=9, slots=3, count=10),
        Segments(length=5, growth=2, wanted=("b",), states=("h",), bytes=9, saved_bytes=9),
    ]
    told = frontier(*(plan_with(segments=cut) for cut in cuts))
    assert len(set(told)) == len(cuts)
    assert "2 blobs saved" in told[0] and "replayed" not in told[0]
    assert "1 blob replayed in segments of 5, a checkpoint each" in told[1]
    assert not any("blobs saved" in one for one in told[1:3])
    assert "1 blob replayed in segments of 5 from 4 checkpoints, 1.0 times" in told[3]


def test_the_bytes_that_loops_keep_stand_beside_what_changes():
    cut = Segments(length=5, wanted=("b", "h"), states=("h",), bytes=1024, saved_bytes=2048)
    (plain, segmented) = frontier(plan_with(), plan_with(segments=cut))
    assert "100.0 KiB" in plain  # 50 iterations of 2 KiB
    assert "20.0 KiB" in segmented  # ten states and one segment
    (unknown,) = frontier(plan_with(trips=None))
    assert " ? " in unknown


def test_loops_are_told_to_keep_no_more_than_the_peak():
    """A state that is saved as the result of the iteration before, too, is in two lists."""
    low = dataclasses.replace(plan_with(), predicted_peak=80 << 10)
    (told,) = frontier(low)
    assert told.count("80.0 KiB") == 2 and "100.0 KiB" not in told
    (told,) = frontier(dataclasses.replace(low, predicted_interval=(80 << 10, 90 << 10)))
    assert "90.0 KiB" in told


def test_loops_of_which_the_same_is_told_stand_together():
    first, second = (loop(decision("b"), segments=CUT) for _ in range(2))
    second = dataclasses.replace(second, path=("other",))
    third = dataclasses.replace(loop(decision("b")), path=("third",))
    (both,) = frontier(Plan(loops=(first, second)))
    assert both.count("replayed") == 1 and "while" not in both
    (all_three,) = frontier(Plan(loops=(first, second, third)))[:1]
    assert "while, other: " in all_three


def test_a_loop_in_one_that_is_left_is_left_too():
    inner = LoopPlan(("while", "deep"), ("g",), trips=3, saved=("b",), residuals=(decision(),))
    (told,) = frontier(Plan(loops=(loop(decision(), inner=(inner,), closed="too odd"),)))
    assert told.endswith("nothing, the original")


def test_a_loop_in_one_that_is_left_is_not_counted_as_rewritten():
    inner = LoopPlan(("while", "deep"), ("g",), trips=3, saved=("b",), residuals=(decision(),))
    left = loop(decision(), inner=(inner,), closed="too odd")
    other = dataclasses.replace(loop(decision()), path=("other",))
    assert report(left, other).startswith("train_step: 1 loop rewritten")


def test_what_other_passes_decided_has_a_table_with_the_place():
    edges = (("scheduling_edges", (Edge("mul", None, "sum"), Edge("tanh", None, "sum"))),)
    inner = NestedPlan(("training", "body"), ("training",), Plan(decisions=edges))
    lines = report(nested=(inner,), decisions=edges).splitlines()
    rows = [line.split(maxsplit=1) for line in lines if line.startswith("scheduling_edges")]
    told = [" ".join(rest.split()) for _, rest in rows]
    assert told == [
        "the function mul waits for sum",
        "the function tanh waits for sum",
        "training mul waits for sum",
        "training tanh waits for sum",
    ]


def wide():
    """A plan with long names, reasons and notes."""
    long = decision(reason="a reason that is so long that it has to be folded more than once " * 2)
    region = Region(("a/long/name/of/an/op/Tanh",) * 2, ("r",), ("a",), 2**20, 0.1, "train.py:3")
    plan = Plan(
        loops=(loop(long),),
        notes=("a note that says a lot of what was left alone, and is longer than a line has it",),
        original_peak=2**30,
        predicted_peak=2**20,
    )
    return plan.having(straight_line=(region,))


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_report_fits_the_width_and_says_the_same(width):
    told = explain(wide(), name="train_step", frontier=(wide(),))
    lines = told.text(width).splitlines()
    assert max(map(len, lines)) <= width
    words = set(" ".join(lines).split())
    assert {"folded", "train.py:88", "gradient:", "alone,", "chosen"} <= words


def test_in_a_terminal_a_report_fits_it_and_elsewhere_no_sentence_is_broken(monkeypatch):
    note = "word " * 40 + "end"
    told = explain(dataclasses.replace(wide(), notes=(note,)), name="train_step")
    monkeypatch.setenv("COLUMNS", "90")
    assert f"note: {note}" in str(told).splitlines()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert 60 < max(map(len, str(told).splitlines())) <= 90


def test_equal_rows_are_one():
    same = [decision(blob, reason="alike") for blob in ("b", "c", "d")]
    text = report(loop(*same, decision("e", reason="another")))
    assert "3.0 KiB 3 × Tanh float32[2,128] train.py:88" in " ".join(text.split())
    assert text.count("alike") == 1 and text.count("another") == 1


def test_a_row_of_several_tells_what_they_take_together():
    gates = [decision(blob, bytes=8192) for blob in "ifo"]
    text = report(loop(decision("c", bytes=16384, shape=(9,)), *gates))
    rows = [line.split()[:2] for line in text.splitlines() if "Tanh" in line]
    assert rows == [["24.0", "KiB"], ["16.0", "KiB"]]
    head = next(line for line in text.splitlines() if "why" in line)
    assert head.split() == ["each", "iteration", "blob", "line", "decision", "why"]
    priced = [decision(blob, reason="saving 1.0 KiB is not worth the time") for blob in "ab"]
    assert "each: saving 1.0 KiB is not worth the time" in row(report(loop(*priced)), "Tanh")
    assert "each:" not in row(report(loop(*gates)), "Tanh")
    unknown = [decision(blob, bytes=None) for blob in "ab"]
    assert row(report(loop(*unknown)), "Tanh").split()[:3] == ["?", "2", "×"]


class Cells(html.parser.HTMLParser):
    """The texts of paragraphs and cells; fails where tags do not match."""

    def __init__(self, page):
        super().__init__()
        self.open, self.texts = [], []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_notebooks_show_explanations_and_plans_as_tables():
    plan = dataclasses.replace(wide(), notes=("<b>not</b> markup & no tag",))
    for page in (explain(plan, name="f")._repr_html_(), plan._repr_html_()):
        texts = Cells(page).texts
        assert "note: <b>not</b> markup & no tag" in texts
        assert {"why", "decision", "train.py:88"} <= set(texts)
        assert any("1024.0 MiB as it was, 1.0 MiB now" in text for text in texts)
        assert any("run again near their gradient" in text for text in texts)
    nothing = "no loop with a gradient was found, nothing was to be done"
    assert Cells(Plan()._repr_html_()).texts == [nothing]
    assert str(Plan()) == f"{nothing}\n"


def test_a_plan_tells_by_itself_what_explain_tells_of_it():
    """Under segments a decision alone says what no iteration of the forward loop does."""
    cut = Segments(7, wanted=(decision().blob,))
    plan = Plan(loops=(dataclasses.replace(loop(decision()), segments=cut),))
    explained = explain(plan, name="f").text(200)
    rows = [line.split() for line in explained.splitlines() if "Tanh float32" in line]
    assert ["replayed"] == [row[5] for row in rows]
    for line in str(plan).splitlines()[1:]:
        assert " ".join(line.split()) in " ".join(explained.split())
    texts = Cells(plan._repr_html_()).texts
    assert "replayed" in texts and "saved" not in texts


def test_loops_are_told_by_the_user_s_names():
    path = ("model/encoder_1/while",)
    gradient = "gradient_tape/model/encoder_1/while/model/encoder_1/while_grad"
    edges = (("scheduling_edges", (Edge(gradient, None, path[0]),)),)
    keras = dataclasses.replace(loop(decision()), path=path, closed="too odd")
    text = report(keras, decisions=edges)
    assert "loop encoder (train.py:80), 50 iterations\n" in text
    assert "left as it was: loop encoder (train.py:80): too odd" in text
    assert "gradient of encoder waits for encoder" in text
    by_hand = Plan(loops=(dataclasses.replace(loop(decision()), function="roll"),))
    for told in (
        explain(by_hand, name="f").text(),
        str(by_hand),
        str(Plan.from_json(by_hand.to_json())),
    ):
        assert "loop roll (train.py:80), 50 iterations\n" in told


def test_what_a_tail_saves_is_told_of_a_state_that_the_gradient_reads_too():
    cut = {"wanted": ("b", "h"), "states": ("h", "unread"), "bytes": 2048, "saved_bytes": 2048}
    held = loop(decision("b"), decision("h"), segments=Segments(length=5, end=20, **cut))
    rows = report(held).splitlines()
    tail = "; from iteration 20 on saved as it runs"
    checkpoint = "state, kept at the start of each segment of 5 iterations"
    assert sum(row.endswith(checkpoint) for row in rows) == 1  # nothing reads it in the gradient
    text = " ".join(" ".join(rows).split())
    assert text.count(checkpoint + tail) == 1
    assert text.count("kept for that segment alone" + tail) == 1


def test_ops_beside_those_of_segments_are_counted_only_where_there_are_some():
    cut = Segments(length=5, wanted=("b", "h"), states=("h",), bytes=1088, saved_bytes=2048)
    with_it, without = frontier(
        plan_with(segments=cut, recomputed=("one",)), plan_with(segments=cut)
    )
    assert "1 more op run again" in with_it
    assert "run again" not in without
