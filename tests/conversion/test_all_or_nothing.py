"""Whatever goes wrong half-way: every tensor as it was, or every tensor converted."""

import os
import signal

import pytest
import tensorflow as tf

import rnnmem
from rnnmem.conversion import cast, memory

COUNT = 6


def variables(dtype="float32"):
    return [tf.Variable(tf.cast(tf.range(i, i + 10), dtype), name=f"v{i}") for i in range(COUNT)]


def state(found):
    return [(v.dtype.name, v.numpy().tolist()) for v in found]


def fails_at(step, error):
    """A progress function that raises at the given step, and only there."""
    steps = []

    def progress(done, total, name):
        steps.append(name)
        if len(steps) == step:
            raise error

    return progress


@pytest.mark.parametrize("step", [1, 3, COUNT])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("mine"), MemoryError()])
def test_widening_goes_back(step, error):
    found = variables("float16")
    handles, before = [v.handle for v in found], state(found)
    read = tf.function(lambda: tf.add_n(list(found)))
    total = read().numpy().tolist()
    with pytest.raises(type(error)):
        rnnmem.convert(found, "float32", progress=fails_at(step, error))
    assert state(found) == before
    assert all(v.handle is h for v, h in zip(found, handles, strict=True))
    assert read().numpy().tolist() == total


@pytest.mark.parametrize("step", [1, 3, COUNT])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("mine"), MemoryError()])
def test_narrowing_is_finished(step, error):
    found, twins = variables(), variables()
    with pytest.raises(type(error)) as caught:
        rnnmem.convert(found, "bfloat16", progress=fails_at(step, error))
    assert any("every tensor is converted" in note for note in caught.value.__notes__)
    rnnmem.convert(twins, "bfloat16")
    assert state(found) == state(twins)


@pytest.mark.parametrize("step", [1, 4, COUNT])
def test_where_some_grow_and_some_shrink_the_originals_wait_on_the_host(step):
    found = [*variables("float64")[:3], *variables("float16")[:3]]
    found[0].assign(tf.fill([10], tf.constant(1 / 3, tf.float64)))
    before = state(found)
    with pytest.raises(KeyboardInterrupt):
        rnnmem.convert(found, "float32", progress=fails_at(step, KeyboardInterrupt()))
    assert state(found) == before
    rnnmem.convert(found, "float32")
    assert {v.dtype.name for v in found} == {"float32"}


def test_ctrl_c_is_heard_between_two_tensors():
    found = variables("float16")
    before = state(found)
    names = []

    def press(done, total, name):
        names.append(name)
        if len(names) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    # A shell's background jobs are started with the signal ignored.
    handler = signal.default_int_handler
    outside = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            rnnmem.convert(found, "float32", progress=press)
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, outside)
    assert len(names) <= 3
    assert state(found) == before


def out_of_memory(times, act):
    """Fails the first calls as a full device does."""
    calls = []

    def failing(*args, **kwargs):
        calls.append(args)
        if len(calls) <= times:
            raise tf.errors.ResourceExhaustedError(None, None, "full")
        return act(*args, **kwargs)

    return failing


def test_a_full_device_is_passed_by_through_the_host(monkeypatch):
    found, twins = variables(), variables()
    monkeypatch.setattr(cast, "on_device", out_of_memory(100, cast.on_device))
    rnnmem.convert(found, "float16")
    monkeypatch.undo()
    rnnmem.convert(twins, "float16")
    assert state(found) == state(twins)


def test_what_another_thread_took_may_come_back(monkeypatch):
    found = variables()
    monkeypatch.setattr(cast, "on_device", out_of_memory(100, cast.on_device))
    monkeypatch.setattr(cast, "from_host", out_of_memory(2, cast.from_host))
    rnnmem.convert(found, "float16")
    assert {v.dtype.name for v in found} == {"float16"}


def test_a_device_that_takes_nothing_back_loses_nothing(monkeypatch):
    found = variables()
    monkeypatch.setattr(cast, "on_device", out_of_memory(100, cast.on_device))
    monkeypatch.setattr(cast, "from_host", out_of_memory(100, cast.from_host))
    with pytest.raises(rnnmem.ConvertError, match="rescued") as caught:
        rnnmem.convert(found, "float16")
    (name, values), *others = caught.value.rescued.items()
    assert not others
    for variable in found:
        if variable.name == f"{name}:0":
            variable.assign(values)
    assert state(found) == state(variables())


def full_host(*args, **kwargs):
    raise MemoryError


def test_a_full_host_changes_nothing(monkeypatch):
    found = variables("float16")
    before = state(found)
    monkeypatch.setattr(cast, "on_device", out_of_memory(100, cast.on_device))
    monkeypatch.setattr(cast, "to_host", full_host)
    with pytest.raises(MemoryError):
        rnnmem.convert(found, "float32")
    assert state(found) == before


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_a_host_known_to_be_too_small_is_an_error_before(monkeypatch, dtype):
    found = variables()
    before = state(found)
    monkeypatch.setattr(
        "rnnmem.conversion.api.free_bytes", lambda devices, _: dict.fromkeys(devices, 300)
    )
    monkeypatch.setattr("rnnmem.conversion.transaction.host_free_bytes", lambda: 10)
    with pytest.raises(rnnmem.ConvertError, match="othing was changed"):
        rnnmem.convert(found, dtype)
    assert state(found) == before


def test_what_cannot_fit_is_an_error_before(monkeypatch):
    found = [tf.Variable(tf.ones([1000])) for _ in range(3)]
    monkeypatch.setattr(
        "rnnmem.conversion.api.free_bytes", lambda devices, _: dict.fromkeys(devices, 1000)
    )
    with pytest.raises(rnnmem.ConvertError, match="CPU:0 has 1000 B free.*nothing was changed"):
        rnnmem.convert(found, "float64")
    assert {v.dtype.name for v in found} == {"float32"}


def test_a_policy_that_fails_takes_everything_back():
    class Stubborn(tf.Module):
        def __init__(self):
            super().__init__()
            self.weight = tf.Variable([1.0])

    module, variable = Stubborn(), tf.Variable([2.0], dtype=tf.float16)
    with pytest.raises(rnnmem.RangeError):
        rnnmem.convert([variable, module, tf.Variable([1e39], dtype=tf.float64)], "float32")
    assert module.weight.dtype == tf.float32 and variable.dtype == tf.float16


def test_tensors_in_a_list_go_back_too():
    held = [tf.constant([1.0], tf.float16), tf.constant([2.0], tf.float16)]
    with pytest.raises(KeyboardInterrupt):
        rnnmem.convert(held, "float32", progress=fails_at(1, KeyboardInterrupt()))
    assert [t.dtype.name for t in held] == ["float16"] * 2
    assert [t.numpy().tolist() for t in held] == [[1.0], [2.0]]


def test_a_thread_converts_too():
    import threading

    found = variables()
    thread = threading.Thread(target=rnnmem.convert, args=(found, "float16"))
    thread.start()
    thread.join()
    assert {v.dtype.name for v in found} == {"float16"}


def test_progress_counts_bytes(capsys):
    told = []
    rnnmem.convert(variables(), "float16", progress=lambda *args: told.append(args))
    assert [done for done, _, _ in told] == [40 * (i + 1) for i in range(COUNT)]
    assert {total for _, total, _ in told} == {40 * COUNT}
    assert sorted(name for _, _, name in told) == [f"v{i}" for i in range(COUNT)]
    rnnmem.convert(variables(), "float16", progress=True)
    assert "convert" in capsys.readouterr().err


def test_free_memory_is_what_the_limit_leaves(monkeypatch):
    kept = tf.Variable(tf.zeros(1 << 18))  # of an array TensorFlow may keep NumPy's own memory
    in_use = tf.config.experimental.get_memory_info("CPU:0")["current"]
    assert in_use >= 1 << 20
    limit = (in_use >> 20) + 100
    monkeypatch.setenv("TF_CPU_BFC_MEM_LIMIT_IN_MB", str(limit))
    assert memory.free_bytes(["CPU:0"], {"CPU:0": 1 << 20}) == {"CPU:0": (limit << 20) - in_use}
    del kept
