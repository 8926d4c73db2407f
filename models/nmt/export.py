"""Writes a trained model as a SavedModel for inference, in less memory.

    python -m models.nmt.export --model=runs/nmt --target=runs/nmt.saved

It takes and gives token ids. The signature `serving_default` takes `source`,
int32 [B, S], 0 being padding and </s> the end of each sentence, and gives
`tokens`, int32 [B, K, T], the best hypothesis first, and `scores`, float32
[B, K]. The vocabularies are assets of the SavedModel.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile

import tensorflow as tf
from absl import app, flags, logging

import rnnmem
from models.nmt import search
from models.nmt.flag_groups import one_group
from models.nmt.trained import SOURCE, TARGET, Trained

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the knobs; not on import, so that these programs can be imported side by side."""
    flags.DEFINE_string("model", "runs/nmt", "the folder that train wrote to, its --out")
    flags.DEFINE_string("target", "runs/nmt.saved", "the folder to write to")
    flags.DEFINE_integer("beams", 5, "hypotheses of beam search", lower_bound=1)
    flags.DEFINE_float("length_penalty", 1.0, "alpha of GNMT's; 0: none", 0.0)


class Server(tf.Module):
    """What is exported: the search as a signature, and the vocabularies beside it."""

    def __init__(self, trained: Trained, folder: str, beams: int, length_penalty: float):
        """Takes a trained model, and the folder that holds its vocabularies."""
        super().__init__(name="server")
        self.model = trained.model
        self.vocabularies = [
            tf.saved_model.Asset(os.path.join(folder, n)) for n in (SOURCE, TARGET)
        ]
        self._beams, self._length_penalty = beams, length_penalty

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32, name="source")])
    def translate(self, source: tf.Tensor) -> dict[str, tf.Tensor]:
        """Beam search: ids in, ids out."""
        room = 2 * tf.shape(source)[1] + 10
        found = search.beam(self.model, source, room, self._beams, self._length_penalty)
        return {"tokens": found.tokens, "scores": found.scores}


def export(
    model: str, target: str, beams: int = 5, length_penalty: float = 1.0
) -> dict[str, rnnmem.Plan]:
    """Exports a trained model, the way of `rnnmem.optimize_saved_model`.

    Args:
        model: the folder of the trained model.
        target: the folder to write to; it must not hold a SavedModel yet.
        beams: hypotheses of beam search.
        length_penalty: alpha of GNMT's.

    Returns:
        Signature -> rnnmem's plan for it.

    Raises:
        FileNotFoundError: there is no trained model.
        ValueError: a file of it is damaged, or `target` is taken.
    """
    trained = Trained.load(model)
    server = Server(trained, model, beams, length_penalty)
    beside = os.path.dirname(os.path.abspath(target))
    os.makedirs(beside, exist_ok=True)
    plain = tempfile.mkdtemp(dir=beside)
    try:
        tf.saved_model.save(server, plain, signatures=server.translate)
        return rnnmem.optimize_saved_model(plain, target)
    finally:
        shutil.rmtree(plain, ignore_errors=True)


def main(_):
    """Exports, and says where to."""
    logging.set_verbosity(logging.WARNING)
    try:
        export(FLAGS.model, FLAGS.target, FLAGS.beams, FLAGS.length_penalty)
    except (OSError, ValueError, tf.errors.OpError, rnnmem.RnnmemError) as error:
        sys.exit(f"export: {error}")
    print(f"saved to {FLAGS.target}: signature serving_default, source -> tokens, scores")


if __name__ == "__main__":
    with one_group("What is written, and where to"):
        define_flags()
    app.run(main)
