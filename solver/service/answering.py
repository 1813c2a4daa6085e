"""Processes that stay, and answer questions that take milliseconds, one at a time each.

Over a socket go the length of a question and the question, then those of the answer.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import resource
import signal
import socket
import subprocess
from contextlib import suppress
from typing import Any

from ppsolve.models.documents.errors import ErrorCode
from ppsolve.models.documents.files import parse_json
from ppsolve.solver.service.problems import HttpProblem, ProblemError
from ppsolve.solver.service.questions import QUESTIONS
from ppsolve.solver.service.settings import ServiceSettings
from ppsolve.solver.service.tasks import BODY, read_task
from ppsolve.solver.studies.bench.fork_server import LENGTH, start_behind

ATTEMPTS = 2
"""How often a question is asked whose process ended without an answer."""

PATIENCE = 5.0
"""Seconds beyond its limit after which a process that does not answer is killed; it may start."""


RETRY = (("Retry-After", "1"),)


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
            text = f"{self.waiting} questions are waiting; ask again later"
            raise ProblemError(HttpProblem(429, "busy", text, headers=RETRY))
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
            process = start_behind(theirs, __name__)
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


class OverdueError(BaseException):
    """Raised within an answer that takes too long."""


def main(handle: int) -> None:
    """Answer questions from the socket `handle` until it is closed."""
    signal.signal(signal.SIGALRM, _overdue)
    stream = socket.socket(fileno=handle).makefile("rwb")
    with stream, suppress(EOFError, OSError):
        settings = _received(stream)
        limit = settings.question_memory
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        while True:
            path, body = _received(stream)
            data = pickle.dumps(_answered(path, body, settings))
            stream.write(LENGTH.pack(len(data)) + data)
            stream.flush()


def _received(stream: Any) -> Any:
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    return pickle.loads(stream.read(LENGTH.unpack(head)[0]))


def _overdue(*_: Any) -> None:
    raise OverdueError


def _answered(path: str, body: bytes, settings: ServiceSettings) -> bytes | HttpProblem:
    """Return the answer to a question, or why there is none."""
    seconds = settings.question_seconds
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            return _answer_to(path, body.decode(), settings).encode()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except OverdueError:
        text = f"the answer takes over {seconds:g} s; a job may take longer"
        return HttpProblem(422, "overdue", text)
    except UnicodeDecodeError as error:
        text = f"expected UTF-8 text, byte {error.start} is not"
        return HttpProblem(422, ErrorCode.SYNTAX, text)
    except Exception as error:
        return HttpProblem.of(error)


def _answer_to(path: str, text: str, settings: ServiceSettings) -> str:
    if path == "jobs":
        task = read_task(text)
        task.refuse_wrong(settings)
        return json.dumps([task.task, task.digest])
    question = QUESTIONS[path].parse(parse_json(text, BODY))
    return question.answer(settings.ops)
