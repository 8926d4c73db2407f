"""What the quick start and the README promise of their train steps is so."""

import re
from pathlib import Path
from unittest import mock

import pytest

import rnnmem
from rnnmem.analysis.machine import CPU
from rnnmem.planning.intervals import with_intervals
from rnnmem.sizes import MIB, format_bytes

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "quick-start.md"
README = ROOT / "README.md"


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)


@pytest.fixture(scope="module", autouse=True)
def library():
    """oneDNN's kernels, as on the machine that the pages were made on: they take another time."""
    with mock.patch("rnnmem.tf.private.has_onednn", return_value=True):
        yield


@pytest.fixture(scope="module")
def page():
    """The names of its blocks, but for those that print or write files."""
    names: dict = {}
    first, _, budgets, refused = blocks(PAGE)
    for block in (first, budgets):
        exec(re.sub(r"^print.*$", "", block, flags=re.M), names)
    return {**names, "refused": refused}


def line_of(plan):
    """The line of the summary that names both predicted peaks."""
    before, after = plan.told_peaks
    return f"predicted {before} {after}"


def on_two_threads(step, inputs):
    """The plan as on the machine that the pages were made on: there two threads run ops."""
    found = step.inspect(inputs)
    return with_intervals(found.plan, found.net, found.rewritten, CPU.threads)


def lines_of(text):
    """The lines of a text, with one space where there are several."""
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_peaks_are_those_that_it_names(page):
    text = PAGE.read_text("utf-8")
    plan = on_two_threads(page["train_step"], page["inputs"])
    assert line_of(plan) in lines_of(text)
    assert f"needs up to {format_bytes(plan.original_interval[1])} as" in text
    assert f"and up to {format_bytes(plan.predicted_interval[1])} within" in text
    assert f"Where {format_bytes(plan.predicted_interval[1])} are too many" in text
    assert plan.predicted_peak < plan.original_peak / 5 and plan.slowdown <= 1.1


@pytest.mark.slow
def test_a_budget_makes_it_smaller(page):
    text = " ".join(PAGE.read_text("utf-8").split())
    default = page["train_step"].plan(page["inputs"])
    plan = page["smaller"].plan(page["inputs"])
    assert plan.predicted_peak < 3 * MIB < default.predicted_peak
    assert f"3 MiB are kept at about {plan.slowdown:.1f} times the step time" in text
    slower = page["slower"].plan(page["inputs"])
    assert f"give {format_bytes(slower.predicted_peak)}:" in text
    assert slower.slowdown <= 1.4


@pytest.mark.slow
def test_the_budget_that_is_refused_is(page, capsys):
    exec(page["refused"], dict(page))
    assert int(capsys.readouterr().out) > 2 * MIB


def test_the_readme_shows_what_its_program_prints(capsys):
    (block,) = blocks(README)
    names: dict = {}
    exec(re.sub(r"^print.*$", "", block, flags=re.M), names)
    plan = on_two_threads(names["train_step"], names["tf"].ones([32, 50, 128]))
    text = README.read_text("utf-8")
    assert line_of(plan) in lines_of(text)
    assert f"step time {plan.slowdown:.2f}x" in text


@pytest.mark.slow
def test_the_summary_has_such_a_line(page):
    summary = rnnmem.report(page["train_step"], page["inputs"]).summary()
    assert line_of(page["train_step"].plan(page["inputs"])) in lines_of(summary)
