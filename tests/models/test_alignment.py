import numpy as np
import pytest

from models.nmt.alignment import as_text, save_picture

ATTENTION = np.array([[0.9, 0.1], [0.3, 0.7], [0.5, 0.5]])


def test_text_has_a_row_a_target_token_and_names_below():
    assert as_text(ATTENTION, ["ein", "</s>"], ["a", "dog", "</s>"]).split("\n") == [
        "   a |██  |",
        " dog |░░▓▓|",
        "</s> |▒▒▒▒|",
        "      e <",
        "      i /",
        "      n s",
        "        >",
    ]


@pytest.mark.parametrize("name", ["a.png", "a.svg"])
def test_a_picture_is_drawn(tmp_path, name):
    save_picture(tmp_path / name, ATTENTION, ["ein", "</s>"], ["a", "dog", "</s>"])
    assert (tmp_path / name).stat().st_size > 500
