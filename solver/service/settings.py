"""What a service may be asked, and by whom."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ppsolve.models.documents.errors import ErrorCode, InputError

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class ServiceSettings:
    """Doors and limits of a service."""

    host: str = "127.0.0.1"
    port: int = 8765
    workers: int = 2  # processes that answer questions, and jobs side by side
    store: Path | None = None  # file of jobs; None: jobs end with the service
    token: str | None = (
        None  # what requests must carry; None: anybody on this machine may ask
    )
    origins: tuple[str, ...] = ()  # other sites whose pages may ask
    dask: str | None = None  # scheduler of a cluster that jobs are sent to
    instance: dict[str, Any] | None = None  # what the page shows first
    body_bytes: int = 8 * 2**20  # largest request
    head_seconds: float = (
        20.0  # in which the head of a connection's next request must come
    )
    body_seconds: float = 10.0  # in which the body of a request must come
    held_bytes: int = 256 * 2**20  # of all requests that come or are being answered
    ops: int = 200_000  # of the largest pipeline
    questions: int = 64  # questions that are being answered or wait for it
    question_seconds: float = 20.0  # for the answer to a question
    question_memory: int = 4 * 2**30  # of a process that answers questions, in bytes
    jobs: int = 1000  # jobs that wait
    job_seconds: float = 3600.0  # largest time limit of a job
    job_memory: float | None = None  # GiB of a job; None: its share of the machine
    kept: int = 10_000  # jobs that have ended, the latest
    connections: int = 512  # that are open, idle ones included
    requests: int = 256  # that are being answered, listeners included

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host in LOOPBACK


def expect_installed() -> None:
    """Raise `InputError` without the packages of the service."""
    if not all(map(find_spec, ("fastapi", "uvicorn"))):
        text = "the service is not installed; install ppsolve[serve]"
        raise InputError(text, code=ErrorCode.NOT_INSTALLED)
