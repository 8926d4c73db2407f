"""Logging: what a user sees who listens to "rnnmem", and that nobody else sees anything."""

import logging
import time

import pytest
import tensorflow as tf

import rnnmem
from rnnmem import log
from rnnmem.passes.straight_line.decision import Region
from rnnmem.planning.plan import LoopPlan, Plan

PLAN = Plan(
    loops=(
        LoopPlan(("while",), ("grad",), trips=50, saved=("h",), recomputed=("Tanh",)),
        LoopPlan(("other",), ("grad2",), closed="a reason", source="train.py:7"),
    ),
    notes=("a note",),
    slowdown=1.05,
    original_peak=4 << 20,
    predicted_peak=1 << 20,
)


def messages(caplog):
    return [(one.levelname, one.getMessage()) for one in caplog.records if one.name == "rnnmem"]


def test_info_tells_the_function_its_loops_the_plan_and_why_a_loop_was_left(caplog):
    caplog.set_level(logging.INFO, "rnnmem")
    log.planned("step", " (train.py:3)", PLAN, time.perf_counter())
    (_, first), *others = messages(caplog)
    assert first.startswith(
        "step (train.py:3): 1 loop rewritten, predicted peak 1.0 MiB (was 4.0 MiB), "
        "step time 1.05x, planned in "
    )
    assert others == [
        ("INFO", "step: loop other (train.py:7) left as it was: a reason"),
        ("INFO", "step: a note"),
    ]


def test_debug_tells_what_becomes_of_each_loop(caplog):
    caplog.set_level(logging.DEBUG, "rnnmem")
    log.planned("step", "", PLAN, time.perf_counter())
    text = "step: loop while: 50 iterations, h saved in each, recomputed Tanh, 1 parallel"
    assert ("DEBUG", text) in messages(caplog)


def test_what_is_changed_outside_of_loops_is_told(caplog):
    caplog.set_level(logging.INFO, "rnnmem")
    region = Region(("Tanh",), ("gradient/Mul",), ("gradient/x:0",), 2**21, 0.1)
    log.planned("step", "", Plan().having(straight_line=(region,)), time.perf_counter())
    assert messages(caplog)[0][1].startswith("step: 1 region outside of loops runs again, ")


def train_step(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.while_loop(
            lambda i, h: i < 8, lambda i, h: (i + 1, tf.tanh(tf.sin(h) * 2.0)), (0, x)
        )
        loss = tf.reduce_sum(y[1])
    return tape.gradient(loss, x)


@pytest.mark.parametrize("whole", [True, False], ids=["whole step", "gradient asked for later"])
def test_each_function_is_told_of_once_when_it_is_planned(caplog, whole):
    caplog.set_level(logging.INFO, "rnnmem")
    x = tf.ones([32, 64])
    if whole:
        step = rnnmem.optimize(train_step, max_slowdown=3.0)
        step(x), step(x)
    else:
        forward = rnnmem.optimize(
            lambda x: tf.while_loop(
                lambda i, h: i < 8, lambda i, h: (i + 1, tf.tanh(tf.sin(h) * 2.0)), (0, x)
            )[1],
            max_slowdown=3.0,
        )
        for _ in range(2):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = forward(x)
            tape.gradient(y, x)
    planned = [text for _, text in messages(caplog) if "1 loop rewritten" in text]
    assert len(planned) == 1


def test_nothing_is_printed_by_default(capfd):
    rnnmem.optimize(train_step)(tf.ones([4, 8]))
    printed = capfd.readouterr()
    assert "rewritten" not in printed.out + printed.err
    assert any(isinstance(one, logging.NullHandler) for one in logging.getLogger("rnnmem").handlers)
