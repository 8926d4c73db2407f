"""Measured times of ops: they reach the plan, are kept, and never get in the way."""

import dataclasses
import json
import re

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.analysis.machine import CPU
from rnnmem.analysis.op_signature import op_signature
from rnnmem.analysis.times import op_seconds
from rnnmem.errors import OptionError
from rnnmem.tf import profile
from tests.handmade import const, make_net, op, rnn


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    profile._cache_at.cache_clear()
    yield tmp_path / "rnnmem"
    profile._cache_at.cache_clear()


def a_net():
    return make_net(
        {"x": "f[128,512]", "w": "f[512,512]", "n": "f[?,4]", "r": "r[]"},
        [
            const("axes", (0,)),
            op("m", "MatMul", "x w", "f[128,512]"),
            op("t", "Tanh", "m", "f[128,512]"),
            op("again", "Tanh", "t", "f[128,512]"),
            op("s", "Sum", "t axes", "f[512]"),
            op("u", "Tanh", "n", "f[?,4]"),
            op("read", "ReadVariableOp", "r", "f[4]"),
            op("random", "RandomUniform", "axes", "f[8]"),
        ],
        ["s"],
    )


def attributed(net):
    """The Net with the attributes that TensorFlow's kernels need."""
    from rnnmem.ir.graph import DType

    more = {
        "MatMul": {"T": DType("float32"), "transpose_a": False, "transpose_b": False},
        "Tanh": {"T": DType("float32")},
        "Sum": {"T": DType("float32"), "Tidx": DType("int32"), "keep_dims": False},
    }
    ops = tuple(
        one.replace(attributes={**one.attributes, **more.get(one.type, {})}) for one in net.ops
    )
    return net.replace(ops=ops)


def real_constant(net):
    """The Net whose Const holds what TensorFlow reads."""
    from rnnmem.tf.attributes import constant

    ops = tuple(
        one.replace(attributes={**one.attributes, "value": constant([0], "int32")})
        if one.type == "Const"
        else one
        for one in net.ops
    )
    return net.replace(ops=ops)


def test_ops_that_do_the_same_on_the_same_shapes_have_one_signature():
    net = attributed(a_net())
    signature = {one.name: op_signature(one, net) for one in net.ops}
    assert signature["t"] == signature["again"]
    assert signature["u"] is None
    assert "(0,)" in signature["s"]
    assert len({signature["m"], signature["t"], signature["s"]}) == 3


def test_only_what_may_run_again_and_has_known_sizes_is_measured():
    net = real_constant(attributed(a_net()))
    wanted = profile._wanted(CPU, net)
    assert [one.type for one, _ in wanted.values()] == ["MatMul", "Tanh", "Sum"]


def test_measured_times_take_the_place_of_estimates():
    net = real_constant(attributed(a_net()))
    machine = profile.profiled(CPU, net, 60.0)
    assert len(machine.measured) == 3
    assert all(0 <= seconds < 1 for seconds in machine.measured.values())
    for name in "mts":
        one = net.op_by_name[name]
        found = machine.measured[op_signature(one, net)]
        assert op_seconds(one, net, machine) == CPU.launch_seconds + found
    unknown = net.op_by_name["u"]
    assert machine.seconds(unknown, net) == CPU.seconds(unknown, net)


def test_a_profile_is_taken_once_and_kept(folder, monkeypatch):
    net = real_constant(attributed(a_net()))
    first = profile.profiled(CPU, net, 60.0)
    (path,) = folder.iterdir()
    assert tf.__version__ in path.name
    assert json.loads(path.read_text()) == dict(first.measured)
    monkeypatch.setattr(profile, "_measured", lambda *args: pytest.fail("measured again"))
    assert profile.profiled(CPU, net, 60.0).measured == first.measured
    profile._cache_at.cache_clear()  # another process
    assert profile.profiled(CPU, net, 60.0).measured == first.measured


@pytest.mark.parametrize("wrong", ["NaN", "-1.0", "Infinity", "true", '"fast"', "[]"])
def test_a_time_that_is_none_is_measured_again(wrong, folder):
    net = real_constant(attributed(a_net()))
    wanted = list(profile._wanted(CPU, net))
    path = profile._cache(profile._device()).path
    profile._cache_at.cache_clear()
    folder.mkdir()
    path.write_text(f"{{{json.dumps(wanted[0])}: {wrong}, {json.dumps(wanted[1])}: 0.25}}")
    measured = profile.profiled(CPU, net, 60.0).measured
    assert 0 <= measured[wanted[0]] < 1
    assert measured[wanted[1]] == 0.25
    assert json.loads(path.read_text()) == dict(measured)


@pytest.mark.parametrize("fails", ["write", "close", "replace"])
def test_a_full_disk_leaves_no_file_behind_and_stops_nobody(fails, folder, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    make = profile.tempfile.NamedTemporaryFile

    def made(*args, **kwargs):
        file = make(*args, **kwargs)
        setattr(file, fails, full)
        return file

    if fails == "replace":
        monkeypatch.setattr(profile.os, "replace", full)
    else:
        monkeypatch.setattr(profile.tempfile, "NamedTemporaryFile", made)
    net = real_constant(attributed(a_net()))
    assert len(profile.profiled(CPU, net, 60.0).measured) == 3
    assert not list(folder.iterdir())


@pytest.mark.parametrize("text", ["", "[]", '{"a": "b"}', '{"a": {}}', "null"])
def test_a_file_that_is_not_ours_is_written_again(text, folder):
    net = real_constant(attributed(a_net()))
    path = profile._cache(profile._device()).path
    profile._cache_at.cache_clear()
    folder.mkdir()
    path.write_text(text)
    assert len(profile.profiled(CPU, net, 60.0).measured) == 3
    assert len(json.loads(path.read_text())) == 3


def test_a_folder_that_cannot_be_written_is_no_error(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    net = real_constant(attributed(a_net()))
    assert len(profile.profiled(CPU, net, 60.0).measured) == 3


def test_time_is_bounded(monkeypatch):
    net = real_constant(attributed(a_net()))
    assert profile.profiled(CPU, net, seconds=-1.0).measured == {}


def test_an_op_that_does_not_run_alone_keeps_its_estimate():
    net = attributed(a_net())  # its Const is no TensorFlow constant
    machine = profile.profiled(CPU, net, 60.0)
    assert [key.split()[0] for key in machine.measured] == ["MatMul", "Tanh"]


def test_planning_reads_the_profile():
    net = rnn()
    loop = net.op_by_name["loop"]
    body = loop.nets["body"]
    dear = {op_signature(body.op_by_name["t"], body): 1.0}
    slow = dataclasses.replace(CPU, measured=dear)
    assert op_seconds(loop, net, slow) > 5.0 > op_seconds(loop, net, CPU)
    assert hash(slow) is not None


@pytest.mark.parametrize("profile", ["yes", -1.0, float("nan"), float("inf"), None])
def test_the_option_is_a_flag_or_a_number_of_seconds(profile):
    with pytest.raises(OptionError, match=re.escape(f"profile={profile!r} must be")):
        rnnmem.optimize(profile=profile)


@pytest.mark.slow
def test_a_profiled_plan_gives_the_same_bits(folder):
    weight = tf.constant(np.random.default_rng(0).normal(size=(32, 32)), tf.float32)

    def step(x, weight):
        with tf.GradientTape() as tape:
            tape.watch(weight)
            body = lambda i, h: (i + 1, tf.tanh(tf.sin(h @ weight)))  # noqa: E731
            loss = tf.reduce_sum(tf.while_loop(lambda i, h: i < 30, body, (0, x))[1])
        return loss, tape.gradient(loss, weight)

    x = tf.ones([8, 32])
    expected = tf.nest.map_structure(lambda t: t.numpy().tobytes(), tf.function(step)(x, weight))
    optimized = rnnmem.optimize(step, max_slowdown=9.0, profile=3)
    found = tf.nest.map_structure(lambda t: t.numpy().tobytes(), optimized(x, weight))
    assert found == expected
    assert not optimized.plan(x, weight).changes_nothing
    assert any("MatMul" in path.read_text() for path in folder.iterdir())
