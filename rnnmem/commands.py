"""What the commands of the shell do; options come parsed."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
from typing import Any

from rnnmem.errors import OptionError

OPTIMISE = ("budget", "max_slowdown", "allow", "keep", "recompute", "plan", "profile", "verify")
"""Options of the command line that are options of ``optimize``; absent where not given."""
_ENDINGS = {"html": ".html", "png": ".png", "svg": ".svg", "trace": ".trace.json"}
"""How the files end that options name."""
_NO_GRADIENT = "the function is rewritten where a gradient of it is taken, and none was taken here"


def _wanted(options: argparse.Namespace) -> dict[str, Any]:
    """The options of ``optimize`` that were given."""
    found = {name: getattr(options, name) for name in OPTIMISE if hasattr(options, name)}
    _check_is_there(found.get("plan"), "plan")
    return {name: _each(value) if name == "allow" else value for name, value in found.items()}


def _check_is_there(path: str | None, option: str) -> None:
    """Refuses a file that there is not, as a wrong command line."""
    if path is not None and not os.path.exists(path):
        raise OptionError(f"--{option}={path}: there is no such file")


def _each(given: list[str]) -> tuple[str, ...]:
    """The names in texts that hold one each, or several with commas between them."""
    return tuple(name.strip() for text in given for name in text.split(",") if name.strip())


def _optimised(found: Any, options: argparse.Namespace) -> Any:
    """The function under the command line's options; its own, where it has some already."""
    from rnnmem.api import optimize
    from rnnmem.optimized import Optimized

    wanted = _wanted(options)
    if isinstance(found.function, Optimized) and not wanted:
        return found.function
    return optimize(found.function, **wanted)


def _found(options: argparse.Namespace) -> Any:
    from rnnmem.targets import target

    _choose_device(options.device)
    return target(options.target, options.shapes, options.args, options.signature)


def explain(options: argparse.Namespace) -> None:
    """Prints what becomes of each saved blob."""
    from rnnmem.reporting import report

    _check_files(options)
    found = _found(options)
    step = _optimised(found, options)
    if options.html:
        report(step, *found.args, measure=False, **found.kwargs).save(options.html)
    explanation = step.explain(*found.args, **found.kwargs)
    if options.json:
        _print_json({"name": found.name, "plan": explanation.plan.to_data()})
    else:
        print(explanation, end="")


def report(options: argparse.Namespace) -> None:
    """Prints where the memory goes, and writes what is asked for."""
    from rnnmem.reporting import report
    from rnnmem.targets import with_values

    _check_files(options)
    if not options.no_measure:
        _count_memory()
    found = _found(options)
    if not options.no_measure:
        found = with_values(found)
    measure = False if options.no_measure else None
    made = report(_optimised(found, options), *found.args, measure=measure, **found.kwargs)
    for path in filter(None, (options.html, options.png, options.svg, options.trace)):
        made.save(path)
    if options.tensorboard:
        made.to_tensorboard(options.tensorboard)
    print(made.to_json() if options.json else made, end="\n" if options.json else "")


def measure(options: argparse.Namespace) -> None:
    """Prints peak and time of a step as TensorFlow runs it and as rnnmem does."""
    from rnnmem.reporting import report
    from rnnmem.targets import with_values
    from rnnmem.tf.measure import measure_pair

    _check_files(options)
    _count_memory()
    found = with_values(_found(options))
    step = _optimised(found, options)
    pair = measure_pair(
        step._as_it_was,  # a Python function would run op by op
        step,
        *found.args,
        repeats=options.repeats,
        **found.kwargs,
    )
    if options.html:
        report(step, *found.args, **found.kwargs).save(options.html)
    if options.json:
        told: dict[str, Any] = {"name": found.name, "before": dataclasses.asdict(pair.first)}
        told |= {"after": dataclasses.asdict(pair.second), "time_ratio": pair.time_ratio}
        _print_json(told)
    else:
        print(f"before: {pair.first}\nafter:  {pair.second}")
        print(f"after/before: {pair.peak_ratio:.3f}x peak, {pair.time_ratio:.3f}x time")
        seen = step.inspect(*found.args, **found.kwargs)
        for note in (*seen.plan.notes, *((_NO_GRADIENT,) if seen.joint else ())):
            print(f"note: {note}")


def optimize(options: argparse.Namespace) -> None:
    """Writes a SavedModel that needs less memory."""
    from rnnmem.api import optimize
    from rnnmem.reporting import report
    from rnnmem.reports.explain import explain
    from rnnmem.saved_model import optimize_saved_model
    from rnnmem.targets import target

    _check_files(options)
    _choose_device(options.device)
    wanted = _wanted(options)
    plans = optimize_saved_model(options.source, options.destination, **wanted)
    if options.html:
        found = target(options.source, ())
        report(optimize(found.function, **wanted), measure=False).save(options.html)
    if options.json:
        _print_json({name: plan.to_data() for name, plan in plans.items()})
        return
    for name, plan in plans.items():
        print(explain(plan, name=name), end="")


def doctor(options: argparse.Namespace) -> int:
    """Tells what works on this machine; the exit code."""
    from rnnmem.doctor import main

    return main(options.calibrate)


def _choose_device(name: str | None) -> None:
    """Hides all GPUs but the named one, before TensorFlow starts any.

    Raises:
      OptionError: there is no such device.
    """
    if name is None:
        return
    import tensorflow as tf

    kind, _, number = name.upper().partition(":")
    gpus = tf.config.list_physical_devices("GPU")
    known = ["CPU", *(f"GPU:{place}" for place in range(len(gpus)))]
    wanted = "CPU" if kind == "CPU" and number in ("", "0") else f"{kind}:{number or 0}"
    if wanted not in known:
        raise OptionError(f"--device={name} is none of {', '.join(known)}")
    try:
        tf.config.set_visible_devices([] if kind == "CPU" else [gpus[int(number or 0)]], "GPU")
    except RuntimeError as error:  # in a process that has run TensorFlow already
        raise OptionError(f"--device={name} comes too late: {error}") from error


def _count_memory() -> None:
    from rnnmem.tf.measure import enable_cpu_memory_stats

    enable_cpu_memory_stats()


def _check_files(options: argparse.Namespace) -> None:
    """Refuses files that cannot be written as they are named, before anything is run for them.

    Raises:
      OptionError: one has another ending, or its folder is not there.
    """
    for option, ending in _ENDINGS.items():
        path = getattr(options, option, None)
        if path is None:
            continue
        if not path.endswith(ending):
            raise OptionError(f"--{option}={path} must end in {ending}")
        folder = os.path.dirname(path) or "."
        if not os.path.isdir(folder):
            raise OptionError(f"--{option}={path} cannot be written: there is no folder {folder}")


def _print_json(told: Any) -> None:
    print(json.dumps(told, indent=1))
