"""Import and export, without any plan between them, change nothing that a user can see.

Each case makes a function, the calls to make, and a way to look at its state. It is made twice:
one is called as TensorFlow traced it, the other after the round trip; results, state and prints
must agree to the last bit after each of several calls.
"""

import collections
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from rnnmem.ir.graph import Net
from rnnmem.ir.inline import inline
from rnnmem.ir.order import without_dead_ops
from rnnmem.tf import private
from rnnmem.tf.functions import function_of, net_of
from tests.cases import Case, as_bytes, numbers, outcome, thrice, values

Pair = collections.namedtuple("Pair", ["first", "second"])


CASES: dict[str, Callable[[], Case]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


# Calls by name.


@case
def loops_whose_step_nets_call_functions_by_name():
    labels, lengths = tf.constant([[1, 2, 0], [3, 4, 5]]), tf.constant([7, 7])

    @tf.function
    def step(logits):
        return tf.nn.ctc_loss(labels, logits, tf.constant([2, 3]), lengths, blank_index=0)

    return Case(step, thrice(numbers(7, 2, 6)))


# State and its updates.


@case
def adam_with_slots_made_on_the_first_call():
    weight = tf.Variable(numbers(3, 2))
    adam = tf.keras.optimizers.Adam(0.1)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.tanh(x @ weight))
        adam.apply_gradients([(tape.gradient(loss, weight), weight)])
        return loss

    return Case(
        step, thrice(numbers(4, 3)), lambda: [one.numpy() for one in (weight, *adam.variables)]
    )


@case
def assigns_in_order():
    x = tf.Variable(1.0)

    @tf.function
    def step():
        x.assign(x * 2.0)
        seen = x + 0.0
        x.assign_add(5.0)
        return seen, x.read_value()

    return Case(step, thrice(), values(x))


@case
def variable_created_on_the_first_call():
    made = []

    @tf.function
    def step(x):
        if not made:
            made.append(tf.Variable(tf.ones([3])))
        made[0].assign_add(x)
        return made[0] * 2.0

    return Case(step, thrice(tf.constant([1.0, 2.0, 3.0])), lambda: [made[0].numpy()])


@case
def many_captured_tensors_and_variables():
    tensors = [numbers(2, seed=seed) for seed in range(12)]
    variables = [tf.Variable(numbers(2, seed=seed)) for seed in range(12)]

    @tf.function
    def step(x):
        total = x
        for tensor, variable in zip(tensors, variables, strict=True):
            total = total * tensor + variable
            variable.assign_sub(total)
        return total

    return Case(step, thrice(numbers(2, seed=99)), values(*variables))


@case
def lookup_tables():
    fixed = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([1, 2], tf.int64)), -1
    )
    growing = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)

    @tf.function
    def step(keys):
        growing.insert(keys, growing.lookup(keys) + 10)
        return fixed.lookup(keys), growing.size()

    return Case(
        step,
        thrice(tf.constant(["a", "c"])),
        lambda: [growing.lookup(tf.constant(["a", "c"])).numpy()],
    )


# Side effects that leave the process.


@case
def prints_in_order():
    @tf.function
    def step(x):
        tf.print("first", x)
        tf.print("second", tf.reduce_sum(x), summarize=-1)
        if tf.reduce_sum(x) > 0.0:
            tf.print("positive")
        return x + 1.0

    return Case(step, thrice(tf.constant([1.0, 2.0])))


@case
def nothing_but_a_print():
    @tf.function
    def step(x):
        tf.print("only this", x)

    return Case(step, thrice(tf.constant(3)))


@case
def python_function():
    seen = []

    def note(x):
        seen.append(float(x))
        return x * 3.0

    @tf.function
    def step(x):
        return tf.py_function(note, [x + len(seen)], tf.float32)

    return Case(step, thrice(tf.constant(2.0)), lambda: [np.array(seen)])


@case
def asserts_and_strings():
    @tf.function
    def step(words):
        tf.debugging.assert_greater(tf.size(words), 0, message="no words")
        return tf.strings.join([words, tf.strings.upper(words)], "-"), tf.strings.length(words)

    return Case(step, thrice(tf.constant(["Ab", "c"])))


# Data.


@case
def iterator_is_consumed():
    iterator = iter(tf.data.Dataset.range(10).batch(2))

    @tf.function
    def step(source):
        return next(source) + next(source)

    return Case(step, [((iterator,), {})] * 2)


@case
def captured_iterator():
    iterator = iter(tf.data.Dataset.range(10))

    @tf.function
    def step():
        return next(iterator) * 2

    return Case(step, thrice())


@case
def dataset_made_and_reduced_inside():
    @tf.function
    def step(limit):
        data = tf.data.Dataset.range(limit).map(lambda x: x * x).filter(lambda x: x % 2 == 0)
        total = tf.constant(0, tf.int64)
        for item in data.batch(2):
            total += tf.reduce_max(item)
        return total

    return Case(step, thrice(tf.constant(9, tf.int64)))


# Functions in functions, branches and loops.


@case
def calls_three_deep_with_effects_in_order():
    x = tf.Variable(1.0)

    @tf.function
    def innermost():
        tf.print("innermost sees", x)
        x.assign(x * 3.0)

    @tf.function
    def middle(y):
        x.assign_add(y)
        innermost()
        tf.print("middle sees", x)
        return x - y

    @tf.function
    def step(y):
        innermost()
        z = middle(y)
        x.assign_add(1.0)
        z2 = middle(z)
        return z, z2, x.read_value()

    return Case(step, thrice(tf.constant(2.0)), values(x))


@case
def own_gradient():
    @tf.custom_gradient
    def clipped(x):
        return tf.identity(x), lambda upstream: tf.clip_by_value(upstream, -0.5, 0.5)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(clipped(x) ** 2)
        return y, tape.gradient(y, x)

    return Case(step, thrice(numbers(5)))


@case
def branches():
    hits = tf.Variable([0, 0, 0])

    def hit(index):
        hits.scatter_nd_add([[index]], [1])
        return tf.cast(index, tf.float32)

    @tf.function
    def step(index, x):
        y = tf.switch_case(index, [lambda: hit(0), lambda: hit(1) * x, lambda: hit(2) + x])
        return tf.cond(x > 0.0, lambda: y + 1.0, lambda: tf.cond(y > 1.0, lambda: y, lambda: -y))

    calls = [((tf.constant(index), tf.constant(x)), {}) for index in (0, 1, 2) for x in (-1.5, 2.0)]
    return Case(step, calls, values(hits))


@case
def loop_with_a_growing_array():
    @tf.function
    def step(limit):
        array = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
        i = 0
        while i < limit:
            array = array.write(i, tf.cast(i, tf.float32) ** 2)
            i += 1
        return array.stack(), array.size()

    return Case(step, [((tf.constant(n),), {}) for n in (4, 1, 0)])


@case
def loop_with_a_gradient():
    weight = tf.Variable(numbers(3, 3) * 0.3)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            h = tf.zeros_like(x[0])
            for i in tf.range(tf.shape(x)[0]):
                h = tf.tanh(h @ weight + x[i])
            loss = tf.reduce_sum(h)
        return loss, tape.gradient(loss, weight)

    return Case(step, [((numbers(n, 2, 3),), {}) for n in (4, 1)], values(weight))


@case
def mapped_and_scanned():
    @tf.function
    def step(x):
        mapped = tf.map_fn(lambda row: tf.reduce_sum(row) * row, x)
        return mapped, tf.scan(lambda a, b: a * 0.5 + b, x), tf.foldl(lambda a, b: a - b, x)

    return Case(step, thrice(numbers(4, 3)))


@case
def compiled_by_xla():
    @tf.function(jit_compile=True)
    def step(x):
        return tf.tanh(x @ tf.transpose(x)) + 1.0

    return Case(step, thrice(numbers(3, 3)))


@case
def calls_a_function_that_xla_compiles():
    @tf.function(jit_compile=True)
    def inner(x):
        return tf.exp(x) * 2.0

    @tf.function
    def step(x):
        return inner(x) - inner(x * 0.5)

    return Case(step, thrice(numbers(3)))


@case
def never_inlined():
    @tf.function(experimental_attributes={"_noinline": True})
    def inner(x):
        return x * x + 1.0

    @tf.function
    def step(x):
        return inner(inner(x))

    return Case(step, thrice(numbers(3)))


@case
def recompute_grad():
    weight = tf.Variable(numbers(3, 3))

    @tf.recompute_grad
    def layer(x):
        return tf.tanh(x @ weight)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(layer(x)))
        return loss, tape.gradient(loss, weight)

    return Case(step, thrice(numbers(2, 3)))


# Randomness.


@case
def stateful_random_ops():
    tf.random.set_seed(7)

    @tf.function
    def step(x):
        return tf.random.normal([3]) + x, tf.nn.dropout(x, 0.5, seed=3), tf.random.shuffle(x)

    return Case(step, thrice(numbers(6)[:3]))


@case
def generator_and_stateless():
    generator = tf.random.Generator.from_seed(5)

    @tf.function
    def step(seed):
        return generator.normal([4]), tf.random.stateless_uniform([4], seed), generator.uniform([2])

    return Case(step, thrice(tf.constant([1, 2])), lambda: [generator.state.numpy()])


# Faces: arguments, results, devices.


@case
def ragged_and_sparse_in_and_out():
    @tf.function
    def step(ragged, sparse):
        return ragged * 2, tf.sparse.add(sparse, sparse), ragged.row_lengths()

    ragged = tf.ragged.constant([[1, 2], [], [3]])
    sparse = tf.sparse.from_dense([[0.0, 1.0], [2.0, 0.0]])
    return Case(step, thrice(ragged, sparse))


@case
def ragged_with_unknown_rows_by_signature():
    @tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.int32)])
    def step(ragged):
        return tf.reduce_sum(ragged, axis=1), ragged

    return Case(step, thrice(tf.ragged.constant([[1, 2], [], [3]])))


@case
def structures_and_none():
    @tf.function
    def step(batch, extra):
        pair = Pair(batch["a"] + 1.0, None)
        return {"pair": pair, "list": [batch["b"], None, extra], "same": batch["a"], "none": None}

    return Case(step, thrice({"a": tf.constant(1.0), "b": tf.constant([2, 3])}, (None, 4)))


@case
def python_numbers_as_results():
    @tf.function
    def step(x):
        return x * 2, 3, "text", True, 1.5

    return Case(step, thrice(tf.constant(2)))


@case
def defaults_and_keywords():
    one = tf.constant(1.0)

    @tf.function
    def step(x, scale=2.0, *, shift=one, **more):
        return x * scale + shift + sum(more.values())

    x = tf.constant(3.0)
    return Case(
        step,
        [
            ((x,), {}),
            ((x, 4.0), {}),
            ((x,), {"scale": tf.constant(5.0)}),
            ((), {"shift": tf.constant(7.0), "x": x, "other": tf.constant(0.5)}),
        ],
    )


@case
def arguments_left_unread():
    @tf.function
    def step(used, unused, also_unused=None):
        return used, used

    return Case(step, thrice(tf.constant(1.0), tf.constant("text"), {"a": tf.constant(2)}))


@case
def results_that_are_captures():
    tensor = tf.constant([1.0, 2.0])
    variable = tf.Variable([3.0])

    @tf.function
    def step():
        return tensor, variable, tensor

    return Case(step, thrice())


@case
def odd_argument_names():
    @tf.function(input_signature=[tf.TensorSpec([2], name="Odd/name-of.it"), tf.TensorSpec([2])])
    def step(x, X):  # noqa: N803
        return x - X

    return Case(step, thrice(numbers(2), numbers(2, seed=5)))


@case
def devices():
    @tf.function
    def step(x):
        with tf.device("CPU:0"):
            y = tf.sin(x)
        with tf.device("/job:localhost/replica:0/task:0/device:CPU:0"):
            return tf.cos(y)

    return Case(step, thrice(numbers(3)))


@case
def many_dtypes():
    @tf.function
    def step(x):
        return [
            tf.cast(x, dtype) + tf.constant(1, dtype)
            for dtype in (tf.bfloat16, tf.float16, tf.float64, tf.int8, tf.uint16, tf.complex64)
        ] + [x > 0, tf.constant(b"\x00\xff"), tf.zeros([0, 3]), tf.constant([], tf.string)]

    return Case(step, thrice(numbers(3) * 5.0))


@case
def unknown_dimensions_by_signature():
    @tf.function(input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec(None, tf.int32)])
    def step(x, anything):
        return tf.reduce_mean(x, 0), tf.shape(anything), tf.einsum("bi,bj->ij", x, x)

    return Case(step, [((numbers(n, 3), tf.zeros([n] * n, tf.int32)), {}) for n in (1, 2, 3)])


def round_trip(concrete: Any, change: Callable[[Net], Net]) -> Any:
    return function_of(change(net_of(concrete)), concrete)


def lines(text: str) -> list[str]:
    """What the function printed, without TensorFlow's own lines.

    Its log's; and of a CTC loss, the step nets of which go by names that a process has once, its
    graph optimizer says that those of another test's have other shapes.
    """
    dated = r"[IWEF]\d{4} |\d{4}-\d\d-\d\d [\d:.]+: [IWEF] "  # the latter up to 2.20
    log = re.compile(rf"{dated}|error: 'tfg\.")
    return [line for line in text.splitlines() if not log.match(line)]


def run(case: Case, change: Callable[[Any], Any]) -> list:
    """Every call's results, and the state after it."""
    seen = []
    for args, kwargs in case.calls:
        function = change(case.fn.get_concrete_function(*args, **kwargs))
        results = private.call(case.fn, function, args, kwargs)
        seen.append((outcome(results), [as_bytes(one) for one in case.state()]))
    return seen


CHANGES = {
    "as_read": lambda net: net,
    "inlined": lambda net: without_dead_ops(inline(net)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_round_trip_changes_nothing(make, change, capfd):
    expected = run(make(), lambda concrete: concrete)
    printed = lines(capfd.readouterr().err)
    functions = {}

    def exported(concrete):
        if id(concrete) not in functions:
            functions[id(concrete)] = concrete, round_trip(concrete, change)
        return functions[id(concrete)][1]

    found = run(make(), exported)
    again = lines(capfd.readouterr().err)
    for number, (one, other) in enumerate(zip(expected, found, strict=True)):
        assert other == one, f"call {number} differs"
    assert again == printed


def with_step(net: Net, old: str, new: str) -> Net:
    """The Net with ops of the type ``old`` in its loops' bodies turned into ``new``."""
    ops = []
    for op in net.ops:
        if op.type in ("While", "StatelessWhile"):
            body = op.nets["body"]
            body = body.replace(
                ops=tuple(one.replace(type=new) if one.type == old else one for one in body.ops)
            )
            op = op.replace(nets={**op.nets, "body": body})
        ops.append(op)
    return net.replace(ops=tuple(ops))


def test_step_nets_run_under_fresh_names():
    @tf.function
    def step(x):
        return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x + x * 3.0), (0, x))[1]

    concrete = step.get_concrete_function(tf.constant(1.0))
    net = net_of(concrete)
    same = function_of(net, concrete)
    changed = function_of(with_step(net, "Mul", "Maximum"), concrete)
    # A body under the name of the other would give the other's result.
    assert [f(tf.constant(1.0)).numpy() for f in (concrete, same, changed, same)] == [
        64,
        64,
        16,
        64,
    ]

    names = [
        {function.signature.name for function in f.graph.as_graph_def().library.function}
        for f in (concrete, same, changed)
    ]
    assert not names[0] & names[1] and not names[1] & names[2]


def test_the_face_of_the_function_stays():
    @tf.function
    def step(batch, scale=2.0):
        return {"scaled": batch["x"] * scale, "rows": tf.shape(batch["x"])[0]}

    concrete = step.get_concrete_function({"x": tf.TensorSpec([None, 2])}, tf.TensorSpec([]))
    made = round_trip(concrete, inline)
    assert made.function_type == concrete.function_type
    assert made.structured_input_signature == concrete.structured_input_signature
    assert made.pretty_printed_signature() == concrete.pretty_printed_signature()
    assert made.output_shapes == concrete.output_shapes
    assert made.output_dtypes == concrete.output_dtypes
    assert [one.name for one in made.inputs] == [one.name for one in concrete.inputs]


def test_captures_and_variables_are_the_same_objects():
    weight, tensor = tf.Variable([1.0]), tf.constant([2.0])
    step = tf.function(lambda x: x * weight + tensor)
    concrete = step.get_concrete_function(tf.constant(3.0))
    made = round_trip(concrete, inline)
    assert [id(one) for one in made.captured_inputs] == [
        id(one) for one in concrete.captured_inputs
    ]
    assert [id(one) for one in made.variables] == [id(weight)]
    assert [id(one) for one in made.trainable_variables] == [id(weight)]


def test_a_gradient_through_the_function_is_the_same():
    weight = tf.Variable(numbers(3, 3))
    step = tf.function(lambda x: tf.reduce_sum(tf.tanh(x @ weight)))
    x = numbers(2, 3)
    concrete = step.get_concrete_function(x)
    gradients = []
    for function in (concrete, round_trip(concrete, inline)):
        with tf.GradientTape() as tape:
            loss = function(x)
        gradients.append(as_bytes(tape.gradient(loss, weight)))
    assert gradients[0] == gradients[1]


def test_the_function_survives_in_a_saved_model(tmp_path):
    module = tf.Module()
    module.weight = tf.Variable(numbers(3, 3))
    step = tf.function(lambda x: tf.scan(lambda h, x: tf.tanh(h @ module.weight) + x, x))
    x = numbers(4, 2, 3)
    concrete = step.get_concrete_function(x)
    tf.saved_model.save(module, tmp_path, signatures={"step": round_trip(concrete, inline)})
    (result,) = tf.saved_model.load(tmp_path).signatures["step"](x).values()
    assert as_bytes(result) == as_bytes(concrete(x))


def test_a_value_known_only_at_each_call_is_asked_for_at_each_call():
    value = [1.0]

    @tf.function
    def step():
        graph = tf.compat.v1.get_default_graph()
        return graph.capture_call_time_value(lambda: tf.constant(value[0]), tf.TensorSpec([])) + 1.0

    again = round_trip(step.get_concrete_function(), inline)
    assert again().numpy() == 2.0
    value[0] = 4.0
    assert again().numpy() == 5.0
