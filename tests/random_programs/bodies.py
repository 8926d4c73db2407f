"""Statements and loops, as lines of text: what stands in the forward pass of a program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tests.random_programs.dice import Dice
from tests.random_programs.expressions import Expressions, Scope

INDENT = "    "
STATES = ("h", "c")


def indented(lines: list[str], depth: int = 1) -> list[str]:
    return [INDENT * depth + line for line in lines]


@dataclasses.dataclass(frozen=True)
class Room:
    """How much may still be put into a place.

    Attributes:
      depth: loops and branches that may stand in each other here.
      statements: at most so many.
      breaks: whether `break` and `continue` may stand here: directly in an AutoGraph loop.
    """

    depth: int
    statements: int
    breaks: bool = False


class Bodies:
    """Throws loops, as lines of a forward pass.

    Args:
      dice: what is thrown with.
      expressions: what stands in the loops.
      cells: names of Keras cells that may be called.
      depth: loops and branches that may stand in each other in a loop.

    Attributes:
      features: constructs that were taken.
      losses: scalars, as text, that can be added to the loss behind the loops.
    """

    def __init__(
        self, dice: Dice, expressions: Expressions, cells: tuple[str, ...] = (), depth: int = 2
    ):
        self._depth = depth
        self._dice = dice
        self._expressions = expressions
        self._cells = cells
        self._count = 0
        self.features: set[str] = set()
        self.losses: list[str] = []

    def new(self, prefix: str) -> str:
        """A name that nothing in the program has."""
        self._count += 1
        return f"{prefix}{self._count}"

    def loop(self) -> list[str]:
        """A loop over the sequence, or as many times as an argument or the data say."""
        kinds: dict[Callable[[], list[str]], float] = {
            self._for_loop: 6,
            self._while_loop: 2,
            self._while_loop_by_hand: 1.5,
            self._over_rows: 0.7,
            self._scan: 0.7,
            self._map: 0.3,
        }
        return self._dice.weighted(kinds)()

    # Loops.

    def _for_loop(self) -> list[str]:
        i = self.new("i")
        ranges = {
            "tf.range(T)": 5,
            "tf.range(n)": 4,
            "tf.range(tf.shape(x)[0])": 2,
            "tf.range(n - 1, -1, -1)": 1,
            "tf.range(1, T, 2)": 0.7,
            "tf.range(tf.reduce_max(LENGTHS))": 1,
            "tf.range(tf.minimum(n, T))": 0.7,
            "tf.range(n // 2)": 0.4,
        }
        text = self._dice.weighted(ranges)
        self.features.add("for:" + text)
        return self._autograph(f"for {i} in {text}:", i)

    def _while_loop(self) -> list[str]:
        i = self.new("i")
        tests = {
            f"{i} < n - 1": 2,
            f"{i} < T - 1": 1,
            f"{i} < n - 1 and tf.reduce_sum(tf.abs(h)) < 1e4": 2,
            f"tf.logical_and({i} < T - 1, tf.reduce_max(tf.abs(h)) < 50.0)": 1,
            f"tf.reduce_mean(h) < 0.9 and {i} < n - 1": 1,
        }
        self.features.add("while")
        lines = self._autograph(f"while {self._dice.weighted(tests)}:", i, [f"{i} += 1"])
        return [f"{i} = tf.constant(-1)", *lines]

    def _autograph(self, head: str, i: str, first: list[str] | None = None) -> list[str]:
        scope = Scope(STATES, self._sequence(i), i)
        lists, writes, read = self._lists(i)
        body = self._body(
            scope, Room(self._depth, self._dice.whole(1, 2 * self._depth), breaks=True)
        )
        at = self._dice.whole(0, len(body)) if writes and not self._breaks(body) else len(body)
        if at < len(body) and body[at].startswith((" ", "else", "elif")):
            at = len(body)
        body = [*read, *body[:at], *writes, *body[at:]]
        return [*lists, head, *indented([*(first or []), *body])]

    @staticmethod
    def _breaks(body: list[str]) -> bool:
        return any(line.strip() in ("break", "continue") for line in body)

    def _while_loop_by_hand(self) -> list[str]:
        j, test, body = self.new("j"), self.new("test"), self.new("body")
        self.features.add("while_loop")
        scope = Scope(STATES, self._sequence(j), j)
        limit = self._dice.one_of(("n", "T", "tf.shape(x)[0]", "tf.reduce_max(LENGTHS)"))
        tests = (f"{j} < {limit}", f"tf.logical_and({j} < {limit}, tf.reduce_sum(h) < 1e4)")
        options = self._dice.one_of(
            ("", "", "", ", maximum_iterations=T", ", parallel_iterations=1", ", swap_memory=True")
        )
        inner = self._body(scope, Room(1, self._dice.whole(1, 3)))
        return [
            f"def {test}({j}, h, c):",
            *indented([f"return {self._dice.one_of(tests)}"]),
            f"def {body}({j}, h, c):",
            *indented([*inner, f"return {j} + 1, h, c"]),
            f"_, h, c = tf.while_loop({test}, {body}, (tf.constant(0), h, c){options})",
        ]

    def _over_rows(self) -> list[str]:
        self.features.add("for:x")
        x, k = self.new("x"), self.new("k")
        scope = Scope(STATES, f"cell_input({x})", k)
        body = self._body(scope, Room(1, self._dice.whole(1, 3)))
        return [f"{k} = tf.constant(0)", f"for {x} in x:", *indented([*body, f"{k} += 1"])]

    def _scan(self) -> list[str]:
        self.features.add("scan")
        name, made = self.new("scanned"), self.new("step")
        scope = Scope(("a", "v"))
        temps = self._temporaries(scope, self._dice.whole(0, 2))
        scope = scope.having(*(line.split(" = ")[0] for line in temps))
        result = self._expressions.bounded(scope)
        reverse = self._dice.one_of(("", "", ", reverse=True"))
        self.losses.append(f"tf.reduce_mean(tf.square({name}))")
        fold = self._dice.one_of(("scan", "scan", "foldl"))
        lines = [
            f"def {made}(a, v):",
            *indented(["v = cell_input(v)", *temps, f"return {result}"]),
        ]
        if fold == "foldl":
            return [*lines, f"h = tf.foldl({made}, x, h)", f"{name} = h"]
        return [*lines, f"{name} = tf.scan({made}, x, h{reverse})", f"h = {name}[-1]"]

    def _map(self) -> list[str]:
        self.features.add("map_fn")
        name = self.new("mapped")
        result = self._expressions.bounded(Scope(("v", "h")))
        self.losses.append(f"tf.reduce_mean(tf.square({name}))")
        return [f"{name} = tf.map_fn(lambda v: {result}, tf.map_fn(cell_input, x, DT), DT)"]

    def _sequence(self, i: str) -> str:
        forms = {
            f"cell_input(x[{i} % T])": 3,
            f"cell_input(tf.gather(x, {i} % T))": 1,
            f"SKIP[{i} % T]": 1,
        }
        return self._dice.weighted(forms)

    def _lists(self, i: str) -> tuple[list[str], list[str], list[str]]:
        """A TensorArray or none: lines in front of the loop, in its body, and first in it."""
        if not self._dice.chance(0.4):
            return [], [], []
        kinds: dict[Callable, float] = {self._written: 4, self._read_back: 1, self._unstacked: 2}
        return self._dice.weighted(kinds)(i)

    def _written(self, i: str) -> tuple[list[str], list[str], list[str]]:
        ta = self.new("ta")
        size = self._dice.one_of(("0, dynamic_size=True", "0, dynamic_size=True", "T", "T + 1"))
        self.features.add("TensorArray:dynamic" if size.startswith("0") else "TensorArray:static")
        known = self._dice.one_of((", element_shape=[B, H]", ", element_shape=h.shape"))
        value = self._dice.one_of(("h", "h", "c", "tf.tanh(h)", "h * c", "tf.nn.relu(c) + h"))
        ends = {
            f"tf.reduce_mean(tf.square({ta}.stack()))": 5,
            f"tf.reduce_sum(tf.sin({ta}.stack())) * 0.01": 2,
            f"tf.reduce_mean({ta}.gather(tf.range({ta}.size())))": 1,
            f"tf.reduce_mean(tf.square({ta}.concat()))": 1,
            f"-tf.reduce_mean(tf.nn.log_softmax(tf.reshape({ta}.stack(), [-1, H]) @ W))": 1,
        }
        self.losses.append(self._dice.weighted(ends))
        return (
            [f"{ta} = tf.TensorArray(DT, {size}{known})"],
            [f"{ta} = {ta}.write({i}, {value})"],
            [],
        )

    def _read_back(self, i: str) -> tuple[list[str], list[str], list[str]]:
        self.features.add("TensorArray:read")
        ta = self.new("ta")
        make = f"{ta} = tf.TensorArray(DT, T + 1, clear_after_read=False, element_shape=[B, H])"
        state = self._dice.one_of(STATES)
        read = [f"{ta} = {ta}.write({i}, {state})", f"h = h * 0.9 + {ta}.read({i}) * 0.1"]
        self.losses.append(f"tf.reduce_mean(tf.sin({ta}.stack()))")
        return [make], [], read

    def _unstacked(self, i: str) -> tuple[list[str], list[str], list[str]]:
        ta = self.new("ta")
        self.features.add("TensorArray:unstack")
        form = self._dice.one_of(("unstack(x)", "unstack(x)", "scatter(tf.range(T)[::-1], x)"))
        make = f"{ta} = tf.TensorArray(DT, T, clear_after_read=False).{form}"
        return [make], [], [f"c = tf.tanh(c + cell_input({ta}.read({i} % T)))"]

    # Bodies.

    def _body(self, scope: Scope, room: Room) -> list[str]:
        """Statements that end with an update of the states."""
        lines: list[str] = []
        for _ in range(room.statements):
            made, scope = self._statement(scope, room)
            lines += made
        return lines + self._update(scope)

    def _statement(self, scope: Scope, room: Room) -> tuple[list[str], Scope]:
        kinds: dict[Callable, float] = {
            self._temporary: 6,
            self._stronger_loss: 0.4,
            self._counter: 0.3,
            self._inner_tape: 0.5,
            self._through_cell: 0.8 if self._cells else 0.0,
        }
        if room.depth:
            kinds |= {self._branch: 1.5, self._functional_branch: 0.6, self._inner_loop: 1.2}
        if room.breaks:
            kinds |= {self._jump: 1}
        return self._dice.weighted(kinds)(scope, room)

    def _temporary(self, scope: Scope, room: Room) -> tuple[list[str], Scope]:
        name = self.new("t")
        return [f"{name} = {self._expressions.value(scope)}"], scope.having(name)

    def _temporaries(self, scope: Scope, count: int) -> list[str]:
        lines = []
        for _ in range(count):
            made, scope = self._temporary(scope, Room(0, 0))
            lines += made
        return lines

    def _stronger_loss(self, scope: Scope, room: Room) -> tuple[list[str], Scope]:
        self.features.add("loss in loop")
        return [f"c = c * 0.9 + tf.reduce_mean({self._expressions.value(scope)}) * 0.1"], scope

    def _counter(self, scope: Scope, room: Room) -> tuple[list[str], Scope]:
        self.features.add("effect")
        return ["COUNT.assign_add(1)"], scope

    def _inner_tape(self, scope: Scope, room: Room) -> tuple[list[str], Scope]:
        self.features.add("inner tape")
        e, g = self.new("e"), self.new("t")
        name = scope.values[-1]
        value = self._expressions.value(Scope((name, "h")))
        lines = [
            "with tf.GradientTape() as inner:",
            *indented([f"inner.watch({name})", f"{e} = tf.reduce_sum(tf.square({value}))"]),
            f"{g} = tf.tanh(inner.gradient({e}, {name}, unconnected_gradients='zero'))",
        ]
        return lines, scope.having(g)

    def _through_cell(self, scope: Scope, room: Room) -> tuple[list[str], Scope]:
        cell, t = self._dice.one_of(self._cells), self.new("t")
        self.features.add("cell")
        if cell == "LSTM":
            return [f"{t}, (h, c) = LSTM({scope.values[-1]}, [h, c])"], scope.having(t)
        return [f"{t}, (h,) = {cell}({scope.values[-1]}, [h])"], scope.having(t)

    def _branch(self, scope: Scope, room: Room) -> tuple[list[str], Scope]:
        self.features.add("if")
        inner = Room(room.depth - 1, 0)
        first = self._few(scope, inner)
        second = self._few(scope, inner)
        lines = [f"if {self._expressions.condition(scope)}:", *indented(first)]
        if self._dice.chance(0.6):
            lines += ["else:", *indented(second)]
        return lines, scope

    def _few(self, scope: Scope, room: Room) -> list[str]:
        temps = self._temporaries(scope, self._dice.whole(0, 2))
        scope = scope.having(*(line.split(" = ")[0] for line in temps))
        return [*temps, f"{self._dice.one_of(STATES)} = {self._expressions.bounded(scope)}"]

    def _functional_branch(self, scope: Scope, room: Room) -> tuple[list[str], Scope]:
        t = self.new("t")
        value = self._expressions.value
        if self._dice.chance(0.7):
            self.features.add("cond")
            test = self._expressions.condition(scope).replace(" and ", " & ")
            text = f"tf.cond({test}, lambda: {value(scope)}, lambda: {value(scope)})"
        else:
            self.features.add("switch_case")
            which = f"tf.cast({scope.index}, tf.int32) % 3" if scope.index else "n % 3"
            branches = ", ".join(f"lambda: {value(scope)}" for _ in range(3))
            text = f"tf.switch_case({which}, [{branches}])"
        return [f"{t} = {text}"], scope.having(t)

    def _inner_loop(self, scope: Scope, room: Room) -> tuple[list[str], Scope]:
        self.features.add("loop in loop")
        j = self.new("j")
        limits = {"2": 2, "3": 1, "n % 3": 1, "tf.minimum(n, 3)": 1, "0": 0.2}
        if scope.index:
            limits |= {f"{scope.index} % 3": 1.5}
        limit = self._dice.weighted(limits)
        inner = dataclasses.replace(scope, index=j)
        room = Room(room.depth - 1, self._dice.whole(0, 2), breaks=True)
        body = self._body(inner, room)
        if self._dice.chance(0.8):
            return [f"for {j} in tf.range({limit}):", *indented(body)], scope
        head = [f"{j} = tf.constant(-1)", f"while {j} < {limit} - 1:"]
        return [*head, *indented([f"{j} += 1", *body])], scope

    def _jump(self, scope: Scope, room: Room) -> tuple[list[str], Scope]:
        jump = self._dice.one_of(("break", "continue"))
        self.features.add(jump)
        tests = {
            "continue": (f"{scope.index} % 4 == 2", "tf.reduce_sum(h) > 0.0"),
            "break": (
                f"{scope.index} > 5",
                "tf.reduce_sum(tf.square(h)) > B * H * 0.7",
                f"tf.reduce_mean(h) > 0.3 and {scope.index} > 2",
            ),
        }
        return [f"if {self._dice.one_of(tests[jump])}:", INDENT + jump], scope

    def _update(self, scope: Scope) -> list[str]:
        """The states' next values, of which none can grow without bound."""
        value, bounded = self._expressions.value, self._expressions.bounded
        recent = scope.values[-1]
        x = scope.sequence or "h"
        forms: dict[Callable[[], list[str]], float] = {
            lambda: [f"h = {bounded(scope)}"]: 3,
            lambda: [f"h = tf.tanh(tf.matmul({recent}, W) + {x} + b)"]: 2,
            lambda: [f"h = tf.tanh({recent} + {x} * 0.8 + c * 0.1)"]: 1,
            lambda: [f"h = tf.tanh(h + {recent} + {x})", f"c = tf.tanh({value(scope)})"]: 1.5,
            lambda: [f"h = tf.tanh(h + {x} * 0.8) + c * 0.1", f"c = c * tf.sigmoid({recent})"]: 1.5,
            lambda: [f"h = h * 0.8 + {bounded(scope)} * 0.2"]: 1.5,
            lambda: [f"h, c = c * 0.9 + h * 0.1, {bounded(scope)}"]: 1,
            lambda: [f"h = h + tf.tanh({recent}) * 0.1 + {x} * 0.1"]: 1,
            lambda: [f"h, c = lstm(h, c, {x})"]: 2,
            lambda: [
                f"z = tf.sigmoid({value(scope)})",
                f"h = z * h + (1.0 - z) * {bounded(scope)}",
            ]: 1,
        }
        lines = self._dice.weighted(forms)()
        if self._dice.chance(0.25):
            lines.append(f"c = {bounded(scope)}")
        return lines
