"""What TensorFlow would compute in another way when it runs again is saved; the rest runs again.

oneDNN makes one kernel of ``x * sigmoid(x)`` where nobody else reads the sigmoid: in the forward
loop, say, and not in the gradient, where it is read once more.
"""

import pytest
import tensorflow as tf

import rnnmem
from tests.cases import weights

pytestmark = [
    pytest.mark.usefixtures("deterministic"),
    pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning"),
]

STEPS, SIZE = 20, 32


def layers():
    return weights(*[(SIZE, SIZE)] * 3)


def through(ws, state):
    for w in ws:
        state = tf.nn.silu(state @ w)
    return state


def start():
    return tf.random.stateless_normal([SIZE, SIZE], [9, 9])


def chain(ws, state):
    for _ in tf.range(STEPS):
        state = through(ws, state)
    return tf.reduce_sum(state)


def descent(ws, state):
    """The state follows a gradient, so that the outer one is of second order."""
    for _ in tf.range(STEPS):
        with tf.GradientTape() as tape:
            tape.watch(state)
            energy = tf.reduce_sum(through(ws, state))
        state -= 0.1 * tape.gradient(energy, state)
    return tf.reduce_sum(through(ws, state))


def differentiated(loss, ws):
    @tf.function
    def step(state):
        with tf.GradientTape() as tape:
            found = loss(ws, state)
        return found, tape.gradient(found, ws)

    return step


def bits(results):
    return [one.numpy().tobytes() for one in tf.nest.flatten(results)]


@pytest.mark.slow
@pytest.mark.parametrize("loss", [chain, descent])
def test_a_loop_whose_kernels_are_fused_keeps_its_bits_and_saves_less(loss):
    ws, state = layers(), start()
    original = differentiated(loss, ws)
    function = rnnmem.optimize(original, max_slowdown=1.5)
    assert bits(function(state)) == bits(original(state))
    plan = function.plan(state)
    assert any(loop.recomputed for loop in plan.every_loop())
    assert plan.predicted_peak < 0.7 * plan.original_peak


@pytest.mark.slow
@pytest.mark.parametrize("inside", [False, True])
def test_so_does_one_whose_gradient_is_asked_for_later(inside):
    ws, state = layers(), start()
    alone = tf.function(lambda state: chain(ws, state))

    def outer(fn):
        def step(state):
            with tf.GradientTape() as tape:
                found = fn(state)
            return found, tape.gradient(found, ws)

        return tf.function(step) if inside else step

    function = rnnmem.optimize(lambda state: chain(ws, state), max_slowdown=1.5)
    assert bits(outer(function)(state)) == bits(outer(alone)(state))
    assert any(loop.recomputed for loop in function.plan(state).every_loop())


def test_what_is_saved_for_that_says_why():
    ws, state = layers(), start()
    seen = []

    def differs(work, function):
        (loop,) = work.plan.loops
        seen.append(set(loop.recomputed))
        first = next(op for op in sorted(seen[0]) if "Sigmoid" in op)
        again = first in seen[-1]
        return work._otherwise(f"gradient/body/_1/rnnmem/again/{first}" if again else None)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("rnnmem.work.Work.differs", differs)
        patched.setattr(
            "rnnmem.work.ops_left", lambda concrete: tuple(f"x/{one}" for one in seen[0])
        )
        function = rnnmem.optimize(differentiated(chain, ws), max_slowdown=1.5)
        (loop,) = function.plan(state).loops
    first = next(op for op in sorted(seen[0]) if "Sigmoid" in op)
    assert len(seen) == 2 and first not in loop.recomputed
    (told,) = (one for one in loop.residuals if one.blob.startswith(f"{first}:"))
    assert "in another way" in told.reason


@pytest.mark.slow
def test_where_a_replay_would_compute_otherwise_nothing_is_replayed(monkeypatch):
    def differs(work, function):
        cut = any(loop.segments for loop in work.plan.loops)
        return work._otherwise("gradient/body/_1/rnnmem/segment/then/_2/Sigmoid" if cut else None)

    monkeypatch.setattr("rnnmem.work.Work.differs", differs)
    plan = rnnmem.optimize(differentiated(chain, layers()), max_slowdown=4.0).plan(start())
    (loop,) = plan.loops
    assert loop.recomputed and not loop.segments
    assert any("replayed in segments" in note for note in plan.notes)
