"""What works on this machine: ``python -m rnnmem doctor``.

Nothing is taken on trust: the private names of TensorFlow are imported, a small train step is
rewritten and its bits and its peak compared, a function is compiled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import os
import platform
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from rnnmem.analysis.costs import Costs
from rnnmem.errors import RnnmemWarning
from rnnmem.sizes import counted, format_bytes
from rnnmem.tables import plain_text, table_of, terminal_width
from rnnmem.version import RANGES, __version__, untested

_MARKS = {True: "works", False: "does not", None: ""}
_EXTRAS = {"matplotlib": "pictures", "tensorboard": "TensorBoard"}


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
      what: its name.
      works: whether it does; None: it is said, not judged.
      found: what was found, and the way out where it does not work.
      essential: whether rnnmem is of no use without it.
    """

    what: str
    works: bool | None
    found: str
    essential: bool = False


def main(calibrate: bool = False) -> int:
    """Prints what was found.

    Args:
      calibrate: whether what this machine costs is measured first.

    Returns:
      The exit code: 1 where something essential does not work, else 0.
    """
    found = run(calibrate)
    table = table_of(["what", "", "found"])
    for one in found:
        mark = "FAILS" if one.essential and one.works is False else _MARKS[one.works]
        table.add_row(one.what, mark, one.found)
    failed = [one.what for one in found if one.essential and one.works is False]
    verdict = f"rnnmem cannot work here: {', '.join(failed)}" if failed else "rnnmem works here"
    width = terminal_width() or 100
    print(plain_text([table, "", verdict], width, wraps=True), end="")
    return 1 if failed else 0


def run(calibrate: bool = False) -> list[Finding]:
    """Looks at everything; what rests on something that fails is not looked at.

    Args:
      calibrate: whether what this machine costs is measured first.
    """
    found = [
        Finding("rnnmem", None, __version__),
        Finding("Python", None, f"{platform.python_version()} on {platform.platform()}"),
    ]
    for look in (_tensorflow, _private_names, _keras, _devices, _statistics, _loop, _compiler):
        try:
            found += look()
        except Exception as error:  # whatever it is, it is the finding
            what = look.__name__.lstrip("_").replace("_", " ")
            found.append(Finding(what, False, f"{type(error).__name__}: {error}", look in _NEEDED))
        if found[-1].essential and found[-1].works is False:
            return found
    return [*found, *_calibration(calibrate), *_extras()]


def _tensorflow() -> Iterator[Finding]:
    if importlib.util.find_spec("tensorflow") is None:
        text = "is not installed: pip install 'rnnmem[tf]' (or 'rnnmem[tf-cpu]')"
        yield Finding("TensorFlow", False, text, essential=True)
        return
    import tensorflow as tf

    beyond = untested(tf.__version__, platform.python_version())
    yield Finding("TensorFlow", True, tf.__version__, essential=True)
    yield Finding("tested versions", not beyond, beyond or RANGES)


def _private_names() -> Iterator[Finding]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RnnmemWarning)  # it is a line of its own
        importlib.import_module("rnnmem.tf.private")
    text = "all that rnnmem uses are there"
    yield Finding("private names of TensorFlow", True, text, essential=True)


def _keras() -> Iterator[Finding]:
    if importlib.util.find_spec("keras") is None:
        yield Finding("Keras", False, "is not installed; rnnmem.optimize needs none")
        return
    import keras

    backend = getattr(getattr(keras, "config", None), "backend", lambda: "tensorflow")()
    text = f"{keras.__version__} on {backend}"
    if backend != "tensorflow":
        text += ": rnnmem.keras needs KERAS_BACKEND=tensorflow"
    yield Finding("Keras", backend == "tensorflow", text)


def _devices() -> Iterator[Finding]:
    import tensorflow as tf

    yield Finding("CPU", None, f"{os.cpu_count()} cores, {platform.machine()}")
    for gpu in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(gpu)
        text = (
            f"{details.get('device_name', gpu.name)}; Keras' LSTM and GRU may run as one cuDNN op"
        )
        yield Finding("GPU", True, f"{text}, which has no loop to rewrite (use_cudnn=False)")
    if not tf.config.list_physical_devices("GPU"):
        yield Finding("GPU", None, 'none that TensorFlow sees; allow="offload" needs one')


def _statistics() -> Iterator[Finding]:
    from rnnmem.tf import private
    from rnnmem.tf.counting import ENABLE, USE_BFC, counts_memory
    from rnnmem.tf.measure import enable_cpu_memory_stats
    from rnnmem.tf.own_devices import find_device

    asked = os.environ.get(USE_BFC, "").lower() in ("1", "true")
    if not private.eager_context_is_initialized():
        enable_cpu_memory_stats()
    device = find_device(None)
    counted = counts_memory(device)
    if not counted:
        text = f"{device} does not count its memory: {ENABLE}"
    elif asked or not device.startswith("CPU"):
        text = f"{device} counts its memory"
    else:
        text = f"off, as TensorFlow has them on a CPU; to measure, {ENABLE}"
    yield Finding("allocator statistics", counted, text)


def _loop() -> Iterator[Finding]:
    """Rewrites a small train step, and compares what it gives and takes."""
    import tensorflow as tf

    import rnnmem
    from rnnmem.tf.counting import counts_memory

    step, inputs = _small_step()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RnnmemWarning)
        optimised = rnnmem.optimize(step, max_slowdown=4.0)
        plan = optimised.plan(inputs)
        found = _bits(optimised(inputs))
    plain = tf.function(step)
    same = found == _bits(plain(inputs))
    rewritten = not plan.changes_nothing
    yield Finding("a loop is rewritten", rewritten, _reason(plan), essential=True)
    bits = "loss and gradient have the bits of the original" if same else "they are not the same"
    yield Finding("its bits", same, bits, essential=True)
    if counts_memory():
        pair = rnnmem.measure_pair(plain, optimised, inputs, repeats=3)
        before, after = (format_bytes(one.peak_bytes) for one in (pair.first, pair.second))
        yield Finding("its peak", pair.peak_ratio < 1.0, f"{after} instead of {before}")


def _small_step() -> tuple[Callable[..., Any], Any]:
    import tensorflow as tf

    weight = tf.Variable(tf.random.stateless_normal([64, 64], seed=[1, 2]) * 0.1)

    def step(x: Any) -> tuple[Any, Any]:
        def body(t: Any, h: Any) -> tuple[Any, Any]:
            return t + 1, tf.tanh(h @ weight) * tf.sigmoid(x)

        with tf.GradientTape() as tape:
            last = tf.while_loop(lambda t, _: t < 60, body, (0, x))[1]
            loss = tf.reduce_sum(last * last)
        return loss, tape.gradient(loss, weight)

    return step, tf.random.stateless_normal([32, 64], seed=[3, 4])


def _bits(results: tuple[Any, ...]) -> list[bytes]:
    return [one.numpy().tobytes() for one in results]


def _reason(plan: Any) -> str:
    if not plan.changes_nothing:
        return "a small train step of 60 iterations"
    left = [loop.closed for loop in plan.every_loop() if loop.closed]
    return "; ".join([*left, *plan.notes]) or "nothing of it was found worth it"


def _compiler() -> Iterator[Finding]:
    import tensorflow as tf

    compiled = tf.function(lambda x: tf.tanh(x) * 2.0, jit_compile=True)
    with contextlib.suppress(tf.errors.OpError):
        compiled(tf.ones([2]))
        yield Finding(
            "XLA", True, "compiles (jit_compile=True); there results are close, not equal"
        )
        return
    yield Finding("XLA", False, "does not compile here; leave jit_compile=True out")


def _calibration(calibrate: bool) -> Iterator[Finding]:
    import rnnmem
    from rnnmem.tf.calibration_cache import calibration_here
    from rnnmem.tf.profile import cache_folder

    if calibrate:
        rnnmem.calibrate()
    here = calibration_here()
    yield Finding("calibration", None, f"times are estimated by {here.sentence}")
    if here.costs is not None:
        yield Finding("its costs", None, _costs(here.costs))
    files = list(cache_folder().glob("profile-*.json"))
    text = f"times of kernels (profile=True) in {cache_folder()}: {counted(len(files), 'file')}"
    yield Finding("profiles", None, text if files else "none; profile=True measures kernels")


def _costs(costs: Costs) -> str:
    """What a machine costs, in words."""
    size, seconds = costs.products[-1]
    moved, moving = costs.moved[-1]
    small = f"op {_us(costs.op)}, iteration {_us(costs.iteration)}, variable {_us(costs.variable)}"
    lists = f"push or pop {_us(costs.list)}, barrier {_us(2 * costs.optional)}"
    large = f"products {size / seconds / 1e9:.0f} Gflop/s, memory {moved / moving / 1e9:.0f} GB/s"
    return f"{small}, {lists}; {large}"


def _us(seconds: float) -> str:
    return f"{1e6 * seconds:.2f} us"


def _extras() -> Iterator[Finding]:
    for name, use in _EXTRAS.items():
        there = importlib.util.find_spec(name) is not None
        text = importlib.metadata.version(name) if there else "pip install 'rnnmem[report]'"
        yield Finding(use, there, text)


_NEEDED = (_tensorflow, _private_names, _loop)
"""Without which rnnmem is of no use."""
