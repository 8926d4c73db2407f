"""The gradients of a convolution's filter and bias, which oneDNN computes as one op.

    g ─► Conv2DBackpropFilter ─► dw   ┐  one op where oneDNN runs: who waits for either
    g ─► BiasAddGrad ─► db            ┘  waits for both (``mkl_layout_pass.cc``)

What the filter's gradient needs must not wait for the bias's, or TensorFlow finds a cycle and
refuses to run the function.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from rnnmem.ir.graph import Net, Op
from rnnmem.ir.marks import OWN_KERNEL
from rnnmem.ir.op_table import slots
from rnnmem.ir.order import reached, through_identities, waiting_for

_GRADIENT = slots("joined")
"""Types that are computed as one op -> the input that both read: 0 of a bias."""


def merged_gradients(net: Net) -> Mapping[str, Op]:
    """Gradient of a bias, by name -> that of the filter with which it is computed."""
    return net.once(_merged)


def waits_in_a_cycle(net: Net) -> Op | None:
    """A gradient of a bias that waits for that of its filter, or is waited for by it, if any."""
    for _, inner in net.walk():
        for of_bias, of_filter in merged_gradients(inner).items():
            pair = of_bias, of_filter.name
            if _is_behind(inner, *pair) or _is_behind(inner, *reversed(pair)):
                return inner.op_by_name[of_bias]
    return None


def _merged(net: Net) -> Mapping[str, Op]:
    filters, biases = dict[str, Op](), dict[str, str]()
    for op in net.ops:
        slot = None if op.attributes.get(OWN_KERNEL) else _GRADIENT.get(op.type)
        if slot is not None:
            read = through_identities(net, op.inputs[slot])
            if slot:
                filters[read] = op
            else:
                biases[op.name] = read
    return {name: filters[blob] for name, blob in biases.items() if blob in filters}


def _is_behind(net: Net, first: str, second: str) -> bool:
    """Whether the second op runs behind the first."""
    return second in reached([first], functools.partial(waiting_for, net))
