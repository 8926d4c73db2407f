"""The API reference and the lists of messages are those of the sources."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

import rnnmem
from rnnmem import errors

ROOT = Path(__file__).resolve().parent.parent.parent


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_api_reference_is_current():
    reference = tool("api_reference")
    assert reference.PAGE.read_text(encoding="utf-8") == reference.write(), "run `make docs`"


def test_every_public_name_has_its_place():
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    wrong = [
        name
        for name in rnnmem.__all__
        if name != "__version__" and not hasattr(errors, name) and f"## rnnmem.{name}\n" not in text
    ]
    assert not wrong
    assert "## rnnmem.keras.MemoryCallback" in text
    for name in rnnmem.sharing.__all__:
        wanted = callable(getattr(rnnmem.sharing, name)) or f"`{name}`" in text
        assert not wanted or f"## rnnmem.sharing.{name}\n" in text, name
    assert "## rnnmem.pipeline.Pipeline\n" in text


@pytest.mark.slow
def test_the_messages_are_current():
    listed = tool("error_list")
    page = listed.PAGE.read_text(encoding="utf-8")
    assert listed.write(page) == page, "run `make docs`"


def test_every_error_has_its_cause_and_the_way_out():
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    kinds = [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and value.__module__ == errors.__name__
    ]
    for name in kinds:
        section = page.partition(f"## {name}\n")[2].partition("\n## ")[0]
        told = section.partition("<!--")[0].strip()
        assert len(re.split(r"\n\n", told)) >= 2, name


def test_messages_that_are_raised_stand_in_the_list():
    """Held against messages that were raised, not against the tool that made the list."""
    listed = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    for raised in (
        lambda: rnnmem.optimize(3),
        lambda: rnnmem.optimize(max_slowdown=0.5),
        lambda: rnnmem.optimize(allow="magic"),
    ):
        try:
            raised()
        except rnnmem.OptionError as error:
            assert _is_listed(str(error), listed), error


def _is_listed(message: str, page: str) -> bool:
    for line in re.findall(r"^\* `(.*)`$", page, re.MULTILINE):
        pattern = ".*".join(re.escape(piece) for piece in line.split("..."))
        if re.fullmatch(pattern, " ".join(message.split())):
            return True
    return False


def test_the_table_of_passes_is_current():
    table = tool("pass_table")
    assert table.PAGE.read_text(encoding="utf-8") == table.write(), "run `make docs`"


def test_the_page_of_versions_is_that_of_the_results():
    versions = tool("versions")
    results = versions.read()
    assert versions.PAGE.read_text(encoding="utf-8") == versions.page(results)
    assert {pair.split()[0] for pair in results} == set(versions.TESTED), "make test-versions"


def test_the_figures_are_those_of_the_results():
    figures = tool("figures")
    for page in figures.PAGES:
        text = page.read_text(encoding="utf-8")
        assert figures.write(text) == text, "run `make docs`"
    names = re.findall(r"<!-- figures: (\w+) -->", figures.PAGES[1].read_text(encoding="utf-8"))
    assert set(names) == set(figures.TABLES)


def test_figures_that_come_later_take_their_place(tmp_path, monkeypatch):
    figures = tool("figures")
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    page = "<!-- figures: whole_steps -->\nold\n<!-- end of figures -->"
    assert figures.write(page) == page
    step = {"workload": "conv_lstm", "max_slowdown": 1.33, "time_ratio": 1.081, "bits_equal": False}
    results = {"results": [{**step, "before_bytes": 8 * 2**20, "after_bytes": 2 * 2**20}]}
    (tmp_path / "whole-step-cpu.json").write_text(json.dumps(results))
    row = "`max_slowdown=1.33` | 8.0 MiB | 2.0 MiB | 75.0 % | 1.08x | differ |"
    assert row in figures.write(page) and "old" not in figures.write(page)
    from benchmarks.whole_step import WORKLOADS

    assert set(figures.WHOLE_STEPS) == set(WORKLOADS)


def test_a_pair_that_fails_is_listed():
    versions = tool("versions")
    test = "tests.conformance.test_bits::test_three_steps_leave_the_same[while.two]"
    wrong = {test: "while.two, bits: step 0: result 1 of 2 is off by up to 1"}
    some = {"passed": 3, "skipped": 0, "failed": wrong}
    bits = {"loss_identical": True, "gradients_identical": False, "digest": "1f"}
    step = {"before_bytes": 2**21, "after_bytes": 2**20, **bits}
    ran = dict.fromkeys(("tensorflow", "python", "keras", "numpy"), "1.0")
    found = {"versions": ran, "api": {**some, "failed": {}}, "conformance": some}
    page = versions.page({"2.16 3.11": {**found, "translation": step}})
    row = "| 1.0 | 1.0 | 1.0 | 1.0 | 3 of 3 | 4 | all but 1 | all | all | all |"
    assert f"{row} 2.0 to 1.0 MiB, bits DIFFER |" in page
    assert f"* TensorFlow 2.16 on Python 3.11: `{test}`: while.two, bits: step 0" in page
    assert "* `1f`: 2.16 on 3.11" in page and "| not run |" in page
