"""Flags in groups: `--help` shows those that most runs need, `--helpfull` shows all."""

from __future__ import annotations

import contextlib
import shutil
import sys
import textwrap
from collections.abc import Iterator

from absl import app, flags

FLAGS = flags.FLAGS
COLUMN = 26  # where the help of a flag begins


class Groups:
    """The flags of a program by the headings under which its help shows them."""

    def __init__(self) -> None:
        self._often: dict[str, list[str]] = {}
        self._all: dict[str, list[str]] = {}

    @contextlib.contextmanager
    def group(self, title: str, *, seldom: bool = False) -> Iterator[None]:
        """What is defined within stands under this heading; if `seldom`, in `--helpfull` alone."""
        before = set(FLAGS)
        yield
        new = [name for name in FLAGS if name not in before]
        self._all.setdefault(title, []).extend(new)
        if not seldom:
            self._often.setdefault(title, []).extend(new)

    def show(self) -> None:
        """From now on `--help` and `--helpfull` print these groups, and none of absl's."""
        app.define_help_flags()
        for name, short, full in (("help", "?", False), ("helpfull", None, True)):
            flags.DEFINE_flag(_Help(self, name, short, full))

    def text(self, full: bool) -> str:
        """The flags with their defaults, as wide as the terminal."""
        groups = self._all if full else self._often
        parts = ["\n".join([f"{title}:", *map(_told, names)]) for title, names in groups.items()]
        last = "--flagfile=FILE reads flags from a file, one a line."
        if not full:
            hidden = sum(map(len, self._all.values())) - sum(map(len, self._often.values()))
            last += f"\n--helpfull shows {hidden} more flags." if hidden else ""
        return "\n\n".join([*parts, last])


@contextlib.contextmanager
def one_group(title: str) -> Iterator[None]:
    """What is defined within is all that the program's help shows, under this heading."""
    groups = Groups()
    with groups.group(title):
        yield
    groups.show()


class _Help(flags.BooleanFlag):
    """Prints the program's docstring and its flags, and leaves."""

    def __init__(self, groups, name, short, full):
        told = "every flag" if full else "the flags that most runs need"
        super().__init__(name, False, f"show {told}", short_name=short, allow_override=True)
        self._groups, self._full = groups, full

    def parse(self, argument):
        super().parse(argument)
        if self.value:
            print(sys.modules["__main__"].__doc__, self._groups.text(self._full), sep="\n")
            sys.exit(0)


def _told(name: str) -> str:
    """A flag's name, help and default, the help in a column of its own."""
    flag = FLAGS[name]
    head = f"  --{'[no]' if flag.boolean else ''}{name}"
    default = f" [{flag.default}]" if flag.default not in (None, False, "") else ""
    wide = min(shutil.get_terminal_size().columns, 100)
    indent = " " * COLUMN
    text = textwrap.fill(
        f"{flag.help}{default}", wide, initial_indent=indent, subsequent_indent=indent
    )
    return head + text[len(head) :] if len(head) < COLUMN else f"{head}\n{text}"
