"""What of straight-line code runs again: chains drawn by hand, of residuals of 1 MiB each."""

import itertools

import pytest

from rnnmem.analysis.machine import CPU
from rnnmem.passes.straight_line.apply import with_regions
from rnnmem.passes.straight_line.decision import Region
from rnnmem.passes.straight_line.races import Races
from rnnmem.passes.straight_line.segments import BISECTIONS, SEGMENTS, Line
from rnnmem.passes.straight_line.select import candidates
from rnnmem.simulate.timeline import counted_peak
from rnnmem.verify import check
from tests.drawing import encoded
from tests.handmade import const, make_net, op

F = "f[512,512]"
MIB = 2**20


def chain(layers=12, act="Tanh", named="gradients/", before=(), inputs=None):
    """Layers ``m = h w``, ``s = Sin m``, ``h = act s``, and the gradient of the last h's square.

    ``before``: ops in front of the first layer, the last of which writes what it reads;
    ``inputs``: more of them.
    """
    ops = [*before]
    h = ops[-1].op.outputs[0] if ops else "x"
    for i in range(layers):
        ops.append(op(f"m{i}", "MatMul", f"{h} w", F))
        ops.append(op(f"s{i}", "Sin", f"m{i}", F))
        ops.append(op(f"h{i}", act, f"s{i}", F, stateful=act.startswith("Random")))
        h = f"h{i}"
    ops += [const("axes", (0, 1)), op("loss", "Mean", f"{h} axes", "f[]")]
    ops.append(op(f"{named}d{layers}", "Mul", f"{h} {h}", F))
    outputs = ["loss"]
    for i in reversed(range(layers)):
        given = f"h{i - 1}" if i else (before[-1].op.outputs[0] if before else "x")
        ops.append(op(f"{named}t{i}", "TanhGrad", f"h{i} {named}d{i + 1}", F))
        ops.append(op(f"{named}c{i}", "Cos", f"m{i}", F))
        ops.append(op(f"{named}p{i}", "Mul", f"{named}t{i} {named}c{i}", F))
        ops.append(op(f"{named}w{i}", "MatMul", f"{given} {named}p{i}", F))
        ops.append(op(f"{named}d{i}", "MatMul", f"{named}p{i} w", F))
        outputs.append(f"{named}w{i}")
    sums = [op(f"{named}u{i}", "Sum", f"{named}w{i} axes", "f[]") for i in range(layers)]
    outputs = ["loss", *(one.op.outputs[0] for one in sums)]
    return make_net({"x": F, "w": F, **(inputs or {})}, [*ops, *sums], outputs)


def chosen(net, most=1.0):
    return candidates(net, CPU.seconds, most)


def rewritten(net, one):
    return with_regions(net, one.regions, encoded)


@pytest.mark.parametrize("named", ["gradients/", "other/"])
def test_the_gradient_begins_behind_the_loss(named):
    line = Line(chain(named=named))
    assert abs(line.turn - line.place["loss"]) < 4


def test_lists_that_a_tape_adds_in_front_are_not_its_gradient():
    lists = [
        const("gradients/any", (-1, -1)),
        op("gradients/list", "EmptyTensorList", "gradients/any gradients/any", "v[]"),
        op("start", "Tanh", "x", F),
    ]
    assert Line(chain(before=lists)).turn > 30


def test_what_the_gradient_computes_of_a_residual_alone_stands_behind_it():
    line = Line(chain())
    cos = line.net.op_by_name["gradients/c3"]
    assert line.position(cos) == line.place["m3"]
    assert line.position(line.net.op_by_name["gradients/p3"]) is None


def test_the_line_is_cut_where_it_is_narrow():
    line = Line(chain())
    for place in line.cuts(4, line.open_crossing):
        assert line.open_crossing[place] <= 1 * MIB


def held(line, cuts):
    """For each segment, what it has while those before it have saved what crosses their ends."""
    ends, saved = (0, *cuts, line.turn), 0
    for start, end in itertools.pairwise(ends):
        yield saved + line.waiting[start:end].sum()
        saved += line.crossing[end] if end < line.turn else 0


@pytest.mark.parametrize("layers", [5, 12, 30])
def test_balanced_segments_hold_no_more_than_equal_ones(layers):
    line = Line(chain(layers))
    equal = [max(held(line, line.cuts(count, line.open_crossing))) for count in SEGMENTS]
    _, places = line.balanced(line.open_crossing)
    balanced = list(held(line, places))
    assert max(balanced) <= min(equal) * (1 + 2**-BISECTIONS)
    assert all(one >= 0.5 * max(balanced) for one in balanced[:-1])


def test_layers_run_again_when_their_gradient_arrives():
    net = chain()
    best = chosen(net)[0]
    check(net, rewritten(net, best))
    assert counted_peak(rewritten(net, best)) < 0.6 * counted_peak(net)
    for region in best.regions:
        made = {blob for name in region.ops for blob in net.op_by_name[name].outputs}
        first = min(Line(net).place[name] for name in region.readers)
        assert all(Line(net).place[net.producer[blob].name] < first for blob in region.after)
        assert all(not made.isdisjoint(net.op_by_name[name].inputs) for name in region.readers)


def clones_of(candidate):
    return {name for region in candidate.regions for name in region.ops}


def test_what_clones_of_another_segment_read_is_held_anyway():
    # s ─► h ─► next layer      held for the next layer's clones, and for its gradient
    net = chain()
    residuals = set(Line(net).residuals)
    for one in chosen(net):
        made = {blob for name in clones_of(one) for blob in net.op_by_name[name].outputs}
        for region in one.regions:
            ops = [net.op_by_name[name] for name in region.ops]
            own = {blob for op in ops for blob in op.outputs}
            read = {blob for op in ops for blob in op.inputs}
            assert read.isdisjoint((made & residuals) - own)


def test_a_small_residual_is_saved_so_that_clones_wait_for_the_others():
    # m0 ─► small ─► read by the first op of the gradient, long before the layer's own
    net = chain()
    small = [
        op("small", "Sum", "m0 axes", "f[]"),
        op("gradients/early", "Mul", "small small", "f[]"),
    ]
    drawn = make_net({"m0": F, "axes": "i[2]"}, small, ["gradients/early"])
    at = next(i for i, one in enumerate(net.ops) if one.name == "gradients/d12")
    net = net.replace(
        ops=(*net.ops[:at], *drawn.ops, *net.ops[at:]),
        blobs={**drawn.blobs, **net.blobs},
        outputs=(*net.outputs, *drawn.outputs),
    )
    for one in chosen(net):
        assert "small" not in clones_of(one)
        assert all("gradients/early" not in region.readers for region in one.regions)
        check(net, rewritten(net, one))


def residual_chain(layers=12):
    """Layers ``x += 2 Tanh(Relu(x) w) + c``, sums of three, of which the gradient holds nothing."""
    ops, x = [const("two", 2.0), op("x0", "Sin", "x", F)], "x0"
    for i in range(layers):
        ops.append(op(f"p{i}", "Relu", x, F))
        ops.append(op(f"m{i}", "MatMul", f"p{i} w", F))
        ops.append(op(f"n{i}", "Tanh", f"m{i}", F))
        ops.append(op(f"e{i}", "Mul", f"n{i} two", F))
        ops.append(op(f"a{i}", "AddV2", f"e{i} c", F))
        ops.append(op(f"x{i + 1}", "AddV2", f"{x} a{i}", F))
        x = f"x{i + 1}"
    ops += [const("axes", (0, 1)), op("loss", "Mean", f"{x} axes", "f[]")]
    ops.append(op(f"gradients/d{layers}", "Mul", f"{x} {x}", F))
    outputs = ["loss"]
    for i in reversed(range(layers)):
        ops.append(op(f"gradients/e{i}", "Mul", f"gradients/d{i + 1} two", F))
        ops.append(op(f"gradients/t{i}", "TanhGrad", f"n{i} gradients/e{i}", F))
        ops.append(op(f"gradients/w{i}", "MatMul", f"p{i} gradients/t{i}", F))
        ops.append(op(f"gradients/s{i}", "Sum", f"gradients/w{i} axes", "f[]"))
        ops.append(op(f"gradients/q{i}", "MatMul", f"gradients/t{i} w", F))
        ops.append(op(f"gradients/r{i}", "ReluGrad", f"gradients/q{i} p{i}", F))
        ops.append(op(f"gradients/d{i}", "AddV2", f"gradients/d{i + 1} gradients/r{i}", F))
        outputs.append(f"gradients/s{i}")
    return make_net({"x": F, "w": F, "c": F}, ops, outputs)


def test_segments_end_beside_addends_that_no_clone_reads():
    net = residual_chain()
    line = Line(net)
    assert line.out_of_reach >= {f"x{i}" for i in range(12)}
    _, places = line.balanced(line.open_crossing)
    assert not places
    best = chosen(net)[0]
    assert len(best.regions) > 1
    assert counted_peak(rewritten(net, best)) < 0.8 * counted_peak(net)
    check(net, rewritten(net, best))
    for one in chosen(net):
        ops = [net.op_by_name[name] for name in clones_of(one)]
        made = {blob for op in ops for blob in op.outputs}
        read = {blob for op in ops for blob in op.inputs}
        assert (read - made).isdisjoint(f"x{i}" for i in range(13))


def test_choices_are_compared_without_regions_that_would_decide_a_race(monkeypatch):
    net = chain()
    best = chosen(net)[0]
    racing = {"s3", "s4", "s5"}

    def settled(_, region):
        return None if racing.intersection(region.ops) else region

    monkeypatch.setattr(Races, "settled", settled)
    left = chosen(net)
    assert not racing.intersection(name for one in left for name in clones_of(one))
    assert [one.peak for one in left] == sorted(one.peak for one in left)
    # A region that spans what races is not there at all, and does not count as if it were.
    assert all(one.regions and one.peak > best.peak for one in left)
    assert all(one.spared + one.peak == best.spared + best.peak for one in left)
    assert len({one.regions for one in left}) == len(left)


def test_the_time_that_is_left_is_kept():
    net = chain()
    whole = chosen(net)[0]
    for part in (0.1, 0.4, 0.8):
        for one in chosen(net, part * whole.seconds):
            assert one.seconds <= part * whole.seconds
    assert chosen(net, 0.0) == ()


def test_random_numbers_are_drawn_once():
    net = chain(act="RandomShuffle")
    for one in chosen(net):
        assert not any(name.startswith("h") for name in clones_of(one))
        check(net, rewritten(net, one))


def test_what_waits_for_an_effect_runs_once():
    # assign ┄┄► rate ─► gradient        a clone of rate would not wait for the assignment
    net = chain(
        before=[
            const("one", 1),
            op("assign", "AssignVariableOp", "place one"),
            op("start", "Sin", "x", F, controls=["assign"]),
        ],
        inputs={"place": "r[]"},
    )
    assert "start" not in {name for one in chosen(net) for name in clones_of(one)}


def test_a_residual_that_a_sum_of_three_may_add_up_stays():
    adding = [
        op("a", "Tanh", "x", F),
        op("b", "Sin", "x", F),
        op("sum", "AddN", "a b x", F),
    ]
    net = chain(before=adding)
    again = op("gradients/again", "TanhGrad", "a gradients/d0", F)
    extra = make_net({"a": F, "gradients/d0": F}, [again], ["gradients/again"])
    net = net.replace(
        ops=(*net.ops, *extra.ops),
        blobs={**net.blobs, **extra.blobs},
        outputs=(*net.outputs, "gradients/again"),
    )
    for one in chosen(net):
        assert all("a" not in region.ops and "sum" not in region.ops for region in one.regions)


def test_no_sum_of_three_ends_before_a_reader_that_is_held_up():
    """``a`` is added up with two others while what reads it too waits for a clone."""
    net = chain()
    a, b, c = (f"gradients/{name}" for name in ("e", "f", "g"))
    ops = [
        op(a, "Exp", "gradients/d11", F),
        op(b, "Sin", "gradients/d11", F),
        op(c, "Cos", "gradients/d11", F),
        op("gradients/sum", "AddN", f"{a} {b} {c}", F),
        op("gradients/late", "TanhGrad", f"s4 {a}", F),
    ]
    drawn = make_net({"gradients/d11": F, "s4": F}, ops, ["gradients/sum", "gradients/late"])
    net = net.replace(
        ops=(*net.ops, *drawn.ops),
        blobs={**net.blobs, **drawn.blobs},
        outputs=(*net.outputs, *drawn.outputs),
    )
    readers = [name for one in chosen(net) for region in one.regions for name in region.readers]
    assert readers and "gradients/late" not in readers
    assert not any("s4" in region.ops for one in chosen(net) for region in one.regions)


@pytest.mark.parametrize("size, hides", [(512, False), (4096, True)])
def test_sums_stay_whole_where_tensorflow_might_add_up_as_values_come(size, hides):
    """Its memory optimizer does so in large functions, where it sees the addends' shapes."""
    kind = f"f[{size},{size}]"
    adding = [
        op("a", "Tanh", "x", kind),
        op("b", "Sin", "x", kind),
        op("c", "Cos", "x", kind),
        op("sum", "AddN", "a c b", kind),
        op("h", "Tanh", "x", kind),
        op("gradients/g", "TanhGrad", "h sum", kind),
    ]
    net = make_net({"x": kind}, adding, ["gradients/g"])
    region = Region(("h",), ("gradients/g",), ("sum",), 1, 0.0)
    made = with_regions(net, [region], encoded)
    check(net, made)
    read = made.op_by_name["sum"].inputs
    assert (read != ("a", "c", "b")) == hides
    assert not hides or sorted(read) == [read[0], read[2], read[1]]  # sorted by name as before
    shown = made.op_by_name["gradients/g"].inputs[1]
    assert (shown != "sum") == hides and made.blobs[shown].shape == (size, size)


def test_little_is_not_looked_at():
    assert chosen(chain(layers=1)) == ()


def test_a_blob_that_lost_its_readers_is_kept_alive_where_it_might_be_fused():
    net = chain()
    made = rewritten(net, chosen(net)[0])
    kept = {one.inputs[1] for one in made.ops if one.type == "TensorListPushBack"}
    lonely = {
        blob
        for one in made.ops
        for blob in one.outputs
        if one.name in net.op_by_name and made.fan_out(blob) == 1 < net.fan_out(blob)
    }
    assert kept and not lonely
    assert any(name.startswith("rnnmem/hold") for name in made.control_outputs)
