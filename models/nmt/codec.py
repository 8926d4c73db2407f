"""Text to token ids and back: words of a vocabulary, or SentencePiece subwords.

Either codec numbers the control tokens as `vocabulary.CONTROL` does.
"""

from __future__ import annotations

import io
import os
import pathlib
from collections.abc import Iterable, Sequence

import sentencepiece

from models.nmt.data import split
from models.nmt.vocabulary import CONTROL, END, PAD, START, UNKNOWN, Vocabulary

KINDS = ("words", "subwords")


class Words:
    """Words between blanks, or between blanks and punctuation, each a token.

    Attributes:
        kind: "words".
        vocabulary: numbers the words.
        tokenize: whether punctuation is split from words.
    """

    kind = "words"

    def __init__(self, vocabulary: Vocabulary, tokenize: bool = False):
        self.vocabulary = vocabulary
        self.tokenize = tokenize

    def __len__(self) -> int:
        return len(self.vocabulary)

    @classmethod
    def of(cls, lines: Iterable[str], size: int | None, tokenize: bool) -> Words:
        """The words of a training text, at most `size` tokens of them."""
        return cls(Vocabulary.of((split(line, tokenize) for line in lines), size), tokenize)

    def encode(self, line: str) -> list[int]:
        """Ids of a line, </s>'s at the end."""
        return self.vocabulary.encode(split(line, self.tokenize))

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids up to the first </s>."""
        return " ".join(self.vocabulary.decode(ids))

    def written(self, line: str) -> str:
        """A line as `decode` would have written it: a blank between its tokens."""
        return " ".join(split(line, self.tokenize))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each token as text, control tokens as well."""
        return [self.vocabulary.words[i] for i in ids]

    def save(self, path: str | os.PathLike) -> None:
        """Writes one token a line."""
        self.vocabulary.save(path)

    @classmethod
    def load(cls, path: str | os.PathLike, tokenize: bool = False) -> Words:
        """Reads what `save` wrote; raises what `Vocabulary.load` does."""
        return cls(Vocabulary.load(path), tokenize)


class Subwords:
    """Pieces of words: Kudo and Richardson (2018), "SentencePiece".

    Attributes:
        kind: "subwords".
    """

    kind = "subwords"

    def __init__(self, model: bytes):
        """Takes a serialised SentencePiece model.

        Raises:
            ValueError: it is none, or its control tokens are not numbered as ours.
        """
        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except RuntimeError as error:
            raise ValueError(f"not a SentencePiece model ({error})") from error
        p = self._processor
        ids = (p.pad_id(), p.bos_id(), p.eos_id(), p.unk_id())
        if ids != (PAD, START, END, UNKNOWN):
            missing = [name for name, i in zip(CONTROL, ids, strict=True) if i < 0]
            raise ValueError(
                f"the control tokens {' '.join(CONTROL)} must have the ids {PAD} to {UNKNOWN}, "
                f"this model has {', '.join(map(str, ids))}"
                + (f": {' '.join(missing)} is missing" if missing else "")
                + "; train it with --pad_id=0 --bos_id=1 --eos_id=2 --unk_id=3"
            )

    def __len__(self) -> int:
        return self._processor.GetPieceSize()

    @classmethod
    def of(cls, lines: Iterable[str], size: int | None) -> Subwords:
        """Learns pieces from a training text, by byte pair encoding; `size` None is for 8000.

        Raises:
            ValueError: the text cannot give so many pieces, or has more letters than that.
        """
        out = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.Train(
                sentence_iterator=iter([line for line in lines if line.strip()]),
                model_writer=out,
                vocab_size=8000 if size is None else size,
                model_type="bpe",
                character_coverage=1.0,
                pad_id=PAD,
                bos_id=START,
                eos_id=END,
                unk_id=UNKNOWN,
                num_threads=1,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise ValueError(
                f"--vocabulary={size}: SentencePiece cannot learn so many pieces from this text "
                f"({' '.join(str(error).split())})"
            ) from error
        return cls(out.getvalue())

    def encode(self, line: str) -> list[int]:
        """Ids of a line, </s>'s at the end."""
        return [*self._processor.EncodeAsIds(line), END]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids up to the first </s>, detokenised."""
        kept = []
        for i in ids:
            if i == END:
                break
            if i not in (PAD, START):
                kept.append(int(i))
        return self._processor.DecodeIds(kept)

    def written(self, line: str) -> str:
        """A line as `decode` would have written it: as it is."""
        return line

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each token as text, control tokens as well."""
        return [self._processor.IdToPiece(int(i)) for i in ids]

    def save(self, path: str | os.PathLike) -> None:
        """Writes the SentencePiece model, which `spm_encode` reads as well."""
        pathlib.Path(path).write_bytes(self._model)

    @classmethod
    def load(cls, path: str | os.PathLike) -> Subwords:
        """Reads what `save` wrote.

        Raises:
            ValueError: it is no such model; names the file.
        """
        try:
            return cls(pathlib.Path(path).read_bytes())
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


Codec = Words | Subwords


def learn(
    kind: str,
    source: Sequence[str],
    target: Sequence[str],
    size: int | None = None,
    tokenize: bool = False,
    joint: bool = False,
) -> tuple[Codec, Codec]:
    """Learns the codecs of both sides from a training text.

    Args:
        kind: "words" or "subwords".
        source: lines of the source.
        target: lines of the target.
        size: the most tokens of a vocabulary, control tokens included.
        tokenize: for words, whether punctuation is split from them.
        joint: whether both sides have one codec, learnt from both texts.

    Returns:
        The codecs of source and target, the same one twice if `joint`.
    """

    def one(lines):
        if kind == "words":
            return Words.of(lines, size, tokenize)
        return Subwords.of(lines, size)

    if joint:
        codec = one([*source, *target])
        return codec, codec
    return one(source), one(target)


def load(path: str | os.PathLike, kind: str, tokenize: bool = False) -> Codec:
    """Reads a codec that was saved.

    Raises:
        ValueError: the file holds none of this kind, or misses control tokens; names the file.
    """
    return Words.load(path, tokenize) if kind == "words" else Subwords.load(path)
