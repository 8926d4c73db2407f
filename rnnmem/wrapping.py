"""Text in lines of a width: between words, else where a name has a seam, never inside of a word."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.cells import cell_len

_SEAM = re.compile(r"(?<=[/_:›])(?=.)|(?<=\D\.)(?=.)|(?<=\.)(?=\D)|(?<=.)(?=\[)")
"""Behind what parts a name, but not in 1.5; and in front of a shape."""
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
"""Between the words of an op type's name."""
_ELLIPSIS = "…"


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most a width; what has no seam is shortened in its middle.

    Args:
      text: one line; its indentation is that of the first.
      width: columns.
    """
    if cell_len(text) <= width:
        return [text]
    indent = text[: len(text) - len(text.lstrip())]
    lines, line, joint = [], indent[: width // 2], ""
    for piece, opens in _pieces(text, width):
        gap = joint if opens else ""
        if line and cell_len(line + gap + piece) > width:
            lines.append(line)
            line, gap = "", ""
        line += gap + piece
        joint = " "
    return [*lines, line]


def longest_word(text: str) -> int:
    """The least width in which no word is parted."""
    return max(map(cell_len, text.split()), default=0)


def longest_part(text: str) -> int:
    """The least width in which nothing is parted but at seams."""
    parts = (part for word in text.split() for part in _parts(word))
    return max(map(cell_len, parts), default=0)


def shortened(text: str, width: int) -> str:
    """A text of at most a width: what is too long is cut out of its middle."""
    told, kept = text, len(text)
    while kept and cell_len(told) > width:
        kept -= 1
        told = f"{text[: (kept + 1) // 2]}{_ELLIPSIS}{text[len(text) - kept // 2 :]}"
    return told


def _pieces(text: str, width: int) -> Iterator[tuple[str, bool]]:
    """What may stand in a line of its own, and whether it opens a word."""
    for word in text.split():
        for number, part in enumerate([word] if cell_len(word) <= width else _fitting(word, width)):
            yield part, not number


def _fitting(word: str, width: int) -> Iterator[str]:
    for part in _SEAM.split(word):
        if cell_len(part) <= width:
            yield part
        else:
            yield from (shortened(hump, width) for hump in _HUMP.split(part))


def _parts(word: str) -> Iterator[str]:
    return (hump for part in _SEAM.split(word) for hump in _HUMP.split(part))
