"""The gradients of a convolution's filter and bias, which oneDNN computes as one op.

    g ─► Conv2DBackpropFilter ─► dw   ┐  one op where oneDNN runs: who waits for either
    g ─► BiasAddGrad ─► db            ┘  waits for both (``mkl_layout_pass.cc``)

What the filter's gradient needs must not wait for the bias's, or TensorFlow finds a cycle and
refuses to run the function.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rnnmem.ir.graph import Net, Op
from rnnmem.ir.marks import OWN_KERNEL
from rnnmem.ir.order import reached, through_identities

_OF_FILTER, _OF_BIAS = "Conv2DBackpropFilter", "BiasAddGrad"
_GRADIENT = 2
"""The input of the filter's gradient that both read."""


def merged_gradients(net: Net) -> Mapping[str, Op]:
    """Gradient of a bias, by name -> that of the filter with which it is computed."""
    return net.once(_merged)


def waits_in_a_cycle(net: Net) -> Op | None:
    """A gradient of a bias that waits for that of its filter, or is waited for by it, if any."""
    for _, inner in net.walk():
        for name, of_filter in merged_gradients(inner).items():
            of_bias = inner.op_by_name[name]
            if _is_behind(inner, of_bias, of_filter) or _is_behind(inner, of_filter, of_bias):
                return of_bias
    return None


def _merged(net: Net) -> Mapping[str, Op]:
    filters = {
        through_identities(net, op.inputs[_GRADIENT]): op
        for op in net.ops
        if op.type == _OF_FILTER and not op.attributes.get(OWN_KERNEL)
    }
    biases = [op for op in net.ops if op.type == _OF_BIAS] if filters else []
    read = {op.name: through_identities(net, op.inputs[0]) for op in biases}
    return {name: filters[blob] for name, blob in read.items() if blob in filters}


def _is_behind(net: Net, first: Op, second: Op) -> bool:
    """Whether the second op runs behind the first."""

    def following(name: str) -> Iterator[str]:
        for blob in net.op_by_name[name].outputs:
            yield from (op.name for op in net.readers.get(blob, ()))
        yield from (op.name for op in net.controlled.get(name, ()))

    return second.name in reached([first.name], following)
