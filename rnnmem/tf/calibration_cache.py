"""The costs of this machine, measured when somebody asks and kept in a file for every process.

The file is named after all that they depend on: TensorFlow's version, the processor, how many of
its cores there are, the threads that TensorFlow may use, and the device that ops run on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import logging
import math
import os
import platform
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from rnnmem.analysis.costs import Costs
from rnnmem.analysis.known_costs import KNOWN, KNOWN_GPU, NAMES, flat, of_flat
from rnnmem.analysis.machine import CPU, Machine
from rnnmem.errors import OptionError
from rnnmem.tf.calibration import SECONDS, Calibration, calibrated
from rnnmem.tf.device import cores
from rnnmem.tf.profile import cache_folder, write_whole

VARIABLE = "RNNMEM_CALIBRATION"
"""Set to off in the environment, plans are made with the built-in table, whatever was measured."""
_OFF = ("off", "0", "no", "false")
_VERSION = 3
"""Of the file; one of another does not serve."""
_NAME = r"[^\w.-]+"
_WHY_OFF = f"{VARIABLE}={{}} in the environment"
_WHY_NOT_YET = "nothing was measured here (rnnmem.calibrate() does)"
_WHY_UNWRITABLE = "{} cannot be written to, so that no other process would plan alike"
_WHY_FAILED = "measuring raised {}"
_SWITCHED_OFF = "rnnmem.calibrate(off=True)"
_switched_off: set[str] = set()


@dataclasses.dataclass(frozen=True)
class Here:
    """What is known of this machine's costs.

    Attributes:
      costs: as measured; None: the built-in table serves.
      path: of the file that has them.
      measured: names of the numbers that were measured; the others follow from these.
      seconds: that measuring took.
      why: why there are none; empty where there are.
    """

    costs: Costs | None
    path: Path
    measured: tuple[str, ...] = ()
    seconds: float = 0.0
    why: str = ""

    @property
    def sentence(self) -> str:
        """Which table serves, in words."""
        if self.costs is None:
            return f"the built-in table: {self.why}"
        count = f"{len(self.measured)} of {len(NAMES)} costs" if self.measured else "its costs"
        return f"this machine's, {count} measured in {self.seconds:.1f} s, kept in {self.path}"


def calibration_here() -> Here:
    """The costs of this machine, where somebody had them measured and nobody switched them off."""
    if not calibration_is_wanted():
        return Here(None, path_here(), why=_WHY_OFF.format(os.environ[VARIABLE]))
    if _switched_off:
        return Here(None, path_here(), why=_SWITCHED_OFF)
    return _known(path_here())


def with_costs(machine: Machine) -> Machine:
    """The machine with its measured costs, or with those of the built-in tables."""
    measured = calibration_here().costs
    built_in = KNOWN if machine.device == CPU.device else KNOWN_GPU
    return machine.costing(measured or built_in, calibrated=measured is not None)


def calibrate(seconds: float = SECONDS, *, off: bool = False) -> str:
    """Measures what this machine costs; the time of plans is estimated by that from then on.

    It is kept for all later processes on this machine. Plans that are made afterwards, here or in
    other processes, may be others than before. Without it the built-in table serves, which is that
    of a server with two cores: a machine whose kernels are much faster or slower beside its
    executor is worth measuring.

    Args:
      seconds: that measuring may take; on a busy machine all of it takes longer than usual.
      off: do without it: from now on plans are made with the built-in table in this process, as
        with ``RNNMEM_CALIBRATION=off`` in the environment. Nothing is measured.

    Returns:
      Which table serves, in words.

    Raises:
      OptionError: ``seconds`` is no number above 0, or ``off`` is neither True nor False.
    """
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not is_number or not 0 < seconds < math.inf:
        raise OptionError(f"seconds={seconds!r} must be a number above 0")
    if not isinstance(off, bool):
        raise OptionError(f"off={off!r} must be True or False")
    _switched_off.clear()
    if off:
        _switched_off.add(_SWITCHED_OFF)
    elif calibration_is_wanted():
        return _renewed(path_here(), seconds).sentence
    return calibration_here().sentence


def calibration_is_wanted() -> bool:
    """Whether nobody has switched it off in the environment."""
    return os.environ.get(VARIABLE, "").lower() not in _OFF


def path_here() -> Path:
    """The file for this machine, this TensorFlow and its threads."""
    threads = tf.config.threading
    parts = (
        tf.__version__,
        _device(),
        f"{cores()}-cores",
        f"{threads.get_intra_op_parallelism_threads()}-{threads.get_inter_op_parallelism_threads()}",
    )
    return cache_folder() / f"calibration-{re.sub(_NAME, '_', '-'.join(parts))}.json"


@functools.cache
def _known(path: Path) -> Here:
    return _read(path) or Here(None, path, why=_WHY_NOT_YET)


def _renewed(path: Path, seconds: float) -> Here:
    """What is measured now, kept in the place of what was."""
    _known.cache_clear()
    made = _measured(path, seconds)
    if isinstance(made, Here):
        return made
    try:
        write_whole(path, json.dumps(_data(made), indent=1))
    except OSError:
        return Here(None, path, why=_WHY_UNWRITABLE.format(path.parent))
    return _known(path)


def _read(path: Path) -> Here | None:
    """What a file says; None where it is not there, or not ours, or holds what no machine costs."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["version"] != _VERSION:
            return None
        measured = tuple(name for name in data["measured"] if name in NAMES)
        return Here(of_flat(data["costs"]), path, measured, float(data["seconds"]))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _measured(path: Path, seconds: float) -> Here | Calibration:
    """The measured costs; or why there are none: an odd machine, or nothing can be kept."""
    if not _is_writable(path.parent):
        return Here(None, path, why=_WHY_UNWRITABLE.format(path.parent))
    logging.getLogger("rnnmem").info("measuring what this machine costs, for %g s", seconds)
    try:
        return calibrated(seconds)
    except Exception as error:  # whatever it is: the built-in table serves
        return Here(None, path, why=_WHY_FAILED.format(type(error).__name__))


def _data(made: Calibration) -> Mapping[str, Any]:
    return {
        "version": _VERSION,
        "measured": made.measured,
        "seconds": round(made.seconds, 3),
        "costs": flat(made.costs),
    }


def _is_writable(folder: Path) -> bool:
    """Whether a file can be made in a folder, which is made if need be."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            return True
    return False


def _device() -> str:
    """The processor's name, or the GPU's."""
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        return str(tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU"))
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
