"""What is compared: a framework and what it is told to do, under a short name."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util

from benchmarks.peers.models import Model
from benchmarks.peers.step import Step


@dataclasses.dataclass(frozen=True)
class Column:
    """One way to run every model.

    Attributes:
      framework: the module that it needs, and that `in_<framework>` knows.
      variant: a name there.
      plain: the column whose bits its gradients should have: the framework's own without it.
      title: in tables.
      needs: another module that it needs.
    """

    framework: str
    variant: str
    plain: str
    title: str
    needs: str | None = None

    @property
    def missing(self) -> str | None:
        """The name of a module that it needs and that is not installed, or None."""
        needed = (self.framework, *filter(None, [self.needs]))
        return next((one for one in needed if importlib.util.find_spec(one) is None), None)

    def make_step(self, model: Model) -> Step:
        """The step of a model; imports the framework."""
        module = importlib.import_module(f"benchmarks.peers.in_{self.framework}")
        return module.make_step(model, self.variant)


def _tensorflow(variant: str, title: str, plain: str = "tensorflow") -> Column:
    return Column("tensorflow", variant, plain, title)


def _jax(variant: str, title: str) -> Column:
    return Column("jax", variant, "jax", title, "equinox")


def _torch(variant: str, title: str) -> Column:
    return Column("torch", variant, "torch", title)


COLUMNS = {
    "tensorflow": _tensorflow("plain", "TensorFlow"),
    "tensorflow-xla": _tensorflow("XLA", "TensorFlow, XLA", "tensorflow-xla"),
    "rnnmem": _tensorflow("default", "**rnnmem**"),
    "rnnmem-1.35": _tensorflow("max_slowdown=1.35", "**rnnmem**, `max_slowdown=1.35`"),
    "rnnmem-xla": _tensorflow("default, XLA", "**rnnmem**, XLA", "tensorflow-xla"),
    "recompute-grad": _tensorflow("tf.recompute_grad", "`tf.recompute_grad` of the cell"),
    "keras-remat": _tensorflow("keras.remat", "`keras.remat` of the cell"),
    "jax": _jax("scan", "JAX, `scan`"),
    "jax-checkpoint": _jax("checkpoint", "JAX, `scan`, `checkpoint` of the step"),
    "jax-nested": _jax("nested", "JAX, nested `scan`, √T segments"),
    "jax-nested-checkpoint": _jax("nested, checkpoint", "JAX, nested, `checkpoint` in both"),
    "equinox": _jax("equinox", "equinox, checkpointed loop"),
    "torch": _torch("plain", "PyTorch"),
    "torch-checkpoint": _torch("checkpoint", "PyTorch, `checkpoint` of the step"),
    "torch-budget": _torch("memory budget", "PyTorch, compiled, memory budget"),
}
