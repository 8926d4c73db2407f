r"""Translates sentences, one a line, with a trained model, and scores them.

    echo "the old dog sees a cat ." | \
        python -m models.nmt.translate --model=runs/nmt
    python -m models.nmt.translate --model=runs/nmt --input=sentences.en.gz
    python -m models.nmt.translate --model=runs/nmt --input=test.en \
        --reference=test.de > test.found
    python -m models.nmt.translate --model=runs/nmt --beams=5 --nbest=3 \
        --scores < sentences.en
    python -m models.nmt.translate --model=runs/nmt --attention=text \
        < sentences.en

With `--nbest` above 1 every line gives so many; `--scores` puts the number of
the line and the score before each, separated by tabs. What is scored against
`--reference` is told on standard error.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator

from absl import app, flags, logging

from models.nmt.alignment import as_text, save_picture
from models.nmt.data import read_lines
from models.nmt.flag_groups import one_group
from models.nmt.trained import LONGEST_SOURCE, Hypothesis, Trained

FLAGS = flags.FLAGS
READ_AHEAD = 16  # batches; sentences of like length are put together among so many


def define_flags() -> None:
    """Defines the knobs; not on import, so that these programs can be imported side by side."""
    flags.DEFINE_string("model", "runs/nmt", "the folder that train wrote to, its --out")
    flags.DEFINE_string("input", None, "a text file, .gz as well (default: standard input)")
    flags.DEFINE_string("reference", None, "the right translations: a score goes to standard error")
    flags.DEFINE_integer("batch", 64, "sentences translated at once", lower_bound=1)
    flags.DEFINE_integer("beams", 5, "hypotheses kept for each; 1: greedy", lower_bound=1)
    flags.DEFINE_float("length_penalty", 1.0, "alpha of GNMT's; 0: none, short ones win", 0.0)
    flags.DEFINE_integer("nbest", 1, "translations of each sentence, the best first", lower_bound=1)
    flags.DEFINE_bool("scores", False, "print the line's number and the score before each")
    flags.DEFINE_string("attention", None, '"text", or a folder to draw a picture a sentence into')


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


def translated(trained: Trained, chunk: list[str]) -> list[list[Hypothesis]]:
    """The hypotheses of each line."""
    return trained.search(chunk, FLAGS.beams, FLAGS.length_penalty, FLAGS.batch)


def write(number: int, hypotheses: list[Hypothesis]) -> None:
    """Prints what was found for one line, numbered from 1; an empty line gives an empty one."""
    if not hypotheses:
        print(f"{number}\t0.0\t" if FLAGS.scores else "")
        return
    for hypothesis in hypotheses[: FLAGS.nbest]:
        before = f"{number}\t{hypothesis.score:.6f}\t" if FLAGS.scores else ""
        print(before + hypothesis.text)
    best = hypotheses[0]
    if FLAGS.attention == "text":
        print(as_text(best.attention, best.source_pieces, best.pieces))
    elif FLAGS.attention:
        path = os.path.join(FLAGS.attention, f"{number:05}.png")
        save_picture(path, best.attention, best.source_pieces, best.pieces)


def main(_):
    """Translates everything, a line for a line, and shows on a terminal how far it is."""
    logging.set_verbosity(logging.WARNING)
    found, done = [], 0
    try:
        if FLAGS.nbest > FLAGS.beams:
            raise ValueError(f"--nbest={FLAGS.nbest} is more than --beams={FLAGS.beams} can give")
        if FLAGS.attention not in (None, "text"):
            os.makedirs(FLAGS.attention, exist_ok=True)
        trained = Trained.load(FLAGS.model)
        expected = read_lines(FLAGS.reference) if FLAGS.reference else None
        sentences = lines()
        while chunk := list(itertools.islice(sentences, FLAGS.batch * READ_AHEAD)):
            for number, sentence in enumerate(chunk, done + 1):
                tokens = len(trained.source.encode(sentence))
                if tokens > LONGEST_SOURCE:
                    logging.warning(
                        "line %d has %d tokens: only its first %d are translated",
                        *(number, tokens - 1, LONGEST_SOURCE - 1),
                    )
            for number, hypotheses in enumerate(translated(trained, chunk), done + 1):
                write(number, hypotheses)
                found.append(hypotheses[0].text if hypotheses else "")
            sys.stdout.flush()
            done += len(chunk)
            if sys.stderr.isatty() and not sys.stdout.isatty():
                print(f"\r{done} sentences translated", end="", file=sys.stderr, flush=True)
        if expected is not None:
            print(trained.score(found, expected), file=sys.stderr)
    except BrokenPipeError:
        # Whoever reads has seen enough; Python would complain when it closes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except KeyboardInterrupt:
        sys.exit(130)
    except (OSError, ValueError) as error:
        sys.exit(f"translate: {error}")


if __name__ == "__main__":
    with one_group("What is translated, and how"):
        define_flags()
    app.run(main)
