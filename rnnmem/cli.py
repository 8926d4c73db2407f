"""The shell: ``rnnmem explain|report|measure|optimize|doctor``."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib.metadata
import importlib.util
import os
import platform
import re
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from rnnmem import commands, completion
from rnnmem.errors import BudgetError, OptionError, PlanError, RnnmemError, RnnmemWarning
from rnnmem.version import __version__

DONE, FAILED, USAGE, OVER_BUDGET = 0, 1, 2, 3
"""Exit codes; argparse exits with `USAGE` itself."""
_CODES = (
    (BudgetError, OVER_BUDGET),
    ((OptionError, PlanError), USAGE),  # the command line names the plan
    (Exception, FAILED),
)

_LONGEST = 400
"""Characters of an error that is not ours."""
_STDERR = 2
_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_GPU_DEVICES = ("/dev/nvidiactl", "/dev/dxg")
"""Without these TensorFlow's only errors at start are that it finds no GPU."""
_IN_USER_CODE = re.compile(r'File "([^"]+)", line (\d+), in ')

_TEACH = """\
rnnmem lets TensorFlow train recurrent networks in less memory, with the same
bits.

  explain   what a function's loops keep for the gradient, what becomes of each
            blob, and why
  report    where its memory goes over a step, before and after: as text, page,
            picture, trace
  measure   the peak and the time of a step, as TensorFlow runs it and as rnnmem
            does
  optimize  writes a SavedModel whose signatures need less memory
  doctor    what works on this machine: versions, a loop rewritten, its bits,
            its peak

A function is named by its module or file, and each of its arguments by a dtype
and a shape.
`python -m rnnmem` is the same command.
"""

_EXAMPLES = {
    "": """\
examples:
  rnnmem explain train.py:train_step 'int32[32,50]' 'int32[32,51]'
  rnnmem report  train.py:train_step --args=:first_batch --html=memory.html
  rnnmem measure train.py:train_step --args=:first_batch --budget=512MiB
  rnnmem optimize exported/model smaller/model --json
  rnnmem --print-completion=bash \\
    > ~/.local/share/bash-completion/completions/rnnmem

exit codes: 0 done, 1 an error (one line says which, --traceback where), 2 a
wrong command line or option, 3 the budget cannot be met (the line names the
smallest peak that can)

TensorFlow's own log is not shown; TF_CPP_MIN_LOG_LEVEL=0 shows it
""",
    "explain": """\
examples:
  rnnmem explain train.py:train_step 'float32[100,32,64]' --max-slowdown=1.3
  rnnmem explain train.py:train_step --args=:first_batch \\
    --keep='*/gates' --allow=default,bits
  rnnmem explain exported/model --signature=serving_default --json
""",
    "report": """\
examples:
  rnnmem report train.py:train_step 'float32[100,32,64]' --html=memory.html
  rnnmem report train.py:train_step --args=:first_batch \\
    --budget=512MiB --png=memory.png
  rnnmem report train.py:train_step 'float32[100,32,64]' --no-measure --json
""",
    "measure": """\
examples:
  rnnmem measure train.py:train_step --args=:first_batch --repeats=9 --verify
  rnnmem measure train.py:train_step 'float32[100,32,64]' \\
    --device=CPU --profile=5
  rnnmem measure train.py:train_step 'float32[100,32,64]' --plan=plan.json
""",
    "optimize": """\
examples:
  rnnmem optimize exported/model smaller/model
  rnnmem optimize exported/model smaller/model --budget=256MiB \\
    --html=memory.html
""",
    "doctor": """\
examples:
  rnnmem doctor
  CUDA_VISIBLE_DEVICES=-1 rnnmem doctor
""",
}

_ON_A_FUNCTION = """\
target      a SavedModel's folder, module:function, or path/to/file.py:function;
            the function is a Python function, a tf.function or something that
            rnnmem.optimize was applied to. A file is run as a module is
            imported: guard what must not run with if __name__ == "__main__".
shapes      one for each argument: 'float32[32,150]', 'int32[32,?]' (unknown, to
            explain only), 'float32[]'. Floats are drawn from a normal
            distribution, integers are 0; give real data with
            --args=module:name, a tuple of arguments or a function that returns
            it (--args=:name in the same module).

"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
      arguments: the command line without the program's name; by default that of the process.

    Returns:
      The exit code: 0 done, 1 an error of ours or of the function, 2 an option that cannot be, 3
      the budget cannot be met; a wrong command line exits with 2.
    """
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # who reads what is printed has enough, as head has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is left of it
        return FAILED


def _run(arguments: Sequence[str] | None) -> int:
    parser = _parser()
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        _refuse(parser if "parser" not in options else options.parser, unknown)
    try:
        _load_tensorflow_quietly()
        with _warnings_in_a_line():
            return options.run(options) or DONE
    except Exception as error:  # of ours, or of the function that the command line names
        sys.stdout.flush()
        if options.traceback:
            traceback.print_exception(error)
        print(f"rnnmem: {type(error).__name__}: {_told(error)}", file=sys.stderr)
        return next(code for kind, code in _CODES if isinstance(error, kind))


@contextlib.contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    """Shows warnings of ours as errors are shown, with the line if it is one of the user's."""
    shown = warnings.formatwarning

    def told(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        line: str | None = None,
    ) -> str:
        if not issubclass(category, RnnmemWarning):
            return shown(message, category, filename, lineno, line)
        is_ours = filename.startswith("<") or filename == sys.argv[0]  # runpy, the shell's script
        where = "" if is_ours else f" ({os.path.basename(filename)}:{lineno})"
        return f"rnnmem: warning: {str(message).removeprefix('rnnmem: ')}{where}\n"

    warnings.formatwarning = told
    try:
        yield
    finally:
        warnings.formatwarning = shown


def _load_tensorflow_quietly() -> None:
    """Leaves TensorFlow's log to who asks for it: its lines stand between ours and the reader."""
    if "tensorflow" in sys.modules or _LOG_LEVEL in os.environ:
        return
    has_gpu = any(map(os.path.exists, _GPU_DEVICES))
    os.environ[_LOG_LEVEL] = "2" if has_gpu else "3"
    if importlib.util.find_spec("tensorflow"):
        with _held_back_unless_it_fails():
            importlib.import_module("tensorflow")


@contextlib.contextmanager
def _held_back_unless_it_fails() -> Iterator[None]:
    """Holds back what is written to stderr, by libraries too: their log has no level yet."""
    sys.stderr.flush()
    shown = os.dup(_STDERR)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), _STDERR)
        try:
            yield
        except BaseException:
            sys.stderr.flush()
            said.seek(0)
            os.write(shown, said.read())
            raise
        finally:
            os.dup2(shown, _STDERR)
            os.close(shown)


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
        prog="rnnmem",
        description=_TEACH,
        epilog=_EXAMPLES[""],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=_versions())
    parser.add_argument(
        "--print-completion",
        action=_PrintCompletion,
        metavar="SHELL",
        help="print what makes a shell complete this command: bash, zsh, ... (needs shtab)",
    )
    made = parser.add_subparsers(required=True, metavar="command")

    explain = _command(made, "explain", "what becomes of each saved blob, and why")
    _on_a_function(explain)
    _to_files(explain)

    report = _command(made, "report", "where the memory goes, before and after")
    _on_a_function(report)
    _to_files(report)
    for form, what in (
        ("png", "the picture"),
        ("svg", "the picture"),
        ("trace", "JSON for chrome://tracing or ui.perfetto.dev"),
    ):
        _file(report, f"--{form}", f"write {what}")
    report.add_argument("--tensorboard", metavar="FOLDER", help="write scalars and the picture")
    report.add_argument(
        "--no-measure", action="store_true", help="do not run the function, only predict"
    )

    measure = _command(made, "measure", "peak and time of a step, plain and optimised")
    _on_a_function(measure)
    _to_files(measure)
    measure.add_argument("--repeats", type=int, default=5, help="measured runs (default: 5)")

    optimize = _command(made, "optimize", "a SavedModel that needs less memory")
    _path(optimize.add_argument("source", help="folder of a SavedModel"))
    _path(optimize.add_argument("destination", help="folder to write to"))
    _options(optimize)
    _to_files(optimize)

    doctor = _command(made, "doctor", "what works on this machine; exits with 1 where it must")
    doctor.add_argument(
        "--calibrate", action="store_true", help="measure what this machine costs, for later plans"
    )
    return parser


def _versions() -> str:
    try:
        beside = f"TensorFlow {importlib.metadata.version('tensorflow')}"
    except importlib.metadata.PackageNotFoundError:
        there = importlib.util.find_spec("tensorflow")  # tensorflow-cpu, or a build of one's own
        beside = "TensorFlow of an unknown version" if there else "TensorFlow is not installed"
    return f"rnnmem {__version__} ({beside}, Python {platform.python_version()})"


class _PrintCompletion(argparse.Action):
    """Prints a shell's completion script of the parser, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, _: Any, value: Any, __: Any = None) -> None:
        try:
            made = completion.script(parser, value)
        except ImportError:
            parser.exit(FAILED, "rnnmem: --print-completion needs shtab: pip install shtab\n")
        except OptionError as error:
            parser.error(str(error))
        print(made)
        parser.exit()


def _refuse(parser: argparse.ArgumentParser, unknown: Sequence[str]) -> NoReturn:
    """Ends with the usage of the command, and the option that may be meant."""
    known = list(parser._option_string_actions)
    near = difflib.get_close_matches(unknown[0].partition("=")[0], known, n=1)
    told = f"; did you mean {near[0]}?" if near else ""
    parser.error(f"unrecognized arguments: {' '.join(unknown)}{told}")


def _command(made: Any, name: str, what: str) -> argparse.ArgumentParser:
    """A command's parser; what it does is the function of its name in `rnnmem.commands`."""
    parser = made.add_parser(
        name,
        help=what,
        description=f"{name}: {what}",
        epilog=("" if name in ("optimize", "doctor") else _ON_A_FUNCTION) + _EXAMPLES[name],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=getattr(commands, name), parser=parser)
    parser.add_argument(
        "--traceback", action="store_true", help="on an error, print where it comes from"
    )
    return parser


def _on_a_function(parser: argparse.ArgumentParser) -> None:
    _path(
        parser.add_argument("target", help="SavedModel folder, module:function or file.py:function")
    )
    shapes = "e.g. 'int32[32,50]', one for each argument"
    parser.add_argument("shapes", nargs="*", default=[], help=shapes)
    parser.add_argument(
        "--args", metavar="MODULE:NAME", default="", help="the arguments themselves"
    )
    parser.add_argument("--signature", help="which signature of a SavedModel")
    _options(parser)


def _options(parser: argparse.ArgumentParser) -> None:
    """The options of ``optimize``; `rnnmem.commands.OPTIMISE` names them."""
    device = parser.add_argument(
        "--device", help="where it runs: CPU, GPU or GPU:1 (default: the first GPU)"
    )
    _completes(device, completion.DEVICES)
    group = parser.add_argument_group("how it is optimised")

    def add(*names: str, **options: Any) -> argparse.Action:
        return group.add_argument(*names, default=argparse.SUPPRESS, **options)

    add("--budget", help="peak above resident to stay under, e.g. 512MiB")
    add(
        "--max-slowdown",
        type=float,
        metavar="FACTOR",
        help="without a budget, the factor of step time that may be spent (default: 1.1)",
    )
    add("--max_slowdown", type=float, help=argparse.SUPPRESS)  # as Python spells it
    allow = add(
        "--allow",
        action="append",
        metavar="PASSES",
        help="passes that may be used, with commas between them (default: default)",
    )
    _completes(allow, completion.PASSES)
    for name, what in (("keep", "stay saved"), ("recompute", "run again, and are not saved")):
        add(
            f"--{name}",
            action="append",
            metavar="PATTERN",
            help=f"ops or name scopes whose values {what}, e.g. '*/gates'; may stand again",
        )
    _path(add("--plan", metavar="FILE", help="decisions to apply, as explain --json prints them"))
    add(
        "--profile",
        nargs="?",
        type=_seconds,
        const=True,
        metavar="SECONDS",
        help="measure times instead of estimating them (default: 10 seconds)",
    )
    add(
        "--verify",
        action="store_true",
        help="on the first run also run the original, and compare every bit",
    )


def _seconds(text: str) -> float:
    """What ``--profile`` takes, which may be nothing: then the next word is none of its own."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of seconds; write --profile=10, or --profile behind all else"
        ) from None


def _to_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    _file(parser, "--html", "write a page to look at")


def _file(parser: argparse.ArgumentParser, name: str, what: str) -> None:
    _path(parser.add_argument(name, metavar="FILE", help=what))


def _path(action: argparse.Action) -> None:
    """Has shells complete the argument as a file's name."""
    _completes(action, completion.FILES)


def _completes(action: argparse.Action, words: dict[str, str]) -> None:
    """Has shells complete the argument; words are shtab's, of each shell."""
    action.complete = words  # type: ignore[attr-defined]
