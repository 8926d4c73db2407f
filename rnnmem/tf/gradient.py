"""A function that is differentiated later: its forward and backward graph, rewritten as one Net."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rnnmem.ir.graph import Net
from rnnmem.ir.joint import join, split
from rnnmem.tf import private
from rnnmem.tf.functions import add_captures, capture_like, net_of_graph, new_graph, structured_like


def rewrite_gradient(
    forward: Any,
    backward: Any,
    results: int,
    rewrite: Callable[[Net], Net | None],
    compiled: bool = False,
) -> tuple[Any, Any] | None:
    """Rewrites TensorFlow's pair of graphs for a function and its gradient.

    Args:
      forward: FuncGraph of the function, which also returns what the gradient reads.
      backward: FuncGraph of the gradient, which captures that.
      results: how many of ``forward``'s outputs are the function's own.
      rewrite: joint Net -> rewritten Net, or None where nothing is to be changed.
      compiled: whether XLA compiles the function.

    Returns:
      Such a pair over the rewritten Net, or None.
    """
    own = net_of_graph(forward, forward.name, results, compiled)
    gradient = net_of_graph(backward, backward.name, compiled=compiled)
    captures = {internal.name: external for external, internal in backward.captures}
    feeds = {
        name: external.name
        for name, external in captures.items()
        if getattr(external, "graph", None) is forward
    }
    rewritten = rewrite(join(own, gradient, feeds))
    if rewritten is None:
        return None
    halves = split(rewritten, len(own.inputs), results, set(feeds.values()))
    new_forward = _forward_graph(halves.forward, forward, results)
    exchanged = new_forward.outputs[results:]
    for tensor, blob in zip(exchanged, halves.forward.outputs[results:], strict=True):
        tensor.set_shape(halves.forward.blobs[blob].shape)  # also where an optional has hidden it
    opened = [tensor for tensor in backward.inputs if tensor.name not in feeds]
    new_backward, tensors = new_graph(
        halves.backward,
        backward.name,
        [*opened, *exchanged],
        [forward, backward],
        names=_names_under_a_tape(opened, captures),
    )
    outside = [
        (captures[tensor.name], placeholder)
        for tensor, placeholder in zip(opened, new_backward.inputs, strict=False)
        if tensor.name in captures
    ]
    inside = zip(exchanged, new_backward.inputs[len(opened) :], strict=True)
    add_captures(new_backward, [*outside, *inside])
    new_backward.outputs = [tensors[blob] for blob in halves.backward.outputs]
    new_backward.structured_outputs = structured_like(backward, new_backward.outputs)
    return new_forward, new_backward


def _names_under_a_tape(opened: list[tf.Tensor], captures: dict[str, Any]) -> dict[str, str]:
    """Input -> its name in the gradient that an eager tape has: sums sort what they read by name.

    Where the gradient is called inside a graph, names of its own arguments say nothing.
    """
    given = [tensor.name for tensor in opened if tensor.name not in captures]
    return {
        name: f"placeholder_{place}" if place else "placeholder" for place, name in enumerate(given)
    }


def _forward_graph(net: Net, original: Any, results: int) -> tf.Graph:
    graph, tensors = new_graph(net, original.name, original.inputs, [original])
    capture_like(original, graph)
    graph.outputs = [tensors[blob] for blob in net.outputs]
    for old, new in zip(original.outputs[:results], graph.outputs, strict=False):
        private.copy_handle_data(old, new)
    graph.structured_input_signature = original.structured_input_signature
    graph.structured_outputs = original.structured_outputs
    graph.variables = original.variables
    return graph
