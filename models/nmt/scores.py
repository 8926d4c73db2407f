"""Scores of translations, by sacrebleu."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from sacrebleu.metrics import BLEU


@dataclasses.dataclass(frozen=True)
class Score:
    """A corpus' BLEU (Papineni et al., 2002; Post, 2018), cased.

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

    References whose tokens stand apart already are scored by those (``tok:none``), as are those of
    the generated corpus; any other text by sacrebleu's own tokens (``tok:13a``).

    Args:
        found: a line each; where references are tokens, so are these.
        expected: the references, as the codec of the target would have written them.

    Raises:
        ValueError: there are not as many of both, or none.
    """
    if len(found) != len(expected) or not found:
        raise ValueError(f"{len(found)} translations cannot be scored by {len(expected)} others")
    metric = BLEU(tokenize="none", force=True) if are_tokens(expected) else BLEU()
    result = metric.corpus_score(list(found), [list(expected)])
    details = str(result).partition("= ")[2].partition(" ")[2]
    return Score(result.score, details, str(metric.get_signature()))


def are_tokens(lines: Sequence[str]) -> bool:
    """Whether sentences have a blank before the full stop, question or exclamation mark."""
    ends = [line.rstrip()[-2:] for line in lines if line.rstrip().endswith((".", "?", "!"))]
    return bool(ends) and all(end[0] == " " for end in ends)
