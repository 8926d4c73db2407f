"""Nets as text: ``to_text`` prints one, ``parse`` reads it again, and loses nothing.

    net step(x float32[4,8], w float32[8,8]) -> (h) {
      one int32[] = Const() with {dtype=type int32, value=constant int32[] 1 "CAMSAA=="}
      m float32[4,8] = MatMul(x, w) @ "train.py:12"
      h float32[4,8] = Tanh(m) after(one)
    }

A line an op: what it writes, its type, what it reads; then, where there are any, its attributes,
the ops that it waits for, ``stateful``, its device, the user's line, and its step nets in braces.
An op has the name of the blob that it writes, or of the blobs without their ``:0``; else it says
``as NAME``. A Net ``wants`` the ops that must run even where no output needs them.
Shapes: ``[]`` a number, ``[4,?]`` an unknown dimension, ``[*]`` an unknown rank. Names that are not
plain words stand in quotes, as in JSON. ``#`` begins a comment. Who writes by hand may leave out
``[*]`` and a constant's encoding.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rnnmem.errors import NetError
from rnnmem.ir.graph import Blob, Constant, DType, FunctionRef, Net, Op, Shape, ShapeValue

_INDENT = "  "
_WORD = r"[A-Za-z0-9_./^>:+-]+"
_TOKEN = re.compile(
    rf'\s+|\#[^\n]*|->|(?P<string>b?"(?:[^"\\]|\\.)*")|(?P<word>{_WORD})|(?P<mark>[][(){{}},=@*?])'
)
# Words that mean something between the parts of an op; an op's name that is one of them is quoted.
_KEYWORDS = frozenset(
    ("after", "as", "constant", "false", "function", "net", "none", "on", "shape")
    + ("stateful", "true", "type", "wants", "with")
)


# --- printing


def to_text(net: Net) -> str:
    """The Net as text; :func:`parse` reads it."""
    return "\n".join(_lines(net)) + "\n"


def _lines(net: Net) -> Iterable[str]:
    given = ", ".join(_typed(net.blobs[blob]) for blob in net.inputs)
    head = f"net {_name(net.name)}({given}) -> ({_names(net.outputs)})"
    if net.control_outputs:
        head += f" wants({_names(net.control_outputs)})"
    if net.attributes:
        head += " with " + _fields(net.attributes)
    yield head + " {"
    for op in net.ops:
        yield from (_INDENT + line for line in _op_lines(net, op))
    yield "}"


def _op_lines(net: Net, op: Op) -> Iterable[str]:
    line = ", ".join(_typed(net.blobs[blob]) for blob in op.outputs)
    line += f"{' = ' if line else ''}{_name(op.type)}({_names(op.inputs)})"
    if op.name != _own_name(op.outputs):
        line += f" as {_name(op.name)}"
    if op.attributes:
        line += " with " + _fields(op.attributes)
    if op.controls:
        line += f" after({_names(op.controls)})"
    if op.stateful:
        line += " stateful"
    if op.device:
        line += f" on {_quoted(op.device)}"
    if op.source:
        line += f" @ {_quoted(str(op.source))}"
    if not op.nets:
        yield line
        return
    yield line + " {"
    for key, inner in op.nets.items():
        first, *rest = _lines(inner)
        yield f"{_INDENT}{_name(key)} = {first}"
        yield from (_INDENT + one for one in rest)
    yield "}"


def _own_name(outputs: tuple[str, ...]) -> str | None:
    """The name that an op has without saying so."""
    if len(outputs) == 1 and not outputs[0].endswith(":0"):
        return outputs[0]
    stem = outputs[0].removesuffix(":0") if outputs else None
    return stem if outputs == tuple(f"{stem}:{slot}" for slot in range(len(outputs))) else None


def _typed(blob: Blob) -> str:
    return f"{_name(blob.name)} {blob.dtype}{_shape(blob.shape)}"


def _shape(shape: Shape) -> str:
    if shape is None:
        return "[*]"
    return f"[{','.join('?' if size is None else str(size) for size in shape)}]"


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(_name, names))


def _name(name: str) -> str:
    plain = re.fullmatch(_WORD, name) and "->" not in name and name not in _KEYWORDS
    return name if plain else _quoted(name)


def _quoted(text: str) -> str:
    return json.dumps(text)


def _fields(fields: Mapping[str, Any]) -> str:
    return f"{{{', '.join(f'{_name(key)}={_value(value)}' for key, value in fields.items())}}}"


def _value(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return _quoted(value)
        case bytes():
            return "b" + _quoted(value.decode("latin-1"))
        case DType():
            return f"type {value.name}"
        case ShapeValue():
            return f"shape{_shape(value.dims)}"
        case Constant():
            held = f"constant {value.dtype}{_shape(value.shape)}"
            known = value.value if value.rows is None else value.rows
            return f"{held} {_value(known)} {_encoded(value.encoded)}"
        case FunctionRef():
            return f"function {_name(value.name)} {_encoded(value.encoded)}"
        case tuple():
            return f"({', '.join(map(_value, value))})"
        case Mapping():
            return _fields(value)
    raise NetError(f"an attribute that holds a {type(value).__name__} has no text")


def _encoded(data: bytes) -> str:
    return _quoted(base64.b64encode(data).decode("ascii"))


# --- parsing


def parse(text: str) -> Net:
    """The Net that a text from :func:`to_text`, or one written by hand, stands for.

    Raises:
      NetError: the text is none; the message names the line and what was expected there.
    """
    reader = _Reader(text)
    net = _net(reader)
    reader.end()
    return net


class _Reader:
    """Words and marks of a text, one after the other."""

    def __init__(self, text: str):
        self._text = text
        self._tokens: list[tuple[str, int]] = []
        self._next = 0
        place = 0
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                raise self._error(place, f"{text[place]!r} begins no word")
            token = match.group()
            if not token.isspace() and not token.startswith("#"):
                self._tokens.append((token, place))
            place = match.end()

    def _error(self, place: int, problem: str) -> NetError:
        line = self._text.count("\n", 0, place) + 1
        return NetError(f"line {line} of the Net's text: {problem}")

    def error(self, problem: str) -> NetError:
        """An error about the next word."""
        place = self._tokens[self._next][1] if self.peek() else len(self._text)
        return self._error(place, problem)

    def peek(self) -> str:
        """The next word; empty at the end."""
        return self._tokens[self._next][0] if self._next < len(self._tokens) else ""

    def take(self, wanted: str = "") -> str:
        """The next word, which must be the wanted one, if any."""
        found = self.peek()
        if not found or (wanted and found != wanted):
            shown = repr(found) if found else "its end"
            raise self.error(f"{wanted or 'a word'!r} was expected, not {shown}")
        self._next += 1
        return found

    def took(self, wanted: str) -> bool:
        """Takes the next word if it is the wanted one."""
        if self.peek() != wanted:
            return False
        self._next += 1
        return True

    def name(self) -> str:
        """A name, in quotes or not."""
        word = self.peek()
        if word.startswith('"'):
            return json.loads(self.take())
        if not re.fullmatch(_WORD, word):
            raise self.error(f"a name was expected, not {word!r}" if word else "a name is missing")
        return self.take()

    def list(self, item: Callable[[], Any], close: str = ")") -> tuple:
        """Items up to a closing mark, with commas between them."""
        found: list[Any] = []
        while not self.took(close):
            if found:
                self.take(",")
            found.append(item())
        return tuple(found)

    def end(self) -> None:
        if self.peek():
            raise self.error(f"{self.peek()!r} stands behind the Net")


def _net(reader: _Reader) -> Net:
    reader.take("net")
    name = reader.name()
    reader.take("(")
    given = reader.list(lambda: _blob(reader))
    reader.take("->")
    reader.take("(")
    outputs = reader.list(reader.name)
    wanted: tuple[str, ...] = ()
    if reader.took("wants"):
        reader.take("(")
        wanted = reader.list(reader.name)
    attributes = _mapping(reader) if reader.took("with") else {}
    blobs = {blob.name: blob for blob in given}
    reader.take("{")
    ops = []
    while not reader.took("}"):
        ops.append(_op(reader, blobs))
    inputs = tuple(blob.name for blob in given)
    return Net(name, inputs, outputs, tuple(ops), blobs, wanted, attributes)


def _op(reader: _Reader, blobs: dict[str, Blob]) -> Op:
    """Reads an op, and enters what it writes."""
    kind, written = reader.name(), []
    if reader.peek() != "(":  # else it writes nothing, and the name was its type
        written.append(_rest_of_blob(reader, kind))
        while reader.took(","):
            written.append(_blob(reader))
        reader.take("=")
        kind = reader.name()
    blobs.update((blob.name, blob) for blob in written)
    outputs = tuple(blob.name for blob in written)
    reader.take("(")
    fields: dict[str, Any] = {"inputs": reader.list(reader.name), "outputs": outputs}
    name = reader.name() if reader.took("as") else _own_name(outputs)
    if name is None:
        raise reader.error(f"the op {kind} needs a name: as NAME")
    if reader.took("with"):
        fields["attributes"] = _mapping(reader)
    if reader.took("after"):
        reader.take("(")
        fields["controls"] = reader.list(reader.name)
    fields["stateful"] = reader.took("stateful")
    if reader.took("on"):
        fields["device"] = reader.name()
    if reader.took("@"):
        fields["source"] = reader.name()
    if reader.took("{"):
        fields["nets"] = _nets(reader)
    return Op(name, kind, **fields)


def _nets(reader: _Reader) -> dict[str, Net]:
    nets = {}
    while not reader.took("}"):
        key = reader.name()
        reader.take("=")
        nets[key] = _net(reader)
    return nets


def _blob(reader: _Reader) -> Blob:
    return _rest_of_blob(reader, reader.name())


def _rest_of_blob(reader: _Reader, name: str) -> Blob:
    return Blob(name, reader.name(), _read_shape(reader))


def _read_shape(reader: _Reader) -> Shape:
    if not reader.took("["):
        return None
    if reader.took("*"):
        reader.take("]")
        return None
    return reader.list(lambda: None if reader.took("?") else _number(reader, int), "]")


def _number(reader: _Reader, kind: Callable[[str], Any]) -> Any:
    try:
        value = kind(reader.peek())
    except ValueError:
        raise reader.error(f"a number was expected, not {reader.peek()!r}") from None
    reader.take()
    return value


def _mapping(reader: _Reader) -> dict[str, Any]:
    def field() -> tuple[str, Any]:
        key = reader.name()
        reader.take("=")
        return key, _read_value(reader)

    reader.take("{")
    return dict(reader.list(field, "}"))


_SIMPLE = {"none": None, "true": True, "false": False}


def _read_value(reader: _Reader) -> Any:
    word = reader.peek()
    if word in _SIMPLE:
        return _SIMPLE[reader.take()]
    if word.startswith('b"'):
        return json.loads(reader.take()[1:]).encode("latin-1")
    if word.startswith('"'):
        return reader.name()
    if word == "{":
        return _mapping(reader)
    if reader.took("("):
        return reader.list(lambda: _read_value(reader))
    if reader.took("type"):
        return DType(reader.name())
    if reader.took("shape"):
        return ShapeValue(_read_shape(reader))
    if reader.took("constant"):
        dtype, shape, value = reader.name(), _read_shape(reader), _read_value(reader)
        rows = value if isinstance(value, tuple) and value and type(value[0]) is tuple else None
        return Constant(dtype, shape, _data(reader), value if rows is None else None, rows)
    if reader.took("function"):
        return FunctionRef(reader.name(), _data(reader))
    return _number(reader, int if re.fullmatch(r"[+-]?\d+", word) else float)


def _data(reader: _Reader) -> bytes:
    return base64.b64decode(reader.name()) if reader.peek().startswith('"') else b""
