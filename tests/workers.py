"""Two workers of one cluster on this machine."""

import json
import socket


def cluster() -> list[dict[str, str]]:
    """What stands in each worker's environment."""
    sockets = [socket.socket() for _ in (0, 1)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    workers = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    tasks = ({"type": "worker", "index": index} for index in (0, 1))
    return [
        {"TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": task})} for task in tasks
    ]
