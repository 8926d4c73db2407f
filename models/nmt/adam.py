"""Adam with TensorFlow's fused update, and its learning rate over time."""

from __future__ import annotations

import math

import tensorflow as tf

DECAYS = ("cosine", "inverse_sqrt", "none")


def learning_rate(step: int, peak: float, warmup: int, total: int, decay: str) -> float:
    """The learning rate of a step: up to the peak along a line, then down.

    Args:
        step: from 1.
        peak: the greatest rate.
        warmup: steps on the way up.
        total: steps of the training, where "cosine" reaches 0.
        decay: "cosine" (Loshchilov and Hutter, 2017), "inverse_sqrt" (Vaswani et al., 2017) or
            "none".
    """
    if step <= warmup:
        return peak * step / warmup
    if decay == "cosine":
        return peak * 0.5 * (1 + math.cos(math.pi * (step - warmup - 1) / max(1, total - warmup)))
    if decay == "inverse_sqrt":
        return peak * (max(1, warmup) / step) ** 0.5
    return peak


class Adam(tf.Module):
    """Kingma and Ba (2015), "Adam: A Method for Stochastic Optimization"."""

    def __init__(self, variables, beta1: float = 0.9, beta2: float = 0.98, epsilon: float = 1e-8):
        super().__init__(name="adam")
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        # In its own attribute a list would be tracked, and the model saved twice.
        self._of = lambda: variables
        self.m = [tf.Variable(tf.zeros_like(v), trainable=False) for v in variables]
        self.v = [tf.Variable(tf.zeros_like(v), trainable=False) for v in variables]

    def apply(self, gradients, rate: tf.Tensor, step: tf.Tensor) -> None:
        """Updates every variable.

        Args:
            gradients: dense, one a variable.
            rate: the learning rate, float32.
            step: from 1, float32.
        """
        power1, power2 = tf.pow(self.beta1, step), tf.pow(self.beta2, step)
        for variable, m, v, gradient in zip(self._of(), self.m, self.v, gradients, strict=True):
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=m.handle,
                v=v.handle,
                beta1_power=power1,
                beta2_power=power2,
                lr=rate,
                beta1=self.beta1,
                beta2=self.beta2,
                epsilon=self.epsilon,
                grad=gradient,
            )
