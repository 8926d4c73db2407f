"""Where a report comes from: device, versions, arguments, options, date."""

from __future__ import annotations

import dataclasses
import datetime
import os
import platform
from collections.abc import Mapping, Sequence

import tensorflow as tf

from rnnmem.ir.graph import kind_text
from rnnmem.planning.options import Options
from rnnmem.reports.data import ARGUMENTS, Part
from rnnmem.sizes import format_bytes
from rnnmem.tf.own_devices import find_device
from rnnmem.version import __version__

_UNTOLD = ("plan", "runs_once")


def provenance(options: Options, resident: Sequence[Part]) -> Mapping[str, str]:
    """What -> in words.

    Args:
      options: what the user asked for.
      resident: what was in memory before the run, the arguments among it.
    """
    arguments = [
        f"{part.label} {kind_text(part.dtype, part.shape)}"
        for part in resident
        if part.kind == ARGUMENTS
    ]
    versions = f"rnnmem {__version__}, TensorFlow {tf.__version__}"
    return {
        "device": f"{_device()}, {platform.system()}",
        "versions": f"{versions}, Python {platform.python_version()}",
        "arguments": ", ".join(sorted(arguments)) or "none",
        "options": _options(options),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _device() -> str:
    name = find_device(None)
    if name.startswith("CPU"):
        return f"{name}, {os.cpu_count()} cores"
    kind = tf.config.experimental.get_device_details(tf.config.list_physical_devices("GPU")[0])
    return ", ".join(filter(None, (name, kind.get("device_name"))))


def _options(options: Options) -> str:
    told = [f"max_slowdown={options.max_slowdown:g}"] if options.budget is None else []
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if field.name not in (*_UNTOLD, "max_slowdown") and value != field.default:
            told.append(f"{field.name}={_told(value)}")
    return ", ".join(told) + (", a plan was given" if options.plan is not None else "")


def _told(value: object) -> str:
    return format_bytes(value) if type(value) is int else repr(value)
