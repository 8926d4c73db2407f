"""The shell: ``python -m rnnmem explain|report|measure|optimize|doctor``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from rnnmem.errors import BudgetError, OptionError, RnnmemError
from rnnmem.version import __version__

DONE, FAILED, USAGE, OVER_BUDGET = 0, 1, 2, 3
"""Exit codes; argparse exits with `USAGE` itself."""

_LONGEST = 400
"""Characters of an error that is not ours."""
_IN_USER_CODE = re.compile(r'File "([^"]+)", line (\d+), in ')

_TEACH = """\
rnnmem lets TensorFlow train recurrent networks in less memory, with the same bits.

  explain   what a function's loops keep for the gradient, what becomes of each blob, and why
  report    where its memory goes over a step, before and after: as text, page, picture, trace
  measure   the peak and the time of a step, as TensorFlow runs it and as rnnmem does
  optimize  writes a SavedModel whose signatures need less memory
  doctor    what works on this machine: versions, a loop rewritten, its bits, its peak

A function is named by its module or file, and each of its arguments by a dtype and a shape:

  python -m rnnmem explain train.py:train_step 'int32[32,50]' 'int32[32,51]'
  python -m rnnmem report  train.py:train_step --args=:first_batch --html=memory.html
  python -m rnnmem measure train.py:train_step --args=:first_batch --budget=512MiB
  python -m rnnmem optimize exported/model smaller/model --json

exit codes: 0 done, 1 an error (one line says which, --traceback where), 2 a wrong command line,
3 the budget cannot be met (the line names the smallest peak that can)
"""

_ON_A_FUNCTION = """\
target      a SavedModel's folder, module:function, or path/to/file.py:function; the function is
            a Python function, a tf.function or something that rnnmem.optimize was applied to.
            A file is run as a module is imported: guard what must not run with
            if __name__ == "__main__".
shapes      one for each argument: 'float32[32,150]', 'int32[32,?]' (unknown, to explain only),
            'float32[]'. Floats are drawn from a normal distribution, integers are 0; give real
            data with --args=module:name, a tuple of arguments or a function that returns it
            (--args=:name in the same module).
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
      arguments: the command line without the program's name; by default that of the process.

    Returns:
      The exit code: 0 done, 1 an error of ours or of the function, 3 the budget cannot be met; a
      wrong command line exits with 2.
    """
    options = _parser().parse_args(arguments)
    try:
        return options.run(options) or DONE
    except Exception as error:  # of ours, or of the function that the command line names
        if options.traceback:
            traceback.print_exception(error)
        print(f"rnnmem: {type(error).__name__}: {_told(error)}", file=sys.stderr)
        return OVER_BUDGET if isinstance(error, BudgetError) else FAILED


def _told(error: Exception) -> str:
    """What an error says, in a line; of one that is not ours also where it comes from."""
    if isinstance(error, RnnmemError):
        return str(error)
    # AutoGraph puts a traceback in front, TensorFlow's executor the name of a node behind.
    lines = [line.strip() for line in str(error).splitlines()]
    lines = [line for line in lines if line and not line.startswith("[[")] or [""]
    said = lines[-1].removeprefix(f"{type(error).__name__}: ")
    where = _line_of(error)
    return f"{_shortened(said)}{f' ({where})' if where else ''}; --traceback shows more"


def _line_of(error: Exception) -> str:
    """The innermost line of the user's that an error came through."""
    own = os.path.dirname(os.path.abspath(__file__))
    places = _IN_USER_CODE.findall(str(error))
    frames = traceback.extract_tb(error.__traceback__)
    places += [] if places else [(frame.filename, frame.lineno) for frame in frames]
    for file, line in reversed(places):
        if not file.startswith((own, "<")) and "site-packages" not in file:
            return f"{os.path.basename(file)}:{line}"
    return ""


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rnnmem",
        description=_TEACH,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rnnmem {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")

    explain = _command(commands, "explain", _explain, "what becomes of each saved blob, and why")
    _on_a_function(explain)
    _to_files(explain)

    report = _command(commands, "report", _report, "where the memory goes, before and after")
    _on_a_function(report)
    _to_files(report)
    for form, what in (
        ("png", "the picture"),
        ("svg", "the picture"),
        ("trace", "JSON for chrome://tracing or ui.perfetto.dev"),
    ):
        report.add_argument(f"--{form}", metavar="FILE", help=f"write {what}")
    report.add_argument("--tensorboard", metavar="FOLDER", help="write scalars and the picture")
    report.add_argument(
        "--no-measure", action="store_true", help="do not run the function, only predict"
    )

    measure = _command(
        commands, "measure", _measure, "peak and time of a step, plain and optimised"
    )
    _on_a_function(measure)
    _to_files(measure)
    measure.add_argument("--repeats", type=int, default=5, help="measured runs (default: 5)")
    measure.add_argument(
        "--device", help="whose memory, e.g. GPU:1 (default: the first GPU or CPU:0)"
    )

    optimize = _command(commands, "optimize", _optimize, "a SavedModel that needs less memory")
    optimize.add_argument("source", help="folder of a SavedModel")
    optimize.add_argument("destination", help="folder to write to")
    _options(optimize)
    _to_files(optimize)

    _command(commands, "doctor", _doctor, "what works on this machine; exits with 1 where it must")
    return parser


def _command(commands: Any, name: str, run: Any, what: str) -> argparse.ArgumentParser:
    made = commands.add_parser(
        name,
        help=what,
        description=f"{name}: {what}",
        epilog=_ON_A_FUNCTION if name not in ("optimize", "doctor") else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.set_defaults(run=run)
    made.add_argument(
        "--traceback", action="store_true", help="on an error, print where it comes from"
    )
    return made


def _on_a_function(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", help="SavedModel folder, module:function or file.py:function")
    parser.add_argument("shapes", nargs="*", help="e.g. 'int32[32,50]', one for each argument")
    parser.add_argument(
        "--args", metavar="MODULE:NAME", default="", help="the arguments themselves"
    )
    parser.add_argument("--signature", help="which signature of a SavedModel")
    _options(parser)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--budget", help="peak above resident to stay under, e.g. 512MiB")
    parser.add_argument(
        "--max-slowdown",
        "--max_slowdown",
        type=float,
        default=1.1,
        help="without a budget, the factor of step time that may be spent (default: 1.1)",
    )


def _to_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument("--html", metavar="FILE", help="write a page to look at")


def _optimised(found: Any, options: argparse.Namespace) -> Any:
    """The function under the command line's options; its own, where it has some already."""
    from rnnmem.api import Optimized, optimize

    if isinstance(found.function, Optimized) and options.budget is None:
        return found.function
    return optimize(found.function, budget=options.budget, max_slowdown=options.max_slowdown)


def _found(options: argparse.Namespace) -> Any:
    from rnnmem.targets import target

    return target(options.target, options.shapes, options.args, options.signature)


def _explain(options: argparse.Namespace) -> None:
    from rnnmem.reporting import report

    found = _found(options)
    step = _optimised(found, options)
    if options.html:
        report(step, *found.args, measure=False, **found.kwargs).save(_html(options))
    explanation = step.explain(*found.args, **found.kwargs)
    if options.json:
        _print_json({"name": found.name, "plan": dataclasses.asdict(explanation.plan)})
    else:
        print(explanation, end="")


def _report(options: argparse.Namespace) -> None:
    from rnnmem.reporting import report
    from rnnmem.targets import with_values

    if not options.no_measure:
        _count_memory()
    found = _found(options)
    if not options.no_measure:
        found = with_values(found)
    measure = False if options.no_measure else None
    made = report(_optimised(found, options), *found.args, measure=measure, **found.kwargs)
    for form, path in (("html", options.html), ("png", options.png), ("svg", options.svg)):
        if path:
            made.save(_ending_in(path, f".{form}", form))
    if options.trace:
        made.save(_ending_in(options.trace, ".trace.json", "trace"))
    if options.tensorboard:
        made.to_tensorboard(options.tensorboard)
    print(made.to_json() if options.json else made, end="\n" if options.json else "")


def _measure(options: argparse.Namespace) -> None:
    from rnnmem.api import Optimized
    from rnnmem.reporting import report
    from rnnmem.targets import with_values
    from rnnmem.tf.measure import measure_pair

    _count_memory()
    found = with_values(_found(options))
    step = _optimised(found, options)
    plain = found.function
    plain = plain.__wrapped__ if isinstance(plain, Optimized) else plain
    pair = measure_pair(
        plain,
        step,
        *found.args,
        repeats=options.repeats,
        device=options.device,
        **found.kwargs,
    )
    if options.html:
        report(step, *found.args, **found.kwargs).save(_html(options))
    if options.json:
        told: dict[str, Any] = {"name": found.name, "before": dataclasses.asdict(pair.first)}
        told |= {"after": dataclasses.asdict(pair.second), "time_ratio": pair.time_ratio}
        _print_json(told)
    else:
        print(f"before: {pair.first}\nafter:  {pair.second}")
        print(f"after/before: {pair.peak_ratio:.3f}x peak, {pair.time_ratio:.3f}x time")


def _optimize(options: argparse.Namespace) -> None:
    from rnnmem.api import optimize
    from rnnmem.reporting import report
    from rnnmem.reports.explain import explain
    from rnnmem.saved_model import optimize_saved_model
    from rnnmem.targets import target

    wanted = {"budget": options.budget, "max_slowdown": options.max_slowdown}
    plans = optimize_saved_model(options.source, options.destination, **wanted)
    if options.html:
        found = target(options.source, ())
        report(optimize(found.function, **wanted), measure=False).save(_html(options))
    if options.json:
        _print_json({name: dataclasses.asdict(plan) for name, plan in plans.items()})
        return
    for name, plan in plans.items():
        print(explain(plan, name=name), end="")


def _doctor(unused_options: argparse.Namespace) -> int:
    from rnnmem.doctor import main

    return main()


def _count_memory() -> None:
    from rnnmem.tf.measure import enable_cpu_memory_stats

    enable_cpu_memory_stats()


def _html(options: argparse.Namespace) -> str:
    return _ending_in(options.html, ".html", "html")


def _ending_in(path: str, ending: str, option: str) -> str:
    if not path.endswith(ending):
        raise OptionError(f"--{option}={path} must end in {ending}")
    return path


def _print_json(told: Any) -> None:
    print(json.dumps(told, indent=1))
