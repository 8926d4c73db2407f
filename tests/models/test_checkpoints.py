import json
import resource

import numpy as np
import pytest
import tensorflow as tf

from models.nmt.checkpoints import PROGRESS, STATE, Checkpoints


class State(tf.Module):
    def __init__(self, size=3):
        super().__init__()
        self.weights = tf.Variable(tf.zeros([size]))


def make(folder, fingerprint=None, size=3):
    state = State(size)
    return Checkpoints(folder, fingerprint or {"model": "a"}, model=state), state


def test_the_newest_is_read_and_older_ones_go(tmp_path):
    checkpoints, state = make(tmp_path)
    assert checkpoints.restore() is None
    for step in (9, 10, 11):
        state.weights.assign(tf.fill([3], float(step)))
        checkpoints.save(step, {"position": [1, 2], "step": step})
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["step-00000010", "step-00000011"]
    other, state = make(tmp_path)
    assert other.restore() == {"position": [1, 2], "step": 11}
    np.testing.assert_array_equal(state.weights, [11.0] * 3)


def test_a_half_written_one_is_not_there(tmp_path):
    checkpoints, _ = make(tmp_path)
    checkpoints.save(1, {})
    (tmp_path / ".new-step-00000002").mkdir()
    (tmp_path / "step-00000003").mkdir()
    assert checkpoints.newest().name == "step-00000001"


@pytest.mark.parametrize("size", [3, 100_000])
def test_a_full_disk_leaves_the_previous_one_whole(tmp_path, size):
    checkpoints, state = make(tmp_path, size=size)
    checkpoints.save(1, {"step": 1})
    state.weights.assign_add(tf.ones([size]))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        with pytest.raises(OSError, match="step-00000002: .* cannot be saved .*00000001 is whole"):
            checkpoints.save(2, {"step": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]
    other, state = make(tmp_path, size=size)
    assert other.restore() == {"step": 1}
    np.testing.assert_array_equal(state.weights, np.zeros(size))


def test_one_of_another_training_is_refused_and_nothing_read(tmp_path):
    make(tmp_path)[0].save(1, {})
    other, state = make(tmp_path, {"model": "b"})
    state.weights.assign([7.0] * 3)
    with pytest.raises(ValueError, match="another training: model was 'a' and is 'b'"):
        other.restore()
    np.testing.assert_array_equal(state.weights, [7.0] * 3)


def test_one_of_other_weights_is_refused(tmp_path):
    make(tmp_path)[0].save(1, {})
    with pytest.raises(ValueError, match="damaged or of another model"):
        make(tmp_path, size=4)[0].restore()


@pytest.mark.parametrize("content", ["", "[]", "{}"])
def test_damaged_progress_is_named(tmp_path, content):
    checkpoints, _ = make(tmp_path)
    checkpoints.save(1, {})
    (checkpoints.newest() / PROGRESS).write_text(content)
    with pytest.raises(ValueError, match="progress.json: not a checkpoint's"):
        checkpoints.restore()


def test_damaged_weights_are_named(tmp_path):
    checkpoints, _ = make(tmp_path)
    checkpoints.save(1, {})
    (checkpoints.newest() / (STATE + ".index")).write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="step-00000001: damaged"):
        checkpoints.restore()


def test_saving_a_step_again_replaces_it(tmp_path):
    checkpoints, _ = make(tmp_path)
    checkpoints.save(1, {"n": 1})
    checkpoints.save(1, {"n": 2})
    assert json.loads((tmp_path / "step-00000001" / PROGRESS).read_text())["n"] == 2
    checkpoints.clear()
    assert checkpoints.newest() is None
