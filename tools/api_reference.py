"""Writes docs/api.md from the docstrings of the public names: `make docs`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "api.md"
HEAD = """\
# API reference

Made from the docstrings by `tools/api_reference.py` (`make docs`); a test holds it against them.
Sizes are bytes, times are seconds.
"""
# Errors have a page of their own.
ERRORS = "rnnmem.errors"
ROOMS = {"pipeline": "rnnmem.pipeline", "sharing": "rnnmem.storage"}
"""Modules with public names of their own -> the packages that these are taken from."""


def homes() -> dict[str, str]:
    """Public name -> the module that defines it, in the order of the names."""
    tree = ast.parse((ROOT / "rnnmem" / "__init__.py").read_text(encoding="utf-8"))
    held = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if node.targets[0].id in ("__all__", "_HOME"):
                held[node.targets[0].id] = ast.literal_eval(node.value)
    names = {name: held["_HOME"][name] for name in held["__all__"] if name in held["_HOME"]}
    for name in _public(ROOT / "rnnmem" / "keras.py"):
        names[f"keras.{name}"] = "rnnmem.keras"
    for room, package in ROOMS.items():
        names |= {f"{room}.{name}": module for name, module in _taken_from(package)}
    return names


def _taken_from(package: str) -> Iterator[tuple[str, str]]:
    """(function or class, the module that defines it) of all that a package hands on."""
    path = ROOT / package.replace(".", "/") / "__init__.py"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("rnnmem."):
            public = _public(ROOT / (node.module.replace(".", "/") + ".py"))
            yield from ((one.name, node.module) for one in node.names if one.name in public)


def write() -> str:
    """Returns the text of the page."""
    parts = [HEAD]
    for name, module in sorted(homes().items(), key=lambda item: item[0].lower()):
        parts.append(_told(name, module))
    parts.append("Every error, with its causes: [errors](errors.md).\n")
    return "\n".join(parts)


def _public(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [node.name for node in tree.body if isinstance(node, kinds) and node.name[0] != "_"]


def _told(name: str, module: str) -> str:
    path = ROOT / (module.replace(".", "/") + ".py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    own = name.rpartition(".")[2]
    node = next(node for node in tree.body if getattr(node, "name", None) == own)
    lines = [f"## rnnmem.{name}", "", *_signature(node, f"rnnmem.{name}"), "", _text(node)]
    for inner in node.body if isinstance(node, ast.ClassDef) else ():
        if isinstance(inner, ast.FunctionDef) and _shows(inner):
            lines += [f"### {own}.{inner.name}", "", *_signature(inner, inner.name), ""]
            lines.append(_text(inner))
    return "\n".join(lines)


def _shows(node: ast.FunctionDef) -> bool:
    return (node.name[0] != "_" or node.name == "__call__") and bool(ast.get_docstring(node))


def _signature(node: ast.FunctionDef | ast.ClassDef, name: str) -> list[str]:
    if isinstance(node, ast.ClassDef):
        made = [one for one in node.body if getattr(one, "name", "") == "__init__"]
        if not made:
            return ["```text", f"class {name}", "```"]
        node = made[0]
    if any(isinstance(one, ast.Name) and one.id == "property" for one in node.decorator_list):
        return ["```text", f"{name}: {ast.unparse(node.returns)}", "```"]
    arguments = ast.unparse(node.args)
    arguments = re.sub(r"^self(, )?", "", arguments)
    result = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    return ["```text", f"{name}({arguments}){result}", "```"]


_SECTION = re.compile(r"(Args|Attributes|Returns|Raises|Yields):$")


def _text(node: ast.AST) -> str:
    """A docstring as Markdown: sections become lists, literal blocks fences, roles code."""
    text = ast.get_docstring(node) or ""
    text = re.sub(r":(?:func|meth|class|attr|mod):`([^`]*)`", r"`\1`", text).replace("``", "`")
    lines, in_section, fenced, deep = [], False, False, 0
    source = text.splitlines()
    for index, line in enumerate(source):
        if fenced and line and not line.startswith(" "):
            lines += ["```", ""]
            fenced = False
        section = _SECTION.match(line)
        if section:
            lines += [f"**{section[1]}**", ""]
            in_section, deep = True, 0
        elif fenced:
            if line or any(source[index + 1 : index + 2]):
                lines.append(line[4:])
        elif in_section and line.startswith("  "):
            own = len(line) - len(line.lstrip())
            deep = deep or own
            lines.append(_item(line.strip()) if own == deep else "  " + line.strip())
        elif line.endswith("::"):
            lines += [line[:-1], "", "```text"]
            fenced = True
        else:
            in_section = in_section and not line
            lines.append(line)
    if fenced:
        lines.append("```")
    joined = "\n".join(lines).rstrip() + "\n"
    return re.sub(r"```text\n\n+", "```text\n", re.sub(r"\n\n+```\n", "\n```\n", joined)).replace(
        "\n\n\n", "\n\n"
    )


def _item(text: str) -> str:
    name, colon, told = text.partition(":")
    return f"* `{name}`: {told.strip()}" if colon and " " not in name else f"* {text}"


if __name__ == "__main__":
    PAGE.write_text(write(), encoding="utf-8")
