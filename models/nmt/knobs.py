"""The knobs of a training: `python -m models.nmt.train --help` shows them in groups."""

from __future__ import annotations

import dataclasses

from absl import flags

from models.nmt import codec
from models.nmt.adam import DECAYS
from models.nmt.distribution import KINDS
from models.nmt.flag_groups import Groups
from models.nmt.seq2seq import CHOICES, Seq2SeqConfig

FLAGS = flags.FLAGS
MODEL_FLAGS = [
    field.name
    for field in dataclasses.fields(Seq2SeqConfig)
    if field.name not in ("source_vocabulary", "target_vocabulary")
]
RATE_FLAGS = ("learning_rate", "warmup", "decay", "clip")


def define_flags() -> None:
    """Defines the knobs; not on import, so that these programs can be imported side by side."""
    help_of = Groups()
    with help_of.group("The text"):
        flags.DEFINE_string("source", None, "sentences, one a line, or .gz (default: the corpus)")
        flags.DEFINE_string("target", None, "their translations, line by line")
        flags.DEFINE_string("validation_source", None, "to watch the training (default: held out)")
        flags.DEFINE_string("validation_target", None, "their translations")
        flags.DEFINE_enum("text", "words", codec.KINDS, "what tokens are")
        flags.DEFINE_integer("vocabulary", None, "most tokens a language (default: all)", 5)
    with help_of.group("The text", seldom=True):
        flags.DEFINE_string("test_source", None, "to judge the trained model (default: held out)")
        flags.DEFINE_string("test_target", None, "their translations")
        flags.DEFINE_integer("heldout", 400, "pairs for validation, and for judging", 1)
        flags.DEFINE_bool("tokenize", False, "split punctuation from words")
        flags.DEFINE_bool("joint", False, "one vocabulary for both languages")
        flags.DEFINE_integer("max_length", 60, "leave out pairs with more tokens than this", 1)
    with help_of.group("The batches"):
        flags.DEFINE_integer("batch", 64, "sentence pairs a batch", 1)
        flags.DEFINE_integer("batch_tokens", None, "tokens a batch, instead of --batch", 1)
    with help_of.group("The batches", seldom=True):
        flags.DEFINE_integer("shapes", 4, "lengths that sentences are padded to", 1)
        flags.DEFINE_integer("accumulate", 1, "batches whose gradients make a step", 1)
    with help_of.group("The model"):
        flags.DEFINE_integer("units", 128, "units of a layer and direction", 1)
        flags.DEFINE_integer("embedding", 128, "size of embeddings and read-out", 1)
        flags.DEFINE_enum("cell", "lstm", CHOICES["cell"], "what the layers are made of")
        flags.DEFINE_integer("encoder_layers", 1, "layers of the encoder", 1)
        flags.DEFINE_integer("decoder_layers", 1, "layers of the decoder", 1)
        flags.DEFINE_enum(
            "attention", "bahdanau", CHOICES["attention"], "before or behind the decoder"
        )
        flags.DEFINE_float("dropout", 0.0, "rate between layers", 0.0)
    with help_of.group("The model", seldom=True):
        flags.DEFINE_integer("bidirectional_layers", 0, "the encoder's lowest ones, both ways", 0)
        flags.DEFINE_bool("residual", False, "layers from the third on add their input")
        flags.DEFINE_bool("input_feeding", False, "the read-out goes into the next step")
        flags.DEFINE_float("coverage", 0.0, "weight of the coverage loss; 0: no coverage", 0.0)
        flags.DEFINE_enum("tied", "none", CHOICES["tied"], "which embeddings the projection shares")
        flags.DEFINE_float("recurrent_dropout", 0.0, "rate on the states, one mask a sentence", 0.0)
        flags.DEFINE_bool("variational", False, "one mask a sentence between layers, too")
        flags.DEFINE_float("label_smoothing", 0.0, "taken from the right token for all alike", 0.0)
        flags.DEFINE_enum("precision", "float32", CHOICES["precision"], "what is computed in")
    with help_of.group("The training"):
        flags.DEFINE_integer("steps", 700, "steps of the optimizer", 1)
        flags.DEFINE_float("learning_rate", 5e-3, "Adam's, at its greatest", 0.0)
        flags.DEFINE_integer("validate", 0, "steps between two BLEUs; 0: at the end", 0)
        flags.DEFINE_integer("patience", 0, "end after so many BLEUs, none of them better", 0)
    with help_of.group("The training", seldom=True):
        flags.DEFINE_float("minutes", None, "stop after so many, whatever the steps", 0.0)
        flags.DEFINE_integer("warmup", 0, "steps until the learning rate is greatest", 0)
        flags.DEFINE_enum("decay", "cosine", DECAYS, "how it falls from then on")
        flags.DEFINE_float("clip", 1.0, "bound on the global norm of the gradients", 0.0)
        flags.DEFINE_integer("seed", 1, "of weights, dropout and the order of the data")
    with help_of.group("What runs it"):
        flags.DEFINE_bool("demo", False, "train both ways on the generated corpus and compare")
        flags.DEFINE_enum(
            "rnnmem", "on", ["on", "off", "both"], "under rnnmem.optimize, or plain, or both"
        )
        flags.DEFINE_string("rnnmem_budget", None, "optimize's budget, e.g. 64MiB (default: none)")
        flags.DEFINE_float(
            "rnnmem_max_slowdown", 1.1, "optimize's bound on step time, without a budget"
        )
    with help_of.group("What runs it", seldom=True):
        flags.DEFINE_enum("distribute", "none", KINDS, "over devices, or over machines (TF_CONFIG)")
        flags.DEFINE_integer("replicas", None, "devices of --distribute=mirrored", 1)
        flags.DEFINE_bool("deterministic", True, "TensorFlow's op determinism: the same bits again")
    with help_of.group("What comes out"):
        flags.DEFINE_string("out", "runs/nmt", "folder for the model, checkpoints and curves")
        flags.DEFINE_bool("restart", False, "train afresh where --out holds a training")
        flags.DEFINE_integer("save", 200, "steps between two checkpoints", 1)
    with help_of.group("What comes out", seldom=True):
        flags.DEFINE_integer("report", 100, "steps between two reports", 1)
        flags.DEFINE_integer("beams", 5, "hypotheses of beam search at the end", 1)
        flags.DEFINE_float("length_penalty", 1.0, "of beam search", 0.0)
        flags.DEFINE_integer("samples", 8, "held-out sentences whose translation is shown", 0)
    help_of.show()
