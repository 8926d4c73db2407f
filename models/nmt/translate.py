"""Translates sentences, one a line, with a trained model.

echo "the old dog sees a cat ." | python -m models.nmt.translate --model=runs/nmt
python -m models.nmt.translate --model=runs/nmt --input=sentences.en.gz > sentences.de
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

from absl import app, flags

from models.nmt.data import read_lines
from models.nmt.trained import Trained

FLAGS = flags.FLAGS
READ_AHEAD = 16  # batches; sentences of like length are put together among so many


def define_flags() -> None:
    """Defines the knobs; not on import, so that these programs can be imported side by side."""
    flags.DEFINE_string("model", "runs/nmt", "the folder that train wrote to, its --out")
    flags.DEFINE_string("input", None, "a text file, .gz as well (default: standard input)")
    flags.DEFINE_integer("batch", 64, "sentences translated at once", lower_bound=1)


def lines() -> Iterator[str]:
    """The sentences to translate.

    Raises:
        ValueError: they are not UTF-8, or the file is empty.
    """
    if FLAGS.input:
        yield from read_lines(FLAGS.input)
        return
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"standard input, line {number}: not UTF-8 ({error.reason})"
            ) from error


def main(_):
    """Translates everything, a line for a line, and shows on a terminal how far it is."""
    try:
        trained = Trained.load(FLAGS.model)
        sentences, done = lines(), 0
        while chunk := list(itertools.islice(sentences, FLAGS.batch * READ_AHEAD)):
            print(*trained.translate(chunk, FLAGS.batch), sep="\n", flush=True)
            done += len(chunk)
            if sys.stderr.isatty() and not sys.stdout.isatty():
                print(f"\r{done} sentences translated", end="", file=sys.stderr, flush=True)
    except (OSError, ValueError) as error:
        sys.exit(f"translate: {error}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
