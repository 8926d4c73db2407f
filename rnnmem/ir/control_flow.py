"""New step nets, a branch at some iterations, and a loop of a counted number of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import Blob, DType, FunctionRef, Net, Op, ShapeValue
from rnnmem.ir.lines import Line


def add_input(net: NetEditor, kind: Blob) -> str:
    """Gives the Net one more input, like another Net's blob; returns its name."""
    name = net.fresh_input("given")
    net.blobs[name] = Blob(name, kind.dtype, kind.shape)
    net.inputs.append(name)
    return name


def branch_like(body: NetEditor, name: str, given: Sequence[str]) -> NetEditor:
    """A new Net whose inputs are like the given blobs of ``body``."""
    net = NetEditor(Net(name=name, inputs=(), outputs=(), ops=(), blobs={}))
    for blob in given:
        add_input(net, body.blobs[blob])
    return net


def branch_at(
    body: NetEditor,
    same: tuple[str, str],
    given: Sequence[str],
    then: NetEditor,
    changing: Sequence[str],
    marks: Mapping[str, Any],
) -> tuple[str, ...]:
    """Runs ``then`` in the iterations where two numbers are the same.

    Args:
      body: the step net in which the branch stands.
      same: the two blobs, int32.
      given: what ``then`` reads.
      then: the branch; it hands out what ``changing`` becomes.
      changing: those of ``given`` that change there, and in no other iteration.
      marks: attributes besides those that every branch has.

    Returns:
      What stands for ``changing`` afterwards.
    """
    equal = body.add(
        "Equal",
        same,
        (("bool", ()),),
        {"T": DType("int32"), "incompatible_shape_error": True},
        name="rnnmem/at_segment",
    )
    otherwise = branch_like(body, f"{then.original.name}_not", given)
    otherwise.outputs = [otherwise.inputs[given.index(blob)] for blob in changing]
    kinds = [body.blobs[blob] for blob in changing]
    return body.add(
        "StatelessIf",
        (equal.outputs[0], *given),
        tuple((kind.dtype, kind.shape) for kind in kinds),
        {
            "Tcond": DType("bool"),
            "Tin": tuple(DType(body.blobs[blob].dtype) for blob in given),
            "Tout": tuple(DType(kind.dtype) for kind in kinds),
            "output_shapes": tuple(ShapeValue(kind.shape) for kind in kinds),
            "_name_of/then_branch": FunctionRef(then.original.name, b""),
            "_name_of/else_branch": FunctionRef(otherwise.original.name, b""),
            "_lower_using_switch_merge": True,
            **marks,
        },
        name="rnnmem/segment",
        nets={"then_branch": then.net(), "else_branch": otherwise.net()},
    ).outputs


def counted_loop(
    net: NetEditor,
    starts: Sequence[str],
    body: NetEditor,
    places: tuple[int, int],
    marks: Mapping[str, Any],
    *,
    name: str,
    controls: tuple[str, ...] = (),
    source: str | Line = "",
) -> Op:
    """A loop that goes on while one of its variables is less than another.

    Args:
      net: where it stands.
      starts: what its variables begin as.
      body: its step net.
      places: of the two variables, both int32.
      marks: attributes besides those that every loop has.
      name: of the op.
      controls: what it waits for.
      source: the user's line.
    """
    kinds = [body.blobs[blob] for blob in body.inputs]
    cond = branch_like(body, f"{body.original.name}_cond", body.inputs)
    compared = tuple(cond.inputs[place] for place in places)
    more = cond.add("Less", compared, (("bool", ()),), {"T": DType("int32")}, name="rnnmem/more")
    cond.outputs = [more.outputs[0]]
    return net.add(
        "StatelessWhile",
        starts,
        tuple((kind.dtype, kind.shape) for kind in kinds),
        {
            "T": tuple(DType(kind.dtype) for kind in kinds),
            "output_shapes": tuple(ShapeValue(kind.shape) for kind in kinds),
            "parallel_iterations": 1,
            "_name_of/body": FunctionRef(body.original.name, b""),
            "_name_of/cond": FunctionRef(cond.original.name, b""),
            "_lower_using_switch_merge": True,
            **marks,
        },
        name=name,
        controls=controls,
        nets={"body": body.net(), "cond": cond.net()},
        source=source,
    )
