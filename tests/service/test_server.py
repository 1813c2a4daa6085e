"""Connections: answers without delay, heads that do not come, memory, what is imported."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import ppsolve
from ppsolve.solver.service.settings import ServiceSettings
from tests.paths import ROOT
from tests.service.cases import drawn, pipeline
from tests.service.conftest import serving

pytestmark = pytest.mark.serve

LARGEST = 600 * 2**20
"""Bytes of the process that takes requests; 100 of the largest ones hold 800 MB."""

Connect = Callable[[int], socket.socket]

HEAVY = ("numpy", "ortools", "llvmlite", "ppsolve.solver.api", "ppsolve.solver.kinds")


async def hello(scope: Any, receive: Any, send: Any) -> None:
    """Answer as an application that has nothing to say."""
    if scope["type"] != "http":
        return
    head = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": b"ok"})


@contextmanager
def greeting(**settings: Any) -> Iterator[int]:
    """Serve `hello` on a thread; yield the port."""
    from ppsolve.solver.service.server import listening, server_of

    limits = ServiceSettings(port=0, **settings)
    listener, server = listening(limits), server_of(hello, limits)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@pytest.fixture
def connected() -> Iterator[Connect]:
    """Connect to a port; all connections end with the test."""
    with ExitStack() as stack:
        yield lambda port: stack.enter_context(
            socket.create_connection(("127.0.0.1", port), timeout=60)
        )


def drip(connection: socket.socket, text: bytes) -> bool:
    """Send a byte at a time; whether the other side closes before the end."""
    with suppress(OSError):
        for byte in text:
            connection.sendall(bytes([byte]))
            connection.settimeout(0.05)
            with suppress(TimeoutError):
                return connection.recv(1) == b""
        return False
    return True


def test_answers_are_sent_without_delay() -> None:
    """Else the second packet of an answer waits 40 ms for the receipt of the first."""
    pytest.importorskip("uvicorn")
    from ppsolve.solver.service.server import listening

    async def option() -> int:
        delays = asyncio.get_running_loop().create_future()

        def taken(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            kind = socket.IPPROTO_TCP, socket.TCP_NODELAY
            delays.set_result(writer.get_extra_info("socket").getsockopt(*kind))
            writer.close()

        with listening(ServiceSettings(port=0)) as listener:
            async with await asyncio.start_server(taken, sock=listener):
                _, writer = await asyncio.open_connection(*listener.getsockname())
                writer.close()
                return await delays

    assert asyncio.run(option()) != 0


def test_heads_that_drip_or_do_not_come_end_the_connection(connected: Connect) -> None:
    pytest.importorskip("uvicorn")
    request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    dripping = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 10_000
    with greeting(head_seconds=0.5) as port:
        silent, again = connected(port), connected(port)
        again.sendall(request)
        answer = b""
        while not answer.endswith(b"ok"):
            answer += again.recv(1000)
        assert drip(again, dripping)
        assert drip(connected(port), dripping)
        with suppress(ConnectionResetError):
            assert silent.recv(1) == b""


def test_connections_are_limited_and_idle_ones_make_room(connected: Connect) -> None:
    pytest.importorskip("uvicorn")
    with greeting(head_seconds=0.5, connections=3) as port:
        idle = [connected(port) for _ in range(3)]
        with suppress(ConnectionResetError):
            assert connected(port).recv(1) == b""
        for connection in idle:
            with suppress(ConnectionResetError):
                assert connection.recv(1) == b""
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
            assert answer.read() == b"ok"


def test_large_requests_at_once_do_not_fill_the_memory(connected: Connect) -> None:
    size = 8 * 2**20
    head = (
        b"POST /quick HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    )
    statuses: Counter[bytes] = Counter()
    with serving("--workers", "1") as service:
        connections = []
        for _ in range(100):
            connection = connected(service.port)
            connection.sendall(head + b"Content-Length: %d\r\n\r\n" % size)
            connection.sendall(b" " * (size - 1))
            connections.append(connection)
        status = Path(f"/proc/{service.process.pid}/status").read_text()
        (peak,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
        assert int(peak.split()[1]) * 1024 < LARGEST
        for connection in connections:
            statuses[connection.recv(12)] += 1
        assert set(statuses) == {b"HTTP/1.1 429", b"HTTP/1.1 408"}
        known = ppsolve.quick(pipeline(drawn(1)))  # type: ignore[arg-type]
        assert service.client().quick(pipeline(drawn(1))) == known


def test_the_service_starts_without_the_solver() -> None:
    pytest.importorskip("fastapi")
    program = (
        "import sys, ppsolve.solver.service.app, ppsolve.solver.service.server\n"
        "print(*sys.modules, sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert [name for name in done.stdout.split() if name.startswith(HEAVY)] == []
