"""The topologies that Caffe2's memonger was tested on, rebuilt: same numbers, fewer blobs."""

import warnings

import pytest

from rnnmem.analysis.versions import ssa
from rnnmem.errors import NetError
from rnnmem.ir.graph import Blob, Net, Op
from rnnmem.storage import (
    ALGORITHMS,
    estimate,
    order,
    release,
    same_producers,
    share_gradients,
    share_parallel,
    share_sequential,
)
from tests.storage.layers import Layers, names
from tests.storage.symbolic import assert_same_numbers


def three_layers() -> Layers:
    return Layers("data", "label").lines(
        "FC data -> fc1",
        "FC fc1 -> fc2",
        "FC fc2 -> fc3",
        "Relu fc3 -> fc3",
        "Softmax fc3 -> pred",
        "CrossEntropy pred label -> xent",
        "Mean xent -> loss",
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("sizes", ["shapes", None])
def test_1_training_over_one_order(algorithm, sizes):
    net = three_layers().gradients("loss").net("loss", "fc1_w_grad")
    shared = share_sequential(net, algorithm=algorithm, sizes=sizes, keep=["fc1_w_grad"])
    assert_same_numbers(net, shared.net)
    assert len(names(shared.net)) < len(names(net))
    assert shared.after.bytes < shared.before.bytes
    assert {"data", "label", "loss", "fc1_w_grad", "fc1_w"} <= names(shared.net)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_2_inference(algorithm):
    net = three_layers().net("pred")
    for shared in (share_parallel(net), share_sequential(net, algorithm=algorithm)):
        assert_same_numbers(net, shared.net, parallel=True)
        assert len(names(shared.net)) < len(names(net))


def test_3_two_writers_of_a_name():
    layers = Layers("data").line("FC data -> x").line("FC data -> x").line("Sum x x -> s")
    net = layers.lines("Sum x s -> t", "Sum s t -> u", "Concat t u -> c", "Relu c -> r").net("r")
    shared = share_parallel(net)
    assert_same_numbers(net, shared.net, parallel=True)
    assert all(len(set(op.outputs)) == len(op.outputs) for op in shared.net.ops)
    assert len(names(shared.net)) < len(names(net))


def five_layers() -> Layers:
    layers = Layers("data", "label")
    for number in range(1, 6):
        source = "data" if number == 1 else f"fc{number - 1}"
        layers.lines(f"FC {source} -> fc{number}", f"Relu fc{number} -> fc{number}")
    return layers.lines(
        "Softmax fc5 -> pred", "CrossEntropy pred label -> xent", "Mean xent -> loss"
    )


@pytest.mark.parametrize("sizes", ["shapes", None])
def test_4_gradient_blobs(sizes):
    net = five_layers().gradients("loss").net("loss", "fc1_w_grad")
    alone = share_gradients(net, ["loss"], sizes=sizes)
    both = share_gradients(net, ["loss"], activations=True, sizes=sizes)
    for shared in (alone, both):
        assert_same_numbers(net, shared.net, parallel=True)
        assert same_producers(net, shared.net)
    assert len(names(both.net)) <= len(names(alone.net)) < len(names(net))
    assert "fc5" in names(both.net)
    forward = {blob for op in five_layers().ops for blob in op.outputs}
    renamed = [one for one in alone.plan.storages if forward.intersection(one.blobs)]
    assert all(len(one.blobs) == 1 for one in renamed)


def test_4_a_gradient_that_is_overwritten_between_runs_is_computed_again():
    net = five_layers().gradients("loss").net("loss", "fc1_w_grad")
    shared = share_gradients(net, ["loss"]).net
    writers = [op for op in shared.ops if "fc1_w_grad" in op.outputs]
    assert len(writers) == 1 and writers[0].type == "FCGradient"


def test_5_two_devices():
    layers = Layers("data")
    for device in ("gpu:0", "gpu:1"):
        source = "data" if device == "gpu:0" else "moved"
        for number in range(4):
            name = f"{device[-1]}_{number}"
            layers.line(f"FC {source} -> {name}", device=device)
            source = name
        if device == "gpu:0":
            layers.line(f"Copy {source} -> moved", device="gpu:1")
    net = layers.net("1_3")
    for shared in (share_parallel(net).net, share_sequential(net, algorithm="exact").net):
        assert_same_numbers(net, shared)
        assert len(names(shared)) < len(names(net))
        used = {
            device: {
                blob
                for op in shared.ops
                if op.device == device and op.type != "Copy"
                for blob in (*op.inputs, *op.outputs)
            }
            for device in ("gpu:0", "gpu:1")
        }
        assert not used["gpu:0"] & used["gpu:1"]


def tree() -> Layers:
    layers = five_layers()
    return layers.lines(
        "FC fc5 -> fc6", "Softmax fc6 -> pred2", "CrossEntropy pred2 label -> xent2",
        "Mean xent2 -> loss2",
    )  # fmt: skip


def test_6_a_tree_with_two_losses():
    net = tree().gradients("loss", "loss2").net("loss", "loss2")
    keep = ["fc5", "fc6", "fc1_w_grad"]
    shared = share_gradients(net, ["loss", "loss2"], activations=True, keep=keep)
    assert_same_numbers(net, shared.net, parallel=True)
    assert len(names(shared.net)) < len(names(net))
    assert all(storage.name not in keep for storage in shared.plan.storages)
    assert set(keep) <= names(shared.net)


def branches(join: str) -> Layers:
    layers = Layers("data", "label").lines("FC data -> fc1", "FC fc1 -> fc2")
    for side in ("", "b"):
        layers.lines(
            f"FC fc2 -> fc3{side}", f"FC fc3{side} -> fc4{side}", f"FC fc4{side} -> fc5{side}"
        )
    layers.lines("Sum fc5 fc5b -> fc5s", join)
    top = join.split()[-1]
    for number, source in (("", top), ("2", "fc6")):
        if number:
            layers.line(f"FC {top} -> fc6")
        layers.lines(
            f"Softmax {source} -> pred{number}",
            f"CrossEntropy pred{number} label -> xent{number}",
            f"Mean xent{number} -> loss{number}",
        )
    return layers


@pytest.mark.parametrize(
    "join", ["Relu fc5 -> fc5s", "Relu fc5s -> joined"], ids=["7_overwritten", "8_joined"]
)
@pytest.mark.parametrize("sizes", ["shapes", None])
def test_7_and_8_branches(join, sizes):
    layers = branches(join)
    for net in (
        layers.net("loss", "loss2"),
        layers.gradients("loss", "loss2").net("loss", "loss2"),
    ):
        shared = share_parallel(net, sizes=sizes)
        assert_same_numbers(net, shared.net, parallel=True)
        assert len(names(shared.net)) < len(names(net))
        gradients = share_gradients(net, ["loss", "loss2"], sizes=sizes)
        assert_same_numbers(net, gradients.net, parallel=True)


def test_8_branches_exchange_nothing_and_full_reuse_resumes_after_the_join():
    net = branches("Relu fc5s -> joined").net("loss", "loss2")
    storage = share_parallel(net).plan.rename
    left = {storage[blob] for blob in ("fc3", "fc4", "fc5")}
    right = {storage[blob] for blob in ("fc3b", "fc4b", "fc5b")}
    assert not left & right
    assert storage["joined"] != "joined"
    after = {storage[blob] for blob in ("joined", "fc6", "pred", "pred2", "xent", "xent2")}
    assert after <= left | right | {storage["fc1"], storage["fc2"], storage["fc5s"]}


def test_9_a_head_that_feeds_an_inner_op():
    layers = Layers("data", "label", "head").lines(
        "FC data -> fc1", "FC head -> h1", "FC h1 -> h2", "Sum h2 fc1 -> s", "FC s -> fc2",
        "Sum fc2 head -> out",
    )  # fmt: skip
    net = layers.net("out")
    shared = share_parallel(net, keep=["head", "fc1_w"])
    assert_same_numbers(net, shared.net, parallel=True)
    assert len(names(shared.net)) < len(names(net))


def test_a_parameter_listed_as_kept_changes_nothing():
    net = three_layers().net("pred")
    assert share_parallel(net, keep=["fc1_w"]).plan == share_parallel(net).plan


def test_10_an_op_that_must_be_in_place_and_is_not():
    net = Layers("a").lines("Freeze a -> b", "FC b -> c").net("c")
    with pytest.raises(NetError, match="must be in place"):
        share_parallel(net, must_be_in_place={"Freeze": ((0, 0),)})
    marked = Layers("a").line("Freeze a -> b", attributes={"in_place": ((0, 0),)}).net("b")
    with pytest.raises(NetError, match="'0_Freeze'"):
        share_sequential(marked)


def test_11_in_place_at_the_head():
    layers = Layers("a").lines("Freeze a -> a", "FC a -> b", "FC b -> c", "FC c -> d", "FC d -> e")
    net = layers.net("e")
    shared = share_parallel(net, must_be_in_place={"Freeze": ((0, 0),)})
    assert_same_numbers(net, shared.net, parallel=True)
    assert len(names(shared.net)) < len(names(net))


def test_14_longest_path_first():
    layers = Layers("data", "a", "b").lines(
        "Copy a -> conv0_w", "Conv2 data conv0_w -> conv0", "Copy b -> conv2_w",
        "Conv2 conv0 conv2_w -> conv2",
    )  # fmt: skip
    numbers = [op.name[0] for op in order(layers.net("conv2"), "longest_path").ops]
    assert numbers == list("0123")
    layers.lines("Copy data -> c", "Copy c -> d")
    numbers = [op.name[0] for op in order(layers.net("conv2", "d"), "longest_path").ops]
    assert numbers == list("012345")


def test_17_equal_producers():
    def net(*lines):
        return Layers("data").lines(*lines).net()

    base = net("F data -> x", "F x -> y", "F x -> z", "Sum y z -> out")
    renamed = net("F data -> p", "F p -> q", "F p -> r", "Sum q r -> o")
    assert same_producers(base, renamed)
    deeper = ["F data -> x", "F x -> y", "F x -> z"]
    apart = net(*deeper, "F y -> u", "F z -> v", "Sum u v -> out")
    in_place = net(*deeper, "F y -> y", "F z -> z", "Sum y z -> out")
    assert same_producers(apart, in_place)
    assert not same_producers(base, net("F data -> x", "F x -> y", "F x -> y", "Sum y y -> out"))


def test_18_release_after_last_use():
    layers = Layers("data").lines(
        "FC data -> x", "FC x -> y", "FC x -> z", "FC y -> u", "Alias u -> v", "Sum z u -> out"
    )
    freed = release(layers.net("out"))
    assert sorted(blob for blobs in freed.values() for blob in blobs) == ["x", "y", "z"]
    assert freed == {"2_FC": ("x",), "3_FC": ("y",), "5_Sum": ("z",)}


def test_a_blob_read_twice_by_one_op_is_freed_once():
    net = Layers("data").lines("FC data -> x", "Sum x x -> y", "FC y -> z").net("z")
    assert release(net) == {"1_Sum": ("x",), "2_FC": ("y",)}


def test_a_blob_freed_by_an_op_is_not_for_that_ops_own_outputs():
    net = Layers("data").lines("F data -> a", "F a -> b", "F b -> c", "F c -> d").net("d")
    rename = share_parallel(net).plan.rename
    assert rename["a"] == rename["c"] != rename["b"]


def test_an_op_with_one_output_in_place_and_one_fresh():
    net = Layers("data").lines(
        "F data -> a", "Two a -> a fresh", "F a -> b", "F b -> c", "Sum c fresh -> d"
    ).net("d")  # fmt: skip
    shared = share_parallel(net)
    assert_same_numbers(net, shared.net, parallel=True)
    past = ssa(shared.net)
    assert past.in_place(1) == {(0, 0)}


def test_fetched_values_keep_their_values():
    net = Layers("a", "b").lines(
        "Abs a -> aa", "Abs b -> bb", "Sub aa bb -> d", "Square d -> cost"
    ).net("aa", "bb", "cost")  # fmt: skip
    for shared in (share_parallel(net), share_sequential(net)):
        assert_same_numbers(net, shared.net)
        assert not {"aa", "bb", "cost"} & set(shared.plan.rename)


def test_sharing_twice_changes_nothing():
    net = three_layers().net("pred")
    once = share_parallel(net)
    for again in (share_parallel(once.net), share_sequential(once.net, order="peak")):
        assert again.net is once.net
        assert again.plan.changes_nothing


def test_without_sizes_the_storage_shared_by_most_is_taken():
    # p and q are free when t is made; p's storage has served two, q's one.
    net = Layers("data").lines(
        "F data -> p", "F p -> m", "F m -> p2", "F m -> q", "Sum p2 q -> s", "F s -> t"
    ).net("t")  # fmt: skip
    plan = share_parallel(net, sizes=None).plan
    most = max(plan.storages, key=lambda one: len(one.blobs))
    assert len(most.blobs) >= 2


def test_with_sizes_the_best_fit_is_taken():
    layers = Layers("data")
    for name, width in (("big", 64), ("small", 16)):
        layers.line(f"F data -> {name}", (4, width))
    layers.line("Sum big small -> s", (2, 2)).line("F s -> want", (4, 15)).line("F want -> out")
    rename = share_parallel(layers.net("out")).plan.rename
    assert rename["want"] == "small"


def test_bad_input():
    net = three_layers().net("pred")
    with pytest.raises(NetError, match="'nobody'"):
        share_parallel(net, keep=["nobody"])
    with pytest.raises(NetError, match="'nobody'"):
        share_gradients(net, ["nobody"])
    with pytest.raises(ValueError, match="level=3"):
        share_parallel(net, level=3)
    with pytest.raises(ValueError, match="algorithm='best'"):
        share_sequential(net, algorithm="best")
    with pytest.raises(ValueError, match="order='random'"):
        share_sequential(net, order="random")
    loop = (Op("a", "F", ("y",), ("x",)), Op("b", "F", ("x",), ("y",)))
    cycle = Net("c", (), ("x",), loop, {name: Blob(name, "float32", (2,)) for name in "xy"})
    for share in (share_parallel, share_sequential, estimate, order, release):
        with pytest.raises(NetError, match="cycle"):
            share(cycle)


def test_unknown_sizes_count_0_with_a_warning_and_the_plan_verifies():
    net = three_layers()
    net.sized = False
    net = net.net("pred")
    with pytest.warns(UserWarning, match="no known size"):
        shared = share_sequential(net, algorithm="exact")
    assert_same_numbers(net, shared.net)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sizes = {name: 10 for name in names(net)}
        assert share_sequential(net, sizes=sizes).after.bytes > 0
