"""Loss scaling: Micikevicius et al. (2018), "Mixed Precision Training"."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

FIRST = 2.0**10
GROWS_AFTER = 1000  # steps without an overflow


class LossScale(tf.Module):
    """Keeps small gradients above what float16 rounds to 0, and skips steps that overflow.

    For other dtypes it does nothing.
    """

    def __init__(self, precision: str):
        super().__init__(name="loss_scale")
        self.needed = precision == "float16"
        if self.needed:
            # Every replica finds the same; none has more to say than the first.
            only = {"trainable": False, "aggregation": tf.VariableAggregation.ONLY_FIRST_REPLICA}
            self.scale = tf.Variable(FIRST, **only)
            self.since = tf.Variable(0, **only)

    def up(self, loss: tf.Tensor) -> tf.Tensor:
        """The loss whose gradients are taken."""
        return loss * self.scale if self.needed else loss

    def down(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        """What the gradients of the loss itself are."""
        return [g / self.scale for g in gradients] if self.needed else gradients

    def apply_if_finite(self, gradients: list[tf.Tensor], apply: Callable[[], None]) -> None:
        """Updates the model unless a gradient overflowed, and the scale in either case.

        Args:
            gradients: of the step.
            apply: updates the model by them.
        """
        if not self.needed:
            apply()
            return
        finite = tf.math.is_finite(tf.linalg.global_norm(gradients))

        def applied():
            apply()
            return True

        tf.cond(finite, applied, lambda: False)
        since = tf.where(finite, self.since + 1, 0)
        grows = since >= GROWS_AFTER
        factor = tf.where(finite, tf.where(grows, 2.0, 1.0), 0.5)
        self.scale.assign(tf.maximum(self.scale * factor, 1.0))
        self.since.assign(tf.where(grows, 0, since))
