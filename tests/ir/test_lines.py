from rnnmem.ir.lines import Line, Written, either, function_of


def test_a_line_is_looked_up_once_and_when_it_is_read():
    asked = []

    def find():
        asked.append(1)
        return "train.py:88"

    line = Line(find)
    assert not asked
    assert line == "train.py:88" == str(line) == f"{line}"
    assert line and not Line(str)
    assert asked == [1]


def test_the_first_line_that_is_known():
    known, unknown = Line(lambda: "train.py:88"), Line(str)
    assert either("", known) is known
    assert either("train.py:7", known) == "train.py:7"
    assert either(unknown, known) == either(known, unknown) == either(unknown, "train.py:88")
    assert not either(unknown, "")


def test_neither_is_looked_up_before():
    either(Line(lambda: 1 / 0), Line(lambda: 1 / 0))


def test_a_line_knows_the_function_that_it_stands_in():
    asked = []
    written = Written("train.py:88", lambda: asked.append(1) or "encode")
    line = either(Line(str), Line(lambda: written))
    assert str(line) == "train.py:88" and not asked
    assert function_of(line) == function_of(written) == "encode"
    assert function_of("train.py:88") == function_of(Line(str)) == ""
