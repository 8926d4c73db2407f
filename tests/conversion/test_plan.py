import itertools

import pytest

from rnnmem.conversion.plan import ON_DEVICE, THROUGH_HOST, UNTOUCHED, Tensor, make_plan, need

SIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int32": 4}
MIB = 1 << 20


def tensor(name, count, before="float32", after="float16", source="CPU:0", target=None):
    return Tensor(
        name=name,
        count=count,
        dtype_before=before,
        dtype_after=after,
        itemsize_before=SIZES[before],
        itemsize_after=SIZES[after],
        device_before=source,
        device_after=target or source,
    )


def order(plan):
    return [step.tensor.name for step in plan.steps]


def routes(plan):
    return {step.tensor.name: step.route for step in plan.steps}


def test_what_must_be_free_for_a_tensor():
    assert need(1000, 2) == pytest.approx(2707.2)
    assert need(0, 4) == pytest.approx(307.2)


@pytest.mark.parametrize(("free", "route"), [(2708, ON_DEVICE), (2707, THROUGH_HOST)])
def test_the_test_for_head_room_is_met_to_the_byte(free, route):
    plan = make_plan([tensor("w", 1000)], {"CPU:0": free})
    assert routes(plan) == {"w": route}
    assert plan.short == {}


def test_what_frees_memory_comes_first_and_the_smallest_need_of_it():
    tensors = [
        tensor("grows small", 100, "float16", "float32"),
        tensor("shrinks large", 4000),
        tensor("grows large", 2000, "float16", "float32"),
        tensor("stays", 10, "int32", "int32"),
        tensor("shrinks small", 1000),
    ]
    plan = make_plan(tensors, {"CPU:0": None})
    assert order(plan) == [
        "shrinks small", "shrinks large", "grows large", "grows small", "stays",
    ]  # fmt: skip
    assert routes(plan)["stays"] == UNTOUCHED
    assert plan.steps[0].index == 4


def peak_in_order(tensors):
    used = peak = 0
    for one in tensors:
        peak = max(peak, used + one.bytes_after)
        used += one.bytes_after - one.bytes_before
    return peak


def test_no_order_has_a_lower_peak():
    tensors = [
        tensor("a", 128 * 3),
        tensor("b", 128 * 7, "float16", "float32"),
        tensor("c", 128 * 5),
        tensor("d", 128 * 2, "float16", "float64"),
        tensor("e", 128 * 4, "float16", "float32"),
    ]
    best = min(peak_in_order(some) for some in itertools.permutations(tensors))
    assert make_plan(tensors, {"CPU:0": None}).peak["CPU:0"] == best


def test_both_precisions_of_everything_are_never_on_the_device():
    tensors = [tensor(str(i), 8 * MIB) for i in range(64)]
    plan = make_plan(tensors, {"CPU:0": 100 * MIB})
    assert set(routes(plan).values()) == {ON_DEVICE}
    assert plan.peak["CPU:0"] == 16 * MIB


def test_a_tensor_goes_through_the_host_until_the_others_made_room():
    tensors = [tensor(str(i), 32 * MIB) for i in range(4)]
    plan = make_plan(tensors, {"CPU:0": 50 * MIB})
    assert [step.route for step in plan.steps] == [THROUGH_HOST, THROUGH_HOST, *[ON_DEVICE] * 2]
    assert plan.peak["CPU:0"] <= 64 * MIB * 1.2


def test_a_large_free_chunk_that_would_be_handed_out_whole_is_not_used():
    plan = make_plan([tensor("w", 32 * MIB)], {"CPU:0": 102 * MIB})
    assert routes(plan) == {"w": THROUGH_HOST}
    plan = make_plan([tensor("w", 32 * MIB)], {"CPU:0": 128 * MIB})
    assert routes(plan) == {"w": ON_DEVICE}


def test_what_cannot_fit_is_known_before_anything_is_changed():
    grows = tensor("w", 10 * MIB, "float16", "float32")
    assert make_plan([grows], {"CPU:0": 20 * MIB}).short == {}
    assert make_plan([grows], {"CPU:0": 15 * MIB}).short == {"CPU:0": 5 * MIB}


def test_what_shrinks_makes_room_for_what_grows():
    tensors = [tensor("up", 4 * MIB, "float16", "float32"), tensor("down", 8 * MIB)]
    plan = make_plan(tensors, {"CPU:0": 4 * MIB})
    assert plan.short == {}
    assert plan.keeps_originals
    assert plan.host > 32 * MIB


def test_a_move_frees_one_device_and_takes_of_another():
    moved = tensor("w", MIB, "float32", "float32", "CPU:0", "GPU:0")
    plan = make_plan([moved], {"CPU:0": 0, "GPU:0": 5 * MIB})
    assert routes(plan) == {"w": ON_DEVICE}
    assert plan.peak == {"CPU:0": 0, "GPU:0": 4 * MIB}
    assert not plan.keeps_originals
    assert make_plan([moved], {"CPU:0": 0, "GPU:0": 3 * MIB}).short == {"GPU:0": MIB}


def test_a_move_to_another_dtype_carries_the_smaller_form():
    down = tensor("w", 8 * MIB, "float32", "float16", "GPU:0", "CPU:0")
    assert make_plan([down], {"GPU:0": 64 * MIB, "CPU:0": None}).peak["GPU:0"] == 16 * MIB
    up = tensor("w", 8 * MIB, "float16", "float32", "GPU:0", "CPU:0")
    plan = make_plan([up], {"GPU:0": 0, "CPU:0": 128 * MIB})
    assert plan.peak == {"GPU:0": 0, "CPU:0": 48 * MIB}
    assert routes(plan) == {"w": ON_DEVICE}


def test_it_prints_every_tensor_against_what_is_free():
    tensors = [tensor("dense/kernel", MIB), tensor("count", 1, "int32", "int32")]
    text = str(make_plan(tensors, {"CPU:0": 3 * MIB, "GPU:0": None}))
    assert "1 of 2 tensors change, 4.0 MiB become 2.0 MiB; 1 through the host" in text
    assert "CPU:0: peak 0 B above the start, 3.0 MiB free" in text
    assert "free memory is unknown" in text
    assert "4.0 MiB" in text and "2.0 MiB" in text and "through host" in text
    assert "untouched     count" in text
