"""An optimised function in a notebook: what it is, what was planned, and that texts stay texts."""

import re
from unittest import mock

import pytest
import tensorflow as tf

import rnnmem
from rnnmem.planning.options import Options
from rnnmem.planning.plan import Plan
from rnnmem.reports.notebook import Signature, function_parts
from rnnmem.tables import as_html, plain_text


def step_of(**options):
    weight = tf.Variable(tf.ones([32, 32]) * 0.01)

    @rnnmem.optimize(**options)
    def train_step(x):
        with tf.GradientTape() as tape:
            body = lambda i, h: (i + 1, tf.sigmoid(tf.tanh(h @ weight) * 2.0 - h))  # noqa: E731
            h = tf.while_loop(lambda i, _: i < 40, body, (0, x))[1]
            loss = tf.reduce_sum(h * h)
        return loss, tape.gradient(loss, weight)

    return train_step


def cells(page):
    return re.findall(r"<t[hd] [^>]*>(.*?)</t[hd]>", page)


def test_before_the_first_call_it_says_what_it_is_and_how_to_see_more():
    step = step_of(budget="1GiB", keep="*/<gates>")
    page = step._repr_html_()
    line = step.__wrapped__.__code__.co_firstlineno
    assert f"<p>train_step (test_notebook.py:{line}), optimised by rnnmem: " in page
    assert "budget=1024.0 MiB, keep=(&#x27;*/&lt;gates&gt;&#x27;,)" in page
    assert "Nothing is planned yet: call it, or train_step.plan(...)" in page
    assert "train_step.explain(...)" in page and "rnnmem.report(train_step, ...)" in page
    assert "<table" not in page and "<gates>" not in page


def test_each_signature_has_its_row_and_nothing_is_worked_out_for_it():
    step = step_of(max_slowdown=1.5)
    step(tf.ones([64, 32]))
    with mock.patch("rnnmem.work.compile_function", side_effect=AssertionError):
        page = step._repr_html_()
    head, row = cells(page)[:5], cells(page)[5:]
    assert head == ["arguments", "what changes", "predicted peak as it was", "now", "step time"]
    assert row[:2] == ["float32[64,32]", "1 loop rewritten"]
    assert row[2].startswith("about ") and row[3].startswith("about ")
    assert re.fullmatch(r"1\.\d\dx", row[4])
    plan = step.explain(tf.ones([64, 32])).plan
    assert cells(step._repr_html_())[7:9] == list(plan.told_peaks)
    step(tf.ones([8, 32]))
    assert "float32[8,32]" in cells(step._repr_html_())


def test_a_measured_peak_is_told(monkeypatch):
    monkeypatch.setattr("rnnmem.optimized.run_measured", lambda run: (run(), 2**20))
    step = step_of(budget="1GiB", verify=True)
    step(tf.ones([64, 32]))
    found = cells(step._repr_html_())
    half = len(found) // 2
    assert dict(zip(found[:half], found[half:], strict=True))["measured"] == "1.0 MiB"


def test_a_function_that_is_differentiated_later_has_its_row_too():
    weight = tf.Variable(tf.ones([32, 32]))

    @rnnmem.optimize
    def forward(x):
        body = lambda i, h: (i + 1, tf.tanh(h @ weight))  # noqa: E731
        return tf.while_loop(lambda i, _: i < 9, body, (0, x))[1]

    forward(tf.ones([64, 32]))
    assert "float32[64,32]" in cells(forward._repr_html_())


@pytest.mark.parametrize("count", [1, 9])
def test_unknown_and_many_are_told_as_such(count):
    plain = Signature([("float32", None), ("int32", (None, 3))], Plan())
    many = Signature([("float32", ())] * 10, Plan(), gradient_to_come=True)
    told = list(function_parts("<lambda>", "", Options(), [plain] * count + [many]))
    text = plain_text(told)
    cells = [re.split(r" {2,}", line) for line in text.splitlines()]
    assert "<lambda>, optimised by rnnmem: default options, max_slowdown=1.1" in text
    nothing = "no loop with a gradient was found, nothing was to be done"
    assert ["float32[?], int32[?,3]", nothing] in cells
    assert [
        ", ".join(["float32[]"] * 8 + ["2 more"]),
        "its gradient is planned once it is asked for",
    ] in cells
    assert ("10 signatures planned, the last 8 of them" in text) == (count == 9)
    assert "f.explain(...)" in text and "&lt;lambda&gt;" in as_html(told)
