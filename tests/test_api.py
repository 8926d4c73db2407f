"""The decorator: every way to use it, what it offers, and what it does when something is wrong."""

import copy
import dataclasses
import gc
import inspect
import warnings
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.errors import OptionError, RnnmemWarning, VerifyError
from rnnmem.ir.order import without_dead_ops
from rnnmem.planning.plan import Plan

INF = float("inf")


def loss_of(x, weight):
    """A loop whose body is worth recomputing."""

    def body(i, h):
        return i + 1, tf.tanh(tf.sin(h @ weight) * tf.sigmoid(x[i]))

    limit = tf.shape(x)[0]
    return tf.reduce_sum(tf.while_loop(lambda i, h: i < limit, body, (0, x[0]))[1] ** 2)


def make_step():
    """A train step without state of its own: it gives the loss and the gradient."""
    traces = []

    def train_step(x, weight, scale=1.0):
        """Loss and gradient of a small loop."""
        traces.append(scale)
        with tf.GradientTape() as tape:
            tape.watch(weight)
            loss = loss_of(x, weight) * scale
        return {"loss": loss, "gradient": tape.gradient(loss, weight)}

    return train_step, traces


def numbers(*shape, seed=1):
    return tf.constant(np.random.default_rng(seed).normal(size=shape), tf.float32)


X, W = numbers(5, 2, 3), numbers(3, 3, seed=2)


def bits(results):
    return [leaf.numpy().tobytes() for leaf in tf.nest.flatten(results)]


@pytest.fixture(scope="module")
def expected():
    return bits(tf.function(make_step()[0])(X, W))


# Ways to use it.


def decorate_bare():
    return rnnmem.optimize(make_step()[0])


def decorate_with_options():
    return rnnmem.optimize(max_slowdown=2.0, verify=True)(make_step()[0])


def decorate_above_tf_function():
    return rnnmem.optimize(tf.function(make_step()[0]))


def decorate_below_tf_function():
    return tf.function(rnnmem.optimize(make_step()[0]))


def decorate_a_concrete_function():
    concrete = tf.function(make_step()[0]).get_concrete_function(
        tf.TensorSpec(X.shape), tf.TensorSpec(W.shape)
    )
    return rnnmem.optimize(concrete)


def decorate_twice():
    return rnnmem.optimize(rnnmem.optimize(make_step()[0]), max_slowdown=INF)


def decorate_a_call_inside():
    inner = rnnmem.optimize(make_step()[0])
    return tf.function(lambda x, weight: inner(x, weight))


def decorate_around_it():
    inner = rnnmem.optimize(make_step()[0])
    return rnnmem.optimize(lambda x, weight: inner(x, weight))


WAYS = [value for name, value in list(globals().items()) if name.startswith("decorate_")]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_it_is_called_like_the_function_and_gives_the_same_bits(way, expected):
    step = way()
    for _ in range(2):
        results = step(X, W)
        assert bits(results) == expected
    assert sorted(results) == ["gradient", "loss"]


def test_it_rewrites_what_there_is_to_rewrite():
    step = rnnmem.optimize(make_step()[0], max_slowdown=INF)
    assert not step.plan(X, W).changes_nothing
    types = {
        node.op
        for function in step.get_concrete_function(X, W).graph.as_graph_def().library.function
        for node in function.node_def
    }
    assert "OptionalGetValue" in types  # the barrier of a recomputation


class Model:
    def __init__(self):
        self.weight = tf.Variable(W)

    @rnnmem.optimize(max_slowdown=INF)
    def step(self, x):
        """A method."""
        with tf.GradientTape() as tape:
            loss = loss_of(x, self.weight)
        gradient = tape.gradient(loss, self.weight)
        self.weight.assign_sub(0.1 * gradient)
        return loss

    @rnnmem.optimize
    @tf.function
    def doubled(self, x):
        return x * 2.0 + self.weight[0, 0]

    @rnnmem.optimize
    @staticmethod
    def halved(x):
        return x / 2.0


def test_a_method_belongs_to_its_instance():
    one, other = Model(), Model()
    other.weight.assign(W * 2.0)
    assert bits(one.step(X)) != bits(other.step(X))
    assert bits(one.weight) != bits(other.weight)
    assert not one.step.plan(X).changes_nothing
    assert one.step.__doc__ == "A method."
    assert one.step is one.step
    assert Model.step.__wrapped__ is not None


def test_a_method_under_tf_function_works_too():
    model = Model()
    assert bits(model.doubled(X)) == bits(X * 2.0 + model.weight[0, 0])


def test_an_instance_is_let_go():
    model = Model()
    model.doubled(X)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


# What it offers.


def test_it_wears_the_functions_name():
    fn, _ = make_step()
    step = rnnmem.optimize(fn)
    assert step.__wrapped__ is fn
    assert step.__name__ == "train_step"
    assert step.__doc__ == "Loss and gradient of a small loop."
    assert inspect.signature(step) == inspect.signature(fn)
    assert isinstance(step, rnnmem.Optimized)


def test_a_signature_is_traced_once():
    fn, traces = make_step()
    step = rnnmem.optimize(fn)
    step(X, W)
    once = len(traces)
    plain, plain_traces = make_step()
    tf.function(plain)(X, W)
    assert once == len(plain_traces)
    step(X + 1.0, W)
    step.plan(X, W)
    step.explain(X, W)
    step.get_concrete_function(X, W)
    assert len(traces) == once
    step(numbers(7, 2, 3), W)
    assert len(traces) == 2 * once
    step(X, W, scale=2.0)
    assert len(traces) == 3 * once
    step(X, W)
    assert len(traces) == 3 * once


def test_an_input_signature_holds_for_all_lengths():
    fn, traces = make_step()
    signature = [tf.TensorSpec([None, None, 3]), tf.TensorSpec([3, 3])]
    step = rnnmem.optimize(tf.function(fn, input_signature=signature), max_slowdown=INF)
    plain = tf.function(make_step()[0], input_signature=signature)
    for length in (5, 1, 9):
        x = numbers(length, 2, 3)
        assert bits(step(x, W)) == bits(plain(x, W))
    assert len(traces) == 1


def test_the_concrete_function_runs_by_itself(expected):
    step = rnnmem.optimize(make_step()[0])
    concrete = step.get_concrete_function(X, W)
    assert bits(concrete(X, W)) == expected
    specs = step.get_concrete_function(tf.TensorSpec([None, 2, 3]), tf.TensorSpec([3, 3]))
    assert bits(specs(X, W)) == expected


def test_the_plan_goes_to_json_and_back():
    plan = rnnmem.optimize(make_step()[0], max_slowdown=INF).plan(X, W)
    assert isinstance(plan, rnnmem.Plan)
    assert rnnmem.Plan.from_json(plan.to_json()) == plan


@pytest.mark.usefixtures("kernels_alone")
def test_the_report_is_a_table_of_what_was_saved():
    text = str(rnnmem.optimize(make_step()[0], max_slowdown=INF).explain(X, W))
    assert text.startswith("train_step: 1 loop rewritten")
    line = next(line for line in text.splitlines() if " Tanh " in line)
    assert "24 B" in line  # one [2, 3] of float32
    assert "test_api.py:" in line
    assert "5 iterations" in text
    assert "recomputed" in line


def test_a_function_without_a_loop_says_so():
    step = rnnmem.optimize(lambda x: tf.tanh(x) * 2.0)
    assert bits(step(X)) == bits(tf.function(lambda x: tf.tanh(x) * 2.0)(X))
    assert step.plan(X).changes_nothing
    assert "no loop with a gradient was found" in str(step.explain(X))


def test_a_function_without_a_gradient_says_so():
    def ahead(x):
        return tf.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, tf.cumsum(h)), (0, x))[1]

    ahead_int = tf.function(lambda x: ahead(tf.cast(x, tf.int32)))
    step = rnnmem.optimize(ahead_int)
    assert bits(step(X)) == bits(ahead_int(X))
    assert step.plan(X).changes_nothing
    assert "nothing was to be done" in str(step.explain(X))


def test_an_empty_function_is_no_trouble():
    for options in ({}, {"max_slowdown": INF}):
        with warnings.catch_warnings():
            warnings.simplefilter("error", RnnmemWarning)
            assert bits(rnnmem.optimize(lambda x: x, **options)(X)) == bits(X)
            assert rnnmem.optimize(lambda: None, **options)() is None


def test_a_concrete_function_can_be_planned_without_arguments():
    concrete = tf.function(make_step()[0]).get_concrete_function(
        tf.TensorSpec(X.shape), tf.TensorSpec(W.shape)
    )
    assert not rnnmem.optimize(concrete, max_slowdown=INF).plan().changes_nothing


# The off switch.


def test_the_off_switch_runs_the_original(monkeypatch, expected):
    monkeypatch.setenv("RNNMEM_DISABLE", "1")
    step = rnnmem.optimize(make_step()[0], max_slowdown=INF)
    assert bits(step(X, W)) == expected
    assert step.plan(X, W).changes_nothing
    assert "RNNMEM_DISABLE is set" in str(step.explain(X, W))
    monkeypatch.setenv("RNNMEM_DISABLE", "0")
    assert not rnnmem.optimize(make_step()[0], max_slowdown=INF).plan(X, W).changes_nothing


# Bad input.


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budget": "12 parsecs"}, ["budget", "12 parsecs", "MiB"]),
        ({"budget": -1}, ["budget", "-1"]),
        ({"budget": True}, ["budget", "True"]),
        ({"max_slowdown": 0.9}, ["max_slowdown", "0.9", "at least 1.0"]),
        ({"max_slowdown": "fast"}, ["max_slowdown", "'fast'", "a number"]),
        ({"max_slowdown": float("nan")}, ["max_slowdown", "nan"]),
        ({"max_slowdown": True}, ["max_slowdown", "True"]),
        ({"allow": ("magic",)}, ["allow", "'magic'", "recompute"]),
        ({"allow": 3}, ["allow", "3"]),
        ({"verify": "yes"}, ["verify", "'yes'", "True or False"]),
        ({"verify": None}, ["verify", "None"]),
    ],
)
def test_an_option_that_is_wrong_is_named_with_its_value_and_the_way_out(options, words):
    with pytest.raises(OptionError) as raised:
        rnnmem.optimize(**options)
    for word in words:
        assert word in str(raised.value)


def test_an_unknown_option_is_named():
    with pytest.raises(TypeError, match="slowdown_max"):
        rnnmem.optimize(slowdown_max=2.0)


def test_an_option_that_is_misspelt_is_told_what_it_may_be():
    for call in (
        lambda: rnnmem.optimize(budgett=3),
        lambda: rnnmem.optimize(len, budgett=3),
        lambda: rnnmem.optimize(fn=len, budgett=3),
        lambda: rnnmem.keras.optimize(keras.Sequential(), budgett=3),
    ):
        with pytest.raises(
            OptionError, match="budgett=3 is an unknown option; .*did you mean 'budget'"
        ) as e:
            call()
        assert isinstance(e.value, TypeError)
    assert inspect.signature(rnnmem.optimize).parameters["max_slowdown"].default == 1.1


def test_a_class_or_a_model_in_place_of_the_step_is_refused():
    with pytest.raises(OptionError, match="fn=<class 'dict'> is a class: pass the step itself"):
        rnnmem.optimize(dict)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    with pytest.raises(
        OptionError, match=r"fn=Sequential is a Keras model.*rnnmem\.keras\.optimize"
    ):
        rnnmem.optimize(model)


@pytest.mark.parametrize("path", ["a\0b", "no/such/plan.json"])
def test_a_path_of_a_plan_that_cannot_be_read_is_named(path):
    with pytest.raises(rnnmem.PlanError, match="plan='.*' cannot be read"):
        rnnmem.optimize(len, plan=path)


def test_a_deep_copy_is_a_function_of_its_own():
    module = tf.Module()
    module.weight = tf.Variable(2.0)
    module.step = rnnmem.optimize(lambda x: x * 3.0, max_slowdown=1.7)
    copied = copy.deepcopy(module)
    assert copied.step is not module.step
    assert copied.step(tf.constant(2.0)) == module.step(tf.constant(2.0)) == 6.0
    assert copied.step._options == module.step._options
    assert copy.copy(module.step)(tf.constant(1.0)) == 3.0


def test_a_deep_copy_of_a_method_is_the_copys_method():
    class Doubled:
        def __init__(self, weight):
            self.weight = tf.Variable(weight)
            self.step = rnnmem.optimize(self.times)

        def times(self, x):
            return self.weight * x

    first = Doubled(2.0)
    second = copy.deepcopy(first)
    second.weight.assign(5.0)
    assert (first.step(tf.constant(1.0)), second.step(tf.constant(1.0))) == (2.0, 5.0)
    concrete = tf.function(first.times).get_concrete_function(tf.TensorSpec([]))
    assert copy.deepcopy(rnnmem.optimize(concrete))(tf.constant(3.0)) == 6.0


def test_what_cannot_be_called_is_refused():
    with pytest.raises(OptionError, match="fn=3 is not callable"):
        rnnmem.optimize(3)


def error_of(call):
    try:
        call()
    except Exception as error:
        return type(error), str(error)
    raise AssertionError("no error")


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((X,), {}),
        ((X, W, 1.0, 2.0), {}),
        ((X, W), {"other": 1}),
        ((X, W), {"weight": W}),
    ],
    ids=["none", "one missing", "one too many", "unknown keyword", "given twice"],
)
@pytest.mark.parametrize("wrap", [lambda fn: fn, tf.function], ids=["python", "tf.function"])
def test_wrong_arguments_give_the_undecorated_functions_error(wrap, args, kwargs):
    fn = wrap(make_step()[0])
    step = rnnmem.optimize(fn)
    step(X, W)
    kind, text = error_of(lambda: fn(*args, **kwargs))
    found_kind, found = error_of(lambda: step(*args, **kwargs))
    assert found_kind is kind
    assert found.splitlines()[0] == text.splitlines()[0]


def test_a_shape_that_does_not_fit_gives_the_undecorated_functions_error():
    signature = [tf.TensorSpec([None, 2, 3]), tf.TensorSpec([3, 3])]
    fn = tf.function(make_step()[0], input_signature=signature)
    wrong = numbers(4, 4)
    kind, text = error_of(lambda: fn(X, wrong))
    found_kind, found = error_of(lambda: rnnmem.optimize(fn)(X, wrong))
    assert found_kind is kind
    assert found.splitlines()[0] == text.splitlines()[0]


@pytest.mark.parametrize("wrap", [lambda fn: fn, tf.function], ids=["python", "tf.function"])
def test_an_error_of_the_users_own_comes_through(wrap):
    class OwnError(Exception):
        pass

    def step(x):
        raise OwnError(f"no good: {x.shape}")

    kind, text = error_of(lambda: tf.function(step)(X))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RnnmemWarning)
        found_kind, found = error_of(lambda: rnnmem.optimize(wrap(step))(X))
    assert issubclass(found_kind, kind) or found_kind.__name__ == kind.__name__
    assert "no good: (5, 2, 3)" in found
    assert text.splitlines()[-1] in found


def test_a_value_error_while_tracing_stays_a_value_error():
    def step(x):
        raise ValueError("shape is bad")

    with pytest.raises(ValueError, match="shape is bad"):
        rnnmem.optimize(step)(X)


def test_an_error_while_running_comes_through():
    def step(x):
        tf.debugging.assert_less(x, 0.0, message="must be negative")
        return x

    with pytest.raises(tf.errors.InvalidArgumentError, match="must be negative"):
        rnnmem.optimize(step)(X)


# Failures of ours.


def broken(*args, **kwargs):
    raise RuntimeError("planner on fire")


@pytest.mark.parametrize(
    "part",
    [
        *("compile.net_of", "compile.decide_with_nested_steps", "planning.search.apply_plan"),
        *("compile.check", "traced.function_of"),
    ],
)
def test_a_failure_of_ours_never_reaches_the_run(part, monkeypatch, expected):
    monkeypatch.setattr(f"rnnmem.{part}", broken)
    step = rnnmem.optimize(make_step()[0], max_slowdown=INF)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            assert bits(step(X, W)) == expected
    ours = [str(one.message) for one in caught if issubclass(one.category, RnnmemWarning)]
    assert len(ours) == 1
    assert "train_step" in ours[0]
    assert "RuntimeError: planner on fire" in ours[0]
    assert step.plan(X, W).changes_nothing
    assert "planner on fire" in str(step.explain(X, W))


@pytest.mark.parametrize(
    "part", ["compile.decide_with_nested_steps", "planning.search.apply_plan", "compile.check"]
)
def test_a_failure_of_ours_is_raised_under_verify(part, monkeypatch):
    monkeypatch.setattr(f"rnnmem.{part}", broken)
    step = rnnmem.optimize(make_step()[0], max_slowdown=INF, verify=True)
    with pytest.raises(RuntimeError, match="planner on fire"):
        step(X, W)


def sabotaged(net, plan, constant, **options):
    """A rewrite that gets the numbers wrong."""
    net = without_dead_ops(net)
    (last,) = [op for op in net.ops if op.type == "Sum" and not op.nets][-1:]
    ops = tuple(op.replace(type="Prod") if op is last else op for op in net.ops)
    return net.replace(ops=ops)


def test_verify_catches_a_rewrite_that_is_wrong(monkeypatch):
    monkeypatch.setattr("rnnmem.planning.search.apply_plan", sabotaged)
    monkeypatch.setattr("rnnmem.compile.check", lambda *args, **kwargs: None)
    monkeypatch.setattr("rnnmem.work.other_arithmetic", lambda *args: None)
    step = rnnmem.optimize(make_step()[0], max_slowdown=INF, verify=True)
    with pytest.raises(VerifyError, match="differs from the original: output .* is off by up to"):
        step(X, W)


def test_the_checker_catches_it_first(monkeypatch, expected):
    monkeypatch.setattr("rnnmem.planning.search.apply_plan", sabotaged)
    step = rnnmem.optimize(make_step()[0], max_slowdown=INF)
    with pytest.warns(RnnmemWarning, match="CheckError"):
        assert bits(step(X, W)) == expected


def test_verify_passes_what_is_right_and_updates_state_once():
    weight = tf.Variable(W)
    calls = tf.Variable(0)

    def train_step(x):
        calls.assign_add(1)
        with tf.GradientTape() as tape:
            loss = loss_of(x, weight)
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        return loss

    plain = tf.function(train_step)
    first, state = plain(X), weight.numpy().tobytes()
    weight.assign(W)
    calls.assign(0)
    step = rnnmem.optimize(train_step, max_slowdown=INF, verify=True)
    assert bits(step(X)) == bits(first)
    assert weight.numpy().tobytes() == state
    assert calls.numpy() == 1
    step(X)
    assert calls.numpy() == 2


def test_verify_runs_the_original_on_the_first_call_alone():
    runs = []

    def train_step(x, weight):
        tf.py_function(lambda: runs.append(1), [], [])
        with tf.GradientTape() as tape:
            tape.watch(weight)
            loss = loss_of(x, weight)
        return tape.gradient(loss, weight)

    step = rnnmem.optimize(train_step, max_slowdown=INF, verify=True)
    step(X, W)
    assert len(runs) == 2
    step(X, W)
    assert len(runs) == 3


def test_an_explanation_of_a_closed_loop_says_why():
    plan = rnnmem.optimize(make_step()[0], max_slowdown=INF).plan(X, W)
    closed = tuple(dataclasses.replace(loop, closed="too odd") for loop in plan.loops)
    from rnnmem.reports.explain import explain

    text = str(explain(Plan(loops=closed), name="f"))
    assert text.startswith("f: nothing was to be gained")
    assert "left as it was: loop" in text
    assert "too odd" in text


def test_an_optimised_function_says_what_it_is():
    @rnnmem.optimize(budget="1GiB", keep="*/gates")
    def train_step(x):
        return x + 1.0

    line = train_step.__wrapped__.__code__.co_firstlineno
    told = f"<rnnmem.optimize(train_step, budget={2**30}, keep=('*/gates',)) (test_api.py:{line})"
    assert repr(train_step) == f"{told}, 0 signatures planned>"
    train_step(tf.ones(3))
    assert repr(train_step) == f"{told}, 1 signature planned>"
    assert repr(rnnmem.optimize(lambda x: x)).startswith("<rnnmem.optimize(<lambda>) (test_api.py")


def test_what_was_called_is_told_without_arguments():
    optimised = rnnmem.optimize(make_step()[0])
    for tell in (optimised.plan, optimised.explain, optimised.inspect):
        with pytest.raises(TypeError, match="train_step was not called yet"):
            tell()
    optimised(X, W)
    assert optimised.plan() == optimised.plan(X, W)
    assert str(optimised.explain()) == str(optimised.explain(X, W))


def test_a_report_says_where_options_belong():
    with pytest.raises(OptionError, match=r"report\(rnnmem.optimize\(fn, max_slowdown=1.5\)"):
        rnnmem.report(make_step()[0], X, W, max_slowdown=1.5)

    def named_alike(x, budget):
        return x * budget

    rnnmem.report(named_alike, X, budget=2.0, measure=False)
