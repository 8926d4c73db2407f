"""``keep`` and ``recompute`` in real functions: what is saved, the bits, what TensorFlow does."""

import contextlib
import re
import warnings

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.tf.private import optimized_copy
from tests.cases import Case, assert_same_bits, numbers, thrice, train, values, weights

STEPS, ROWS, UNITS = 12, 16, 32


@pytest.fixture(scope="module", autouse=True)
def determinism():
    tf.config.experimental.enable_op_determinism()


def plainly(value):
    return value


def plainly_named(_, value):
    return value


def marks(**requests):
    """``mark(name, value)``, which asks what is said of the values of these names."""

    def mark(name, value):
        return requests.get(name, plainly)(value)

    return mark


def cell(xs, ws, mark):
    """A loss over a while loop, with dense layers before it, of values that have names."""
    dense = mark("dense", tf.nn.relu(tf.reshape(xs, [-1, UNITS]) @ ws[3]))
    wide = mark("wide", tf.sin(dense * dense))
    rows = tf.reshape(wide, xs.shape)

    def body(i, h):
        with tf.name_scope("gates"):
            gate = mark("gate", tf.sigmoid(rows[i] @ ws[0] + h @ ws[1]))
        new = mark("new", tf.tanh(mark("product", h @ ws[2])))
        return i + 1, mark("state", gate * h + (1.0 - gate) * new)

    _, h = tf.while_loop(lambda i, h: i < STEPS, body, (0, tf.zeros([ROWS, UNITS])))
    return tf.reduce_sum(h * h)


def step_of(loss=cell, **requests):
    """A train step, with its weights."""
    ws = weights(*[(UNITS, UNITS)] * 4)
    mark = marks(**requests)
    return train(lambda xs: loss(xs, ws, mark) + tf.add_n(list(map(tf.reduce_sum, ws))), ws), ws


def case(loss=cell, **requests):
    def make():
        step, ws = step_of(loss, **requests)
        return Case(step, thrice(numbers(STEPS, ROWS, UNITS)), values(*ws))

    return make


def planned(loss=cell, requests=None, **options):
    step, _ = step_of(loss, **(requests or {}))
    return rnnmem.optimize(step, **options).plan(numbers(STEPS, ROWS, UNITS))


def decisions(plan):
    """Op type -> what is decided on what it writes, with the reason; of the outermost loop."""
    return {one.op_type: (one.decision, one.reason) for one in plan.loops[0].residuals}


REQUESTS = [
    {"gate": rnnmem.keep},
    {"gate": rnnmem.recompute},
    {"new": rnnmem.keep, "gate": rnnmem.recompute},
    {"new": rnnmem.recompute, "state": rnnmem.keep, "product": rnnmem.keep},
    {"state": rnnmem.recompute, "dense": rnnmem.recompute},
    {"dense": rnnmem.keep, "wide": rnnmem.recompute, "product": rnnmem.recompute},
]


@pytest.mark.parametrize(
    ("bound", "requests"),
    [
        pytest.param(
            bound,
            requests,
            id=f"{bound}-{'-'.join(requests)}",
            marks=[] if number in (2, 5) and bound > 1.0 else [pytest.mark.slow],
        )
        for bound in (1.0, 1.3)
        for number, requests in enumerate(REQUESTS)
    ],
)
def test_bits_are_those_of_the_function_without_marks(requests, bound):
    expected, ws = step_of()
    found, others = step_of(**requests)
    found = rnnmem.optimize(found, max_slowdown=bound, verify=True)
    xs = numbers(STEPS, ROWS, UNITS)
    for _ in range(2):
        one, other = tf.function(expected)(xs), found(xs)
        for a, b in zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True):
            assert a.numpy().tobytes() == b.numpy().tobytes()
    for a, b in zip(ws, others, strict=True):
        assert a.numpy().tobytes() == b.numpy().tobytes()


@pytest.mark.parametrize("bound", [1.0, pytest.param(1.3, marks=pytest.mark.slow), float("inf")])
def test_loops_save_what_is_to_be_kept_and_nothing_that_is_to_be_recomputed(bound):
    plan = planned(requests={"gate": rnnmem.keep, "new": rnnmem.recompute}, max_slowdown=bound)
    told = decisions(plan)
    assert told["Sigmoid"] == ("saved", "you asked for it")
    assert told["Tanh"] == ("recomputed", "you asked for it")
    turned = planned(requests={"gate": rnnmem.recompute, "new": rnnmem.keep}, max_slowdown=bound)
    told = decisions(turned)
    assert told["Tanh"] == ("saved", "you asked for it")
    assert told["Sigmoid"] == ("recomputed", "you asked for it")
    assert rnnmem.Plan.from_json(plan.to_json()) == plan


@pytest.mark.slow
def test_explain_says_who_asked():
    step, _ = step_of(gate=rnnmem.keep, dense=rnnmem.keep)
    text = str(rnnmem.optimize(step, max_slowdown=1.3).explain(numbers(STEPS, ROWS, UNITS)))
    assert re.search(r"Sigmoid .* saved +you asked for it", text)
    assert "note: kept outside of loops, as you asked: Relu (" in text


def test_patterns_ask_the_same():
    plan = planned(keep="*/gates", recompute=["*/Tanh"], max_slowdown=1.3)
    told = decisions(plan)
    assert told["Sigmoid"] == ("saved", "you asked for it")
    assert told["Tanh"] == ("recomputed", "you asked for it")


def test_a_pattern_names_what_is_in_a_loop_without_the_loop():
    told = decisions(planned(keep="gates", recompute=["Tanh"], max_slowdown=1.3))
    assert told["Sigmoid"] == ("saved", "you asked for it")
    assert told["Tanh"] == ("recomputed", "you asked for it")


@pytest.mark.slow
def test_a_pattern_that_names_nothing_is_told():
    assert "the pattern '*/gatez' names no op" in " ".join(planned(keep="*/gatez").notes)


def large(xs, ws, mark):
    """Dense layers alone, of residuals of a megabyte each."""
    rows = tf.reshape(tf.tile(xs, [20, 4, 1]), [-1, UNITS])
    for number in range(6):
        rows = mark(f"layer{number}", tf.nn.relu(rows @ ws[number % 4] + ws[0][0]))
        rows = mark(f"sine{number}", tf.sin(rows))
    return tf.reduce_sum(rows * rows)


@pytest.mark.slow
def test_outside_of_loops_what_is_asked_for_runs_again_in_no_time_at_all():
    plain = planned(large, max_slowdown=1.0)
    assert not plain.of("straight_line")
    requests = {f"layer{number}": rnnmem.recompute for number in range(3)}
    asked = planned(large, requests, max_slowdown=1.0)
    again = {name for region in asked.of("straight_line") for name in region.ops}
    assert {"Relu", "Relu_1", "Relu_2"} <= again
    assert asked.must_recompute
    assert asked.predicted_peak < plain_peak() - 2 * 2**20
    assert any("more than max_slowdown=1" in note for note in asked.notes)


def plain_peak():
    """The predicted peak of the dense layers as TensorFlow runs them."""
    return planned(large, {"layer0": rnnmem.recompute}, max_slowdown=1.0).original_peak


@pytest.mark.slow
def test_outside_of_loops_what_is_kept_runs_once():
    free = {
        name for one in planned(large, max_slowdown=2.0).of("straight_line") for name in one.ops
    }
    assert {"Relu", "Sin"} <= free
    requests = {f"layer{number}": rnnmem.keep for number in range(6)}
    plan = planned(large, requests, max_slowdown=2.0)
    again = {name for region in plan.of("straight_line") for name in region.ops}
    assert not any(name.startswith("Relu") for name in again)


@pytest.mark.slow
@pytest.mark.parametrize("request_", [rnnmem.keep, rnnmem.recompute])
def test_outside_of_loops_bits_stay(request_):
    requests = {f"layer{number}": request_ for number in range(0, 6, 2)}
    assert_same_bits(case(large, **requests), max_slowdown=1.2, verify=True)


def test_a_mark_changes_nothing_that_tensorflow_optimizes():
    def graph(**requests):
        step, _ = step_of(large_and_loop, **requests)
        spec = tf.TensorSpec([STEPS, ROWS, UNITS])
        concrete = tf.function(step).get_concrete_function(spec)
        given = [None, *[tensor for tensor, _ in concrete.graph.captures]]
        return [
            (one.name, one.op, sorted(one.attr), list(one.input))
            for one in optimized_copy(concrete, given).node
        ]

    names = ("gate", "new", "product", "state", "twin", "layer0", "sine0", "taken")
    plain, marked = graph(), graph(**dict.fromkeys(names, rnnmem.keep))
    numbers_of = re.compile(r"_?\d+")
    assert [numbers_of.sub("#", str(one)) for one in plain] == [
        numbers_of.sub("#", str(one)) for one in marked
    ]


def large_and_loop(xs, ws, mark):
    """What Grappler fuses and merges: equal ops of which one is marked, products with a bias."""
    twin = mark("twin", tf.sigmoid(xs[0] @ ws[0])) + tf.sigmoid(xs[0] @ ws[0])
    square = mark("layer0", twin) * twin
    fused = mark("sine0", tf.nn.relu(tf.nn.bias_add(square @ ws[1], ws[0][0])))
    taken = tf.cond(
        tf.reduce_sum(fused) > 0, lambda: mark("taken", tf.sin(fused)), lambda: tf.cos(fused)
    )
    return cell(xs, ws, mark) + tf.reduce_sum(taken)


def nested(xs, ws, mark):
    """A loop in a loop, and a branch in it."""

    def inner(x):
        def body(j, g):
            return j + 1, tf.tanh(mark("inner", tf.sin(g @ ws[0])) @ ws[1])

        return tf.while_loop(lambda j, g: j < 3, body, (0, x))[1]

    def body(i, h):
        h = mark("handed", inner(h + xs[i]))
        h = tf.cond(
            tf.reduce_sum(h) > 0,
            lambda: mark("branch", tf.sigmoid(mark("before", h @ ws[2]))) * h,
            lambda: h,
        )
        return i + 1, h

    _, h = tf.while_loop(lambda i, h: i < STEPS, body, (0, tf.zeros([ROWS, UNITS])))
    return tf.reduce_sum(h * h)


@pytest.mark.slow
@pytest.mark.parametrize("inner", [rnnmem.keep, rnnmem.recompute])
@pytest.mark.parametrize("branch", [rnnmem.keep, rnnmem.recompute])
def test_loops_and_branches_in_loops_keep_their_bits(inner, branch):
    requests = {"inner": inner, "branch": branch}
    for bound in (1.0, 2.0):
        assert_same_bits(case(nested, **requests), max_slowdown=bound, verify=True)
    (loop,) = planned(nested, requests, max_slowdown=2.0).loops
    assert ("while/cond" in loop.recomputed) == (branch is rnnmem.recompute)
    again = {name for one in loop.flat() for name in one.recomputed}
    sine = not again.isdisjoint({"while/while/Sin", "while/while"})
    assert sine == (inner is rnnmem.recompute)


@pytest.mark.slow
def test_in_a_training_loop_inside_of_the_function_it_is_as_it_was_asked():
    def make(mark):
        ws = weights(*[(UNITS, UNITS)] * 4)
        step = train(lambda xs: cell(xs, ws, mark), ws)

        def training(batches):
            total = 0.0
            for number in tf.range(3):
                loss, _ = step(tf.tile(batches[number], [1, 20, 1]))
                total += loss
            return total

        return training, ws

    def cell(xs, ws, mark):
        dense = mark("dense", tf.nn.relu(xs @ ws[3]))
        rows = mark("wide", tf.sin(dense)) @ ws[3]

        def body(i, h):
            return i + 1, mark("new", tf.tanh(h @ ws[0])) * mark(
                "gate", tf.sigmoid(rows[i] @ ws[1])
            )

        start = (0, tf.ones([20 * ROWS, UNITS]))
        return tf.reduce_sum(tf.while_loop(lambda i, h: i < STEPS, body, start)[1] @ ws[2])

    requests = {"gate": rnnmem.keep, "new": rnnmem.recompute} | {
        "wide": rnnmem.recompute,
        "dense": rnnmem.keep,
    }
    batches = numbers(3, STEPS, ROWS, UNITS)
    plain, ws = make(plainly_named)
    marked, others = make(marks(**requests))
    marked = rnnmem.optimize(marked, max_slowdown=1.3)
    assert tf.function(plain)(batches).numpy().tobytes() == marked(batches).numpy().tobytes()
    for a, b in zip(ws, others, strict=True):
        assert a.numpy().tobytes() == b.numpy().tobytes()
    plan = marked.plan(batches)
    (loop,) = plan.every_loop()
    found = {one.op_type: one.decision for one in loop.residuals}
    assert (found["Sigmoid"], found["Tanh"]) == ("saved", "recomputed")
    again = {name for one in plan.at_every_depth("straight_line") for name in one.ops}
    assert "while/Sin" in again and "while/Relu" not in again


def test_a_random_draw_is_refused_with_the_reason():
    def drawing(xs, ws, mark):
        def body(i, h):
            drawn = mark(
                "drawn", tf.raw_ops.RandomStandardNormal(shape=[ROWS, UNITS], dtype=h.dtype)
            )
            return i + 1, tf.tanh(h * drawn + xs[i] @ ws[0])

        _, h = tf.while_loop(lambda i, h: i < STEPS, body, (0, tf.ones([ROWS, UNITS])))
        return tf.reduce_sum(h)

    plan = planned(drawing, {"drawn": rnnmem.recompute})
    (note,) = [one for one in plan.notes if "RandomStandardNormal" in one]
    assert note.startswith("not recomputed, though you asked for it: stateful, running it again")
    decision, reason = decisions(plan)["RandomStandardNormal"]
    assert decision == "saved"
    assert "you asked to recompute it, but: stateful" in reason


@pytest.mark.slow
def test_what_no_gradient_reads_need_not_be_kept():
    def unread(xs, ws, mark):
        mark("unread", tf.cos(xs))
        return cell(xs, ws, mark)

    notes = planned(unread, {"unread": rnnmem.keep}).notes
    assert "nothing to keep or to recompute, as no gradient reads it: Cos:0" in notes
    requests = {"product": rnnmem.keep, "new": rnnmem.keep}
    notes = planned(requests=requests, max_slowdown=1.3).notes
    assert any(re.search("no gradient reads it: .*matmul", note) for note in notes)


class Cell(tf.keras.layers.Layer):
    """A cell that says what to keep."""

    def __init__(self, mark, **options):
        super().__init__(**options)
        self.state_size, self.mark = UNITS, mark

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], UNITS), initializer="ones")
        self.own = self.add_weight(shape=(UNITS, UNITS), initializer="ones")

    def call(self, x, states):
        gate = self.mark("gate", tf.sigmoid(x @ self.kernel))
        new = self.mark("new", tf.tanh(states[0] @ self.own))
        state = gate * states[0] + (1.0 - gate) * new
        return state, [state]


def test_keras_cells_ask():
    mark = marks(gate=rnnmem.keep, new=rnnmem.recompute)
    layer = tf.keras.layers.RNN(Cell(mark))
    xs = numbers(ROWS, STEPS, UNITS)
    layer(xs)

    @rnnmem.optimize(verify=True)
    def step(xs):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(xs))
        return tape.gradient(loss, layer.trainable_variables)

    step(xs)
    told = decisions(step.plan(xs))
    assert told["Sigmoid"] == ("saved", "you asked for it")
    assert told["Tanh"] == ("recomputed", "you asked for it")
    # Keras calls the cell outside of the loop too, for its shapes, and TensorFlow prunes that.
    assert not any("no gradient reads it" in note for note in step.plan(xs).notes)


def test_autograph_loops_ask():
    ws = weights((UNITS, UNITS))

    @rnnmem.optimize(verify=True)
    def step(xs):
        with tf.GradientTape() as tape:
            h = tf.zeros([ROWS, UNITS])
            for x in xs:
                h = rnnmem.recompute(tf.tanh(h @ ws[0] + x))
                h = rnnmem.keep(tf.sin(h)) * 0.5
            loss = tf.reduce_sum(h)
        return tape.gradient(loss, ws)

    xs = numbers(STEPS, ROWS, UNITS)
    step(xs)
    told = decisions(step.plan(xs))
    assert told["Tanh"] == ("recomputed", "you asked for it")


def test_a_gradient_that_is_taken_later_is_as_it_was_asked():
    ws = weights(*[(UNITS, UNITS)] * 4)
    mark = marks(gate=rnnmem.keep, new=rnnmem.recompute)
    forward = rnnmem.optimize(lambda xs: cell(xs, ws, mark))
    told = decisions(forward.plan(numbers(STEPS, ROWS, UNITS)))
    assert told["Sigmoid"] == ("saved", "you asked for it")
    assert told["Tanh"] == ("recomputed", "you asked for it")


def test_outside_of_graphs_and_of_optimised_functions_they_hand_back_what_they_are_given():
    structure = {
        "a": [tf.ones(3), 2],
        "b": (tf.RaggedTensor.from_row_lengths([1, 2], [1, 1]), None),
    }
    assert rnnmem.keep(structure) is structure
    assert rnnmem.recompute(structure) is structure
    ws = weights((3,))

    @tf.function
    def plain(x):
        held = {"x": [x * ws[0]], "y": tf.sparse.from_dense(x)}
        assert rnnmem.keep(held) is held
        return held["x"][0] + 1.0

    np.testing.assert_array_equal(plain(tf.ones(3)), ws[0] + 1.0)


def test_a_value_of_an_outer_graph_is_marked_there():
    @tf.function
    def step(x):
        y = tf.sin(x)

        def body(i, h):
            rnnmem.keep(y)
            return i + 1, h * 2.0

        tf.while_loop(lambda i, h: i < 3, body, (0, x))
        return y

    graph = step.get_concrete_function(tf.TensorSpec([3])).graph
    (loop,) = [op for op in graph.get_operations() if "While" in op.type]
    assert not [one for one in loop.inputs if one.op.type == "Sin"]  # nothing is captured for it
    assert [op.name for op in graph.get_operations() if op.name.startswith("rnnmem_marks")]


def test_a_model_that_asks_can_be_saved_and_loaded(tmp_path):
    module = tf.Module()
    module.weight = weights((UNITS, UNITS))[0]
    spec = [tf.TensorSpec([ROWS, UNITS])]
    module.run = tf.function(lambda x: rnnmem.keep(tf.tanh(x @ module.weight)), spec)
    tf.saved_model.save(module, tmp_path / "model")
    x = numbers(ROWS, UNITS)
    loaded = tf.saved_model.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.run(x), module.run(x))


def test_in_a_block_that_waits_nothing_else_waits():
    @tf.function
    def step(x):
        with tf.control_dependencies([tf.debugging.assert_positive(x)]):
            y = tf.sin(x)
            rnnmem.keep([y, tf.TensorArray(tf.float32, 1).write(0, y)])
        return y * y

    np.testing.assert_array_equal(step(tf.ones(3)), tf.sin(tf.ones(3)) ** 2)


@pytest.mark.slow
def test_nobody_is_warned():
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("error", rnnmem.RnnmemWarning)
        planned(requests=REQUESTS[2])
