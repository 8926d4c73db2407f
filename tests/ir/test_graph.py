import dataclasses

import pytest

from rnnmem.ir.graph import Blob, Path
from tests.handmade import blob, make_net, op, rnn


@pytest.mark.parametrize(
    ("kind", "size"),
    [("f[2,3]", 24), ("h[2,3]", 12), ("z[5]", 5), ("f[]", 4), ("f[0,9]", 0)],
)
def test_bytes_of_what_is_known(kind, size):
    assert blob("b", kind).bytes == size


@pytest.mark.parametrize("kind", ["f[2,?]", "f*", "v[]", "r[]"])
def test_bytes_of_what_is_not_known_are_none_and_never_0(kind):
    assert blob("b", kind).bytes is None


def test_a_dtype_nobody_knows_has_no_size():
    assert Blob("b", "float7", (2,)).bytes is None


def test_a_net_knows_who_writes_and_who_reads():
    # x ─► sum = x + x ─► y (output, twice)
    net = make_net({"x": "f[]"}, [op("sum", "Add", "x x", "f[]")], ["sum", "sum"])
    assert net.producer["sum"] is net.op_by_name["sum"]
    assert "x" not in net.producer
    assert [reader.name for reader in net.readers["x"]] == ["sum", "sum"]
    assert (net.fan_out("x"), net.fan_out("sum"), net.fan_out("nothing")) == (2, 2, 0)


def test_a_net_knows_who_waits():
    net = make_net({}, [op("a", "NoOp"), op("b", "NoOp", controls=("a",))], [])
    assert [waiting.name for waiting in net.controlled["a"]] == ["b"]


def test_a_walk_visits_every_step_net_under_its_path():
    paths = [path for path, _ in rnn().walk()]
    assert paths == [
        (),
        ("loop", "body"),
        ("loop", "cond"),
        ("gradient", "body"),
        ("gradient", "cond"),
    ]


def test_graphs_cannot_be_changed():
    net = rnn()
    for noun, field in ((net, "name"), (net.ops[0], "type"), (net.blobs["x"], "dtype")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(noun, field, "other")
    assert net.replace(name="other").ops is net.ops


def test_a_path_leads_to_its_step_net_and_puts_another_there():
    net = rnn()
    for path, inner in net.walk():
        assert path.at(net) is inner
        assert path == tuple(path) and Path(tuple(path)) == path
        assert path.put(net, inner) == net
        other = inner.replace(name="other")
        assert path.at(path.put(net, other)) is other
    body = Path.of("loop", "body")
    assert body.child("m").text == "loop/body/m"
    marked = body.put(net, body.at(net), _mark=1).op_by_name["loop"]
    assert marked.attributes["_mark"] == 1
    with pytest.raises(KeyError):
        Path.of("loop", "cellar").at(net)
