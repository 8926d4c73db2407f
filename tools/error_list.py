"""Lists in docs/errors.md every message that rnnmem raises or warns with: `make docs`."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "errors.md"
BEGIN = "<!-- messages of {name}: make docs -->"
END = "<!-- end of messages -->"
UNKNOWN = "..."
WARN = "warn_user"
"""The function that warns at the user's line."""


def classes() -> list[str]:
    """The errors of rnnmem/errors.py, and its warning, in their order there."""
    tree = ast.parse((ROOT / "rnnmem" / "errors.py").read_text(encoding="utf-8"))
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef)]


def messages() -> dict[str, list[str]]:
    """Error -> its messages, sorted; what is filled in at run time stands there as ``...``."""
    found: dict[str, set[str]] = {name: set() for name in classes()}
    for path in sorted((ROOT / "rnnmem").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for name, message in _raised(tree):
            text = " ".join(_template(message).split())
            if name in found and text.strip(" .") and len(text) > 12:
                found[name].add(text)
    return {name: sorted(texts) for name, texts in found.items()}


def write(page: str) -> str:
    """Returns the page with the lists of messages made again."""
    for name, texts in messages().items():
        begin = BEGIN.format(name=name)
        if begin not in page:
            continue
        before, _, rest = page.partition(begin)
        after = rest.partition(END)[2]
        listed = "".join(f"* `{text.replace('`', chr(39))}`\n" for text in texts)
        page = f"{before}{begin}\n\n{listed}\n{END}{after}"
    return page


def _raised(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """``(class, first argument)`` of every error of ours that is made, and of every warning."""
    for scope in ast.walk(tree):
        if not isinstance(scope, (ast.Module, ast.FunctionDef)):
            continue
        assigned = {}
        for node in _own_nodes(scope):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                assigned[node.targets[0].id] = node.value
        for node in _own_nodes(scope):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            message = node.args[0]
            if isinstance(message, ast.Name):
                message = assigned.get(message.id, message)
            if isinstance(node.func, ast.Name):
                yield "RnnmemWarning" if node.func.id == WARN else node.func.id, message
            elif isinstance(node.func, ast.Attribute) and node.func.attr == "warn":
                kinds = [one.id for one in node.args[1:] if isinstance(one, ast.Name)]
                yield from ((kind, message) for kind in kinds[:1])


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, but not those of functions in it."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, ast.FunctionDef):
            waiting += ast.iter_child_nodes(node)


def _template(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value) if isinstance(node.value, str) else UNKNOWN
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_template, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _template(node.left) + _template(node.right)
    return UNKNOWN


if __name__ == "__main__":
    PAGE.write_text(write(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
