"""What the functions of this package are given, looked at before anything is made of it."""

from __future__ import annotations

from typing import Any

from rnnmem.errors import OptionError
from rnnmem.ir.graph import Net


def check_net(net: Any) -> None:
    """Refuses what is no Net, such as the function that a Net is made of.

    Raises:
      OptionError: it is none.
    """
    if not isinstance(net, Net):
        raise OptionError(
            f"net={type(net).__name__} is no Net: rnnmem.load_net makes one of a tf.function, a "
            "ConcreteFunction, a SavedModel or a GraphDef"
        )


def names_of(argument: str, given: Any) -> tuple[str, ...]:
    """The names in an argument that takes one or several.

    Args:
      argument: its name, for the error.
      given: a text, or texts.

    Raises:
      OptionError: it is something else, such as the tensor that is meant.
    """
    if isinstance(given, str):
        return (given,)
    try:
        names = tuple(given)
    except TypeError:  # a number, a variable
        names = (given,)
    for one in names:
        if not isinstance(one, str):
            raise OptionError(
                f"{argument}: {type(one).__name__} is no name; give one or several as text, as "
                "net.blobs and net.outputs have them"
            )
    return names
