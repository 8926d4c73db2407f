"""Keras dtype policies follow the variables, so that layers compute in the new dtype.

Import this module before loading a model that was saved with float8 weights.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import keras
import numpy as np

from rnnmem.conversion.floats import FLOATS, MIXED, numpy_dtype
from rnnmem.errors import ConvertError

_STORED = re.compile(r"stored_(?P<variable>\w+)_computed_(?P<compute>\w+)")


@keras.saving.register_keras_serializable(package="rnnmem")
class StoredDTypePolicy(keras.dtype_policies.DTypePolicy):
    """Variables in one dtype, cast to another one whenever a layer computes.

    TensorFlow has no matrix product in float8, so layers with float8 weights compute as before.

    Args:
      name: e.g. "stored_float8_e4m3fn_computed_float32".
    """

    def _parse_name(self, name: str) -> tuple[str, str]:
        match = _STORED.fullmatch(name)
        assert match is not None, name
        return match["compute"], match["variable"]


@dataclasses.dataclass
class Change:
    """One attribute of an object, before and after."""

    owner: Any
    attribute: str
    before: Any
    after: Any

    def do(self) -> None:
        """Sets it."""
        setattr(self.owner, self.attribute, self.after)

    def undo(self) -> None:
        """Sets it back."""
        setattr(self.owner, self.attribute, self.before)


def policy_changes(layers: list[Any], dtype: str) -> list[Change]:
    """What must change for Keras layers to compute in a new dtype; changes nothing itself.

    Args:
      layers: every layer of the target, models and cells of recurrent layers included.
      dtype: one of ``FLOATS`` or ``MIXED``.

    Raises:
      ConvertError: Keras does not know such a policy for a quantized layer.
    """
    changes: list[Change] = []
    maps: dict[int, Any] = {}
    for layer in layers:
        old = layer._dtype_policy  # noqa: SLF001
        if isinstance(old, keras.dtype_policies.DTypePolicyMap):
            # The layers of a model share one map, before and after.
            new = maps.setdefault(id(old), _new_map(old, dtype, layer))
        else:
            new = _new_policy(old, dtype, layer)
        if new is not old:
            changes += _graph_changes(layer, dtype)
            changes.append(Change(layer, "_dtype_policy", old, new))
    return changes


def compute_dtype(dtype: str) -> str:
    """What a plain layer computes in once its variables are of a dtype."""
    return MIXED.get(dtype, dtype)


def _new_map(old: Any, dtype: str, layer: Any) -> Any:
    policies = {path: _new_policy(policy, dtype, layer) for path, policy in old.items()}
    default = _new_policy(old.default_policy, dtype, layer)
    return keras.dtype_policies.DTypePolicyMap(default, policies)


def _new_policy(old: Any, dtype: str, layer: Any) -> Any:
    if old.compute_dtype not in FLOATS:
        return old  # it works on integers or strings
    if old.quantization_mode is not None:
        config = old.get_config()
        try:
            return type(old).from_config({**config, "source_name": dtype})
        except ValueError as cause:
            raise ConvertError(
                f"layer {layer.name!r} is quantized ({old.name}), and Keras knows no such policy "
                f"over {dtype}: {cause} Nothing was changed"
            ) from cause
    if dtype.startswith("float8"):
        return StoredDTypePolicy(f"stored_{dtype}_computed_{old.compute_dtype}")
    return keras.dtype_policies.DTypePolicy(dtype)


def _graph_changes(layer: Any, dtype: str) -> list[Change]:
    """The symbolic tensors of a functional model state the dtype that its inputs are cast to."""
    if dtype.startswith("float8"):
        return []
    old, new = layer.compute_dtype, compute_dtype(dtype)
    is_input = isinstance(layer, keras.layers.InputLayer)
    if (layer.dtype if is_input else old) not in FLOATS:
        return []
    if is_input:
        new = _input_dtype(layer, new)
    changes = []
    if is_input:
        changes.append(Change(layer, "_dtype", layer._dtype, new))  # noqa: SLF001
    for node in layer._inbound_nodes:  # noqa: SLF001
        for tensor in node.outputs:
            if tensor.dtype in FLOATS and (is_input or tensor.dtype == old):
                changes.append(Change(tensor, "_dtype", tensor.dtype, new))
    return changes


def _input_dtype(layer: Any, new: str) -> str:
    """Never one that would cut the user's values before the first layer sees them.

    Keras declares inputs in its default dtype whatever the layers compute in, and token ids must
    not go through float16. What is narrower than the layers that read it was meant so and stays.
    """
    declared = layer.dtype
    readers = (node.operation for node in layer._outbound_nodes)  # noqa: SLF001
    computed = (getattr(reader, "compute_dtype", declared) for reader in readers)
    for dtype in computed:
        if dtype in FLOATS and _wider(declared, dtype) != declared:
            return declared
    return _wider(keras.config.floatx(), new)


def _wider(one: str, other: str) -> str:
    return np.promote_types(numpy_dtype(one), numpy_dtype(other)).name
