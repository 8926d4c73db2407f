import pytest

REWRITERS = ("arithmetic_optimization", "constant_folding", "remapping")


@pytest.fixture(params=["grappler", "no_grappler"])
def grappler(request):
    """TensorFlow's graph optimizer at its default, and without the passes that change bits."""
    from tensorflow.python.eager import context

    set_before = context.context()._optimizer_experimental_options
    if request.param == "no_grappler":
        context.context().set_optimizer_experimental_options(dict.fromkeys(REWRITERS, False))
    yield request.param
    for name in REWRITERS:
        set_before.pop(name, None)  # "True" would not be the default again
    context.context().set_optimizer_experimental_options({})


@pytest.fixture
def deterministic():
    """Op determinism, and the global seed that it asks of random ops."""
    import tensorflow as tf
    from tensorflow.python.framework import config

    tf.config.experimental.enable_op_determinism()
    tf.random.set_seed(11)
    yield
    config.disable_op_determinism()
