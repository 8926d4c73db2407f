"""BUILD, queried: its rules are run with Bazel's functions stood in for by ones that record."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAIN = '\nif __name__ == "__main__":\n'


def glob(include, exclude=()):
    """Bazel's ``glob``: sorted files below the root, ``**`` standing for any folders or none."""

    def files(patterns):
        return {
            path.relative_to(ROOT).as_posix() for pattern in patterns for path in ROOT.glob(pattern)
        }

    return sorted(files(include) - files(exclude))


@pytest.fixture(scope="module")
def rules():
    """Kind of rule -> name -> attributes."""
    found = {"py_library": {}, "py_binary": {}, "py_test": {}}

    def recorder(kind):
        def record(**attributes):
            assert attributes["name"] not in found[kind], "two rules have one name"
            found[kind][attributes["name"]] = attributes

        return record

    functions = {kind: recorder(kind) for kind in found}
    for name in ("package", "load", "licenses", "exports_files"):
        functions[name] = lambda *_, **__: None
    text = (ROOT / "BUILD").read_text(encoding="utf-8")
    exec(compile(text, "BUILD", "exec"), {**functions, "glob": glob})
    return found


def sources(*rooms):
    """Walked without ``glob``, so that it does not verify itself."""
    paths = (path for room in rooms for path in (ROOT / room).rglob("*.py"))
    return sorted(path.relative_to(ROOT).as_posix() for path in paths)


def test_every_source_belongs_to_one_library_or_is_a_test(rules):
    libraries = [file for one in rules["py_library"].values() for file in one["srcs"]]
    tests = [one["args"][0] for one in rules["py_test"].values()]
    rooms = ("rnnmem", "models", "examples", "benchmarks", "tools", "tests")
    assert sorted([*libraries, *tests]) == sources(*rooms)


def test_every_test_file_is_a_target_that_runs_it(rules):
    tests = [file for file in sources("tests") if re.search(r"/test_\w+\.py$", file)]
    assert [one["args"] for one in rules["py_test"].values()] == [[file] for file in tests]
    for one in rules["py_test"].values():
        assert one["main"] in one["srcs"] and one["args"][0] in one["srcs"]


def test_every_program_is_a_target(rules):
    rooms = ("rnnmem", "models", "examples", "benchmarks", "tools")
    programs = [file for file in sources(*rooms) if MAIN in (ROOT / file).read_text("utf-8")]
    assert sorted(one["main"] for one in rules["py_binary"].values()) == programs


def test_models_know_rnnmem_and_never_the_reverse(rules):
    libraries = rules["py_library"]
    assert "deps" not in libraries["rnnmem"]
    assert libraries["models"]["deps"] == [":rnnmem"]
    assert libraries["tests"]["testonly"]
    known = {":" + name for name in libraries}
    for kind in rules.values():
        for one in kind.values():
            assert known.issuperset(one.get("deps", ()))


def test_data_files_exist(rules):
    for one in rules["py_library"].values():
        for file in one.get("data", ()):
            assert (ROOT / file).is_file(), file


def test_build_stays_short():
    assert len((ROOT / "BUILD").read_text(encoding="utf-8").splitlines()) < 200
