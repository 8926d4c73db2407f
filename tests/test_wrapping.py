"""Lines of a width: where they are parted, and what is cut out where nothing can be."""

import pytest

from rnnmem.wrapping import longest_part, longest_word, shortened, wrapped

NAME = "gradient of encoder_above/TensorListFromTensor (train.py:18) takes 10.5 MiB"


@pytest.mark.parametrize("width", range(22, 80))
def test_lines_fit_and_no_word_is_parted_that_has_room(width):
    lines = wrapped(NAME, width)
    assert max(map(len, lines)) <= width
    assert "".join(lines).replace(" ", "") == NAME.replace(" ", "")
    words = set(" ".join(lines).split())
    assert {word for word in NAME.split() if len(word) <= width} <= words


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("a/long/name", 7, ["a/long/", "name"]),
        ("module.submodule.name", 12, ["module.", "submodule.", "name"]),
        ("encoder_above_others", 14, ["encoder_above_", "others"]),
        ("TensorListElementShape", 12, ["TensorList", "ElementShape"]),
        ("float32[32,50,256]", 12, ["float32", "[32,50,256]"]),
        ("is 1234567.1234567 MiB", 10, ["is", "12345…4567", "MiB"]),
        ("unbreakablename", 9, ["unbr…name"]),
        ("  indented words", 10, ["  indented", "words"]),
        ("fits  as it is", 14, ["fits  as it is"]),
        ("two words", 1, ["…", "…"]),
    ],
)
def test_names_are_parted_at_their_seams_else_shortened(text, width, lines):
    assert wrapped(text, width) == lines


def test_the_least_widths_of_a_text():
    assert longest_word(NAME) == len("encoder_above/TensorListFromTensor")
    assert longest_part(NAME) == len("encoder_")
    assert longest_word("") == longest_part("") == 0


@pytest.mark.parametrize("width", range(1, 12))
def test_what_is_shortened_keeps_both_ends(width):
    told = shortened("0123456789", width)
    assert len(told) == min(width, 10)
    assert width >= 10 or "…" in told
    if 3 <= width < 10:
        assert told[0] == "0" and told[-1] == "9"
