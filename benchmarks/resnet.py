"""ResNet-50 of keras.applications as Nets, for measuring plans."""

from __future__ import annotations

import keras
import tensorflow as tf

import rnnmem
from rnnmem.ir.graph import Net


def resnet50_nets(batch: int) -> dict[str, Net]:
    """ResNet-50 of keras.applications, random weights: its inference and its training graph.

    Args:
      batch: images of 224 x 224 pixels.
    """
    model = keras.applications.ResNet50(weights=None)
    images, labels = tf.TensorSpec([batch, 224, 224, 3]), tf.TensorSpec([batch], tf.int32)

    @tf.function
    def train(x, y):
        with tf.GradientTape() as tape:
            losses = keras.losses.sparse_categorical_crossentropy(y, model(x, training=True))
            loss = tf.reduce_mean(losses)
        return loss, tape.gradient(loss, model.trainable_variables)

    infer = tf.function(lambda x: model(x, training=False))
    return {
        "ResNet-50 inference": rnnmem.load_net(infer.get_concrete_function(images)),
        "ResNet-50 training": rnnmem.load_net(train.get_concrete_function(images, labels)),
    }
