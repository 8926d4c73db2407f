"""The words a model knows: a word becomes an id on the way in, an id a word on the way out."""

from __future__ import annotations

import collections
import os
from collections.abc import Iterable, Sequence

CONTROL = ("<pad>", "<s>", "</s>", "<unk>")  # padding, start, end, a word that is not known
PAD, START, END, UNKNOWN = range(len(CONTROL))


class Vocabulary:
    """Words and their ids; the control tokens have the first ids, in the order of `CONTROL`."""

    def __init__(self, words: Sequence[str]):
        """Numbers the words in the order given.

        Args:
            words: all tokens, the control tokens first.

        Raises:
            ValueError: a control token is not in its place, or a word comes twice.
        """
        if tuple(words[: len(CONTROL)]) != CONTROL:
            raise ValueError(
                f"a vocabulary begins with the control tokens {' '.join(CONTROL)}, "
                f"this one with {' '.join(words[: len(CONTROL)]) or 'nothing'}"
            )
        self.words = tuple(words)
        self._ids = {word: i for i, word in enumerate(self.words)}
        if len(self._ids) != len(self.words):
            twice = next(w for w, n in collections.Counter(self.words).items() if n > 1)
            raise ValueError(f"the word {twice!r} comes twice in the vocabulary")

    def __len__(self) -> int:
        return len(self.words)

    @classmethod
    def of(cls, sentences: Iterable[Sequence[str]], size: int | None = None) -> Vocabulary:
        """Makes the vocabulary of a training text.

        Args:
            sentences: lists of words.
            size: the most tokens to keep, control tokens included; the most frequent words stay.

        Returns:
            The vocabulary, the most frequent word first and ties in the order of the alphabet.

        Raises:
            ValueError: `size` leaves no room for a word.
        """
        if size is not None and size <= len(CONTROL):
            raise ValueError(f"size must be above {len(CONTROL)}, the control tokens, got {size}")
        counts = collections.Counter(word for words in sentences for word in words)
        for token in CONTROL:
            counts.pop(token, None)
        words = sorted(counts, key=lambda word: (-counts[word], word))
        return cls([*CONTROL, *words][:size])

    def encode(self, words: Sequence[str]) -> list[int]:
        """Ids of the words, <unk>'s where a word is not known, and </s>'s at the end."""
        return [*(self._ids.get(word, UNKNOWN) for word in words), END]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Words of the ids up to the first </s>; padding and <s> are left out."""
        words = []
        for i in ids:
            if i == END:
                break
            if i not in (PAD, START):
                words.append(self.words[i])
        return words

    def save(self, path: str | os.PathLike) -> None:
        """Writes one token a line, the line number being the id."""
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{word}\n" for word in self.words)

    @classmethod
    def load(cls, path: str | os.PathLike) -> Vocabulary:
        """Reads what `save` wrote.

        Raises:
            ValueError: the file is not UTF-8 or is no vocabulary; names the file.
        """
        with open(path, "rb") as file:
            content = file.read()
        try:
            return cls(content.decode("utf-8").splitlines())
        except UnicodeDecodeError as error:
            line = content[: error.start].count(b"\n") + 1
            raise ValueError(
                f"{path}, line {line}: not UTF-8 ({error.reason}); save the file as UTF-8"
            ) from error
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
