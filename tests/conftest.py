import gc
import os
import sys

# TensorFlow reads these when it starts, so they come before any import of it.
os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "true"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
# Plans of tests are the same everywhere: no machine's own costs enter them.
os.environ["RNNMEM_CALIBRATION"] = "off"

import hypothesis
import pytest

MARKERS = (
    "slow: takes seconds; `make test-slow` runs it, and so does continuous integration",
    "fuzz: property test; `make fuzz` runs it on many more cases (RNNMEM_FUZZ_CASES)",
)

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, max_examples=50)
FUZZ_CASES = os.environ.get("RNNMEM_FUZZ_CASES")
if FUZZ_CASES:
    hypothesis.settings.register_profile(
        "fuzz", deadline=None, max_examples=int(FUZZ_CASES), print_blob=True
    )
hypothesis.settings.load_profile("fuzz" if FUZZ_CASES else "ci")


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_collection_finish() -> None:
    """What the imports made stays: a measurement collects garbage, and need not look at it."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Stable: what is fast fails first, and each group keeps its order.
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)


@pytest.fixture(scope="module", autouse=True)
def _nothing_behind_a_module():
    """Op determinism that a module asks for is not the next one's, which may measure.

    Nor does a measurement there look through what this one left in caches of TensorFlow.
    """
    yield
    gc.collect()
    gc.freeze()
    config = sys.modules.get("tensorflow.python.framework.config")
    if config is not None:
        config.disable_op_determinism()


@pytest.fixture(autouse=True)
def _no_garbage_behind_a_slow_test(request: pytest.FixtureRequest):
    """What outlives it, in caches of TensorFlow, no later collection looks through."""
    yield
    if request.node.get_closest_marker("slow") is not None:
        gc.collect()
        gc.freeze()


@pytest.fixture
def onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are those of a machine where oneDNN runs convolutions: the same everywhere."""
    monkeypatch.setattr("rnnmem.tf.own_kernels.runs", lambda *_: False)


@pytest.fixture
def kernels_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is estimated by kernels alone, as on a machine whose executor costs nothing."""
    monkeypatch.setattr("rnnmem.compile.with_costs", lambda machine: machine)
