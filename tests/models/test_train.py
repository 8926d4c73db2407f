"""The whole way through the command line: train, compare, save, translate."""

import gzip
import os
import re
import resource
import signal

import pytest

from models.nmt.lock import lock

TINY = ["--units=16", "--embedding=8", "--batch=16", "--samples=2", "--report=5", "--heldout=20"]

PARTS = ("", "validation_", "test_")


def losses(output):
    """The reported losses, a list of columns a row."""
    rows = re.findall(r"^ +\d+ ((?: +\d+\.\d{7})+) ", output, re.MULTILINE)
    return [row.split() for row in rows]


@pytest.mark.slow
def test_what_was_killed_goes_on_bit_for_bit(run, start, wait_for, text, tmp_path):
    common = [*text, "--steps=60", "--save=7", "--report=50", "--samples=0", "--validate=25"]
    through = run("train", *common, f"--out={tmp_path / 'through'}")
    assert through.returncode == 0, through.stderr
    expected = (tmp_path / "through" / "losses.tsv").read_bytes()
    assert expected.count(b"\n") == 60

    out = tmp_path / "killed"
    losses = out / "losses.tsv"
    command = [*common, f"--out={out}"]

    def steps():
        return losses.read_bytes().count(b"\n") if losses.exists() else 0

    killed = start("train", *command)
    wait_for(lambda: steps() >= 16, killed)
    killed.kill()
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert (out / "checkpoints" / "step-00000014").is_dir() or steps() >= 21

    interrupted = start("train", *command)
    wait_for(lambda: steps() >= 30, interrupted)
    interrupted.send_signal(signal.SIGINT)
    output, errors = interrupted.communicate()
    assert interrupted.returncode == 130, errors
    assert "resuming after step" in output
    assert "train: SIGINT after step" in errors

    other = run("train", *command, "--units=9")
    assert other.returncode == 1
    last = other.stderr.strip().splitlines()[-1]
    assert "a checkpoint of another training: units was 8 and is 9. Give" in last

    longer = run("train", *command, "--steps=70")  # another learning rate at every step
    assert longer.returncode == 1
    last = longer.stderr.strip().splitlines()[-1]
    assert "a checkpoint of another training: steps was 60 and is 70. Give" in last

    finished = run("train", *command)
    assert finished.returncode == 0, finished.stderr
    assert losses.read_bytes() == expected
    for name in ("weights.data-00000-of-00001", "config.json"):
        assert (out / name).read_bytes() == (tmp_path / "through" / name).read_bytes()
    score = finished.stdout.splitlines()[-2]
    assert score.startswith("BLEU ") and "tok:none" in score  # the corpus is tokens


@pytest.mark.slow
def test_more_steps_are_named_and_fewer_refused(run, text, tmp_path):
    flags = [*text, "--rnnmem=off", "--samples=0", "--decay=none", "--report=1", "--beams=1"]
    begun = run("train", *flags, f"--out={tmp_path}", "--steps=4")
    assert begun.returncode == 0, begun.stderr
    rows = re.findall(r"^ +\d+ .* (\S+)$", begun.stdout, re.MULTILINE)
    assert rows[0] == "?" and rows[-1] == "0:00", begun.stdout  # the time that is left
    again = run("train", *flags, f"--out={tmp_path}", "--steps=4")
    assert again.returncode == 0, again.stderr
    assert "4/4" in again.stdout and "all steps are taken" in again.stdout
    assert "peak above resident" not in again.stdout and "tracing" not in again.stdout
    one = run("train", *flags, f"--out={tmp_path / 'one'}", "--steps=1")
    assert re.findall(r"^ +1 .* (\S+)$", one.stdout, re.MULTILINE) == ["0:00"], one.stdout
    more = run("train", *flags, f"--out={tmp_path}", "--steps=6")
    assert "resuming after step 4 of 6 (--steps was 4)" in more.stdout, more.stderr
    fewer = run("train", *flags, f"--out={tmp_path}", "--steps=5")
    assert fewer.returncode == 1
    last = fewer.stderr.strip().splitlines()[-1]
    assert last.startswith(f"train: --steps=5: the training in {tmp_path} is at step 6 already")


@pytest.mark.slow
def test_a_folder_that_another_training_writes_to_is_refused(run, tmp_path):
    descriptor = lock(tmp_path)
    done = run("train", "--steps=1", *TINY, f"--out={tmp_path}")
    os.close(descriptor)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(
        f"train: {tmp_path}: a training writes there already (process {os.getpid()}"
    )


@pytest.mark.slow
def test_a_full_disk_ends_the_training_and_keeps_what_was_saved(run, start, text, tmp_path):
    flags = [*text, "--rnnmem=off", "--samples=0", "--decay=none", f"--out={tmp_path}"]
    assert run("train", *flags, "--steps=2").returncode == 0
    size = 2**14  # room for the losses, not for the weights
    full = start(
        "train",
        *[*flags, "--steps=4"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
    )
    _, errors = full.communicate()
    assert full.returncode == 1
    last = errors.strip().splitlines()[-1]
    assert last.startswith("train: ")
    assert "the checkpoint cannot be saved" in last
    assert "step-00000002 is whole" in last
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-00000002"]


@pytest.mark.slow
@pytest.mark.parametrize(("flag", "count"), [("--help", 26), ("--helpfull", 55)])
def test_the_help_shows_flags_in_groups(run, flag, count, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    done = run("train", flag)
    assert done.returncode == 0
    shown = re.findall(r"^  --(\S+)", done.stdout, re.MULTILINE)
    assert len(set(shown)) == len(shown) == count
    headings = re.findall(r"^(The|What) [a-z ]+:$", done.stdout, re.MULTILINE)
    assert len(headings) == 6
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "count"), [("translate", 9), ("export", 4), ("benchmark", 18), ("corpus", 1)]
)
def test_the_help_of_the_other_programs_is_no_error(run, module, count, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for flag in ("--help", "--helpfull"):
        done = run(module, flag)
        assert done.returncode == 0
        shown = re.findall(r"^  --(\S+)", done.stdout, re.MULTILINE)
        assert len(set(shown)) == len(shown) == count
        assert f"python -m models.nmt.{module}" in done.stdout
        assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.slow
def test_a_step_of_several_batches_is_that_of_one_large_batch(run, text, tmp_path):
    curves = []
    for batch, accumulate in ((24, 1), (8, 3)):
        flags = [f"--batch={batch}", f"--accumulate={accumulate}", f"--out={tmp_path / str(batch)}"]
        more = ["--rnnmem=off", "--steps=5", "--samples=0", "--dropout=0", "--label_smoothing=0.1"]
        done = run("train", *text, *flags, *more)
        assert done.returncode == 0, done.stderr
        lines = (tmp_path / str(batch) / "losses.tsv").read_text().splitlines()
        curves.append([float(line.split("\t")[1]) for line in lines])
    assert curves[0] == pytest.approx(curves[1], rel=1e-5)


@pytest.mark.slow
def test_patience_ends_a_training_that_gets_no_better_and_summaries_are_written(
    run, text, tmp_path
):
    flags = [
        "--steps=40",
        "--validate=2",
        "--patience=2",
        "--learning_rate=0",
        "--precision=float16",
    ]
    done = run("train", *text, "--rnnmem=off", *flags, "--samples=0", f"--out={tmp_path}")
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "losses.tsv").read_text().splitlines()) == 6
    assert re.search(r"best validation BLEU [\d.]+ after step 2\n", done.stdout)
    (events,) = (tmp_path / "summaries").iterdir()
    for tag in (b"train/loss", b"validation/BLEU", b"train/tokens_per_second", b"scalars"):
        assert tag in events.read_bytes()


@pytest.mark.slow
def test_the_demo_trains_both_ways_to_the_same_bits(run, tmp_path):
    out = tmp_path / "model"
    done = run("train", "--demo", "--steps=12", f"--out={out}", *TINY)
    assert done.returncode == 0, done.stderr
    assert "losses:  12 of 12 are bit-identical" in done.stdout
    assert "weights: bit-identical after the last step" in done.stdout
    rows = losses(done.stdout)
    assert [len(row) for row in rows] == [2] * 4  # steps 1, 5, 10, 12
    assert all(plain == optimized for plain, optimized in rows)
    assert re.search(r"exactly right: \d+ of 20", done.stdout)

    translated = run("translate", f"--model={out}", text="the old dog sees a cat .\n\nmy .\n")
    assert translated.returncode == 0, translated.stderr
    assert len(translated.stdout.split("\n")) == 4


@pytest.mark.slow
def test_the_loss_falls(run, tmp_path):
    flags = ["--rnnmem=off", "--steps=60", "--learning_rate=0.02", f"--out={tmp_path}", *TINY]
    done = run("train", *flags)
    assert done.returncode == 0, done.stderr
    reported = [float(row[0]) for row in losses(done.stdout)]
    assert sum(reported[-3:]) / 3 < 0.9 * reported[0]  # one batch of 16 says little


@pytest.mark.slow
def test_text_files_train_a_model_that_translates_text_files(run, tmp_path):
    source, target, out = tmp_path / "text.en.gz", tmp_path / "text.de", tmp_path / "model"
    lines = [f"word{i % 7} word{i % 5}, word{i % 3}.\n" for i in range(80)]
    source.write_bytes(gzip.compress("".join(lines).encode()))
    target.write_text("".join(lines).upper())
    texts = [f"--source={source}", f"--target={target}", "--tokenize"]
    done = run("train", *texts, f"--out={out}", "--rnnmem=off", "--steps=3", *TINY)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("40 pairs, 13 and 13 tokens")
    translated = run("translate", f"--model={out}", f"--input={source}", "--batch=3")
    assert translated.returncode == 0, translated.stderr
    assert len(translated.stdout.splitlines()) == 80


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--source=nowhere.en"], "--source and --target: one is given without the other"),
        (["--source=nowhere.en", "--target=nowhere.de"], "nowhere.en: there is no such file"),
        (["--source={one}", "--target={two}"], "one.en has 1 lines and {two} has 2: line n of one"),
        (
            [f"--{part}{side}={{long}}" for part in PARTS for side in ("source", "target")],
            "none of 2 pairs has at most --max_length=60",
        ),
        (["--rnnmem_budget=much"], "budget"),
        (["--out={file}/model"], "Not a directory"),
    ],
)
def test_what_cannot_be_trained_on_is_said_in_one_line(run, tmp_path, flags, complaint):
    files = {name: tmp_path / f"{name}.en" for name in ("file", "one", "two", "long")}
    for text, path in zip(
        ("", "a\n", "a\nb\n", "a " * 10_000 + "\n" + "b " * 61), files.values(), strict=True
    ):
        path.write_text(text)
    flags = [f"--out={tmp_path}", *(flag.format(**files) for flag in flags)]
    complaint = complaint.format(**files)
    done = run("train", "--steps=1", *TINY, *flags)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("train: ")
    assert complaint in last
