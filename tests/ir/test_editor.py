"""A loop variable stands in seven places; the editor changes all of them or none."""

import dataclasses

import pytest

from rnnmem.errors import NetError
from rnnmem.grappler.keepalive import Keepalives
from rnnmem.ir.editor import LoopEditor, NetEditor
from rnnmem.ir.graph import DType, ShapeValue
from tests.handmade import const, encoded, make_net, op, rnn, while_op

SMALL = make_net({"x": "f[4]"}, [op("a", "Neg", "x", "f[4]"), op("b", "Abs", "a", "f[4]")], ["b"])


def test_an_editor_that_does_nothing_changes_nothing():
    assert NetEditor(SMALL).net() == SMALL


def test_the_net_that_is_edited_stays():
    before = dataclasses.replace(SMALL)
    editor = NetEditor(SMALL)
    editor.add("Neg", ["b"], [("float32", (4,))], {}, name="c")
    editor.remove("a")
    assert SMALL == before


def test_names_are_made_fresh():
    editor = NetEditor(SMALL)
    made = editor.add("Neg", ["x"], [("float32", (4,)), ("int32", None)], {}, name="a")
    assert made.name == "a_1"
    assert made.outputs == ("a_1:0", "a_1:1")
    assert (editor.blobs["a_1:1"].dtype, editor.blobs["a_1:1"].shape) == ("int32", None)
    assert editor.fresh("new") == "new"


def test_an_input_is_named_as_functions_demand():
    editor = NetEditor(SMALL)
    assert editor.fresh_input("While/Acc:0") == "while_acc_0"
    assert editor.fresh_input("x") == "x_1"


def test_what_stands_for_a_blob_is_read_by_all_its_readers():
    # x ─► a ─► b   becomes   x ─► new ─► b
    editor = NetEditor(SMALL)
    new = editor.add("Exp", ["x"], [("float32", (4,))], {}, name="new").outputs[0]
    editor.rename("a", new)
    assert editor.net().op_by_name["b"].inputs == ("new:0",)
    editor.rename("new:0", "x")
    assert editor.net().op_by_name["b"].inputs == ("x",)
    editor.rename("b", "a")
    assert editor.net().outputs == ("x",)


def test_ops_come_out_in_an_order_in_which_they_may_run():
    editor = NetEditor(SMALL)
    late = editor.add("Exp", ["x"], [("float32", (4,))], {}, name="late")
    editor.rename("a", late.outputs[0])
    names = [one.name for one in editor.net().ops]
    assert names.index("late") < names.index("b")


def test_a_cycle_is_refused():
    editor = NetEditor(SMALL)
    editor.rename("x", "b")
    with pytest.raises(NetError, match="cycle"):
        editor.net()


def test_whoever_waited_for_a_removed_op_no_longer_does():
    net = make_net({}, [op("a", "NoOp"), op("b", "NoOp", controls=("a",))], [])
    editor = NetEditor(net)
    editor.remove("a")
    assert editor.net().op_by_name["b"].controls == ()


# Loops.

MARKS = tuple({"mark": index} for index in range(5))


def marked_loop():
    """A loop over (i, a, r, b, c): a and b floats, r a resource that is only read, c an int.

    The forward pass had four variables; the gradient added the last.
    """
    state = {"i": "i[]", "a": "f[4]", "r": "r[]", "b": "f[?]", "c": "i[2]"}
    body = make_net(
        state,
        [
            const("one", 1),
            op("next", "AddV2", "i one", "i[]"),
            op("na", "Neg", "a", "f[4]"),
            op("nb", "Neg", "b", "f[?]"),
        ],
        ["next", "na", "r", "nb", "c"],
        attributes={
            "argument_attributes": MARKS,
            "attributes": {"_input_shapes": (ShapeValue(()),) * 5, "_kept": True},
        },
    )
    loop = while_op(
        "loop", "zero x handle y k", body, _read_only_resource_inputs=(2,), _num_original_outputs=4
    )
    return make_net(
        {"x": "f[4]", "handle": "r[]", "y": "f[?]", "k": "i[2]", "more": "f[8,?]"},
        [const("zero", 0), loop],
        ["loop:1", "loop:3"],
    )


def edit(change, net=None):
    """Applies a change to the loop and gives the loop op, held against itself."""
    outer = NetEditor(net or marked_loop())
    editor = LoopEditor(outer, outer.ops["loop"])
    change(editor)
    loop = editor.finish()
    assert outer.ops["loop"] is loop
    body, cond = loop.nets["body"], loop.nets["cond"]
    counts = {
        len(loop.inputs),
        len(loop.outputs),
        len(loop.attributes["T"]),
        len(loop.attributes["output_shapes"]),
        len(body.inputs),
        len(body.outputs),
        len(cond.inputs),
    }
    assert len(counts) == 1, "the signatures disagree"
    for index, argument in enumerate(body.inputs):
        kinds = {
            body.blobs[argument].dtype,
            body.blobs[body.outputs[index]].dtype,
            cond.blobs[cond.inputs[index]].dtype,
            outer.blobs[loop.inputs[index]].dtype,
            outer.blobs[loop.outputs[index]].dtype,
            loop.attributes["T"][index].name,
        }
        assert len(kinds) == 1, f"variable {index} has the dtypes {kinds}"
    for place in loop.attributes["_read_only_resource_inputs"]:
        assert loop.attributes["T"][place] == DType("resource")
    return loop, outer


def test_nothing_changed_is_the_same_loop():
    loop, _ = edit(lambda editor: None)
    before = marked_loop().op_by_name["loop"]
    assert (loop.inputs, loop.outputs, loop.attributes) == (
        before.inputs,
        before.outputs,
        before.attributes,
    )


def test_a_variable_is_added_at_the_end_of_everything():
    def change(editor):
        argument, result = editor.add_variable("more", "Fresh/One")
        assert argument == "fresh_one"
        assert editor.body.outputs[-1] == argument  # invariant until it is said otherwise
        editor.set_next(argument, "b")
        assert editor.outer.blobs[result].shape == (8, None)

    loop, _ = edit(change)
    assert loop.inputs[-1] == "more"
    assert loop.attributes["T"][-1] == DType("float32")
    assert loop.attributes["output_shapes"][-1] == ShapeValue((8, None))
    assert loop.attributes["_num_original_outputs"] == 4
    assert loop.nets["body"].outputs[-1] == "b"
    assert loop.nets["body"].attributes["argument_attributes"] == (*MARKS, {})


def test_a_variable_is_removed_from_everything():
    def change(editor):
        editor.body.remove("na")
        editor.remove_variable("a")

    loop, _ = edit(change)
    assert loop.inputs == ("zero", "handle", "y", "k")
    assert loop.outputs == ("loop:0", "loop:2", "loop:3", "loop:4")
    assert loop.attributes["_read_only_resource_inputs"] == (1,)
    assert loop.attributes["_num_original_outputs"] == 3
    assert [held["mark"] for held in loop.nets["body"].attributes["argument_attributes"]] == [
        0,
        2,
        3,
        4,
    ]


def test_removing_what_the_gradient_added_leaves_the_original_count():
    loop, _ = edit(lambda editor: editor.remove_variable("c"))
    assert loop.attributes["_num_original_outputs"] == 4
    assert loop.attributes["_read_only_resource_inputs"] == (2,)


def test_removing_the_resource_empties_the_list_of_read_only_ones():
    loop, _ = edit(lambda editor: editor.remove_variable("r"))
    assert loop.attributes["_read_only_resource_inputs"] == ()


def test_adding_and_removing_together():
    def change(editor):
        first, _ = editor.add_variable("x", "v")
        second, _ = editor.add_variable("k", "v")
        editor.body.remove("nb")
        editor.remove_variable("b")
        editor.remove_variable(first)
        editor.set_next(second, "c")

    loop, _ = edit(change)
    assert loop.inputs == ("zero", "x", "handle", "k", "k")
    assert loop.attributes["T"][-1] == DType("int32")
    assert loop.attributes["_num_original_outputs"] == 3


def test_shapes_that_describe_the_old_signature_are_dropped():
    loop, _ = edit(lambda editor: None)
    assert loop.nets["body"].attributes["attributes"] == {"_kept": True}


def test_attributes_are_set_on_the_loop():
    outer = NetEditor(rnn())
    loop = LoopEditor(outer, outer.ops["loop"]).finish(parallel_iterations=1, mine=b"x")
    assert (loop.attributes["parallel_iterations"], loop.attributes["mine"]) == (1, b"x")


def test_what_an_iteration_holds_is_not_let_go_by_the_next_one():
    def extend_lifetime(editor):
        keepalives = Keepalives(editor, encoded)
        keepalives.extend_lifetime(["na"])
        keepalives.write()

    def pass_on(editor):
        keepalives = Keepalives(editor, encoded)
        keepalives.add(["na"])
        keepalives.write()

    assert edit(extend_lifetime)[0].attributes["parallel_iterations"] == 1
    assert edit(pass_on)[0].attributes["parallel_iterations"] == 10
