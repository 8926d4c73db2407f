"""Writes BUILD from the sources that exist: `make build-file` after adding or removing one."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Each library and what it may depend on: models knows rnnmem, never the reverse.
LIBRARIES = {
    "rnnmem": [],
    "models": ["rnnmem"],
    "examples": ["models", "rnnmem"],
    "benchmarks": ["models", "rnnmem"],
    "tools": [],
}
# Runs one test file under Bazel, which starts a test as a program.
TEST_MAIN = "tests/run_one.py"

HEAD = '''\
"""Every source of rnnmem, by name; tools/build_file.py writes this file (make build-file).

TensorFlow and the other packages of setup.py come from the interpreter that Bazel runs.
"""

load("@rules_python//python:defs.bzl", "py_binary", "py_library", "py_test")

package(default_visibility = ["//visibility:public"])

licenses(["notice"])  # Apache-2.0

exports_files(["LICENSE"])
'''


def sources(root: Path) -> list[str]:
    """Lists every Python source of the libraries and the tests, sorted, relative to the root."""
    found = (path for room in [*LIBRARIES, "tests"] for path in (root / room).rglob("*.py"))
    return sorted(path.relative_to(root).as_posix() for path in found)


def write(root: Path) -> str:
    """Returns the text of BUILD for the sources below the root."""
    files = sources(root)
    tests = [file for file in files if file.startswith("tests/") and _is_test(file)]
    helpers = [file for file in files if file.startswith("tests/") and not _is_test(file)]
    libraries = {
        name: members
        for name in LIBRARIES
        if (members := [file for file in files if file.startswith(name + "/")])
    }
    rules = []
    for name, members in libraries.items():
        data = ["rnnmem/py.typed", "rnnmem/reports/page.html"] if name == "rnnmem" else []
        deps = [":" + other for other in LIBRARIES[name] if other in libraries]
        rules.append(_rule("py_library", name, srcs=members, data=data, deps=deps))
    if helpers:
        rules.append(_rule("py_library", "tests", testonly=True, srcs=helpers))
    for library, members in libraries.items():
        for file in members:
            if _is_program(root / file):
                name = file.removesuffix(".py")
                rules.append(_rule("py_binary", name, srcs=[file], main=file, deps=[":" + library]))
    for file in tests:
        rules.append(
            _rule(
                "py_test",
                file.removesuffix(".py"),
                srcs=[TEST_MAIN, file],
                args=[file],
                main=TEST_MAIN,
                deps=sorted(":" + name for name in [*libraries, "tests"]),
            )
        )
    return "\n".join([HEAD, *rules])


def named(text: str) -> list[str]:
    """Lists every source that a text of BUILD names, sorted; BUILD is a subset of Python."""
    files = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.keyword) and node.arg == "srcs":
            files.update(ast.literal_eval(node.value))
    return sorted(files)


def _is_test(file: str) -> bool:
    return file.rsplit("/", 1)[-1].startswith("test_")


def _is_program(path: Path) -> bool:
    return '\nif __name__ == "__main__":\n' in path.read_text(encoding="utf-8")


def _rule(kind: str, name: str, **attributes: bool | str | list[str]) -> str:
    """Returns one rule as Bazel's own formatter would write it; empty attributes are left out."""
    lines = [f"{kind}(", f'    name = "{name}",']
    for key, value in attributes.items():
        if isinstance(value, list) and len(value) > 1:
            items = "".join(f'        "{item}",\n' for item in value)
            lines.append(f"    {key} = [\n{items}    ],")
        elif isinstance(value, list) and value:
            lines.append(f'    {key} = ["{value[0]}"],')
        elif isinstance(value, bool):
            lines.append(f"    {key} = {value},")
        elif value:
            lines.append(f'    {key} = "{value}",')
    return "\n".join([*lines, ")\n"])


if __name__ == "__main__":
    (ROOT / "BUILD").write_text(write(ROOT), encoding="utf-8")
