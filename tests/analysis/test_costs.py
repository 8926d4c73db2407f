"""Costs of a machine: curves, what is plausible, and numbers that follow from others."""

import dataclasses
import math

import pytest

from rnnmem.analysis.costs import Costs
from rnnmem.analysis.known_costs import (
    KNOWN,
    KNOWN_GPU,
    NAMES,
    completed,
    flat,
    of_flat,
    plausible,
)
from rnnmem.analysis.machine import CPU, GPU, PACKED, PACKED_TURNED, PRIMITIVE_SECONDS
from rnnmem.ir.marks import PACKS, PRIMITIVE
from tests.handmade import const, make_net, op, pop, push


def test_a_curve_passes_through_its_points_and_goes_on_in_proportion():
    for size, seconds in KNOWN.moved:
        assert KNOWN.moving(size) == pytest.approx(seconds)
    (first, least), (last, most) = KNOWN.moved[0], KNOWN.moved[-1]
    assert KNOWN.moving(first / 4) == pytest.approx(least / 4)
    assert KNOWN.moving(last * 3) == pytest.approx(most * 3)
    assert KNOWN.moving(0.0) == 0.0
    sizes = [2.0**power for power in range(8, 30)]
    taken = list(map(KNOWN.moving, sizes))
    assert taken == sorted(taken)


def test_costs_are_numbers_with_names_and_back():
    assert of_flat(flat(KNOWN)) == KNOWN
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0, 0.0, 1e3, "fast", None, True])
@pytest.mark.parametrize("name", ["op", "moved.1", "work.tanh"])
def test_what_is_no_cost_is_refused(name, wrong):
    with pytest.raises(ValueError, match=name):
        of_flat({**flat(KNOWN), name: wrong})


def test_a_missing_cost_is_refused():
    with pytest.raises(ValueError, match="kept"):
        of_flat({name: value for name, value in flat(KNOWN).items() if name != "kept"})


def test_a_curve_never_falls():
    numbers = {**flat(KNOWN), "moved.3": plausible("moved.3", 1e-9)}
    seconds = [one for _, one in of_flat(numbers).moved]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize("times", [0.2, 1.0, 5.0])
def test_what_was_not_measured_is_as_much_slower_as_the_rest(times):
    found = completed({"op": times * KNOWN.op})
    assert found == pytest.approx({name: times * one for name, one in flat(KNOWN).items()})


def test_what_was_disturbed_is_near_its_group():
    found = {name: one for name, one in flat(KNOWN).items()} | {"variable": 1e-4, "list": -1e-7}
    made = completed(found)
    assert made["variable"] == pytest.approx(1.5 * KNOWN.variable)
    assert made["list"] == pytest.approx(KNOWN.list / 1.5)


def test_nothing_is_beyond_what_is_plausible():
    for seconds in (1e3, 1e-30):
        made = completed(dict.fromkeys(NAMES, seconds))
        assert made == {name: plausible(name, value) for name, value in made.items()}
        assert made["op"] == plausible("op", seconds)
        assert of_flat(made)


def calibrated(**costs):
    return dataclasses.replace(CPU, costs=dataclasses.replace(KNOWN, **costs))


def a_net():
    return make_net(
        {"x": "f[16,512]", "w": "f[512,512]", "l": "v[]"},
        [
            op("m", "MatMul", "x w", "f[16,512]"),
            op("t", "Tanh", "m", "f[16,512]"),
            op("i", "Identity", "t", "f[16,512]"),
        ],
        ["i"],
    )


def seconds(machine, name, net=None):
    net = net or a_net()
    return machine.seconds(net.op_by_name[name], net)


def test_an_op_costs_its_start_and_its_kernel():
    assert seconds(calibrated(), "i") == KNOWN.op
    slow = calibrated(op=1e-5)
    assert seconds(slow, "t") - seconds(calibrated(), "t") == pytest.approx(1e-5 - KNOWN.op)


def test_what_is_popped_at_once_is_not_kept():
    kept = make_net(
        {"x": "f[512,512]", "l": "v[]", "size": "i[]"},
        [
            push("stays", "l", "x"),
            push("in", "l", "x"),
            op("out", "TensorListPopBack", "in size", "v[] f[512,512]"),
        ],
        ["stays"],
    )
    assert seconds(calibrated(), "in", kept) == KNOWN.list
    assert seconds(calibrated(), "stays", kept) == KNOWN.list + KNOWN.kept * 4 * 512 * 512


def test_a_check_of_a_shape_moves_nothing():
    checked = make_net({"x": "f[512,512]"}, [op("e", "EnsureShape", "x", "f[512,512]")], ["e"])
    assert seconds(calibrated(), "e", checked) == KNOWN.op


def test_the_rates_of_a_machine_are_those_of_its_costs():
    machine = CPU.costing(KNOWN, calibrated=True)
    assert machine.costs is KNOWN and machine.calibrated
    assert machine.launch_seconds == KNOWN.op
    assert machine.bytes_per_second == pytest.approx(2**20 / KNOWN.moving(2**20))
    assert machine.pointwise_per_second == pytest.approx(1.0 / KNOWN.work[""])
    assert CPU.costing(None, calibrated=False) is CPU


def test_a_product_of_few_rows_has_rates_of_its_own():
    work = 2.0 * 16 * 512 * 512
    assert seconds(calibrated(), "m") == pytest.approx(KNOWN.op + KNOWN.product(work, True))
    assert KNOWN.product(work, True) != KNOWN.product(work, False)


def test_without_costs_a_machine_is_as_it_was():
    assert CPU.costs is None
    assert isinstance(KNOWN, Costs)
    assert seconds(CPU, "i") == CPU.launch_seconds


def gpu_seconds(name):
    lists = [push("in", "l", "i"), pop("out", "in", "i[]"), push("held", "l", "x")]
    host = [op("next", "AddV2", "i i", "i[]"), op("tiny", "Tanh", "x", "f[2]")]
    net = make_net({"x": "f[2]", "i": "i[]", "l": "v[]"}, [*lists, *host], ["out:1", "held"])
    machine = GPU.costing(KNOWN_GPU, calibrated=False)
    return machine.seconds(net.op_by_name[name], net)


def test_starting_a_kernel_of_a_gpu_is_what_it_costs_and_the_hosts_numbers_start_none():
    assert gpu_seconds("next") == KNOWN_GPU.op
    assert gpu_seconds("tiny") == pytest.approx(KNOWN_GPU.op + KNOWN_GPU.moving(1.0), rel=0.1)
    assert KNOWN_GPU.moving(1.0) > 5 * KNOWN_GPU.op


def test_a_whole_number_in_a_list_of_a_gpu_is_copied_and_a_pop_waits_for_it():
    copy = KNOWN_GPU.moving(1.0)
    assert gpu_seconds("held") == pytest.approx(KNOWN_GPU.list, rel=0.01)
    assert gpu_seconds("in") == pytest.approx(KNOWN_GPU.list + copy)
    assert gpu_seconds("out") == pytest.approx(KNOWN_GPU.list + 2 * copy)


@pytest.mark.parametrize(
    "items, rows, turned, each",
    [
        (4, 4, False, PACKED),
        (4, 4, True, PACKED_TURNED),
        (1, 4, True, 0.0),
        (4, 1, True, 0.0),
    ],
    ids=["as it is", "turned", "one item", "one row"],
)
def test_a_kernel_without_a_library_lays_out_the_second_matrix_of_each_item(
    items, rows, turned, each
):
    second = "f[2000,64]" if turned else "f[64,2000]"
    made = f"f[{items},{rows},2000]"
    inputs = {"x": f"f[{items},{rows},64]", "w": second}

    def taken(**attributes):
        drawn = op("m", "BatchMatMulV2", "x w", made, attributes={"adj_y": turned, **attributes})
        return seconds(calibrated(), "m", make_net(inputs, [drawn], ["m"]))

    assert taken(**{PACKS: True}) - taken() == pytest.approx(items * 64 * 2000 * each)


@pytest.mark.parametrize(
    "equation, second, made, starts",
    [
        ("bnd,bde->bne", "f[8,64,32]", "f[8,4,32]", True),
        ("bnd,de->bne", "f[64,32]", "f[8,4,32]", False),
        ("bnd,bnd->b", "f[8,4,64]", "f[8]", True),
    ],
    ids=["several matrices", "one matrix", "several rows"],
)
def test_an_einsum_of_several_matrices_is_a_primitive_that_takes_long_to_start(
    equation, second, made, starts
):
    def taken(**attributes):
        attributes["equation"] = equation.encode()
        drawn = op("m", "Einsum", "x w", made, attributes=attributes)
        inputs = {"x": "f[8,4,64]", "w": second}
        return seconds(calibrated(), "m", make_net(inputs, [drawn], ["m"]))

    expected = PRIMITIVE_SECONDS if starts else 0.0
    assert taken(**{PRIMITIVE: True}) - taken() == pytest.approx(expected)


def test_an_einsum_that_transposes_takes_longer_than_one_that_does_not():
    def taken(equation, second, made):
        drawn = op("m", "Einsum", "x w", made, attributes={"equation": equation.encode()})
        inputs = {"x": "f[8,64,32]", "w": second}
        return seconds(calibrated(), "m", make_net(inputs, [drawn], ["m"]))

    once = taken("bmf,fn->bmn", "f[32,16]", "f[8,64,16]")
    assert taken("bmf,fn->bnm", "f[32,16]", "f[8,16,64]") > once + KNOWN.woken
    assert taken("bmf,nf->bmn", "f[16,32]", "f[8,64,16]") == once  # a product reads either way


@pytest.mark.parametrize("order", [[0, 1, 2], [0, 2, 1], None])
def test_a_transposition_that_moves_nothing_takes_what_any_op_does(order):
    inner = {"x": "f[?,40,128]", "a": "i[3]"}
    ops = [op("t", "Transpose", "x a", "f[?,?,?]")]
    if order is not None:
        inner.pop("a")
        first, rest = [const(f"c{one}", [one]) for one in order[:1]], const("r", order[1:])
        axis = const("axis", 0)
        ops = [*first, rest, axis, op("a", "ConcatV2", "c0 r axis", "i[3]"), *ops]
    found = seconds(calibrated(), "t", make_net(inner, ops, ["t"]))
    assert (found == KNOWN.op) == (order == [0, 1, 2])
