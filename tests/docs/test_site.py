"""The site is built without a warning: every link leads somewhere, every page is in the menu."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
FETCHED = re.compile(r"""<(?:script|img|link)\b[^>]*?(?:src|href)=["'](?:https?:)?//""")
needs_sphinx = pytest.mark.skipif(
    importlib.util.find_spec("furo") is None, reason="the extra [docs] is not installed"
)


def build(docs, site):
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", docs, site]
    return subprocess.run(command, capture_output=True, encoding="utf-8")


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """The documents where they may be changed, and the version that they state."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    (folder / "rnnmem").mkdir()
    shutil.copy(ROOT / "rnnmem" / "version.py", folder / "rnnmem")
    return folder


@pytest.mark.slow
@needs_sphinx
def test_the_site_is_whole_and_needs_no_network(copied):
    built = build(copied / "docs", copied / "site")
    assert built.returncode == 0, built.stderr
    pages = {path.stem for path in (copied / "site").glob("*.html")}
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} <= pages
    for path in (copied / "site").glob("*.html"):
        assert not FETCHED.search(path.read_text(encoding="utf-8")), path.name
    index = (copied / "site" / "searchindex.js").read_text(encoding="utf-8")
    assert "residu" in index  # stemmed; a word of the glossary


@pytest.mark.slow
@needs_sphinx
def test_what_leads_nowhere_fails(copied):
    (copied / "docs" / "alone.md").write_text("# Alone\n\n[no](gone.md), [nor](limits.md#gone)\n")
    built = build(copied / "docs", copied / "other")
    assert built.returncode != 0
    assert "alone.md" in built.stderr and "any toctree" in built.stderr
    assert "gone.md" in built.stderr and "'gone'" in built.stderr


def test_every_page_is_in_the_menu():
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    menus = re.findall(r"^```{toctree}\n(?::[^\n]*\n)*\n(.*?)```", text, re.MULTILINE | re.DOTALL)
    listed = [name for menu in menus for name in menu.split()]
    pages = sorted(path.stem for path in (ROOT / "docs").glob("*.md") if path.stem != "index")
    assert sorted(listed) == pages
