"""Every block of Python in the README and in docs/ runs.

The blocks of a page run one after the other in one namespace. What a page only sketches (a train
step with ``...`` for a body) is put there before each of its blocks.
"""

import ast
import re
from pathlib import Path

import keras
import pytest
import tensorflow as tf

import rnnmem
import rnnmem.keras

ROOT = Path(__file__).resolve().parent.parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    if BLOCK.search(path.read_text(encoding="utf-8"))
)
# Has a test of its own, which also looks at what is printed.
ELSEWHERE = {
    "docs/conversion.md": "tests/conversion/test_documented.py",
    "docs/pipeline.md": "tests/pipeline/test_documented.py",
}


def a_step():
    weight = tf.Variable(tf.eye(16) * 0.5)

    @tf.function
    def step(x):
        body = lambda t, h: (t + 1, tf.tanh(h @ weight))  # noqa: E731
        with tf.GradientTape() as tape:
            h = tf.while_loop(lambda t, _: t < 20, body, (0, x))[1]
            loss = tf.reduce_sum(h)
        weight.assign_sub(0.01 * tape.gradient(loss, weight))
        return loss

    return step


def index():
    model = keras.Sequential([keras.Input((4, 2)), keras.layers.LSTM(4)])
    return {"tf": tf, "rnnmem": rnnmem, "model": model}


def budgets():
    step = rnnmem.optimize(lambda x: tf.tanh(x @ tf.transpose(x)))  # it is planned ten times
    args = (tf.ones([8, 16]),)
    return {"rnnmem": rnnmem, "tf": tf, "Path": Path, "train_step": step, "args": args} | {
        "make_batch": lambda size: (tf.ones([size, 16]),)
    }


def reading():
    names = {"rnnmem": rnnmem, "train_step": a_step(), "inputs": tf.ones([64, 16])}
    return names


def keras_page():
    return {"tf": tf}


def sharing():
    module = tf.Module()
    module.weight = tf.Variable(tf.eye(16))
    spec = tf.TensorSpec([8, 16], name="x")
    module.run = tf.function(lambda x: tf.tanh(tf.tanh(x @ module.weight) @ module.weight), [spec])
    tf.saved_model.save(module, "model", signatures=module.run)
    return {"step": module.run, "x": tf.ones([8, 16])}


GIVEN = {
    "docs/index.md": index,
    "docs/budgets.md": budgets,
    "docs/keras.md": keras_page,
    "docs/reading-the-report.md": reading,
    "docs/storage-sharing.md": sharing,
    "docs/vocabulary-loss.md": lambda: {"rnnmem": rnnmem, "tf": tf},
}


def test_every_page_stands_somewhere():
    assert set(GIVEN) | set(ELSEWHERE) | {"docs/quick-start.md"} <= set(PAGES)
    assert all((ROOT / path).is_file() for path in ELSEWHERE.values())


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE])
def test_every_block_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    given = GIVEN.get(page, dict)()
    names = dict(given)
    for match in BLOCK.finditer((ROOT / page).read_text(encoding="utf-8")):
        if given.keys() & {"train_step", "model"}:
            names.update(given)
        line = (ROOT / page).read_text(encoding="utf-8")[: match.start()].count("\n") + 1
        # Line numbers are those of the page, so that a failure names its line.
        code = compile("\n" * line + match[1], str(ROOT / page), "exec")
        exec(code, names)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_parses(page):
    for match in BLOCK.finditer((ROOT / page).read_text(encoding="utf-8")):
        ast.parse(match[1])


def test_links_between_pages_lead_somewhere():
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
            if "://" not in link:
                assert (path.parent / link).exists(), f"{path.name}: {link}"
