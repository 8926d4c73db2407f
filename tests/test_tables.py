"""Tables as text and as HTML."""

import sys
import types

from rnnmem.tables import WIDTH, as_html, plain_text, table_of


def table():
    made = table_of(("bytes", "blob"), ("bytes",))
    made.add_row("4 B", "a<b")
    return made


def test_a_notebook_gets_text_where_text_is_asked_for(monkeypatch):
    """rich shows what it prints in a notebook, and writes nothing, unless it is told not to."""
    shell = types.SimpleNamespace(ZMQInteractiveShell=object)
    kernel = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setattr("builtins.get_ipython", lambda: kernel, raising=False)
    assert plain_text(["one", table()]).splitlines() == ["one", "bytes  blob", "  4 B  a<b"]


def test_headings_stand_where_their_cells_do():
    page = as_html(["a&b", table()])
    assert "<p>a&amp;b</p>" in page and "a&lt;b" in page
    assert page.count('style="text-align:right"') == 2
    assert page.count('style="text-align:left"') == 2


def test_a_table_gives_of_its_texts_before_it_parts_words_and_of_these_before_numbers():
    made = table_of(("bytes", "blob", "why"), ("bytes",))
    made.add_row("120.0 KiB", "TensorListElementShape", "a reason of several words that is long")
    made.add_row("1.0 MiB", "encoder_above/gates/Tanh", "another")

    def lines(width):
        return plain_text([made], width).splitlines()

    assert len(lines(100)) == 3
    for width in (60, 52):
        assert max(map(len, lines(width))) <= width
        told = "\n".join(lines(width))
        assert "TensorListElementShape" in told and "encoder_above/gates/Tanh" in told
    narrow = lines(42)
    assert max(map(len, narrow)) <= 42
    assert narrow[1].split()[:3] == ["120.0", "KiB", "TensorList"]
    assert any(line.split()[0] == "Element" or "ElementShape" in line for line in narrow)
    assert max(map(len, lines(30))) <= 30


def test_a_sentence_is_no_longer_than_can_be_read():
    sentence = "word " * 80 + "end"
    assert max(map(len, plain_text([sentence], 300, wraps=True).splitlines())) <= WIDTH
    assert len(plain_text([sentence], 300).splitlines()) == 1
