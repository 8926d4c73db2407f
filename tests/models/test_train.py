"""The whole way through the command line: train, compare, save, translate."""

import gzip
import re

import pytest

TINY = ["--units=16", "--embedding=8", "--batch=16", "--samples=2", "--report=5", "--heldout=20"]


def losses(output):
    """The reported losses, a list of columns a row."""
    rows = re.findall(r"^ +\d+ ((?: +\d+\.\d{7})+) ", output, re.MULTILINE)
    return [row.split() for row in rows]


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
        (["--rnnmem_budget=much"], "budget"),
        (["--out={file}/model"], "Not a directory"),
    ],
)
def test_what_cannot_be_trained_on_is_said_in_one_line(run, tmp_path, flags, complaint):
    file = tmp_path / "file"
    file.touch()
    flags = [f"--out={tmp_path}", *(flag.format(file=file) for flag in flags)]
    done = run("train", "--steps=1", *TINY, *flags)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("train: ")
    assert complaint in last
