"""Scores of translations, by sacrebleu."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from sacrebleu.metrics import BLEU


@dataclasses.dataclass(frozen=True)
class Score:
    """A corpus' BLEU (Papineni et al., 2002; Post, 2018), cased, on detokenised text.

    Attributes:
        score: 0 to 100.
        details: precisions, brevity penalty and lengths.
        signature: what another needs to compare with it.
    """

    score: float
    details: str
    signature: str

    def __str__(self) -> str:
        """Prints one line: score, details, signature."""
        return f"BLEU {self.score:.2f}  ({self.details})  {self.signature}"


def bleu(found: Sequence[str], expected: Sequence[str]) -> Score:
    """Scores translations against one reference each.

    Raises:
        ValueError: there are not as many of both, or none.
    """
    if len(found) != len(expected) or not found:
        raise ValueError(f"{len(found)} translations cannot be scored by {len(expected)} others")
    metric = BLEU()
    result = metric.corpus_score(list(found), [list(expected)])
    details = str(result).partition("= ")[2].partition(" ")[2]
    return Score(result.score, details, str(metric.get_signature()))
