"""Services of tests: processes of their own, as users start them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ppsolve.solver.service.client import Client
from tests.paths import ROOT


class RunningService:
    """A service in a process of its own."""

    COMMAND = (sys.executable, "-m", "ppsolve", "serve", "--port", "0")

    def __init__(self, *options: str | Path, **environment: str) -> None:
        self.process = subprocess.Popen(
            [*self.COMMAND, *map(str, options)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip().rstrip("/")
        self.port = int(self.url.rpartition(":")[2] or 0)

    def client(self, **options: Any) -> Client:
        return Client(self.url, **options)

    def end(self) -> int:
        """End it as Ctrl-C does."""
        self.process.terminate()
        return self.process.wait(30)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def serving(*options: str | Path, **environment: str) -> Iterator[RunningService]:
    pytest.importorskip("fastapi")
    service = RunningService(*options, **environment)
    try:
        yield service
    finally:
        service.kill()


@pytest.fixture(scope="session")
def service() -> Iterator[RunningService]:
    with serving() as running:
        yield running
