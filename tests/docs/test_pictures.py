"""The pictures of docs/images: all are made by a command, shown somewhere, and small."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
SHOWN = re.compile(r"!\[[^\]]+\]\(([^)]+)\)|<img src=\"([^\"]+)\"[^>]* alt=\"[^\"]+\"")


def shown():
    """(Page, picture) of every picture that has words for those who cannot see it."""
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for found in SHOWN.findall(page.read_text("utf-8")):
            yield page, page.parent / (found[0] or found[1])


def test_every_file_is_shown_and_made():
    made = (ROOT / "tools" / "pictures.py").read_text("utf-8")
    made += (ROOT / "tools" / "step_net_picture.py").read_text("utf-8")
    made += (ROOT / "docs" / "peers.md").read_text("utf-8")  # its command names its picture
    there = {path.resolve() for path in IMAGES.iterdir()}
    assert there <= {path.resolve() for _, path in shown()}
    assert all(path.name in made for path in there)
    wanted = re.findall(r'"([\w-]+\.png)"', (ROOT / "tools" / "pictures.py").read_text("utf-8"))
    assert len(wanted) == 7
    assert {IMAGES / name for name in wanted} <= there


@pytest.mark.parametrize("path", sorted(IMAGES.iterdir()), ids=lambda path: path.name)
def test_a_picture_stays_small(path):
    assert path.stat().st_size < 300_000


OF_REPORT = ("report.png", "page.png", "page-dark.png", "page-phone.png", "step-net.png")
"""Pictures of one report: on the translation model, 50 tokens, default settings."""
NEAR = 0.15
"""A measured peak differs from run to run: which free chunk is taken varies."""


def figures(name):
    """What a picture says of itself: {"predicted": (before, after), "measured": ...}.

    Each peak is its lowest and its highest, in MiB; a measured one is both.
    """
    told = pytest.importorskip("PIL.Image").open(IMAGES / name).text["Description"]
    rows = re.findall(r"^(predicted|measured)( .* MiB) +(.* MiB)$", told, re.MULTILINE)
    return {what: tuple(_interval(peak) for peak in peaks) for what, *peaks in rows}


def _interval(peak):
    found = [float(one) for one in re.findall(r"[0-9.]+", peak)]
    return found[0], found[-1]


def test_pictures_of_the_report_show_the_figures_of_the_table():
    readme = (ROOT / "README.md").read_text("utf-8")
    table = re.search(r"^\| 50, default \| ([0-9.]+) MiB \| ([0-9.]+) MiB ", readme, re.MULTILINE)
    for name in OF_REPORT:
        found = figures(name)
        assert found == figures("report.png") and found.keys() == {"predicted", "measured"}
        for peaks in found.values():
            for (low, high), peak in zip(peaks, table.groups(), strict=True):
                assert (1 - NEAR) * low <= float(peak) <= (1 + NEAR) * high
