"""Processes that stay, and answer questions that take milliseconds, one at a time each."""

from __future__ import annotations

import asyncio
import pickle
import socket
import subprocess
from contextlib import suppress
from typing import Any

from ppsolve.solver.service.problems import HttpProblem, ProblemError, busy
from ppsolve.solver.service.settings import ServiceSettings
from ppsolve.solver.studies.bench.child import LENGTH, start_behind

ANSWERER = "ppsolve.solver.service.answerer"
"""Module of such a process; it imports the library, the service itself does not."""

ATTEMPTS = 2
"""How often a question is asked whose process ended without an answer."""

PATIENCE = 5.0
"""Seconds beyond its limit after which a process that does not answer is killed; it may start."""


class AnswerPool:
    """Processes that answer questions, and are replaced when they are lost."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._idle: asyncio.Queue[_AnswerProcess] = asyncio.Queue()
        self._processes: set[_AnswerProcess] = set()
        self.waiting = 0

    async def start(self) -> None:
        """Start the processes."""
        for _ in range(self._settings.workers):
            await self._start_one()

    async def _start_one(self) -> None:
        process = await _AnswerProcess.started(self._settings)
        self._processes.add(process)
        self._idle.put_nowait(process)

    async def answer(self, path: str, body: bytes) -> bytes:
        """Return the answer to a question; raises `ProblemError` where there is none."""
        if self.waiting >= self._settings.questions:
            raise ProblemError(busy(f"{self.waiting} questions are waiting", 1))
        self.waiting += 1
        try:
            for _ in range(ATTEMPTS):
                with suppress(EOFError, OSError):
                    return await self._answer(path, body)
        finally:
            self.waiting -= 1
        text = "the process that answered ended; the question may need too much memory"
        raise ProblemError(HttpProblem(422, "lost", text))

    async def _answer(self, path: str, body: bytes) -> bytes:
        process = await self._idle.get()
        try:
            seconds = self._settings.question_seconds + PATIENCE
            answer = await asyncio.wait_for(process.ask((path, body)), seconds)
        except BaseException:
            # What it would answer now, nobody waits for.
            self._processes.discard(process)
            process.kill()
            await self._start_one()
            raise
        self._idle.put_nowait(process)
        if isinstance(answer, HttpProblem):
            raise ProblemError(answer)
        return bytes(answer)

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()


class _AnswerProcess:
    """A process that answers, behind a socket."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process, self._reader, self._writer = process, reader, writer

    @classmethod
    async def started(cls, settings: ServiceSettings) -> _AnswerProcess:
        ours, theirs = socket.socketpair()
        with theirs:
            process = start_behind(theirs, ANSWERER)
        reader, writer = await asyncio.open_connection(sock=ours)
        answering = cls(process, reader, writer)
        answering.send(settings)
        return answering

    def send(self, content: Any) -> None:
        data = pickle.dumps(content)
        self._writer.write(LENGTH.pack(len(data)) + data)

    async def ask(self, question: tuple[str, bytes]) -> Any:
        """Return the answer to a question; raises `EOFError` or `OSError` where there is none."""
        self.send(question)
        await self._writer.drain()
        (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
        return pickle.loads(await self._reader.readexactly(length))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._writer.close()
