"""A trained model with all it needs to translate: saved to a folder, loaded, put to work."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Sequence

import tensorflow as tf

from models.nmt.data import BUCKET_WIDTH, split
from models.nmt.model import ModelConfig, Translator
from models.nmt.vocabulary import PAD, Vocabulary

CONFIG, WEIGHTS = "config.json", "weights"
SOURCE, TARGET = "source.vocabulary", "target.vocabulary"


@dataclasses.dataclass(frozen=True)
class Trained:
    """The model, its vocabularies, and whether its text was split at punctuation."""

    model: Translator
    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary
    tokenize: bool = False

    def save(self, folder: str | os.PathLike) -> None:
        """Writes the weights, the vocabularies and the sizes to `folder`."""
        path = pathlib.Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        config = {"model": dataclasses.asdict(self.model.config), "tokenize": self.tokenize}
        (path / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        self.source_vocabulary.save(path / SOURCE)
        self.target_vocabulary.save(path / TARGET)
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
            sizes, tokenize = ModelConfig(**config["model"]), bool(config["tokenize"])
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path / CONFIG}: not a model's configuration ({error!r})") from error
        vocabularies = Vocabulary.load(path / SOURCE), Vocabulary.load(path / TARGET)
        expected = sizes.source_vocabulary, sizes.target_vocabulary
        for name, vocabulary, size in zip((SOURCE, TARGET), vocabularies, expected, strict=True):
            if len(vocabulary) != size:
                raise ValueError(
                    f"{path / name}: {len(vocabulary)} tokens, the model was trained with {size}"
                )
        model = Translator(sizes)
        try:
            status = tf.train.Checkpoint(model=model).read(str(path / WEIGHTS))
            status.assert_existing_objects_matched()
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            raise ValueError(
                f"{path / WEIGHTS}: not the weights of this model ({error})"
            ) from error
        return cls(model, *vocabularies, tokenize)

    def translate(self, sentences: Sequence[str], batch: int = 64) -> list[str]:
        """Translates greedily; an empty sentence becomes an empty one.

        Args:
            sentences: lines of text.
            batch: how many sentences are translated at once.

        Returns:
            The translations, in the order of the sentences.
        """
        ids = [self.source_vocabulary.encode(split(s, self.tokenize)) for s in sentences]
        translations = [""] * len(ids)
        # Only </s> is an empty sentence; like lengths together waste the least on padding.
        order = sorted((i for i in range(len(ids)) if len(ids[i]) > 1), key=lambda i: len(ids[i]))
        for start in range(0, len(order), batch):
            chunk = order[start : start + batch]
            longest = max(len(ids[i]) for i in chunk)
            width = -longest % BUCKET_WIDTH + longest
            source = [ids[i] + [PAD] * (width - len(ids[i])) for i in chunk]
            # Twice the source and then some is room for any translation worth reading.
            found = self._greedy(tf.constant(source, tf.int32), tf.constant(2 * longest + 10))
            for i, row in zip(chunk, found.numpy().tolist(), strict=True):
                translations[i] = " ".join(self.target_vocabulary.decode(row))
        return translations

    @tf.function(reduce_retracing=True)
    def _greedy(self, source, max_length):
        return self.model.translate(source, max_length)
