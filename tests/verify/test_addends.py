"""Which addends a sum of three may overwrite, told from what waits for what."""

from rnnmem.verify.addends import ALONE, HELD, RACING, Addends, may_begin
from rnnmem.verify.flat_graph import FlatGraph, FlatOp

FLOAT = ("float32",)


def op(name, type, *inputs, outputs=1, **others):
    blobs = tuple(one if isinstance(one, tuple) else (one, 0) for one in inputs)
    return FlatOp(name, type, blobs, FLOAT * outputs, **others)


def of(sum, *ops):
    return Addends(FlatGraph(ops)).of(next(one for one in ops if one.name == sum))


GIVEN = op("x", "_Arg"), op("a", "Sin", "x"), op("b", "Cos", "x"), op("c", "Tan", "x")
SUM = op("sum", "AddN", "a", "b", "c"), op("result", "_Retval", "sum")


def test_what_nobody_else_reads_may_be_overwritten():
    assert of("sum", *GIVEN, *SUM) == (ALONE, ALONE, ALONE)


def test_what_is_added_twice_is_held_by_the_sum_itself():
    twice = op("sum", "AddN", "a", "a", "c"), op("result", "_Retval", "sum")
    assert of("sum", *GIVEN, *twice) == (HELD, HELD, ALONE)


def test_a_reader_that_waits_for_the_sum_holds_its_addend():
    later = op("later", "Mul", "a", "sum"), op("other", "_Retval", "later", index=1)
    assert of("sum", *GIVEN, *SUM, *later) == (HELD, ALONE, ALONE)


def test_a_reader_beside_the_sum_races_with_it():
    beside = op("beside", "Exp", "a"), op("other", "_Retval", "beside", index=1)
    assert of("sum", *GIVEN, *SUM, *beside) == (RACING, ALONE, ALONE)


def loop(parallel, leaves=()):
    """A loop in which a sum adds up a value that stays the same."""
    enter = {"frame": "loop", "parallel_iterations": parallel}
    return (
        op("x", "_Arg"),
        op("same", "Sin", "x"),
        op("go", "_Arg", index=1),
        op("enter", "Enter", "same", **enter),
        op("enter_state", "Enter", "x", **enter),
        op("merge", "Merge", "enter", "next", outputs=2),
        op("merge_state", "Merge", "enter_state", "next_state", outputs=2),
        op("enter_go", "Enter", "go", **enter),
        op("switch", "Switch", "merge", "enter_go", outputs=2),
        op("switch_state", "Switch", "merge_state", "enter_go", outputs=2),
        op("b", "Sigmoid", ("switch_state", 1)),
        op("c", "Tanh", ("switch_state", 1)),
        op("sum", "AddN", ("switch", 1), "b", "c"),
        op("next", "NextIteration", ("switch", 1)),
        op("next_state", "NextIteration", "sum"),
        op("exit", "Exit", "switch_state"),
        op("result", "_Retval", "exit"),
    )


def test_what_stays_the_same_goes_ahead_of_its_loop_but_one_iteration_at_a_time():
    assert of("sum", *loop(10)) == (RACING, ALONE, ALONE)
    assert of("sum", *loop(1)) == (HELD, ALONE, ALONE)


def test_a_sum_begins_with_the_first_that_is_surely_alone_or_one_before():
    assert may_begin((HELD, "alone/held", ALONE, ALONE)) == [1, 2]
    assert may_begin((HELD, HELD, HELD)) == [0]
