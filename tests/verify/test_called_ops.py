"""A function's ops in the place of a call that the graph optimizer left one."""

from rnnmem.verify.flat_graph import FlatOp, called_ops

CALL = FlatOp("c", "PartitionedCall", (("x", 0), ("y", 1)), ("float32",))


def body(*more):
    given = FlatOp("a", "_Arg", (), ("float32",), index=1)
    return [given, *more, FlatOp("r", "_Retval", ((more[-1].name, 0),), ())]


def test_they_read_what_the_call_was_given():
    ops, results = called_ops(
        body(FlatOp("n", "Neg", (("a", 0),), ("float32",))), CALL, CALL.inputs
    )
    assert [(one.name, one.type, one.inputs) for one in ops] == [
        ("c//a", "Enter", (("y", 1),)),
        ("c//n", "Neg", (("c//a", 0),)),
    ]
    assert results == {("c", 0): ("c//n", 0)}
    reader = FlatOp("s", "Sin", (("c", 0),), ("float32",))
    assert reader.reading(results).inputs == (("c//n", 0),)


def test_a_sum_that_reads_an_item_whose_list_is_held_is_not_compared():
    item = FlatOp("i", "TensorListGetItem", (("a", 0),), ("float32",))
    two = FlatOp("s", "AddN", (("i", 0), ("a", 0)), ("float32",))
    three = FlatOp("s", "AddN", (("i", 0), ("a", 0), ("a", 0)), ("float32",))
    assert called_ops(body(item, two), CALL, CALL.inputs) is not None
    assert called_ops(body(item, three), CALL, CALL.inputs) is None
