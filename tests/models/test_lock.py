import os
import socket

import pytest

from models.nmt.lock import lock


def test_a_folder_is_for_one_training(tmp_path):
    descriptor = lock(tmp_path)
    who = f"process {os.getpid()} on {socket.gethostname()}"
    with pytest.raises(ValueError, match=f"a training writes there already .{who}.; wait for"):
        lock(tmp_path)
    os.close(descriptor)
    os.close(lock(tmp_path))


def test_one_that_died_holds_nothing(tmp_path):
    if (child := os.fork()) == 0:
        lock(tmp_path)
        os._exit(0)
    os.waitpid(child, 0)
    os.close(lock(tmp_path))
