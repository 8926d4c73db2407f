"""Tables as text and as HTML."""

import sys
import types

from rnnmem.tables import as_html, plain_text, table_of


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
