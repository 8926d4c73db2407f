"""What is decided where TensorFlow has a GPU, with one that only `list_logical_devices` knows."""

from unittest import mock

import pytest
import tensorflow as tf

import rnnmem
from models.nmt.distribution import _devices
from rnnmem import compile as compiling
from rnnmem.analysis.machine import CPU, GPU
from rnnmem.errors import MeasureError, OptionError
from rnnmem.ir.marks import ON_GPU
from rnnmem.passes.accumulated_products.decision import AccumulatedProduct
from rnnmem.passes.registry import BY_NAME
from rnnmem.pipeline.memory import Meter
from rnnmem.planning.options import Options
from rnnmem.planning.plan import Plan
from rnnmem.sizes import MIB
from rnnmem.tf import device, private, profile
from rnnmem.tf.functions import net_of
from rnnmem.tf.own_devices import find_device
from rnnmem.tf.private import runtime


@pytest.fixture
def a_gpu(monkeypatch):
    """TensorFlow's lists name a GPU beside the host."""
    known = [tf.config.LogicalDevice(f"/device:{kind}:0", kind) for kind in ("CPU", "GPU")]

    def listed(kind=None):
        return [one for one in known if kind in (None, one.device_type)]

    monkeypatch.setattr(tf.config, "list_logical_devices", listed)


def offloading():
    return Options.of(None, 1.1, ("default", "offload"), False, None, False)


def concrete(units=8):
    w = tf.Variable(tf.eye(units))

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            h = x
            for _ in tf.range(5):
                h = tf.tanh(tf.sin(h @ w))
            loss = tf.reduce_sum(h)
        return loss, tape.gradient(loss, w)

    return step.get_concrete_function(tf.ones([4, units]))


def projection(units=8):
    """A step without a loop, and what it takes."""
    w = tf.Variable(tf.eye(units))

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.tanh(x @ w))
        return loss, tape.gradient(loss, w)

    return step, tf.ones([4, units])


def devices(net):
    return {op.device for _, inner in net.walk() for op in inner.ops}


def test_times_are_estimated_for_the_gpu(a_gpu):
    assert compiling.machine_here() is GPU


def test_and_for_the_host_without_one():
    assert compiling.machine_here() is CPU


def test_the_gpus_memory_is_measured_by_default(a_gpu):
    assert find_device(None) == "GPU:0"
    assert find_device("cpu:0") == "CPU:0"


@pytest.mark.parametrize("limit", [12 * MIB, None])
def test_the_gpus_memory_is_the_limit(limit, a_gpu, monkeypatch):
    monkeypatch.setattr(private, "memory_limit", {"GPU": limit}.get)
    assert device.allocator_limit() == device.device_bytes() == limit


def test_a_budget_above_the_gpus_memory_is_refused(a_gpu, monkeypatch):
    monkeypatch.setattr(private, "memory_limit", {"GPU": 12 * MIB}.get)
    device.check_budget(12 * MIB)
    with pytest.raises(OptionError, match="is more than the device has"):
        device.check_budget(12 * MIB + 1)


def test_the_memory_of_the_first_gpu_is_asked_for(monkeypatch):
    found = [mock.Mock(device_type=kind, memory_limit=7 * MIB) for kind in ("CPU", "GPU")]
    found[0].memory_limit = 256 * MIB
    monkeypatch.setattr(runtime._device_lib, "list_local_devices", lambda: found)
    assert private.memory_limit("GPU") == 7 * MIB
    assert private.memory_limit("TPU") is None


def test_offload_is_refused_on_the_host_alone():
    net, asked = net_of(concrete()), offloading()
    with pytest.raises(OptionError, match="runs on the host"):
        device.check_offload(net, asked, CPU.device)


def test_offload_is_taken_where_ops_may_run_on_the_gpu(a_gpu):
    net, asked = net_of(concrete()), offloading()
    device.check_offload(net, asked, GPU.device)


def test_where_a_gpu_is_ops_without_a_device_stay_without(a_gpu):
    assert devices(net_of(concrete())) == {""}


def softmaxes():
    @tf.function
    def step(x):
        return tf.nn.softmax(x)

    net = net_of(step.get_concrete_function(tf.ones([4, 8])))
    return [ON_GPU in op.attributes for op in net.ops if op.type == "Softmax"]


def test_a_softmax_without_a_device_is_a_gpus_where_one_is(a_gpu):
    assert softmaxes() == [True]


def test_and_the_hosts_where_none_is():
    assert softmaxes() == [False]


def test_products_are_not_added_up_item_by_item_for_a_gpu(monkeypatch):
    """Their bits were held against a CPU's kernels alone; nor is it done by a plan of a CPU's."""
    products, done = BY_NAME["accumulated_products"], []
    found = (AccumulatedProduct("product", "total", 4, 2**20),)
    monkeypatch.setitem(vars(products), "decide", lambda step: found)
    monkeypatch.setitem(vars(products), "apply", lambda net, made, _: done.append(made) or net)
    for machine in (GPU, CPU):
        monkeypatch.setattr(compiling, "machine_here", lambda machine=machine: machine)
        step, x = projection()
        for plan in (None, Plan().having(accumulated_products=found)):
            done.clear()
            rnnmem.optimize(step, plan=plan).plan(x)
            assert bool(done) == (machine is CPU)


def test_a_profile_is_that_of_the_kind_of_gpu(monkeypatch):
    found = {"device_name": "A GPU of some kind"}
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda one: found)
    assert profile._device() == "A GPU of some kind"
    found.clear()
    assert profile._device() == "GPU"


def test_the_memory_of_a_workers_gpu_cannot_be_read():
    with pytest.raises(MeasureError, match="worker's GPU cannot be read"):
        Meter("/job:worker/replica:0/task:0/device:GPU:0")


def test_a_mirrored_strategy_takes_the_gpus(monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind] * 2)
    assert _devices(None) is None
    assert _devices(1) == ["GPU:0"]
    with pytest.raises(ValueError, match="there are 2 GPUs"):
        _devices(3)
