import pathlib
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rnnmem
from rnnmem.errors import OptionError, RnnmemError
from rnnmem.sizes import counted, format_bytes, format_interval, parse_bytes, parse_count


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (1, 1),
        (536870912, 536870912),
        (np.int64(7), 7),
        ("512MiB", 512 * 2**20),
        ("2GiB", 2 * 2**30),
        ("1.5 GB", 1_500_000_000),
        ("0.1 MB", 100_000),
        (" 64 KiB ", 65536),
        ("64kib", 65536),
        ("1TiB", 2**40),
        ("3 B", 3),
        ("1024", 1024),
        ("1.5B", 1),
        # Not exact as a float.
        ("9007199254740993", 9007199254740993),
        ("123456789012345678901234567890", 123456789012345678901234567890),
    ],
)
def test_what_people_write_is_read(value, size):
    parsed = parse_bytes(value)
    assert parsed == size
    assert type(parsed) is int


@pytest.mark.parametrize(
    "value",
    [
        0,
        -1,
        "0",
        "0 MiB",
        "0.4B",
        "-5MiB",
        "+5MiB",
        True,
        False,
        None,
        float("nan"),
        float("inf"),
        1.0,
        "NaN",
        "inf MiB",
        "",
        "   ",
        "MiB",
        "12 parsecs",
        # M alone could be 1000 or 1024 squared.
        "512M",
        "1e3 MiB",
        "1,5 GB",
        "1.",
        ".5 GB",
        "0x10",
        "1 000",
        "5 MiB 3",
        "\u0665 MiB",
        "9" * 5000,
        b"5MiB",
        [5],
        {},
    ],
)
def test_what_is_no_size_is_named(value):
    with pytest.raises(OptionError, match=re.escape(f"budget={value!r}")) as error:
        parse_bytes(value, "budget")
    assert '"512MiB"' in str(error.value)
    assert isinstance(error.value, ValueError)
    assert isinstance(error.value, RnnmemError)


def test_an_unknown_unit_lists_the_known_ones():
    with pytest.raises(OptionError, match="no known unit .*MiB, GiB, TiB"):
        parse_bytes("3 furlongs")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "?"),
        (0, "0 B"),
        (512, "512 B"),
        (65536, "64.0 KiB"),
        (2**20, "1.0 MiB"),
        (1430 * 2**20, "1430.0 MiB"),
        (-3 * 2**20, "-3.0 MiB"),
    ],
)
def test_sizes_print_in_units_that_compare(size, text):
    assert format_bytes(size) == text


@pytest.mark.fuzz
@given(st.integers(min_value=1, max_value=2**70))
def test_an_int_is_itself_as_text_too(size):
    assert parse_bytes(size) == parse_bytes(str(size)) == parse_bytes(f"{size} B") == size


@pytest.mark.fuzz
@given(st.text(max_size=12))
def test_any_text_is_a_size_or_an_option_error(text):
    try:
        assert parse_bytes(text) >= 1
    except OptionError as error:
        assert repr(text) in str(error)


def test_counts_are_whole_numbers_above_zero():
    count = parse_count(np.int64(4), "stages")
    assert count == 4 and type(count) is int
    for bad in (0, -1, 2.0, True, None, "4"):
        with pytest.raises(OptionError, match=f"stages={bad!r} is not a count"):
            parse_count(bad, "stages")


def test_an_interval_is_one_number_where_that_is_all():
    mib = 2**20
    assert format_interval((23 * mib, 27 * mib)) == "23.0 to 27.0 MiB"
    assert format_interval((23 * mib, 23 * mib + 1)) == "23.0 MiB"
    assert format_interval((1000 * 2**10, 2 * mib)) == "1000.0 KiB to 2.0 MiB"
    assert format_interval((100, 512)) == "100 to 512 B"
    assert format_interval(None, 3 * mib) == "3.0 MiB"
    assert format_interval(None) == "?"


@pytest.mark.parametrize(
    ("count", "nouns", "text"),
    [
        (0, ("loop",), "0 loops"),
        (1, ("loop",), "1 loop"),
        (2, ("loop",), "2 loops"),
        (1, ("edge waits", "edges wait"), "1 edge waits"),
        (3, ("loss", "losses"), "3 losses"),
    ],
)
def test_how_many_there_are_agrees_with_the_noun(count, nouns, text):
    assert counted(count, *nouns) == text


def test_plurals_are_made_in_one_place():
    root = pathlib.Path(rnnmem.__file__).parent
    by_hand = re.compile(r"""['"]e?s['"] if |['"] if [\w.()]+ == 1 else f?['"]""")
    found = [
        str(path.relative_to(root))
        for path in sorted(root.rglob("*.py"))
        if path.name != "sizes.py" and by_hand.search(path.read_text())
    ]
    assert found == []
