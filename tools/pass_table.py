"""Writes docs/passes.md from the registry of passes: `make docs`."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rnnmem.passes.registry import DEFAULT, GROUPS, PASSES  # noqa: E402

PAGE = ROOT / "docs" / "passes.md"
HEAD = """\
# The passes

Made from `rnnmem/passes/registry.py` by `tools/pass_table.py` (`make docs`); a test holds it
against the registry. `allow` takes these names, and nothing is done that it does not name:
`allow=("default", "bits")` is what is done without it, and one more.

| pass | what it is | bits | without `allow` | where |
| --- | --- | --- | --- | --- |
"""
GROUPED = """
Names for several passes at once, and those that passes had before:

| name | passes |
| --- | --- |
"""
TAIL = """
`dead_code` goes with every other pass, as TensorFlow does the same to whatever runs. `checkpoint`
needs `rematerialise`. What a plan decided stands under these names in its JSON and in `explain`.
"""
_BITS = {True: "the same", False: "differ"}
_YES = {True: "yes", False: "no"}


def write() -> str:
    """Returns the text of the page."""
    rows = [
        f"| `{one.name}` | {one.what} | {_BITS[one.exact]} | {_YES[one.default]} "
        f"| `rnnmem/passes/{one.folder}/` |\n"
        for one in PASSES
    ]
    groups = [
        f"| `{name}` | {'all that need no `allow`' if name == DEFAULT else _listed(passes)} |\n"
        for name, passes in GROUPS.items()
    ]
    return HEAD + "".join(rows) + GROUPED + "".join(groups) + TAIL


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    PAGE.write_text(write(), encoding="utf-8")
