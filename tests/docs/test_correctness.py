"""Every file and every test that docs/correctness.md names is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "correctness.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`((?:rnnmem|tests)/[\w/]+\.py(?:::\w+)?)`", TEXT)))
LEMMAS = re.findall(r"^### ([^\n]+)\n(.+?)(?=^##)", TEXT, re.MULTILINE | re.DOTALL)


def is_there(name: str) -> bool:
    file, _, test = name.partition("::")
    if not (ROOT / file).is_file():
        return False
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = (node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    return not test or test in functions


@pytest.mark.parametrize("name", NAMED)
def test_what_is_named_is_there(name):
    assert is_there(name), f"docs/correctness.md names {name}"


@pytest.mark.parametrize("lemma, text", LEMMAS, ids=[name for name, _ in LEMMAS])
def test_a_lemma_names_what_implements_it_and_what_would_fail(lemma, text):
    assert re.search(r"Implemented in\s+`rnnmem/", text)
    assert re.search(r"Would fail:\s+`tests/[\w/]+\.py::test_", text)


def test_every_module_of_the_verifier_has_its_place():
    named = {name for name in NAMED if name.startswith("rnnmem/")}
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "rnnmem/verify").rglob("*.py")}
    helpers = {"__init__", "errors", "patterns", "early_sizes", "flat_graph", "value_numbers"}
    assert {name for name in modules - named if Path(name).stem not in helpers} == set()


def test_what_is_gone_is_found_out():
    assert len(LEMMAS) == 11 and len(NAMED) > 90
    assert not is_there("tests/verify/test_gone.py")
    assert not is_there("tests/verify/test_refusals.py::test_that_is_gone")
