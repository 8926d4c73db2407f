"""What the quick start promises of its train step is so."""

import re
from pathlib import Path

import pytest

from rnnmem.sizes import MIB, format_bytes

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "quick-start.md"


@pytest.fixture(scope="module")
def page():
    """The names of its blocks, but for those that print or write files."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    names: dict = {}
    for block in (blocks[0], blocks[2]):
        exec(re.sub(r"^print.*$", "", block, flags=re.M), names)
    return names


def test_the_peaks_are_those_that_it_names(page):
    text = PAGE.read_text("utf-8")
    plan = page["train_step"].plan(page["inputs"])
    assert f"needs {format_bytes(plan.original_peak)} as" in text
    assert f"and {format_bytes(plan.predicted_peak)} within" in text


def test_a_budget_makes_it_smaller(page):
    plan = page["smaller"].plan(page["inputs"])
    assert plan.predicted_peak < 2 * MIB < plan.original_peak
    assert f"{plan.slowdown:.1f} times" in " ".join(PAGE.read_text("utf-8").split())
    faster = page["faster"].plan(page["inputs"])
    assert plan.predicted_peak < page["train_step"].plan(page["inputs"]).predicted_peak
    assert faster.slowdown <= 1.02
