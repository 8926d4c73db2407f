"""Expressions, as text, over values of the shape [B, H]; what they give has that shape too.

In a template ``{a}``, ``{b}`` and ``{c}`` stand for values, ``{x}`` for what the sequence holds for
this iteration, ``{i}`` for the iteration's number and ``{w}`` for a weight [H, H].
"""

from __future__ import annotations

import dataclasses

from tests.random_programs.dice import Dice

# Name -> template. Each stays of the size of its arguments, or grows by a small factor.
ONE = {
    "tanh": "tf.tanh({a})",
    "sigmoid": "tf.sigmoid({a})",
    "relu": "tf.nn.relu({a})",
    "softplus": "tf.nn.softplus({a})",
    "softsign": "tf.nn.softsign({a})",
    "elu": "tf.nn.elu({a})",
    "selu": "tf.nn.selu({a})",
    "gelu": "tf.nn.gelu({a})",
    "swish": "tf.nn.silu({a})",
    "leaky": "tf.nn.leaky_relu({a}, 0.1)",
    "sine": "tf.sin({a})",
    "absolute": "tf.abs({a})",
    "negative": "-{a}",
    "scale": "{a} * 0.7",
    "shift": "{a} + 0.25",
    "quotient": "{a} / 3.0",
    "bell": "tf.exp(-tf.square({a}))",
    "root": "tf.sqrt(tf.abs({a}) + 1.0)",
    "logarithm": "tf.math.log(tf.abs({a}) + 1.0)",
    "reciprocal": "tf.math.reciprocal(tf.abs({a}) + 1.0)",
    "softmax": "tf.nn.softmax({a})",
    "log_softmax": "tf.nn.log_softmax({a}) * 0.2",
    "unit": "tf.math.l2_normalize({a}, axis=1)",
    "layer_norm": "({a} - tf.reduce_mean({a}, 1, keepdims=True)) * tf.math.rsqrt("
    "tf.math.reduce_variance({a}, 1, keepdims=True) + 0.1)",
    "matmul": "tf.matmul({a}, {w})",
    "matmul_transposed": "tf.matmul({a}, {w}, transpose_b=True)",
    "matmul_operator": "{a} @ {w}",
    "affine": "tf.matmul({a}, {w}) + b",
    "bias_add": "tf.nn.bias_add(tf.matmul({a}, {w}), b)",
    "einsum": 'tf.einsum("bi,ij->bj", {a}, {w})',
    "tensordot": "tf.tensordot({a}, {w}, 1)",
    "gates": "gates(tf.matmul({a}, G))",
    "cumsum": "tf.cumsum({a}, axis=1) * 0.1",
    "reverse": "tf.reverse({a}, [1])",
    "roll": "tf.roll({a}, 1, axis=1)",
    "reverse_slice": "{a}[:, ::-1]",
    "concat_cut": "tf.concat([{a}[:, 1:], {a}[:, :1]], 1)",
    "pad": "tf.pad({a}[:, 1:], [[0, 0], [1, 0]])",
    "tile": "tf.tile({a}[:, :1], [1, H])",
    "gather_columns": "tf.gather({a}, COLUMNS, axis=1)",
    "reshape": "tf.reshape(tf.transpose(tf.reshape({a}, [-1, 2, H // 2]), [0, 2, 1]), [-1, H])",
    "mean": "{a} - tf.reduce_mean({a}, axis=1, keepdims=True)",
    "row_sum": "{a} * tf.tanh(tf.reduce_sum({a}, 1, keepdims=True))",
    "column_sum": "tf.reduce_mean({a}, 0) + {a} * 0.5",
    "logsumexp": "{a} - tf.reduce_logsumexp({a}, axis=1, keepdims=True) * 0.1",
    "clip": "tf.clip_by_value({a}, -0.5, 0.5)",
    "clip_norm": "tf.clip_by_norm({a}, 2.0)",
    "norm": "{a} / (1.0 + tf.norm({a}, axis=1, keepdims=True))",
    "cast_down": "tf.cast(tf.cast({a}, tf.bfloat16), DT)",
    "cast_up": "tf.cast(tf.sin(tf.cast({a}, tf.float64)), DT)",
    "stopped": "tf.stop_gradient({a}) + {a} * 0.5",
    "identity": "tf.identity({a})",
    "ensured": "tf.ensure_shape({a}, [None, H])",
    "top_k": "tf.concat([tf.math.top_k({a}, 2).values, {a}[:, 2:]], 1)",
    "attention": "attend({a})",
    "called": "called({a}, {a})",
    "custom": "custom({a})",
    "custom_of_variable": "custom_of_variable({a})",
    "complex": "tf.math.real(tf.complex({a}, {a}) * tf.complex(0.6, 0.3))",
    "split": "tf.concat(tf.split({a}, 2, axis=1)[::-1], 1)",
    "unstack": "tf.stack(tf.unstack({a}, axis=1)[::-1], axis=1)",
    "one_hot": "{a} + tf.one_hot(tf.argmax({a}, 1), H, dtype=DT) * 0.1",
    "scatter": "tf.tensor_scatter_nd_add({a}, [[0]], {a}[:1] * 0.5)",
}
TWO = {
    "add": "{a} + {b}",
    "sub": "{a} - {b}",
    "mul": "{a} * {b}",
    "scaled_sum": "{a} * 0.5 + {b} * 0.4",
    "mix": "{a} + 0.1 * {b}",
    "gate": "tf.sigmoid({a}) * {b}",
    "tanh_of_sum": "tf.tanh({a} + {b})",
    "maximum": "tf.maximum({a}, {b})",
    "minimum": "tf.minimum({a}, {b})",
    "where": "tf.where({a} > {b}, {a}, {b} * 0.5)",
    "where_sign": "tf.where({a} > 0.0, {b}, {a})",
    "difference": "tf.math.squared_difference({a}, {b}) * 0.3",
    "division": "{a} / (1.0 + tf.abs({b}))",
    "two_matmuls": "tf.matmul({a}, W) + tf.matmul({b}, U)",
    "recurrent": "tf.tanh(tf.matmul({a}, W) + tf.matmul({b}, U) + b)",
    "concat": "tf.matmul(tf.concat([{a}, {b}], 1), P)",
    "halves": "tf.concat([{a}[:, : H // 2], {b}[:, H // 2 :]], 1)",
    "stack_max": "tf.reduce_max(tf.stack([{a}, {b}]), 0)",
    "stack_sum": "tf.reduce_sum(tf.stack([{a}, {b}], 1), 1)",
    "called_of_two": "called({a}, {b})",
    "outer": 'tf.einsum("bi,bj,jk->bk", {a}, {b}, {w}) * 0.1',
    "batch_matmul": "tf.squeeze(tf.matmul(tf.expand_dims({a}, 1), tf.expand_dims({b}, 2)), 2) "
    "* 0.05 + {a}",
    "hypot": "tf.sqrt(tf.square({a}) + tf.square({b}) + 0.01)",
    "atan2": "tf.math.atan2({a}, tf.abs({b}) + 1.0)",
}
THREE = {
    "add_three": "{a} + {b} + {c}",
    "add_n": "tf.add_n([{a}, {b}, {c}])",
    "add_scaled": "{a} + {b} * 0.1 + {c} * 0.8",
    "gru": "tf.sigmoid({a}) * {b} + (1.0 - tf.sigmoid({a})) * {c}",
    "product_sum": "{a} * {b} + {c}",
    "nested_sum": "({a} + {b}) - ({c} + {a})",
    "accumulate": "tf.math.accumulate_n([{a}, {b}, {c}])",
    "select": "tf.where({a} > {b}, {b}, {c})",
}
# Only where there is a sequence, or an iteration.
OF_SEQUENCE = {
    "input": "{x}",
    "input_sum": "{a} + {x}",
    "input_three": "{a} + {b} + {x}",
    "input_scaled": "{a} + {b} * 0.1 + {x} * 0.8",
    "input_gate": "tf.sigmoid({x}) * {a}",
    "input_cell": "tf.tanh(tf.matmul({a}, W) + {x} + b)",
    "input_product": "{x} * {a} + {b}",
    "embedding": "{a} + tf.nn.embedding_lookup(E, IDS[{i} % T])",
    "mask": "tf.where(tf.expand_dims({i} < LENGTHS, 1), {a}, {b})",
    "noise": "{a} + 0.1 * tf.random.stateless_normal(tf.shape({a}), [{i}, 3], dtype=DT)",
    "stateless_dropout": "tf.nn.experimental.stateless_dropout({a}, 0.2, seed=[{i}, 5])",
    "position": "{a} + tf.cast({i}, DT) * 0.01",
}
# No second gradient, or none that every TensorFlow has.
ONCE = frozenset({"clip_norm", "atan2", "custom_of_variable", "top_k", "complex", "selu"})
# What TensorFlow computes in some dtypes only.
WIDE = frozenset({"complex"})


@dataclasses.dataclass(frozen=True)
class Scope:
    """What an expression may read at one place of a program.

    Attributes:
      values: names of values [B, H].
      sequence: text of what the sequence holds for this iteration; empty where there is none.
      index: the iteration's number, as text; empty outside of loops.
    """

    values: tuple[str, ...]
    sequence: str = ""
    index: str = ""

    def having(self, *names: str) -> Scope:
        return dataclasses.replace(self, values=(*self.values, *names))


class Expressions:
    """Throws expressions; ``used`` collects the names of all templates that were taken."""

    def __init__(self, dice: Dice, left_out: frozenset[str] = frozenset()):
        self._dice = dice
        self._left_out = left_out
        self.used: set[str] = set()

    def value(self, scope: Scope) -> str:
        """Any expression of one template, sometimes with another inside."""
        kinds = [(ONE, 4), (TWO, 4), (THREE, 2)]
        if scope.sequence and scope.index:
            kinds.append((OF_SEQUENCE, 3))
        return self._of(self._dice.weighted({n: w for n, (_, w) in enumerate(kinds)}), kinds, scope)

    def bounded(self, scope: Scope) -> str:
        """An expression that cannot leave [-2, 2], whatever it reads."""
        return f"tf.tanh({self.value(scope)})"

    def operand(self, scope: Scope) -> str:
        """A value by name, or seldom a small expression of one."""
        name = self._recent(scope)
        if self._dice.chance(0.85):
            return name
        unary = self._dice.one_of(("tf.tanh({})", "tf.sigmoid({})", "tf.nn.relu({})", "-{}"))
        return unary.format(name)

    def condition(self, scope: Scope) -> str:
        """A condition of a branch, by the data or by the iteration."""
        tests = [
            "tf.reduce_sum({a}) > 0.0",
            "tf.reduce_mean({a}) > tf.reduce_mean({b})",
            "tf.reduce_any({a} > 0.9)",
            "n > 3",
        ]
        if scope.index:
            tests += ["{i} % 2 == 0", "{i} > 1", "{i} % 3 == 1"]
        text = self._dice.one_of(tests)
        return text.format(a=self._recent(scope), b=self._recent(scope), i=scope.index)

    def _of(self, number: int, kinds: list, scope: Scope) -> str:
        templates = kinds[number][0]
        name = self._dice.one_of([name for name in templates if name not in self._left_out])
        self.used.add(name)
        reads = {letter: self.operand(scope) for letter in "abc"}
        if reads["a"].startswith("-"):  # -h[:, 1:] would be another value
            reads["a"] = f"({reads['a']})"
        return templates[name].format(
            **reads, w=self._dice.one_of(("W", "U")), x=scope.sequence, i=scope.index
        )

    def _recent(self, scope: Scope) -> str:
        """A name; the newest are likelier, so that what is computed is read."""
        if self._dice.chance(0.5):
            return self._dice.one_of(scope.values[-3:])
        return self._dice.one_of(scope.values)
