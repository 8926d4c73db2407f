"""What the runs of a function change, kept so that another run starts from the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rnnmem.analysis.second_run import SecondRun, described, writes_variable
from rnnmem.errors import NotUnderstood
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import effect
from rnnmem.tf import private


@dataclasses.dataclass(frozen=True)
class Kept:
    """What is behind one handle, at one moment.

    Attributes:
      name: for messages, e.g. ``variable kernel:0``.
      values: tensors on the host; empty where they cannot be compared.
      restore: puts it back.
    """

    name: str
    values: tuple[tf.Tensor, ...]
    restore: Callable[[], Any]


class State:
    """What a function changes behind the handles that it is given: read, and put back."""

    def __init__(self, concrete: Any, net: Net, run: SecondRun, inputs: Sequence[Any]):
        """Looks at the handles; nothing is read yet.

        Args:
          concrete: the ConcreteFunction.
          net: the same as a Net; its inputs are the arguments, then the captures.
          run: what a second run of it would change.
          inputs: the tensors that stand for the Net's inputs in this call.

        Raises:
          NotUnderstood: something cannot be put back; the message is the reason.
        """
        if run.stays:
            raise NotUnderstood(
                f"a second run would change what cannot be put back: {described(run.stays)}"
            )
        if len(inputs) != len(net.inputs):
            raise NotUnderstood(f"it has {len(net.inputs)} inputs, and the call {len(inputs)}")
        names = {id(one.handle): f"variable {one.name}" for one in concrete.variables}
        dtypes = {
            blob: private.handle_dtype(one)
            for blob, one in zip(net.inputs, concrete.graph.inputs, strict=True)
            if run.written.get(blob)
        }
        self._readers = [
            _reader(
                run.written[blob],
                handle,
                names.get(id(handle), f"argument {blob}"),
                dtypes[blob],
            )
            for blob, handle in zip(net.inputs, inputs, strict=True)
            if blob in dtypes
        ]

    def keep(self) -> list[Kept]:
        """What is there now.

        Raises:
          NotUnderstood: something cannot be read, or not be put back.
        """
        return [read() for read in self._readers]


def restore(state: Sequence[Kept]) -> None:
    """Puts back what was kept."""
    for one in state:
        one.restore()


def _reader(
    ops: Sequence[Op], handle: Any, name: str, dtype: tf.DType | None
) -> Callable[[], Kept]:
    if any(effect(op.type) == "iterator" for op in ops):
        return lambda: _iterator(handle, name, ops)
    if all(writes_variable(op) for op in ops):
        return lambda: _variable(handle, name, ops, dtype)
    return lambda: _table(handle, name, ops)


def _variable(handle: Any, name: str, ops: Sequence[Op], dtype: tf.DType | None) -> Kept:
    if dtype is None:
        raise NotUnderstood(f"the dtype of {name} is not known: {described(tuple(ops))}")
    if not tf.raw_ops.VarIsInitializedOp(resource=handle):
        raise NotUnderstood(f"{name} has no value before the first run: {described(tuple(ops))}")
    # On the host: a device that is full of the step has no room for a second copy.
    with tf.device("CPU:0"):
        value = tf.identity(tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype))

    def put_back() -> None:
        # A copy, for a step that finds its variable's buffer shared makes a new one to write to.
        (copy,) = _copies((value,))
        tf.raw_ops.AssignVariableOp(resource=handle, value=copy)

    return Kept(name, (value,), put_back)


def _iterator(handle: Any, name: str, ops: Sequence[Op]) -> Kept:
    fail_on_external_state = 2
    try:
        saved = tf.raw_ops.SerializeIterator(
            resource_handle=handle, external_state_policy=fail_on_external_state
        )
    except tf.errors.OpError as error:
        raise NotUnderstood(_cannot_save(ops, error)) from error

    def put_back() -> None:
        try:
            tf.raw_ops.DeserializeIterator(resource_handle=handle, serialized=saved)
        except tf.errors.OpError as error:
            raise NotUnderstood(_cannot_save(ops, error)) from error

    return Kept(name, (), put_back)


def _cannot_save(ops: Sequence[Op], error: tf.errors.OpError) -> str:
    reason = error.message.rpartition("}} ")[2].partition(" [Op:")[0]
    return (
        "a second run would take elements from an iterator whose position TensorFlow cannot save "
        f"({reason}): {described(tuple(ops))}"
    )


def _table(handle: Any, name: str, ops: Sequence[Op]) -> Kept:
    kinds = {(op.attributes["Tin"], op.attributes["Tout"]) for op in ops if "Tout" in op.attributes}
    if len(kinds) != 1:  # asked for another dtype than it has, a table ends the process
        raise NotUnderstood(f"a table's dtypes are not known: {described(tuple(ops))}")
    ((of_keys, of_values),) = kinds
    # A dense table gives and takes its own buffers, and writes to them later: copies both ways.
    keys, values = _copies(
        tf.raw_ops.LookupTableExportV2(
            table_handle=handle, Tkeys=of_keys.name, Tvalues=of_values.name
        )
    )

    def put_back() -> None:
        copies = _copies((keys, values))
        tf.raw_ops.LookupTableImportV2(table_handle=handle, keys=copies[0], values=copies[1])

    order = _sorted_rows(keys)
    return Kept(f"table {name}", (tf.gather(keys, order), tf.gather(values, order)), put_back)


def _copies(values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The same values on the host, in buffers of their own."""
    with tf.device("CPU:0"):
        return [tf.raw_ops.DeepCopy(x=value) for value in values]


def _sorted_rows(keys: tf.Tensor) -> np.ndarray:
    """The places of the keys, [count, ...], in an order that does not depend on the table's own."""
    rows = keys.numpy()
    texts = rows.tolist() if rows.dtype == object else [row.tobytes() for row in rows]
    return np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int64)
