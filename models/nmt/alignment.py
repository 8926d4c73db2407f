"""What a translation looked at: the attention matrix as text or as a picture."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

SHADES = " ░▒▓█"


def as_text(attention: np.ndarray, source: Sequence[str], target: Sequence[str]) -> str:
    """The matrix in shades, a line a target token, a column a source token, named below.

    Args:
        attention: weights from 0 to 1, [T, S].
        source: S tokens.
        target: T tokens.
    """
    width = max(map(len, target), default=0)
    shades = np.minimum((attention * len(SHADES)).astype(int), len(SHADES) - 1)
    rows = [
        f"{token:>{width}} |{''.join(SHADES[shade] * 2 for shade in row)}|"
        for token, row in zip(target, shades, strict=True)
    ]
    # The source is read downwards, as no column is wide enough for a token.
    height = max(map(len, source), default=0)
    names = [
        " " * (width + 2) + "".join(token.ljust(height)[i] + " " for token in source)
        for i in range(height)
    ]
    return "\n".join([*rows, *(name.rstrip() for name in names)])


def save_picture(
    path: str | os.PathLike,
    attention: np.ndarray,
    source: Sequence[str],
    target: Sequence[str],
) -> None:
    """Draws the matrix into a file, whose name's end says the format.

    Args:
        path: of the picture.
        attention: weights from 0 to 1, [T, S].
        source: S tokens.
        target: T tokens.

    Raises:
        ValueError: matplotlib, of the extra [report], is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("pictures need matplotlib: pip install 'rnnmem[report]'") from error
    figure = Figure(figsize=(2 + 0.3 * len(source), 2 + 0.3 * len(target)), layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(attention, cmap="Greys", vmin=0.0, vmax=1.0, aspect="auto")
    axes.set_xticks(range(len(source)), source, rotation=90)
    axes.set_yticks(range(len(target)), target)
    figure.savefig(path)
