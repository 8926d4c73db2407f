"""One training a folder: a second one is told who writes there."""

from __future__ import annotations

import fcntl
import os
import pathlib
import socket

from absl import logging

LOCK = "lock"


def lock(folder: str | os.PathLike) -> int:
    """Takes a folder for this process, until it ends or closes the descriptor returned.

    Raises:
        ValueError: another process has it; says which.
    """
    descriptor = os.open(pathlib.Path(folder) / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(descriptor, 200).decode(errors="replace").strip()
        os.close(descriptor)
        raise ValueError(
            f"{folder}: a training writes there already ({owner}); wait for its end, or give "
            "another --out"
        ) from None
    except OSError as error:  # some network file systems have no locks
        logging.warning("%s: cannot be locked against a second training (%s)", folder, error)
    os.truncate(descriptor, 0)
    os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
    return descriptor
