"""Counts, of bytes above all, as people write and read them. Inside the library they are int."""

import operator
import re
from fractions import Fraction
from typing import SupportsIndex

from rnnmem.errors import OptionError

KIB = 1 << 10
MIB = 1 << 20

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
_SIZE = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*([a-z]*)", re.ASCII | re.IGNORECASE)
_FORMS = 'write bytes as an int (536870912) or as text ("512MiB", "2GiB", "1.5 GB")'


def parse_bytes(value: SupportsIndex | str, name: str = "size") -> int:
    """Reads a number of bytes.

    KiB, MiB, GiB and TiB are powers of 1024; kB, MB, GB and TB are powers of 1000. Case does not
    matter, and a bare number in a text counts bytes.

    Args:
        value: an int, or a text such as "512MiB".
        name: the argument that the value was given for, named in errors.

    Returns:
        Bytes, at least 1; a fraction of a byte is dropped.

    Raises:
        OptionError: the value is not a size above zero.
    """
    if isinstance(value, str):
        size = _parse_text(value, name)
    else:
        size = _parse_number(value, name)
    if size < 1:
        raise OptionError(f"{name}={value!r} is not a size above zero: {_FORMS}")
    return size


def parse_count(value: SupportsIndex, name: str) -> int:
    """Reads how many of something there are.

    Args:
        value: an int, NumPy's too.
        name: the argument that the value was given for, named in errors.

    Raises:
        OptionError: the value is not a whole number above zero.
    """
    try:
        count = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        count = 0
    if count < 1:
        raise OptionError(f"{name}={value!r} is not a count: pass an int above 0")
    return count


def counted(count: int, noun: str, nouns: str = "") -> str:
    """Prints how many there are of something: "1 loop", "0 loops", "2 losses".

    Args:
      count: how many.
      noun: what one is called.
      nouns: what several are called; empty: the same with an s.
    """
    return f"{count} {noun if count == 1 else nouns or f'{noun}s'}"


def format_bytes(size: int | None) -> str:
    """Prints bytes for people: "512 B", "64.0 KiB", "1430.0 MiB"; an unknown size is "?".

    Never GiB: figures that are compared with each other stay in one unit. A tie goes to the even
    tenth; the page rounds so too (``size`` in reports/basics.js).
    """
    if size is None:
        return "?"
    if abs(size) < KIB:
        return f"{size} B"
    if abs(size) < MIB:
        return f"{size / KIB:.1f} KiB"
    return f"{size / MIB:.1f} MiB"


def format_interval(interval: tuple[int, int] | None, size: int | None = None) -> str:
    """Prints between which bytes something lies: "23.1 to 27.4 MiB"; one number where that is all.

    Args:
      interval: the lowest and the highest; None: they are not known.
      size: what is printed then.
    """
    if interval is None:
        return format_bytes(size)
    low, high = map(format_bytes, interval)
    if low == high:
        return low
    number, _, unit = low.partition(" ")
    return f"{number if high.endswith(f' {unit}') else low} to {high}"


def _parse_text(text: str, name: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise OptionError(f"{name}={text!r} is not a size: {_FORMS}")
    number, unit = match.groups()
    factor = _UNITS.get(unit.lower())
    if factor is None:
        known = "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"
        raise OptionError(f"{name}={text!r} has no known unit (known: {known}): {_FORMS}")
    return int(Fraction(number) * factor)


def _parse_number(value: SupportsIndex, name: str) -> int:
    # bool is an int to Python, never a size.
    if isinstance(value, bool):
        raise OptionError(f"{name}={value!r} is not a size: {_FORMS}")
    try:
        return operator.index(value)
    except TypeError:
        raise OptionError(f"{name}={value!r} is not a size: {_FORMS}") from None
