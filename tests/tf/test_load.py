"""Graphs from files and functions as Nets, and real nets planned."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

import rnnmem
from benchmarks.resnet import resnet50_nets
from rnnmem.errors import NetError, OptionError
from rnnmem.storage import estimate, order, share_parallel, share_sequential
from rnnmem.tf.workspace import Workspace


@tf.function(input_signature=[tf.TensorSpec([2, 3])])
def step(x):
    return tf.reduce_sum(tf.tanh(x) * 2.0)


def value_of(net):
    return float(Workspace(net).run([np.ones((2, 3), np.float32)])[0])


def test_functions():
    expected = float(step(tf.ones([2, 3])))
    for source in (step, step.get_concrete_function()):
        assert value_of(rnnmem.load_net(source)) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["graph.pb", "graph.pbtxt"])
def test_graph_def_files(tmp_path, name):
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2, 3], name="x")
        tf.reduce_sum(tf.tanh(x) * 2.0)
    definition = graph.as_graph_def()
    path = tmp_path / name
    if name.endswith("txt"):
        path.write_text(text_format.MessageToString(definition))
    else:
        path.write_bytes(definition.SerializeToString())
    net = rnnmem.load_net(path)
    assert net.inputs == ("x:0",) and net.blobs["Tanh:0"].shape == (2, 3)
    assert value_of(net) == pytest.approx(float(step(tf.ones([2, 3]))))


def test_saved_models(tmp_path):
    module = tf.Module()
    module.weight = tf.Variable(tf.ones([3, 4]))

    @tf.function(input_signature=[tf.TensorSpec([2, 3], name="x")])
    def serve(x):
        return {"y": tf.nn.relu(x @ module.weight)}

    tf.saved_model.save(module, str(tmp_path), signatures={"one": serve, "two": serve})
    net = rnnmem.load_net(str(tmp_path), signature="two")
    assert "MatMul" in {op.type for op in net.ops}
    with pytest.raises(OptionError, match="one, two"):
        rnnmem.load_net(str(tmp_path))


def test_bad_sources(tmp_path):
    with pytest.raises(OptionError, match="no such file"):
        rnnmem.load_net(tmp_path / "nothing.pb")
    with pytest.raises(OptionError, match=r"no saved_model\.pb"):
        rnnmem.load_net(tmp_path)
    with pytest.raises(OptionError, match="must be a path"):
        rnnmem.load_net(lambda x: x)
    with pytest.raises(OptionError, match="0 traces"):
        rnnmem.load_net(tf.function(lambda x: x))
    broken = tmp_path / "broken.pb"
    broken.write_bytes(b"\xff\xff\xff nothing")
    with pytest.raises(NetError, match="no GraphDef"):
        rnnmem.load_net(broken)


@pytest.fixture(scope="module")
def resnet50():
    return resnet50_nets(2)


@pytest.mark.slow
def test_19_resnet50_inference_needs_at_most_seven_storages(resnet50):
    net = resnet50["ResNet-50 inference"]
    largest = max(blob.bytes for blob in net.blobs.values() if blob.dtype == "float32")
    shared = share_sequential(net)
    assert shared.after.blobs <= 7 < shared.before.blobs
    assert shared.after.bytes <= 7 * largest < shared.before.bytes
    for algorithm in ("best_fit", "exact"):
        other = share_sequential(net, algorithm=algorithm)
        assert other.after.bytes <= shared.after.bytes
    assert share_parallel(net).after.bytes <= 7 * largest


@pytest.mark.slow
def test_19_resnet50_training_is_planned(resnet50):
    net = resnet50["ResNet-50 training"]
    for share in (share_parallel, share_sequential):
        shared = share(net)
        assert shared.after.bytes < 0.4 * shared.before.bytes


def test_a_segmentation_like_net_in_a_good_order():
    """The order of the trace holds all wide skips, the one breadth first all wide branches."""
    net = rnnmem.load_net(segmentation())
    best = estimate(order(net, "peak")).peak_bytes
    for plain in ("given", "topological"):
        assert best <= 0.65 * estimate(order(net, plain)).peak_bytes


def segmentation():
    """A backbone with wide skips that are narrowed on the way up, and wide branches between."""
    draw = np.random.default_rng(0).standard_normal

    def conv(x, size, channels, dilation=1):
        kernel = draw((size, size, x.shape[3], channels)).astype(np.float32)
        return tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME", dilations=dilation))

    @tf.function(input_signature=[tf.TensorSpec([1, 32, 32, 4])])
    def run(x):
        skips = []
        for _ in range(6):
            skips.append(conv(x, 1, 48))
            x = conv(x, 3, 8)
        wide = [conv(x, 3, 48, dilation) for dilation in (1, 2, 3, 4, 5, 6)]
        x = tf.add_n([conv(one, 1, 8) for one in wide])
        for skip in reversed(skips):
            x = conv(tf.concat([x, conv(skip, 1, 4)], 3), 3, 8)
        return x

    return run
