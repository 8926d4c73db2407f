import os

import pytest

from models.nmt.distribution import Distribution
from tests.workers import cluster

COMMON = ["--dropout=0", "--samples=0", "--steps=24", "--save=5", "--report=50"]


def losses(folder):
    path = folder / "losses.tsv"
    lines = path.read_text().splitlines() if path.exists() else []
    return [float(line.split("\t")[1]) for line in lines]


@pytest.mark.slow
def test_devices_of_one_machine_train_as_one_does(run, text, tmp_path):
    flags = [*text, *COMMON, "--accumulate=2", "--steps=6"]
    for name, more in (("one", []), ("two", ["--distribute=mirrored", "--replicas=2"])):
        done = run("train", *flags, *more, f"--out={tmp_path / name}")
        assert done.returncode == 0, done.stderr
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=1e-4)


@pytest.mark.slow
def test_two_workers_train_as_one_does_and_survive_a_death(run, start, wait_for, text, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    single = run("train", *text, *COMMON, f"--out={one}")
    assert single.returncode == 0, single.stderr

    flags = [*text, *COMMON, "--distribute=multi_worker", f"--out={two}"]
    chief, worker = (start("train", *flags, environment=e) for e in cluster())
    wait_for(lambda: len(losses(two)) >= 7, chief)
    worker.kill()
    _, errors = chief.communicate(timeout=120)
    assert chief.returncode == os.EX_TEMPFAIL, errors
    assert "train: a worker was lost" in errors
    assert 7 <= len(losses(two)) < 24

    workers = [start("train", *flags, environment=e) for e in cluster()]
    outputs = [process.communicate(timeout=280) for process in workers]
    assert [process.returncode for process in workers] == [0, 0], outputs
    assert "resuming after step" in outputs[0][0]
    assert losses(two) == pytest.approx(losses(one), rel=1e-3)


@pytest.mark.parametrize("config", ["", "{}", '{"cluster": {"worker": []}, "task": {"index": 0}}'])
def test_a_cluster_that_is_none_is_refused(monkeypatch, config):
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(ValueError, match="needs the cluster and this worker's index in TF_CONFIG"):
        Distribution("multi_worker")
