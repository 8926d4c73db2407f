"""The inference path: a SavedModel in, one that needs less memory out."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from rnnmem.api import optimize
from rnnmem.errors import OptionError
from rnnmem.planning.plan import Plan
from rnnmem.tf.load import saved_model


def optimize_saved_model(source: Any, target: Any, **options: Any) -> dict[str, Plan]:
    """Writes a SavedModel whose signatures give the same bits in less memory.

    Args:
      source: folder of a SavedModel.
      target: folder to write to; it must not hold a SavedModel yet.
      **options: those of :func:`rnnmem.optimize`.

    Returns:
      Signature -> its plan. A signature that nothing is gained for is written as it was.

    Raises:
      OptionError: ``source`` is no SavedModel or has no signatures, ``target`` is taken, or an
        option is malformed.
    """
    source, target = os.fspath(source), os.fspath(target)
    if os.path.exists(os.path.join(target, "saved_model.pb")):
        raise OptionError(f"target={target!r} holds a SavedModel already: name another folder")
    model = saved_model(source)
    if not model.signatures:
        raise OptionError(f"source={source!r} has no signatures to optimize")
    functions, plans = {}, {}
    for name, concrete in model.signatures.items():
        optimised = optimize(concrete, **options)
        functions[name] = optimised.get_concrete_function()
        plans[name] = optimised.plan()
    tf.saved_model.save(model, target, signatures=functions)
    return plans
