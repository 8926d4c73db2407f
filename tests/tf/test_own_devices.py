"""Of several workers, each measures and waits for its own devices."""

import pytest
import tensorflow as tf

from rnnmem.errors import OptionError
from rnnmem.tf.own_devices import find_device, own_devices, sync_devices


def test_one_of_several_workers_measures_its_own_devices(monkeypatch):
    own, other = (f"/job:worker/replica:0/task:{task}" for task in (1, 0))
    places = [f"{where}/device:{name}" for where in (own, other) for name in ("CPU:0", "GPU:0")]
    devices = [tf.config.LogicalDevice(name, name.split(":")[-2]) for name in places]
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda: devices)
    assert own_devices() == ["CPU:0", "GPU:0"]
    assert find_device(None) == "GPU:0"
    assert find_device(places[0]) == find_device("cpu") == find_device("/CPU:0") == "CPU:0"
    for elsewhere in places[2:]:
        with pytest.raises(OptionError, match="is not here: choose from CPU:0, GPU:0"):
            find_device(elsewhere)


def test_alone_all_devices_are_this_processes():
    assert "CPU:0" in own_devices()
    for name in "CPU", tf.zeros([2]).device, "/job:localhost/device:CPU:0":
        assert find_device(name) == "CPU:0"
    sync_devices()
