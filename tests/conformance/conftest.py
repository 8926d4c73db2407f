import os

import pytest
import tensorflow as tf
from tensorflow.python.framework import config


@pytest.fixture(scope="module", autouse=True)
def determinism():
    """Op determinism, and the global seed that it asks of random ops."""
    tf.keras.utils.set_random_seed(7)
    tf.config.experimental.enable_op_determinism()
    yield
    config.disable_op_determinism()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The whole table takes minutes, so it runs after the fast tests."""
    here = os.path.dirname(__file__)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.slow)
