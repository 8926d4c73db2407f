"""Release after last use: which names a run over the order may free after each op."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rnnmem.analysis.live_ranges import views
from rnnmem.analysis.versions import OUTSIDE, ssa
from rnnmem.errors import NetError
from rnnmem.ir.graph import Net
from rnnmem.storage.arguments import check_net, names_of


def release(net: Net, keep: Iterable[str] = ()) -> Mapping[str, tuple[str, ...]]:
    """Op name -> names whose last use it is, each once, in the order of its inputs.

    Never released: inputs, outputs, names to keep, what nobody reads (whoever runs the Net may),
    and what a view shows, together with the view.

    Raises:
      NetError: a name to keep that the Net does not have, or a cycle.
      OptionError: no Net, or no names.
    """
    check_net(net)
    past = ssa(net)
    keep = names_of("keep", keep)
    for name in keep:
        if name not in past.versions:
            raise NetError(f"keep: the Net {net.name!r} has no blob {name!r}")
    shown = views(past)
    closed = {*net.inputs, *net.outputs, *keep, *shown, *shown.values()}
    freed: dict[str, list[str]] = {}
    for name, versions in past.versions.items():
        readers = past.readers[versions[-1]]
        if name in closed or not readers or past.writer[versions[0]] == OUTSIDE:
            continue
        freed.setdefault(past.ops[readers[-1]].name, []).append(name)
    return {name: tuple(blobs) for name, blobs in freed.items()}
