"""The tables of what works list exactly the programs that exist, and say what a run found."""

import re

import pytest

from tests.conformance.programs import PROGRAMS
from tools.conformance_table import (
    BEGIN,
    DOCUMENT,
    END,
    GROUPS,
    README,
    by_group,
    by_program,
    readme_with,
    rows_of,
)


def test_the_document_lists_every_program_once():
    listed = re.findall(r"^\| `([\w.]+)` \|", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    assert listed == sorted(set(listed), key=listed.index)
    assert set(listed) == set(PROGRAMS)


def test_the_readme_counts_every_program():
    text = README.read_text("utf-8")
    table = text[text.index(BEGIN) : text.index(END)].splitlines()
    counted = {}
    for line in table:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) > 2 and cells[1].isdecimal():
            counted[cells[0]] = int(cells[1])
    groups = [name.split(".")[0] for name in PROGRAMS]
    assert counted == {GROUPS[group]: groups.count(group) for group in groups}


CELLS = [
    ["while.known_trips", "bits", ""],
    ["while.known_trips", "bits", "off by 1"],
    ["while.known_trips", "peak", ""],
    ["while.known_trips", "float64", ""],
    ["while.known_trips", "peak before", 1000],
    ["while.known_trips", "peak with most time", 250],
    ["while.known_trips", "reasons", []],
    ["while.one_trip", "bits", ""],
    ["while.one_trip", "peak before", 1000],
    ["while.one_trip", "peak with most time", 1000],
    ["while.one_trip", "reasons", ["nothing to save"]],
]


def test_a_cell_holds_where_all_that_was_asked_holds():
    first, second = rows_of(CELLS)
    assert (first.cell("same bits"), first.cell("peak no higher")) == ("**no**", "yes")
    assert (second.cell("same bits"), second.cell("side effects")) == ("yes", "–")
    assert first.saved("peak by default") == 0.75
    assert first.others() == ("float64",)
    assert first.remarks() == "bits: off by 1"
    assert second.remarks() == "nothing to save"


def test_the_tables_are_made_of_the_cells():
    rows = rows_of(CELLS)
    assert rows_of(reversed(CELLS)) == rows  # however the processes of a run take turns
    line = by_group(rows)[-1]
    assert line == "| `tf.while_loop` | 2 | 1 of 2 | – | – | all | – | 1 | 75% |"
    assert by_program(rows)[-1].startswith("| `while.one_trip` | yes |")


def test_the_readme_must_have_a_place_for_the_table():
    assert readme_with(f"a {BEGIN} old {END} b", ["new"]) == f"a {BEGIN}\n\nnew\n\n{END} b"
    with pytest.raises(ValueError, match="must hold"):
        readme_with("nothing", ["new"])
