"""A function called inside a graph: TensorFlow inlines the call before it optimizes that graph.

A gradient's forward and backward half are one graph then, in which other ops are pruned and merged
than in two; and the caller may know more of shapes than the function's signature tells. How
TensorFlow groups a sum follows from the shapes that it knows (``AddOpsRewriteStage``). What is
computed again in a gradient step net reads what was saved, of which nothing but the function's own
shapes are known; what it reads of the arguments beside that has the caller's. So a sum may be
grouped in another way than the first time:

    h ─► matmul float[1,6]  ─┐               saved ─► matmul float[?,6] ─┐
    x ─► matmul float[1,6]  ─┴─► (h+x)+b         x ─► matmul float[1,6]  ─┴─► (x+b)+h
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any

import tensorflow as tf

from rnnmem.tf import private
from rnnmem.tf.optimized import other_arithmetic

_LOG = logging.getLogger("rnnmem")


def shapes_of_call(concrete: Any, given: Sequence[Any]) -> tuple[tf.TensorShape, ...]:
    """What is known of the shapes of a call's arguments inside a graph.

    Args:
      concrete: the function that a graph calls.
      given: the tensors that it is called with; captured ones may follow.
    """
    inputs = concrete.inputs[: len(concrete.inputs) - len(concrete.captured_inputs)]
    return tuple(
        own.shape
        if own.dtype in (tf.resource, tf.variant)
        else own.shape.merge_with(tf.convert_to_tensor(one).shape)
        for one, own in zip(given, inputs, strict=False)
    )


def other_arithmetic_called(
    concrete: Any,
    rewritten: Any,
    shapes: Sequence[tf.TensorShape],
    of_nothing: Callable[[], Collection[str]] = tuple,
) -> str | None:
    """The op of a rewritten function that does other arithmetic where it is called with the shapes.

    Args:
      concrete: a ConcreteFunction.
      rewritten: that which is to run instead.
      shapes: of the arguments, as the caller knows them.
      of_nothing: names of sums in the functions that add nothing up.

    Returns:
      The op's name; None where all results have the same bits, or where it cannot be found out.
    """
    specs = _specs(concrete, shapes)
    return _difference(lambda one: private.caller_of(one, specs), concrete, rewritten, of_nothing)


def other_gradient_called(
    concrete: Any, results: int, pair: Any, rewritten: Any, shapes: Sequence[tf.TensorShape]
) -> str | None:
    """The same where such a call is differentiated by a pair of functions.

    Args:
      concrete: the function that is called.
      results: how many results it has.
      pair: TensorFlow's forward and backward function.
      rewritten: those that are to run instead.
      shapes: of the arguments, as the caller knows them.
    """
    specs = _specs(concrete, shapes)
    return _difference(
        lambda one: private.differentiated_caller(concrete, one, results, specs), pair, rewritten
    )


def _specs(concrete: Any, shapes: Sequence[tf.TensorShape]) -> list[tf.TensorSpec]:
    return [
        tf.TensorSpec(shape, one.dtype) for shape, one in zip(shapes, concrete.inputs, strict=False)
    ]


def _difference(
    caller_of: Callable[[Any], Any],
    before: Any,
    after: Any,
    of_nothing: Callable[[], Collection[str]] = tuple,
) -> str | None:
    try:
        with tf.init_scope():
            if not tf.executing_eagerly():
                return None
            first, second = caller_of(before), caller_of(after)
    except Exception as error:  # nothing but the hearing of a difference depends on it
        _LOG.debug("not compared as it is called: %s: %s", type(error).__name__, error)
        return None

    def of_nothing_inlined() -> frozenset[str]:
        prefixes = {op.name for one in (first, second) for op in one.graph.get_operations()}
        return frozenset(f"{prefix}/{name}" for prefix in prefixes for name in of_nothing())

    return other_arithmetic(first, second, of_nothing_inlined)
