"""When regions begin: chains drawn by hand, and one whose every layer the loss reads."""

import dataclasses

from rnnmem.passes.straight_line.segments import Line
from rnnmem.passes.straight_line.starts import begun_earlier, begun_in_turn
from rnnmem.simulate.timeline import counted_peak
from rnnmem.verify import check
from tests.handmade import const, make_net, op
from tests.passes.straight_line.test_select import F, chain, chosen, rewritten


def test_a_region_may_begin_when_its_first_readers_could():
    # p ─► d ─► gradient of the layer below          w reads that layer's result and nothing of d:
    # └──► w    └─► sum                              p is held until the clone for w is there
    net = chain()
    given = {f"gradients/d{i}": F for i in range(12)}
    sums = [op(f"gradients/sum{i}", "Sum", f"gradients/d{i} axes", "f[]") for i in range(12)]
    drawn = make_net({**given, "axes": "i[2]"}, sums, [f"gradients/sum{i}" for i in range(12)])
    traced = sorted(net.ops, key=lambda one: one.name.startswith("gradients/w"))
    net = net.replace(
        ops=(*traced, *drawn.ops),
        blobs={**drawn.blobs, **net.blobs},
        outputs=(*net.outputs, *drawn.outputs),
    )
    line = Line(net)
    one = chosen(net)[0]
    earlier = begun_earlier(net, one)
    check(net, rewritten(net, earlier))
    moved = 0
    for before, after in zip(one.regions, earlier.regions, strict=True):
        assert after == dataclasses.replace(before, after=after.after)
        (was,), (now,) = before.after, after.after
        moved += was != now
        assert line.turn <= line.place[net.producer[now].name] <= line.place[net.producer[was].name]
        assert was == now or was.replace("d", "p") == now.replace("d", "p")
    assert moved
    assert begun_earlier(net, earlier) == earlier


def skips(layers=12):
    """Layers ``h = Sin(h w)``, the loss of the sum of all ``h v``, and its gradient.

    The gradient of each ``h v``'s filter reads nothing but the layer's result and the loss's.
    """
    ops, total = [], "x"
    for i in range(layers):
        given = f"h{i - 1}" if i else "x"
        ops.append(op(f"m{i}", "MatMul", f"{given} w", F))
        ops.append(op(f"h{i}", "Sin", f"m{i}", F))
        ops.append(op(f"k{i}", "MatMul", f"h{i} v", F))
        ops.append(op(f"t{i}", "Maximum", f"{total} k{i}", F))
        total = f"t{i}"
    named, outputs = "gradients/", ["loss"]
    ops += [const("axes", (0, 1)), op("loss", "Mean", f"{total} axes", "f[]")]
    ops.append(op(f"{named}from_loss", "Fill", "shape loss", F))
    for i in reversed(range(layers)):
        ops.append(op(f"{named}v{i}", "MatMul", f"h{i} {named}from_loss", F))
    back = f"{named}from_loss"
    for i in reversed(range(layers)):
        ops.append(op(f"{named}s{i}", "Mul", f"{back} {named}from_loss", F))
        ops.append(op(f"{named}c{i}", "Cos", f"m{i}", F))
        ops.append(op(f"{named}p{i}", "Mul", f"{named}s{i} {named}c{i}", F))
        ops.append(op(f"{named}d{i}", "MatMul", f"{named}p{i} w", F))
        back = f"{named}d{i}"
    sums = [f"{named}{kind}{i}" for kind in "vd" for i in range(layers)]
    ops += [op(f"sum{at}", "Sum", f"{one} axes", "f[]") for at, one in enumerate(sums)]
    outputs += [f"sum{at}" for at in range(len(sums))]
    return make_net({"x": F, "w": F, "v": F, "shape": "i[2]"}, ops, outputs)


def test_no_region_begins_before_a_gradient_of_the_one_before_it():
    net = skips()
    one = next(some for some in chosen(net) if len(some.regions) > 2)
    turned = begun_in_turn(net, one)
    check(net, rewritten(net, turned))
    assert counted_peak(rewritten(net, turned)) < 0.8 * counted_peak(rewritten(net, one))
    assert [dataclasses.replace(some, after=()) for some in one.regions] == [
        dataclasses.replace(some, after=()) for some in turned.regions
    ]
    assert begun_in_turn(net, turned) == turned


def test_regions_of_a_chain_begin_in_turn_anyway():
    net = chain()
    for one in chosen(net):
        assert begun_in_turn(net, one) == one
