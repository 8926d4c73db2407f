"""A trained model with all it needs to translate: saved to a folder, loaded, put to work."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from models.nmt import codec, search
from models.nmt.batching import in_order
from models.nmt.codec import Codec
from models.nmt.scores import Score, bleu
from models.nmt.seq2seq import Seq2Seq, Seq2SeqConfig
from models.nmt.vocabulary import END

CONFIG, WEIGHTS = "config.json", "weights"
SOURCE, TARGET = "source.vocabulary", "target.vocabulary"
LONGEST_SOURCE = 1000  # tokens; of a longer line only so many are translated


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """One translation of a sentence.

    Attributes:
        text: the translation.
        score: its log probability by the length penalty; higher is better.
        pieces: its tokens, </s> included.
        source_pieces: the tokens of the sentence, </s> included.
        attention: how much each token looked at each of the source, [T, S].
    """

    text: str
    score: float
    pieces: list[str]
    source_pieces: list[str]
    attention: np.ndarray


@dataclasses.dataclass(frozen=True)
class Trained:
    """The model and the codecs of its two languages."""

    model: Seq2Seq
    source: Codec
    target: Codec

    def save(self, folder: str | os.PathLike) -> None:
        """Writes weights, vocabularies and configuration; a model that was there stays whole.

        Everything is written beside first; only what is complete takes the place of the old.

        Raises:
            OSError: the folder cannot be written, or the disk is full.
        """
        path = pathlib.Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        new = path / ".new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        try:
            self._write(new)
        except (OSError, tf.errors.OpError) as error:
            shutil.rmtree(new, ignore_errors=True)
            reason = error.message if isinstance(error, tf.errors.OpError) else error
            raise OSError(f"{folder}: the model cannot be saved ({reason})") from error
        for file in sorted(new.iterdir()):
            os.replace(file, path / file.name)
        new.rmdir()

    def _write(self, path):
        text = {"kind": self.source.kind, "tokenize": getattr(self.source, "tokenize", False)}
        config = {"model": dataclasses.asdict(self.model.config), "text": text}
        (path / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        self.source.save(path / SOURCE)
        self.target.save(path / TARGET)
        tf.train.Checkpoint(model=self.model).write(str(path / WEIGHTS))

    @classmethod
    def load(cls, folder: str | os.PathLike) -> Trained:
        """Reads what `save` wrote.

        Raises:
            FileNotFoundError: the folder holds no trained model.
            ValueError: a file in it is damaged or belongs to another model; names the file.
        """
        path = pathlib.Path(folder)
        for name in (CONFIG, SOURCE, TARGET, WEIGHTS + ".index"):
            if not (path / name).is_file():
                raise FileNotFoundError(
                    f"{folder}: no trained model here, {name} is missing; "
                    f"python -m models.nmt.train --out={folder} trains one"
                )
        try:
            config = json.loads((path / CONFIG).read_text(encoding="utf-8"))
            sizes = Seq2SeqConfig(**config["model"])
            kind, tokenize = config["text"]["kind"], bool(config["text"]["tokenize"])
            if kind not in codec.KINDS:
                raise ValueError(f"text kind {kind!r}")
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path / CONFIG}: not a model's configuration ({error!r})") from error
        codecs = [codec.load(path / name, kind, tokenize) for name in (SOURCE, TARGET)]
        expected = sizes.source_vocabulary, sizes.target_vocabulary
        for name, side, size in zip((SOURCE, TARGET), codecs, expected, strict=True):
            if len(side) != size:
                raise ValueError(
                    f"{path / name}: {len(side)} tokens, the model was trained with {size}"
                )
        model = Seq2Seq(sizes)
        try:
            status = tf.train.Checkpoint(model=model).read(str(path / WEIGHTS))
            status.assert_existing_objects_matched()
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            raise ValueError(
                f"{path / WEIGHTS}: not the weights of this model ({error})"
            ) from error
        return cls(model, *codecs)

    def translate(self, sentences: Sequence[str], batch: int = 64) -> list[str]:
        """Translates greedily; an empty sentence becomes an empty one.

        Args:
            sentences: lines of text.
            batch: how many sentences are translated at once.

        Returns:
            The translations, in the order of the sentences.
        """
        ids, kept = self._encode(sentences)
        translations = [""] * len(sentences)
        for chosen, source in in_order(ids, batch):
            found = self._greedy(tf.constant(source), _room(source)).numpy()
            for i, row in zip(chosen, found, strict=True):
                translations[kept[i]] = self.target.decode(row.tolist())
        return translations

    def score(self, found: Sequence[str], expected: Sequence[str]) -> Score:
        """BLEU of translations, the references written as this model writes."""
        return bleu(found, [self.target.written(line) for line in expected])

    def search(
        self,
        sentences: Sequence[str],
        beams: int = 5,
        length_penalty: float = 1.0,
        batch: int = 32,
    ) -> list[list[Hypothesis]]:
        """Translates by beam search.

        Args:
            sentences: lines of text.
            beams: hypotheses that are kept for each sentence, and returned, the best first.
            length_penalty: alpha of GNMT's; 0 is for none.
            batch: how many sentences are translated at once.

        Returns:
            The hypotheses of each sentence; none of an empty one.
        """
        ids, kept = self._encode(sentences)
        results: list[list[Hypothesis]] = [[] for _ in sentences]
        for chosen, source in in_order(ids, batch):
            found = self._beam(
                tf.constant(source), _room(source), beams, tf.constant(length_penalty, tf.float32)
            )
            found = search.Found(*(part.numpy() for part in found))
            for row, i in enumerate(chosen):
                results[kept[i]] = [
                    self._hypothesis(ids[i], *(part[row, k] for part in found))
                    for k in range(beams)
                ]
        return results

    def _encode(self, sentences):
        """Ids of those lines that hold anything, and which these are."""
        ids = [self.source.encode(sentence) for sentence in sentences]
        # Only </s> is an empty sentence.
        kept = [i for i, one in enumerate(ids) if len(one) > 1]
        longest = LONGEST_SOURCE - 1
        return [ids[i] if len(ids[i]) <= longest else [*ids[i][:longest], END] for i in kept], kept

    def _hypothesis(self, source_ids, tokens, score, attention):
        tokens = tokens.tolist()
        length = tokens.index(END) + 1 if END in tokens else len(tokens)
        return Hypothesis(
            text=self.target.decode(tokens),
            score=float(score),
            pieces=self.target.pieces(tokens[:length]),
            source_pieces=self.source.pieces(source_ids),
            attention=attention[:length, : len(source_ids)],
        )

    @tf.function(reduce_retracing=True)
    def _greedy(self, source, max_length):
        return search.greedy(self.model, source, max_length)

    @tf.function(reduce_retracing=True)
    def _beam(self, source, max_length, beams, length_penalty):
        return search.beam(self.model, source, max_length, beams, length_penalty)


def _room(source):
    """The most tokens of a translation: twice the source and then some is room for any."""
    return tf.constant(2 * source.shape[1] + 10)
