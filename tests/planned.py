"""Plans the conformance programs that the command line names; prints plans and graphs as JSON."""

import hashlib
import json
import sys
from unittest import mock

import tensorflow as tf

import rnnmem
from tests.conformance.programs import build, train_step

BOUNDS = (1.1, 1e9)


def graph_of(concrete) -> str:
    """A number for a function's graph: its ops, and every function that they call."""
    definition = concrete.graph.as_graph_def()
    library = sorted(definition.library.function, key=lambda one: one.signature.name)
    parts = [*definition.node, *library]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.SerializeToString(deterministic=True))
    return digest.hexdigest()


def planned(name: str) -> dict[str, str]:
    """What becomes of a program's train step, by default and where time does not matter."""
    with mock.patch("tempfile.mkdtemp", lambda: "printed"):  # a program that prints names its file
        case = build(name)
    step = tf.function(train_step(case))
    found = {}
    for bound in BOUNDS:
        function = rnnmem.optimize(step, max_slowdown=bound)
        found[f"{bound} plan"] = function.plan(*case.inputs).to_json()
        found[f"{bound} graph"] = graph_of(function.get_concrete_function(*case.inputs))
    return found


if __name__ == "__main__":
    tf.keras.utils.set_random_seed(7)
    tf.config.experimental.enable_op_determinism()
    json.dump({name: planned(name) for name in sys.argv[1:]}, sys.stdout)
