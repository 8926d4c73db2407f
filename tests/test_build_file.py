from pathlib import Path

import pytest

from tools import build_file

ROOT = Path(__file__).resolve().parent.parent


def test_build_names_exactly_the_sources_that_exist():
    # Walked anew, so that the writer of BUILD does not judge itself.
    exist = {
        path.relative_to(ROOT).as_posix()
        for room in ("rnnmem", "models", "examples", "tests", "benchmarks", "tools")
        for path in (ROOT / room).glob("**/*.py")
    }
    names = set(build_file.named((ROOT / "BUILD").read_text(encoding="utf-8")))
    missing = "".join(f"\n  missing: {file}" for file in sorted(exist - names))
    surplus = "".join(f"\n  surplus: {file}" for file in sorted(names - exist))
    if missing or surplus:
        pytest.fail(f"BUILD differs from the tree (make build-file mends it):{missing}{surplus}")


def test_build_is_what_the_writer_writes():
    text = (ROOT / "BUILD").read_text(encoding="utf-8")
    assert text == build_file.write(ROOT), "BUILD was edited by hand: make build-file"


def test_each_kind_of_source_gets_its_rule(tmp_path):
    program = 'print("a")\n\nif __name__ == "__main__":\n    print("b")\n'
    for file, text in {
        "rnnmem/__init__.py": "",
        "rnnmem/net/op.py": "",
        "models/nmt/train.py": program,
        "models/nmt/data.py": "",
        "tests/conftest.py": "",
        "tests/net/test_op.py": "",
        "benchmarks/peers.py": program,
        "other/stray.py": "",
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    rules = []

    def record(kind):
        return lambda **attributes: rules.append((kind, attributes["name"], attributes))

    functions = {kind: record(kind) for kind in ("py_library", "py_binary", "py_test")}
    for name in ("package", "load", "licenses", "exports_files"):
        functions[name] = lambda *_, **__: None
    exec(build_file.write(tmp_path), functions)
    assert [(kind, name) for kind, name, _ in rules] == [
        ("py_library", "rnnmem"),
        ("py_library", "models"),
        ("py_library", "benchmarks"),
        ("py_library", "tests"),
        ("py_binary", "models/nmt/train"),
        ("py_binary", "benchmarks/peers"),
        ("py_test", "tests/net/test_op"),
    ]
    by_name = {name: attributes for _, name, attributes in rules}
    assert by_name["rnnmem"].get("deps") is None
    assert by_name["models"]["deps"] == [":rnnmem"]
    assert by_name["benchmarks"]["deps"] == [":models", ":rnnmem"]
    assert by_name["tests/net/test_op"]["args"] == ["tests/net/test_op.py"]
    assert by_name["tests"]["testonly"] is True


def test_what_build_names_is_read_from_srcs_alone():
    text = 'py_library(name = "a.py", srcs = ["b.py"], data = ["c.py"])'
    assert build_file.named(text) == ["b.py"]
