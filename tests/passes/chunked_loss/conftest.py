"""What small losses need that are to be cut."""

import pytest
import tensorflow as tf
from tensorflow.python.framework import config

from rnnmem.passes.chunked_loss import select


@pytest.fixture
def small_chunks(monkeypatch):
    """Small logits are worth a loop, and a chunk has as few tokens as it may."""
    monkeypatch.setattr(select, "CHUNK_BYTES", 1)
    tf.config.experimental.enable_op_determinism()
    yield
    config.disable_op_determinism()
