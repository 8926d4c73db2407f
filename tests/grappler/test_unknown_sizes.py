"""Unknown sizes that TensorFlow's graph optimizer takes for new ones."""

from rnnmem.grappler.unknown_sizes import makes_new_sizes
from tests.handmade import const, make_net, op

OPEN = "f[?,?,8]"


def found(*ops, **inputs):
    return makes_new_sizes(make_net({"x": OPEN, "y": OPEN, **inputs}, ops, [ops[-1].op.outputs[0]]))


def test_a_sum_of_two_unknown_shapes_has_sizes_of_its_own():
    assert found(op("sum", "AddV2", "x y", OPEN)) == {"sum"}
    assert found(op("sum", "AddV2", "x b", OPEN), b="f[8]") == set()
    assert found(op("sum", "AddV2", "x x", OPEN)) == set()


def test_what_a_layer_normalisation_makes_has_those_of_its_input():
    narrow = "f[?,?,1]"
    assert not found(
        const("axis", (2,)),
        op("mean", "Mean", "x axis", narrow, attributes={"keep_dims": True}),
        op("less", "Sub", "x mean", OPEN),
        op("square", "Square", "less", OPEN),
        op("variance", "Mean", "square axis", narrow, attributes={"keep_dims": True}),
        op("scale", "Rsqrt", "variance", narrow),
        op("out", "Mul", "less scale", OPEN),
    )


def test_a_residual_connection_begins_new_ones_and_what_follows_has_these():
    assert found(
        op("h", "Tanh", "x", OPEN),
        op("sum", "AddV2", "h y", OPEN),
        op("again", "Mul", "sum sum", OPEN),
        op("both", "AddV2", "again h", OPEN),
    ) == {"sum", "both"}


def test_what_is_reshaped_to_the_shape_of_another_has_its_sizes():
    assert (
        found(
            op("asked", "Shape", "x", "i[3]"),
            op("rows", "Reshape", "y asked", OPEN),
            op("sum", "AddV2", "rows x", OPEN),
        )
        == set()
    )


def test_known_shapes_are_no_matter():
    assert found(op("sum", "AddV2", "a a", "f[4,8]"), a="f[4,8]") == set()
