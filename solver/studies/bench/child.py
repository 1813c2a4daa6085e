"""Processes that start afresh and serve whoever started them, over a socket."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys

LENGTH = struct.Struct("!q")
"""What stands before a message: its length in bytes."""


def start_behind(connection: socket.socket, module: str) -> subprocess.Popen[bytes]:
    """Start a process that calls `main` of a module with the handle of its end of a connection."""
    handle = connection.fileno()
    environment = {"OPENBLAS_NUM_THREADS": "1", **os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        [sys.executable, "-c", f"from {module} import main; main({handle})"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[handle],
        env=environment,
        # Ctrl-C in a terminal is answered by whoever starts it.
        start_new_session=True,
    )
