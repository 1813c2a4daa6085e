"""Hostile requests end in an answer that says so, and leave no trace."""

from __future__ import annotations

import os
import random
import socket
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

import ppsolve
from tests.paths import ROOT
from tests.service.asking import ask
from tests.service.cases import drawn, pipeline
from tests.service.conftest import serving
from tests.service.hostile import request, send

LARGEST = 600 * 2**20
"""Bytes of the process that takes requests, far below what 1,500 large ones hold."""


def memory_of(process: int) -> int:
    stat = Path(f"/proc/{process}/statm").read_text(encoding="ascii")
    return int(stat.split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.serve
@pytest.mark.parametrize(
    ("first", "count"), [(0, 100), pytest.param(1000, 1500, marks=pytest.mark.fuzz)]
)
def test_hostile_requests_do_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int, count: int
) -> None:
    monkeypatch.chdir(tmp_path)
    before = {path: path.stat().st_mtime for path in (ROOT / "solver").rglob("*.py")}
    with serving("--store", tmp_path / "jobs") as service:
        slow = [
            socket.create_connection(("127.0.0.1", service.port)) for _ in range(10)
        ]
        for connection in slow:
            connection.settimeout(60)
            head = b"POST /quick HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n"
            connection.sendall(head + b"Content-Type: application/json\r\n\r\n{")
        unfinished = [
            socket.create_connection(("127.0.0.1", service.port)) for _ in range(10)
        ]
        for connection in unfinished:
            connection.settimeout(60)
            connection.sendall(b"GET / HTTP/1.1\r\nHost: local")
        statuses: Counter[int | None] = Counter()
        for seed in range(first, first + count):
            rng = random.Random(seed)
            status = send(service.port, request(rng), rng)
            statuses[status] += 1
            assert status is None or status < 500, f"seed {seed}"
        assert statuses[422] > count // 5
        for connection in slow:
            assert connection.recv(12) == b"HTTP/1.1 408"
            connection.close()
        for connection in unfinished:
            with suppress(ConnectionResetError):
                assert connection.recv(12) == b""
            connection.close()
        assert memory_of(service.process.pid) < LARGEST
        status, health, _ = ask(service, "GET", "/health")
        assert (status, health["status"]) == (200, "ok")
        known = ppsolve.quick(pipeline(drawn(1)))  # type: ignore[arg-type]
        assert service.client().quick(pipeline(drawn(1))) == known
    files = {path.name for path in tmp_path.iterdir()}
    assert files <= {"jobs", "jobs-wal", "jobs-shm"}
    after = {path: path.stat().st_mtime for path in (ROOT / "solver").rglob("*.py")}
    assert after == before
