"""The shell: what it prints, what it writes, and what it exits with."""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from unittest import mock

import pytest
import tensorflow as tf

import rnnmem
from rnnmem.cli import DONE, FAILED, OVER_BUDGET, USAGE, _warnings_in_a_line, main
from rnnmem.errors import OptionError, RnnmemWarning
from rnnmem.passes.registry import BY_NAME, GROUPS
from rnnmem.targets import spec

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = """
import tensorflow as tf

weight = tf.Variable(tf.ones([32, 32]) * 0.01)
not_a_function = 3


def step(x):
    with tf.GradientTape() as tape:
        body = lambda i, h: (i + 1, tf.sigmoid(tf.tanh(h @ weight) * 2.0 - h))
        h = tf.while_loop(lambda i, _: i < 60, body, (0, x))[1]
        loss = tf.reduce_sum(h * h)
    return loss, tape.gradient(loss, weight)


def batch():
    return (tf.ones([64, 32]),)


def raises(x):
    raise KeyError("two\\nlines")
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("shell") / "shell_script.py"
    path.write_text(SCRIPT)
    return f"{path}:step"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("shell") / "model")
    module = tf.Module()
    module.weight = tf.Variable(tf.ones([16, 16]))

    @tf.function(input_signature=[tf.TensorSpec([8, 16], name="x")])
    def serve(x):
        body = lambda i, h: (i + 1, tf.tanh(h @ module.weight))  # noqa: E731
        return {"y": tf.while_loop(lambda i, _: i < 20, body, (0, x))[1]}

    module.serve = serve
    tf.saved_model.save(module, folder, signatures=serve)
    return folder


def test_explain_prints_the_table_of_a_function_in_a_file(script, capsys):
    assert main(["explain", script, "float32[64,32]", "--max-slowdown=2"]) == DONE
    out = capsys.readouterr().out
    assert out.startswith("step: 1 loop rewritten")
    assert "shell_script.py:" in out


def test_explain_as_json_is_the_plan(script, capsys):
    assert main(["explain", script, "[64,32]", "--json"]) == DONE
    held = json.loads(capsys.readouterr().out)
    assert held["name"] == "step"
    assert held["plan"]["loops"][0]["trips"] == 60


def test_explain_takes_an_unknown_dimension(script, capsys):
    assert main(["explain", script, "float32[?,32]"]) == DONE
    assert "?" in capsys.readouterr().out


@pytest.mark.slow
def test_report_writes_every_form_that_is_asked_for(script, capsys, tmp_path):
    paths = {form: tmp_path / f"memory.{form}" for form in ("html", "png", "svg", "trace.json")}
    files = [f"--{form.partition('.')[0]}={path}" for form, path in paths.items()]
    files += [f"--tensorboard={tmp_path / 'events'}"]
    assert main(["report", script, "--args=:batch", *files]) == DONE
    assert "measured" in capsys.readouterr().out
    assert all(path.stat().st_size > 1000 for path in paths.values())
    assert list((tmp_path / "events").iterdir())


def test_report_as_json_without_a_run(script, capsys):
    options = ["--no-measure", "--json", "--max-slowdown=2"]
    assert main(["report", script, "float32[64,32]", *options]) == DONE
    held = json.loads(capsys.readouterr().out)
    assert held["before"]["measured_bytes"] is None
    assert held["before"]["peak_bytes"] > held["after"]["peak_bytes"]


def test_measure_runs_both_in_turn(script, capsys):
    options = ["--repeats=2", "--json", "--max-slowdown=2"]
    assert main(["measure", script, "float32[64,32]", *options]) == DONE
    held = json.loads(capsys.readouterr().out)
    assert held["before"]["peak_bytes"] > held["after"]["peak_bytes"]
    assert held["before"]["repeats"] == 2


@pytest.mark.parametrize("decorator", ["", "@rnnmem.optimize", "@tf.function"])
def test_measure_runs_no_function_op_by_op(decorator, tmp_path, capsys):
    path = tmp_path / f"graph_step_{decorator.partition('.')[2]}.py"
    path.write_text(
        f"import tensorflow as tf\n\nimport rnnmem\n\n\n{decorator}\ndef step(x):\n"
        "    assert not tf.executing_eagerly()\n    return x @ x + x\n"
    )
    assert main(["measure", f"{path}:step", "float32[256,256]", "--repeats=1"]) == DONE
    assert capsys.readouterr().out.startswith("before: peak ")


def test_measure_says_what_it_cannot_show(script, exported, capsys):
    wanted = ["--repeats=1", "--keep=*/no_such_scope"]
    assert main(["measure", script, "float32[64,32]", *wanted]) == DONE
    out = capsys.readouterr().out
    assert "note: the pattern '*/no_such_scope' names no op" in out and "gradient of it" not in out
    # A signature has shapes of its own.
    assert main(["measure", exported, "--repeats=1"]) == DONE
    assert (
        "note: the function is rewritten where a gradient of it is taken" in capsys.readouterr().out
    )


def test_arguments_that_do_not_fit_are_told_as_a_wrong_command_line(
    script, exported, capsys, tmp_path, monkeypatch
):
    (tmp_path / "odd_batches.py").write_text("two = (1.0, 2.0)\nrows = [[0.0] * 16] * 8,\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def refused(*words):
        assert main([*words]) == USAGE
        return capsys.readouterr().err

    file = script.rpartition(":")[0]
    told = refused("explain", script, "--args=odd_batches:two")
    assert "takes (x), and --args=odd_batches:two gives 2 arguments: give a tuple" in told
    told = refused("explain", exported, "--args=odd_batches:two")
    assert "takes x, and --args gives 2 arguments" in told
    told = refused("explain", script, "[64,32]", "--signature=serve")
    assert "--signature=serve is of a SavedModel" in told and "leave it out" in told
    assert "its type is int" in refused("explain", f"{file}:not_a_function")
    told = refused("explain", script, "[64,32]", "--allow=defalt")
    assert told.rstrip().endswith("did you mean 'default'?")
    assert main(["measure", exported, "--args=odd_batches:rows", "--repeats=1"]) == DONE


def test_shapes_may_be_left_out_and_are_not_asked_for(capsys):
    with pytest.raises(SystemExit) as left:
        main(["explain"])
    assert left.value.code == USAGE
    assert capsys.readouterr().err.endswith("the following arguments are required: target\n")


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("<frozen runpy>", "rnnmem: warning: it is slow\n"),
        ("a/step.py", "it is slow (step.py:8)\n"),
    ],
)
def test_a_warning_of_ours_is_a_line(file, told):
    plain = warnings.formatwarning
    with _warnings_in_a_line():
        line = warnings.formatwarning("rnnmem: it is slow", RnnmemWarning, file, 8)
        assert line.startswith("rnnmem: warning: ") and line.endswith(told)
        other = ("old", DeprecationWarning, "a.py", 8)
        assert warnings.formatwarning(*other) == plain(*other)
    assert warnings.formatwarning is plain


@pytest.mark.slow
def test_a_saved_model_is_explained_and_optimised(exported, capsys, tmp_path):
    assert main(["explain", exported]) == DONE
    assert capsys.readouterr().out.startswith("serving_default: ")
    assert main(["report", exported, "--json"]) == DONE
    told = json.loads(capsys.readouterr().out)
    assert told["name"] == "serving_default"
    page = tmp_path / "memory.html"
    target = str(tmp_path / "smaller")
    assert main(["optimize", exported, target, "--json", f"--html={page}"]) == DONE
    assert list(json.loads(capsys.readouterr().out)) == ["serving_default"]
    assert tf.saved_model.load(target).signatures["serving_default"](x=tf.ones([8, 16]))
    assert "<html" in page.read_text()


@pytest.mark.slow
def test_a_budget_that_cannot_be_met_has_its_own_exit_code(script, capsys):
    assert main(["explain", script, "float32[64,32]", "--budget=1KiB"]) == OVER_BUDGET
    captured = capsys.readouterr()
    assert not captured.out
    assert captured.err.startswith("rnnmem: BudgetError: budget=")
    assert "the smallest peak" in captured.err


@pytest.mark.parametrize(
    ("target", "shapes", "message"),
    [
        ("no_such_module:step", [], "there is no such module here"),
        ("/no/such/file.py:step", [], "there is no such file"),
        ("step", [], "names nothing"),
        ("SCRIPT:steps", [], "has no 'steps'"),
        ("SCRIPT:not_a_function", [], "is no function: its type is int"),
        ("SCRIPT:step", ["float33[2]"], "names no dtype"),
        ("SCRIPT:step", ["float32(2)"], "is no dtype and shape"),
        (str(ROOT), [], "is no SavedModel"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(script, target, shapes, message, capsys):
    target = target.replace("SCRIPT", script.rpartition(":")[0])
    assert main(["explain", target, *shapes]) == USAGE
    err = capsys.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["SCRIPT:step"], USAGE, "takes (x), and 0 shapes are given"),
        (["SCRIPT:step", "float32[64,32]", "float32[2]"], USAGE, "takes (x), and 2 shapes"),
        (["SCRIPT:step", "float32[3,4]"], FAILED, "shell_script.py:10"),
        (["SCRIPT:raises", "float32[3]"], FAILED, "KeyError: 'two\\nlines' (shell_script.py:21)"),
        (["SCRIPT:step", "float32[64,32]", "--html=no/such/x.html"], USAGE, "cannot be written"),
        (["broken_script.py:step"], FAILED, "broken_script.py"),
    ],
)
def test_an_error_of_the_users_is_one_line_too(
    script, arguments, code, message, capsys, monkeypatch
):
    path = Path(script.rpartition(":")[0])
    monkeypatch.chdir(path.parent)
    path.with_name("broken_script.py").write_text("def step(:")
    arguments = [one.replace("SCRIPT", str(path)) for one in arguments]
    assert main(["explain", *arguments]) == code
    out, err = capsys.readouterr()
    assert message in err
    assert err.startswith("rnnmem: ") and len(err.splitlines()) == 1
    assert not out
    assert main(["explain", *arguments, "--traceback"]) == code
    told = capsys.readouterr().err
    assert "Traceback (most recent call last):" in told
    assert told.endswith(err)


def test_a_run_needs_every_dimension(script, capsys):
    assert main(["measure", script, "float32[?,32]"]) == USAGE
    assert "a run needs every dimension" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["explain"], ["nonsense"], ["explain", "a:b", "--no"]])
def test_a_wrong_command_line_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == USAGE
    assert "usage: rnnmem" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["", "explain", "report", "measure", "optimize", "doctor"])
def test_help_teaches_without_importing_tensorflow(command):
    run = [sys.executable, "-X", "importtime", "-m", "rnnmem", *command.split(), "--help"]
    narrow = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True, env=narrow)
    assert "tensorflow" not in done.stderr
    if command in ("explain", "report", "measure"):
        assert "int32[32,?]" in done.stdout
    if not command:
        assert "exit codes" in done.stdout
    assert f"examples:\n  rnnmem {command}" in done.stdout
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []


def test_an_option_is_taken_as_python_spells_it(script, capsys):
    for option in ("--max-slowdown=0.5", "--max_slowdown=0.5"):
        assert main(["explain", script, "float32[64,32]", option]) == USAGE
        assert "max_slowdown=0.5 must be a number" in capsys.readouterr().err


OPTIONS = [
    ("--budget=many", "budget='many'"),
    ("--max-slowdown=0.5", "max_slowdown=0.5 must be a number of at least 1.0"),
    ("--allow=default,bitz", "'bitz' is none of"),
    ("--keep=", "keep=[''] must be a pattern"),
    ("--profile=-1", "profile=-1.0 must be"),
    ("--device=TPU", "--device=TPU is none of CPU"),
    ("--device=CPU:7", "--device=CPU:7 is none of CPU"),
]


@pytest.mark.parametrize(("option", "message"), OPTIONS)
def test_an_option_that_cannot_be_is_bad_usage(script, option, message, capsys):
    assert main(["explain", script, "float32[64,32]", option]) == USAGE
    err = capsys.readouterr().err
    assert message in err and len(err.splitlines()) == 1


@pytest.mark.slow
def test_all_options_of_the_decorator_reach_it(script, capsys, tmp_path):
    shape = "float32[64,32]"
    options = ["--max-slowdown=2", "--allow=default", "--allow=bits", "--recompute=*/Tanh"]
    assert main(["explain", script, shape, *options, "--keep", "*/Sigmoid", "--json"]) == DONE
    plan = json.loads(capsys.readouterr().out)["plan"]
    reasons = {one["op_type"]: one["reason"] for one in plan["loops"][0]["residuals"]}
    assert reasons["Sigmoid"] == reasons["Tanh"] == "you asked for it"
    path = tmp_path / "plan.json"
    for held in (plan, {"name": "step", "plan": plan}):
        path.write_text(json.dumps(held))
        assert main(["explain", script, shape, f"--plan={path}", "--json"]) == DONE
        again = json.loads(capsys.readouterr().out)["plan"]
        assert again["loops"] == plan["loops"]
    assert main(["explain", script, shape, "--allow=checkpoint", "--json"]) == DONE
    assert json.loads(capsys.readouterr().out)["plan"]["notes"]


def test_a_plan_file_that_there_is_not_is_bad_usage(script, tmp_path, capsys):
    path = tmp_path / "nowhere.json"
    for options in (["explain", script, "float32[64,32]"], ["optimize", "model", "smaller"]):
        assert main([*options, f"--plan={path}"]) == USAGE
        assert f"--plan={path}: there is no such file" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", '{"name": "step", "plan": 3}', "[]"])
def test_a_file_that_holds_no_plan_is_bad_usage(script, text, tmp_path, capsys):
    path = tmp_path / "plan.json"
    path.write_text(text)
    assert main(["explain", script, "float32[64,32]", f"--plan={path}"]) == USAGE
    assert "rnnmem: PlanError: plan=" in capsys.readouterr().err


def test_the_seconds_of_profile_are_told_from_what_stands_behind_it(capsys):
    with pytest.raises(SystemExit) as left:
        main(["measure", "--profile", "train.py:step", "float32[2]"])
    assert left.value.code == USAGE
    assert "'train.py:step' is no number of seconds; write --profile=10" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("explain", "--html=memory.txt"),
        ("measure", "--html=no/such/memory.html"),
        ("report", "--png=memory.svg"),
        ("report", "--trace=trace.json"),
        ("optimize", "--html=memory"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(command, option, capsys):
    assert main([command, "no_such_module:step", "no_such_folder", option]) == USAGE
    assert f"OptionError: {option}" in capsys.readouterr().err


def test_measure_verifies_where_it_is_asked_to(script, capsys):
    options = ["--repeats=1", "--max-slowdown=2", "--verify", "--device=CPU"]
    assert main(["measure", script, "float32[64,32]", *options]) in (DONE, USAGE)
    told = capsys.readouterr()
    assert "after/before" in told.out or "--device=CPU comes too late" in told.err


def test_a_misspelt_option_gets_the_usage_of_its_command_and_the_one_that_may_be_meant(capsys):
    for option, near in (("--bugdet=3", "; did you mean --budget?\n"), ("--xyzzy", ": --xyzzy\n")):
        with pytest.raises(SystemExit) as left:
            main(["explain", "train.py:step", option])
        assert left.value.code == USAGE
        told = capsys.readouterr().err
        assert "usage: rnnmem explain" in told and told.endswith(near)


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == DONE
    told = capsys.readouterr().out
    assert told.startswith(f"rnnmem {rnnmem.__version__} (TensorFlow {tf.__version__}")


def test_a_tensorflow_without_a_version_is_told_from_none(capsys, monkeypatch):
    missing = mock.Mock(side_effect=importlib.metadata.PackageNotFoundError)
    monkeypatch.setattr(importlib.metadata, "version", missing)
    for there, told in ((tf, "of an unknown version"), (None, "is not installed")):
        monkeypatch.setitem(sys.modules, "tensorflow", there)
        with pytest.raises(SystemExit):
            main(["--version"])
        assert f"(TensorFlow {told}, Python" in capsys.readouterr().out


@pytest.mark.parametrize("options", [["--help"], ["--print-completion=bash"]])
def test_a_reader_that_has_enough_is_no_error_to_tell_of(options):
    if options != ["--help"]:
        pytest.importorskip("shtab", reason="the extra [shell] is not installed")
    reader, writer = os.pipe()
    os.close(reader)
    try:
        run = [sys.executable, "-m", "rnnmem", *options]
        done = subprocess.run(run, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)
    assert done.stderr == ""


@pytest.mark.slow
def test_nothing_of_tensorflow_s_stands_before_what_a_command_prints(tmp_path):
    (tmp_path / "step.py").write_text("def step(x):\n    return x + x\n")
    run = [sys.executable, "-m", "rnnmem", "explain", f"{tmp_path}/step.py:step", "float32[2]"]
    quiet = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True, env=quiet)
    assert done.stderr == "" and done.stdout.startswith("step: ")


def test_a_tensorflow_that_cannot_be_loaded_says_why(tmp_path):
    (tmp_path / "tensorflow.py").write_text(
        "import os\n\nos.write(2, b'GLIBC is too old\\n')\nraise ImportError('no such symbol')\n"
    )
    run = [sys.executable, "-m", "rnnmem", "explain", "step:step"]
    there = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    there["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, env=there)
    assert done.returncode == 1
    assert "GLIBC is too old" in done.stderr and "no such symbol" in done.stderr


def completion(shell, capsys):
    pytest.importorskip("shtab", reason="the extra [shell] is not installed")
    with pytest.raises(SystemExit) as left:
        main([f"--print-completion={shell}"])
    assert left.value.code == DONE
    return capsys.readouterr().out


def test_shells_complete(capsys):
    for shell in ("bash", "zsh", "tcsh"):
        out = completion(shell, capsys)
        assert "max-slowdown" in out and "max_slowdown" not in out  # taken, but offered once
    with pytest.raises(SystemExit) as left:
        main(["--print-completion=cobol"])
    assert left.value.code == USAGE
    assert "--print-completion=cobol is none of bash" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh", "fish"])
def test_shells_know_devices_and_passes(shell, capsys):
    shtab = pytest.importorskip("shtab", reason="the extra [shell] is not installed")
    if shell not in shtab.SUPPORTED_SHELLS:
        pytest.skip(f"this shtab knows no {shell}")
    out = completion(shell, capsys)
    assert "CPU GPU" in out
    assert " ".join([*GROUPS, *BY_NAME]) in out
    if shell == "zsh":
        assert '"*--allow=[' in out and '"--html=[' in out and '"--json[' in out


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash here")
def test_bash_completes_values_behind_a_space_and_behind_an_equals_sign(capsys, tmp_path):
    (tmp_path / "completion").write_text(completion("bash", capsys))
    (tmp_path / "page.html").touch()

    def offered(*words):  # as bash parts them, at = too
        line = " ".join(f"'{word}'" for word in words)
        run = f"""
            source completion
            COMP_WORDS=(rnnmem report {line})
            COMP_CWORD={len(words) + 1}
            compopt() {{ :; }}
            _rnnmem
            printf '%s\n' "${{COMPREPLY[@]}}"
        """
        bash = ["bash", "--norc", "-c", run]
        done = subprocess.run(bash, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert not done.stderr
        return done.stdout.split()

    for device in (["--device", "="], ["--device", "=", ""], ["--device", ""]):
        assert offered(*device) == ["CPU", "GPU"]
    assert offered("--device", "=", "G") == ["GPU"]
    for begun in (["--allow", "=", "b"], ["--allow", "b"]):
        assert offered(*begun) == ["broadcast_outside", "bits", "bfloat16"]
    assert offered("--allow", "=", "default,of") == ["default,offload"]
    assert set(offered("--allow", "")) == {*GROUPS, *BY_NAME}
    assert offered("--html", "=", "pa") == offered("--html", "pa") == ["page.html"]
    assert offered("--device", "=", "CPU", "--max") == ["--max-slowdown"]


def test_without_shtab_it_is_said_how_to_get_it(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(SystemExit) as left:
        main(["--print-completion=bash"])
    assert left.value.code == FAILED
    assert "pip install shtab" in capsys.readouterr().err


def test_shapes_are_read_as_people_write_them():
    assert spec("int32[32, 50]") == tf.TensorSpec([32, 50], tf.int32)
    assert spec("[]") == tf.TensorSpec([], tf.float32)
    assert spec("bool[?]") == tf.TensorSpec([None], tf.bool)
    with pytest.raises(OptionError):
        spec("float32[a]")
