"""What docstrings and documents call by its full name is there."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"`~?(rnnmem(?:\.\w+)+)")
PLACES = ("rnnmem", "models", "docs", "README.md")


def texts() -> list[Path]:
    files = [ROOT / place for place in PLACES if (ROOT / place).is_file()]
    for place in PLACES:
        files += (path for path in (ROOT / place).rglob("*") if path.suffix in (".py", ".md"))
    return files


NAMES = sorted({name for path in texts() for name in NAME.findall(path.read_text("utf-8"))})


def resolve(name: str) -> object:
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_in_the_documents_exists(name):
    assert resolve(name) is not None


def test_a_name_that_is_gone_is_found_out():
    assert "rnnmem.optimize" in NAMES
    with pytest.raises(AttributeError):
        resolve("rnnmem.storage.collect_everything")
