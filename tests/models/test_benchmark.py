import dataclasses
import datetime
import json
import os

import pytest

import rnnmem
from models.nmt.benchmark import Result, build, table
from rnnmem.simulate.timeline import simulate

RESULT = Result(
    name="nmt 5x7",
    batch=2,
    source_length=5,
    target_length=7,
    before_bytes=400 * 2**20,
    after_bytes=100 * 2**20,
    before_seconds=2.0,
    after_seconds=2.2,
    time_ratio=1.1,
    first_call_seconds=(3.0, 4.0),
    loss_identical=True,
    gradients_identical=True,
    gradients_largest_difference=0.0,
)


def test_the_table_has_a_line_a_workload():
    lines = table([RESULT, RESULT]).splitlines()
    assert lines[0].startswith("| Model | Before | After | Saving |")
    assert len(lines) == 4
    assert lines[2] == "| nmt 5x7 | 400.0 MiB | 100.0 MiB | 75.0 % | 1.10x | bit-identical |"


def test_the_table_says_where_bits_differ():
    differing = dataclasses.replace(
        RESULT, gradients_identical=False, gradients_largest_difference=1.5e-7
    )
    assert table([differing]).endswith("DIFFER, by up to 1.5e-07 |")


@pytest.mark.slow
def test_workloads_are_measured_compared_and_written(run, tmp_path):
    file = tmp_path / "figures.json"
    done = run(
        "benchmark",
        "--source_length=6,12",
        "--target_length=12,6",
        "--batch=8",
        "--units=32",
        "--embedding=16",
        "--vocabulary=50",
        "--steps=2",
        "--explain",
        f"--json={file}",
    )
    assert done.returncode == 0, done.stderr
    assert "| nmt 6x12 |" in done.stdout
    assert "| nmt 12x6 |" in done.stdout
    figures = json.loads(file.read_text(encoding="utf-8"))
    assert [r["target_length"] for r in figures["results"]] == [12, 6]
    for result in figures["results"]:
        assert result["before_bytes"] > 0
        assert result["after_bytes"] > 0
        assert result["loss_identical"]
        assert result["gradients_identical"]
    assert figures["versions"]["tensorflow"]
    assert figures["machine"]["cores"] == os.cpu_count()
    assert abs((datetime.date.today() - datetime.date.fromisoformat(figures["date"])).days) <= 1
    assert figures["flags"]["units"] == 32


@pytest.mark.slow
def test_named_workloads_are_measured_in_three_variants(run, tmp_path):
    done = run(
        "benchmark",
        "--workloads=tiny",
        "--steps=2",
        "--limit=1MiB",
        "--highest=3",
        f"--json={tmp_path / 'figures.json'}",
        f"--picture={tmp_path / 'figures.png'}",
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    rows = figures["results"]
    assert [row["variant"] for row in rows] == ["off", "default", "smallest"]
    for row in rows:
        assert f"| tiny | {row['variant']} |" in done.stdout
        assert row["identical"]
        assert 0 < row["after_bytes"]
        assert row["tokens_per_second"] > 0
        assert 1 <= row["largest_batch"] <= 3
        assert 1 <= row["longest_sentence"] <= 3
    assert rows[0]["time_ratio"] == 1
    assert figures["versions"]["tensorflow"]
    assert (tmp_path / "figures.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flag", "complaint"),
    [
        ("--source_length=5,x", "lengths are whole numbers above 0"),
        ("--target_length=5,6,7", "give as many of either"),
        ("--units=0", "units"),
        ("--workloads=none", "workloads are attention-50"),
    ],
)
def test_malformed_flags_are_named(run, flag, complaint):
    done = run("benchmark", flag)
    assert done.returncode != 0
    assert complaint in done.stderr + done.stdout


@pytest.mark.slow
def test_attention_over_150_tokens_asks_for_less_than_54_mib():
    step, batch = build(32, 150, 150)
    means = ("recompute", "segments", "order", "vocabulary")
    found = rnnmem.optimize(step, max_slowdown=1.15, allow=means).inspect(*batch)
    assert found.plan.slowdown <= 1.15
    assert simulate(found.rewritten).peak_bytes < 54 * 2**20
