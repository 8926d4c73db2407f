"""Lowering of lazy gradient lists: the original as if the same lists of gradients began empty.

    zeros like list ─► loop, which adds lists that have one element d each      is
    no element      ─► loop, which adds lists that have one element 0 + d each

A list that has no element takes the other's when it is added; and 0 + d is what adding d to a zero
gives. Further sums are those of the same numbers, and no sum with it is a negative zero. Elements
that stay missing are read as zeros where the list knows the whole shape of its elements.

That the rewritten Net begins a list so is only a hint, which says where to look; what is shown is
shown by the original alone.
"""

from __future__ import annotations

from rnnmem.ir.graph import REAL_DTYPES, Blob, DType, Net, Op
from rnnmem.ir.op_table import LOOPS
from rnnmem.verify.lowering.patterns import behind, dtype_name, finds_zeros, maker, number


def lower_original(original: Net, rewritten: Net) -> Net:
    """The original, with lists of gradients begun empty where those of the rewritten Net are.

    Args:
      original: the Net as imported.
      rewritten: what a rewrite made of it.
    """
    ops = []
    blobs: dict[str, Blob] = {}
    for op in original.ops:
        other = rewritten.op_by_name.get(op.name)
        if other is not None and other is not op and op.nets:
            nets = {
                label: lower_original(inner, other.nets[label]) if label in other.nets else inner
                for label, inner in op.nets.items()
            }
            if any(nets[label] is not inner for label, inner in op.nets.items()):
                op = op.replace(nets=nets)
            if op.type in LOOPS and other.type in LOOPS:
                for index in _hinted(original, op, rewritten, other):
                    op, more = _begun_empty(original, op, index, blobs)
                    ops += more
        ops.append(op)
    if all(mine is yours for mine, yours in zip(ops, original.ops, strict=False)):
        return original
    return original.replace(ops=tuple(ops), blobs={**original.blobs, **blobs})


def _hinted(net: Net, loop: Op, rewritten: Net, other: Op) -> list[int]:
    """The loop's variables that begin with zeros in the one Net, with a new list in the other."""
    place = {argument: index for index, argument in enumerate(other.nets["body"].inputs)}
    found = []
    for index, argument in enumerate(loop.nets["body"].inputs):
        if argument in place and place[argument] < len(other.inputs):
            mine = maker(net, loop.inputs[index])
            yours = maker(rewritten, other.inputs[place[argument]])
            types = tuple(one.type if one is not None else "" for one in (mine, yours))
            if types == ("ZerosLike", "TensorListReserve"):
                found.append(index)
    return found


def _begun_empty(net: Net, loop: Op, index: int, blobs: dict[str, Blob]) -> tuple[Op, list[Op]]:
    """The loop with the variable begun empty, and the ops that make the list; itself and none."""
    zeros = net.producer[behind(net, loop.inputs[index])]
    body = loop.nets["body"]
    puts = _puts(body, loop.nets["cond"], index)
    dtype = _elements(net, zeros.inputs[0])
    right = puts and dtype and all(dtype_name(put, "element_dtype") == dtype for put in puts)
    if not right or not finds_zeros(net, loop.outputs[index]):
        return loop, []
    stem = f"{loop.name}/begun_empty_{index}"
    kind = {"shape_type": DType("int32")}
    made = [
        Op(f"{stem}/shape", "TensorListElementShape", zeros.inputs, (f"{stem}/shape",), kind),
        Op(f"{stem}/length", "TensorListLength", zeros.inputs, (f"{stem}/length",), {}),
        Op(
            stem,
            "TensorListReserve",
            (f"{stem}/shape", f"{stem}/length"),
            (stem,),
            {"element_dtype": DType(dtype), **kind},
        ),
    ]
    for op, results in zip(made, ("int32", "int32", "variant"), strict=True):
        blobs[op.outputs[0]] = Blob(op.outputs[0], results)
    inputs = (*loop.inputs[:index], stem, *loop.inputs[index + 1 :])
    nets = {**loop.nets, "body": _adding_zeros(body, puts)}
    return loop.replace(inputs=inputs, nets=nets), [op.replace(device=zeros.device) for op in made]


def _elements(net: Net, blob: str) -> str:
    """The dtype of a list's elements, whose whole shape it knows; empty where that is not shown."""
    while (op := maker(net, blob)) is not None and op.type in LOOPS:
        index = op.outputs.index(behind(net, blob))
        body = op.nets["body"]
        if behind(body, body.outputs[index]) != body.inputs[index]:
            return ""
        blob = op.inputs[index]
    if op is None or op.type != "TensorListFromTensor":
        return ""
    shape = number(net, behind(net, op.inputs[1]))
    known = isinstance(shape, tuple) and min(shape, default=0) >= 0
    dtype = net.blobs[op.inputs[0]].dtype
    return dtype if known and dtype in REAL_DTYPES else ""


def _puts(body: Net, cond: Net, index: int) -> list[Op]:
    """The ops whose lists are added to the variable, if it is summed up and nothing else."""
    argument = body.inputs[index]
    sums = maker(body, body.outputs[index])
    if sums is None or sums.type != "AddN" or cond.fan_out(cond.inputs[index]):
        return []
    mine = [blob for blob in sums.inputs if behind(body, blob) == argument]
    if len(mine) != 1 or not _reads_once(body, argument, sums.name):
        return []
    if not _reads_once(body, sums.outputs[0], None):
        return []
    puts = []
    for blob in sums.inputs:
        if blob == mine[0]:
            continue
        put = body.producer.get(blob)
        if put is None or put.type != "TensorListSetItem" or body.fan_out(blob) != 1:
            return []
        into = body.producer.get(put.inputs[0])
        if into is None or into.type != "TensorListReserve" or body.fan_out(into.outputs[0]) != 1:
            return []
        puts.append(put)
    return puts


def _reads_once(body: Net, blob: str, reader: str | None) -> bool:
    """Whether the blob goes through Identity to the op of that name (None: outside), only there."""
    while body.fan_out(blob) == 1:
        readers = body.readers.get(blob, ())
        if not readers:
            return reader is None
        if readers[0].name == reader:
            return True
        if readers[0].type != "Identity":
            return False
        blob = readers[0].outputs[0]
    return False


def _adding_zeros(body: Net, puts: list[Op]) -> Net:
    """The step net, with a zero added to what is put into the lists."""
    names = {put.name for put in puts}
    ops = []
    blobs = dict(body.blobs)
    for op in body.ops:
        if op.name in names:
            given = body.blobs[op.inputs[2]]
            zero, added = f"{op.name}/zero", f"{op.name}/added"
            kind = {"T": DType(given.dtype)}
            ops.append(Op(zero, "ZerosLike", (given.name,), (zero,), kind, device=op.device))
            ops.append(Op(added, "AddV2", (zero, given.name), (added,), kind, device=op.device))
            blobs.update({one: Blob(one, given.dtype, given.shape) for one in (zero, added)})
            op = op.replace(inputs=(*op.inputs[:2], added))
        ops.append(op)
    return body.replace(ops=tuple(ops), blobs=blobs)
