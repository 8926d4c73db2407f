"""Variables, modules, lists and gradients; nothing of Keras' own."""

import collections

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.conversion.floats import FLOATS, is_exact, numpy_dtype

VALUES = [[1.0, -2.5, 0.125], [0.0, 3.0, 448.0]]
CPU = "CPU:0"


class Affine(tf.Module):
    """A module with state of all kinds."""

    def __init__(self):
        super().__init__(name="affine")
        self.weight = tf.Variable(VALUES, name="weight")
        self.bias = tf.Variable([0.5, 0.25, 1.0], name="bias", trainable=False)
        self.calls = tf.Variable(0, name="calls")
        self.label = tf.Variable("a", name="label")
        self.scale = tf.constant([2.0, 2.0, 2.0])
        self.parts = [tf.Variable([1.0], name="part"), {"deep": tf.Variable([2.0], name="deep")}]

    @tf.function
    def __call__(self, x):
        self.calls.assign_add(1)
        return (x @ self.weight + self.bias) * self.scale


def ones(dtype="float32"):
    return tf.ones([1, 2], dtype)


def test_a_module_keeps_its_objects_and_computes_in_the_new_dtype():
    module = Affine()
    before = module(ones())
    kept = [module.weight, module.bias, module.calls, module.parts[1]["deep"]]
    names = [(v.name, v.ref(), v._unique_id) for v in kept]

    assert rnnmem.convert(module, "float16") is module

    after = [module.weight, module.bias, module.calls, module.parts[1]["deep"]]
    assert all(old is new for old, new in zip(kept, after, strict=True))
    assert [(v.name, v.ref(), v._unique_id) for v in after] == names
    assert [v.dtype.name for v in after] == ["float16", "float16", "int32", "float16"]
    assert module.weight.numpy().tolist() == VALUES
    assert module.label.numpy() == b"a"
    assert module.scale.dtype == tf.float16
    assert not module.bias.trainable
    found = module(ones("float16"))
    assert found.dtype == tf.float16
    assert np.allclose(found, before, rtol=1e-3)
    assert module.calls.numpy() == 2


@pytest.mark.parametrize("before", FLOATS)
@pytest.mark.parametrize("after", FLOATS)
def test_every_floating_point_dtype_goes_to_every_other_and_back(before, after):
    values = np.array(VALUES).astype(numpy_dtype(before))
    variable = tf.Variable(values)
    rnnmem.convert([variable], after)
    assert variable.dtype.name == after
    expected = values.astype(np.float64).astype(numpy_dtype(after))
    assert np.array_equal(variable.numpy().astype(np.float64), expected.astype(np.float64))
    rnnmem.convert([variable], before)
    assert variable.dtype.name == before
    if is_exact(before, after):
        assert variable.numpy().tobytes() == values.tobytes()


def test_a_function_traces_again_and_a_kept_trace_says_so():
    variable = tf.Variable([1.0, 2.0])
    traces = []

    @tf.function
    def inner(x):
        return x * variable

    @tf.function
    def outer(x):
        traces.append(x.dtype.name)
        return tf.reduce_sum(inner(x))

    kept = outer.get_concrete_function(tf.TensorSpec([2], tf.float32))
    assert kept(tf.ones([2])).numpy() == 3.0
    rnnmem.convert([variable], "float64")
    assert outer(tf.ones([2], tf.float64)).numpy() == 3.0
    assert traces == ["float32", "float64"]
    with pytest.raises(rnnmem.StaleFunctionError, match="Variable"):
        kept(tf.ones([2]))


def test_a_function_without_arguments_traces_again():
    variable = tf.Variable([1.0, 2.0])
    total = tf.function(lambda: tf.reduce_sum(variable))
    assert total().dtype == tf.float32
    rnnmem.convert([variable], "bfloat16")
    assert total().dtype == tf.bfloat16
    variable.assign([4.0, 4.0])
    assert total().numpy() == 8.0


def test_a_function_over_other_variables_keeps_its_trace():
    changed, other = tf.Variable([1.0]), tf.Variable([2.0])
    traces = []

    @tf.function
    def read():
        traces.append(1)
        return other + 1

    kept = read.get_concrete_function()
    rnnmem.convert([changed], "float16")
    assert read().numpy() == kept().numpy() == [3.0]
    assert len(traces) == 1


def test_an_optimised_function_is_optimised_again():
    variable = tf.Variable(tf.random.normal([4, 4]))

    @rnnmem.optimize
    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loop = tf.while_loop(
                lambda i, h: i < 5, lambda i, h: (i + 1, tf.tanh(h @ variable)), [0, x]
            )
            loss = tf.reduce_sum(loop[1])
        return tape.gradient(loss, variable)

    expected = step(tf.ones([2, 4]))
    rnnmem.convert(variable, "float64")
    found = step(tf.ones([2, 4], tf.float64))
    assert found.dtype == tf.float64
    assert np.allclose(found, expected, atol=1e-5)


def test_gradients_flow_to_a_converted_variable():
    variable = tf.Variable([1.0, 2.0])
    rnnmem.convert(variable, "float64")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(variable * variable)
    gradient = tape.gradient(loss, variable)
    assert gradient.dtype == tf.float64
    assert gradient.numpy().tolist() == [2.0, 4.0]
    variable.assign_sub(gradient)
    assert variable.numpy().tolist() == [-1.0, -2.0]


def test_gradients_that_the_user_holds_are_replaced_where_they_lie():
    Pair = collections.namedtuple("Pair", "first second")
    variable = tf.Variable([3.0])
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([4]), tf.constant([8, 2]))
    shared = tf.constant([1.0])
    held = [
        shared,
        None,
        (tf.constant([2.0]), variable),
        {"b": slices, "i": tf.constant([1])},
        Pair(shared, 7),
        tf.ragged.constant([[1.0, 2.0], [3.0]]),
        tf.SparseTensor([[0, 1]], [5.0], [2, 2]),
    ]
    inner = held[3]
    assert rnnmem.convert(held, "float16") is held
    assert held[0].dtype == tf.float16 and held[0].numpy() == [1.0]
    assert held[1] is None
    assert held[2][0].dtype == tf.float16 and held[2][1] is variable
    assert variable.dtype == tf.float16
    assert held[3] is inner and inner["i"].dtype == tf.int32
    assert inner["b"].values.dtype == tf.float16
    assert inner["b"].indices.numpy().tolist() == [4]
    assert held[4] == Pair(held[0], 7) or held[4].first is held[0]
    assert held[5].dtype == tf.float16 and held[5].to_list() == [[1.0, 2.0], [3.0]]
    assert held[6].dtype == tf.float16 and held[6].values.numpy() == [5.0]


def test_a_tensor_or_a_tuple_comes_back_again():
    assert rnnmem.convert(tf.constant([1.5]), "float16").dtype == tf.float16
    variable = tf.Variable([1.0])
    found = rnnmem.convert((variable, tf.constant([1.0])), "float16")
    assert found[0] is variable and found[1].dtype == tf.float16


def test_a_shared_variable_is_converted_once_and_still_shared():
    variable = tf.Variable([1.0, 2.0])
    first, second = tf.Module(), tf.Module()
    first.v, second.v = variable, variable
    plan = rnnmem.convert([first, second, variable], "float16", dry_run=True)
    assert len(plan.changing) == 1
    rnnmem.convert([first, second, variable], "float16")
    assert first.v is second.v is variable
    first.v.assign([7.0, 8.0])
    assert second.v.numpy().tolist() == [7.0, 8.0]


def test_integers_follow_only_where_they_are_asked_to():
    count, flag = tf.Variable([1, 2]), tf.Variable([True, False])
    rnnmem.convert([count, flag], "float16")
    assert (count.dtype, flag.dtype) == (tf.int32, tf.bool)
    rnnmem.convert([count, flag], "float16", only_floats=False)
    assert (count.dtype, flag.dtype) == (tf.float16, tf.float16)
    assert count.numpy().tolist() == [1.0, 2.0]
    assert flag.numpy().tolist() == [1.0, 0.0]


def test_random_state_stays_whatever_is_asked():
    module = tf.Module()
    module.random = tf.random.Generator.from_seed(1)
    expected = tf.random.Generator.from_seed(1).normal([3]).numpy()
    rnnmem.convert(module, "float16", only_floats=False)
    assert np.array_equal(module.random.normal([3]), expected)


def test_complex_numbers_tables_and_data_sets_stay():
    table = tf.Module()
    table.waves = tf.Variable([1 + 2j])
    table.lookup = tf.lookup.experimental.DenseHashTable(
        tf.int64, tf.float32, default_value=0.0, empty_key=-1, deleted_key=-2
    )
    table.lookup.insert([1], [2.0])
    table.data = tf.data.Dataset.from_tensors(tf.constant([1.0]))
    table.weight = tf.Variable([1.0])
    rnnmem.convert(table, "float16")
    assert table.waves.dtype == tf.complex128 and table.weight.dtype == tf.float16
    assert table.lookup.lookup(tf.constant([1], tf.int64)).numpy() == [2.0]
    assert next(iter(table.data)).dtype == tf.float32


def test_a_variable_of_unknown_shape_and_one_with_sparse_updates():
    unknown = tf.Variable([1.0, 2.0], shape=[None])
    rows = tf.Variable(tf.ones([4, 2]))
    rows.scatter_add(tf.IndexedSlices(tf.ones([1, 2]), [2]))
    rnnmem.convert([unknown, rows], "float16")
    unknown.assign([1.0, 2.0, 3.0])
    assert unknown.shape.as_list() == [None]
    assert unknown.numpy().tolist() == [1.0, 2.0, 3.0]
    rows.scatter_add(tf.IndexedSlices(tf.ones([1, 2], tf.float16), [2]))
    assert tf.gather(rows, [1, 2]).numpy().tolist() == [[1.0, 1.0], [3.0, 3.0]]


def test_a_checkpoint_made_before_saves_and_restores_after(tmp_path):
    module = Affine()
    checkpoint = tf.train.Checkpoint(module=module)
    checkpoint.save(str(tmp_path / "float32"))
    rnnmem.convert(checkpoint, "float16")
    assert module.weight.dtype == tf.float16
    path = checkpoint.save(str(tmp_path / "float16"))
    module.weight.assign(tf.zeros([2, 3], tf.float16))
    checkpoint.restore(path).assert_consumed()
    assert module.weight.numpy().tolist() == VALUES


def test_a_saved_model_of_a_converted_module(tmp_path):
    module = Affine()
    module(ones())
    rnnmem.convert(module, "float64")
    expected = module(ones("float64")).numpy()
    tf.saved_model.save(module, str(tmp_path))
    assert np.array_equal(tf.saved_model.load(str(tmp_path))(ones("float64")), expected)


def test_nothing_to_do_is_done_with_one_question_for_each_device(monkeypatch):
    asked = []
    real = tf.config.experimental.get_memory_info
    monkeypatch.setattr(
        tf.config.experimental, "get_memory_info", lambda d: asked.append(d) or real(d)
    )
    variables = [tf.Variable([1.0] * 100) for _ in range(10)]
    handles = [v.handle for v in variables]
    rnnmem.convert(variables, "float32")
    assert asked == [CPU]
    assert all(v.handle is h for v, h in zip(variables, handles, strict=True))
    rnnmem.convert(variables, "float16")
    assert asked == [CPU, CPU]


def test_nothing_asked_for_is_no_silence():
    variable = tf.Variable([1.0])
    for dry_run in (False, True):
        with pytest.raises(
            rnnmem.OptionError, match="dtype=None and device=None: nothing is asked"
        ):
            rnnmem.convert([variable], dry_run=dry_run)


def test_a_dry_run_prints_and_changes_nothing(capsys):
    module = Affine()
    module(ones())
    plan = rnnmem.convert(module, "float16", dry_run=True)
    printed = capsys.readouterr().out
    assert printed == str(plan)
    assert "float32 -> float16" in printed and "weight" in printed
    assert module.weight.dtype == tf.float32
    steps = {step.tensor.name: step for step in plan.steps}
    assert steps["weight"].tensor.bytes_before == 24
    assert steps["weight"].tensor.bytes_after == 12
    assert steps["calls"].route == steps["label"].route == "untouched"
    assert isinstance(plan, rnnmem.ConversionPlan)


def test_without_blocking_later_ops_see_the_new_values():
    variable = tf.Variable([1.0, 2.0])
    assert rnnmem.convert(variable, "float16", blocking=False) is variable
    assert (variable + 1).numpy().tolist() == [2.0, 3.0]


class TestOverflow:
    def variables(self):
        good = tf.Variable([1.0, 2.0], name="good")
        bad = tf.Variable([1.0, 1e6, -7e4, np.inf, np.nan], name="bad")
        return [good, bad]

    def test_it_is_an_error_that_names_the_variable(self):
        variables = self.variables()
        with pytest.raises(rnnmem.RangeError, match=r"bad \(2 values, up to 1e\+06\)") as caught:
            rnnmem.convert(variables, "float16")
        assert "good" not in str(caught.value)
        assert [v.dtype.name for v in variables] == ["float32"] * 2
        assert variables[1].numpy()[1] == 1e6

    def test_it_can_be_clipped(self):
        variables = self.variables()
        rnnmem.convert(variables, "float16", overflow="clip")
        found = variables[1].numpy()
        assert found[:4].tolist() == [1.0, 65504.0, -65504.0, 65504.0]
        assert np.isnan(found[4])
        assert variables[0].numpy().tolist() == [1.0, 2.0]

    def test_it_can_be_ignored(self):
        variables = self.variables()
        rnnmem.convert(variables, "float16", overflow="ignore")
        assert np.isinf(variables[1].numpy()[1:4]).all()

    def test_values_in_range_are_no_overflow_however_long_the_vector(self):
        many = tf.Variable(tf.fill([300_000], 65519.0), name="many")
        rnnmem.convert(many, "float16")
        assert many.numpy().max() == 65504.0

    @pytest.mark.parametrize("before", ["int32", "int64", "uint16", "uint64"])
    def test_integers_too_large_are_no_less_an_overflow(self, before):
        values = tf.cast([1, 65535, 3], before)
        variable = tf.Variable(values, name="count")
        with pytest.raises(rnnmem.RangeError, match=r"count \(1 value, up to 65535\)"):
            rnnmem.convert(variable, "float16", only_floats=False)
        assert variable.dtype == before
        rnnmem.convert(variable, "float16", only_floats=False, overflow="clip")
        assert variable.numpy().tolist() == [1.0, 65504.0, 3.0]
        ignored = tf.Variable(values)
        rnnmem.convert(ignored, "float16", only_floats=False, overflow="ignore")
        assert np.isinf(ignored.numpy()).tolist() == [False, True, False]

    @pytest.mark.parametrize(
        ("before", "after", "large"),
        [
            ("bfloat16", "float16", 1e30),
            ("float16", "float8_e4m3fn", 6e4),
            ("float8_e5m2", "float8_e4m3fn", 57344.0),
            ("float64", "float32", 1e300),
            ("float32", "bfloat16", 3.4e38),
        ],
    )
    def test_one_value_among_many_is_found_in_every_dtype(self, before, after, large):
        values = np.ones(3_000_000, np.float32).astype(numpy_dtype(before))
        values[2_345_678] = large
        variable = tf.Variable(values, name="many")
        with pytest.raises(rnnmem.RangeError, match=r"many \(1 value,"):
            rnnmem.convert(variable, after)
        assert variable.dtype.name == before

    def test_a_dtype_without_infinity(self):
        variable = tf.Variable([449.0, -1000.0, 500.0], name="v")
        with pytest.raises(rnnmem.RangeError, match="2 values, up to 1000"):
            rnnmem.convert(variable, "float8_e4m3fn")
        rnnmem.convert(variable, "float8_e4m3fn", overflow="clip")
        assert variable.numpy().astype(np.float32).tolist() == [448.0, -448.0, 448.0]


class TestBadInput:
    @pytest.mark.parametrize("dtype", ["float17", "int8", 5, tf.string])
    def test_dtype(self, dtype):
        with pytest.raises(rnnmem.OptionError, match="dtype="):
            rnnmem.convert(tf.Variable([1.0]), dtype)

    @pytest.mark.parametrize("device", ["GPU:9", "TPU", "", "cpu:zero", 3])
    def test_device(self, device):
        with pytest.raises(rnnmem.OptionError, match="device=.*CPU:0"):
            rnnmem.convert(tf.Variable([1.0]), device=device)

    @pytest.mark.parametrize("device", ["CPU:0", "cpu", "/CPU:0", "/job:localhost/device:CPU:0"])
    def test_a_device_has_many_names(self, device):
        variable = tf.Variable([1.0])
        rnnmem.convert(variable, "float16", device)
        assert variable.device.endswith("CPU:0")

    def test_overflow(self):
        with pytest.raises(rnnmem.OptionError, match="overflow='wrap'.*clip"):
            rnnmem.convert(tf.Variable([1.0]), "float16", overflow="wrap")

    @pytest.mark.parametrize("name", ["blocking", "only_floats", "dry_run", "progress"])
    def test_flags(self, name):
        variable = tf.Variable([1.0])
        with pytest.raises(rnnmem.OptionError, match=f"{name}='no' must be True"):
            rnnmem.convert(variable, "float16", **{name: "no"})
        assert variable.dtype == tf.float32

    @pytest.mark.parametrize("target", [None, "model", 3, object(), [None, "x"], np.ones(3)])
    def test_target(self, target):
        with pytest.raises(rnnmem.OptionError, match="target=.*tf.Module"):
            rnnmem.convert(target, "float16")

    def test_a_policy_without_layers(self):
        with pytest.raises(rnnmem.OptionError, match="mixed_float16"):
            rnnmem.convert(tf.Variable([1.0]), "mixed_float16")

    def test_a_variable_without_a_value(self):
        good = tf.Variable([1.0])
        with tf.init_scope():
            from tensorflow.python.ops.resource_variable_ops import UninitializedVariable

            empty = UninitializedVariable(shape=[2], dtype=tf.float32, name="empty")
        with pytest.raises(rnnmem.ConvertError, match="'empty' has no value.*nothing was changed"):
            rnnmem.convert([good, empty], "float16")
        assert good.dtype == tf.float32

    def test_a_variable_of_a_graph(self):
        with tf.Graph().as_default():
            variable = tf.compat.v1.get_variable("old", [2], use_resource=True)
        with pytest.raises(rnnmem.ConvertError, match="graph"):
            rnnmem.convert([variable], "float16")

    def test_inside_a_function(self):
        variable = tf.Variable([1.0])
        with pytest.raises(rnnmem.ConvertError, match=r"outside of tf\.function"):
            tf.function(lambda: rnnmem.convert(variable, "float16") and 1)()
        assert variable.dtype == tf.float32

    def test_a_distributed_variable(self):
        plain = tf.Variable([1.0])
        with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
            mirrored = tf.Variable([1.0], name="mirrored")
        with pytest.raises(rnnmem.ConvertError, match="'mirrored' is distributed"):
            rnnmem.convert([plain, mirrored], "float16")
        assert plain.dtype == mirrored.dtype == tf.float32

    def test_a_saved_model_without_its_code(self, tmp_path):
        module = Affine()
        expected = module(ones()).numpy()
        tf.saved_model.save(module, str(tmp_path))
        loaded = tf.saved_model.load(str(tmp_path))
        for target in (loaded, [loaded.weight]):
            with pytest.raises(rnnmem.ConvertError, match="SavedModel.*nothing was changed"):
                rnnmem.convert(target, "float16")
        assert loaded.weight.dtype == tf.float32
        assert np.array_equal(loaded(ones()), expected)

    def test_a_signature_of_a_saved_model(self, tmp_path):
        module = Affine()
        signature = module.__call__.get_concrete_function(tf.TensorSpec([1, 2], tf.float32))
        tf.saved_model.save(module, str(tmp_path), signatures=signature)
        loaded = tf.saved_model.load(str(tmp_path))
        with pytest.raises(rnnmem.ConvertError, match="SavedModel"):
            rnnmem.convert(loaded, "float16")
        assert loaded.signatures["serving_default"](ones())
