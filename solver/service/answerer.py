"""A process that answers questions from a socket, one after another, within limits.

Over the socket go the length of a question and the question, then those of the answer.
"""

from __future__ import annotations

import json
import pickle
import resource
import signal
import socket
from contextlib import suppress
from typing import Any

from ppsolve.models.documents.errors import ErrorCode
from ppsolve.models.documents.files import parse_json
from ppsolve.solver.service.problems import HttpProblem
from ppsolve.solver.service.questions import QUESTIONS
from ppsolve.solver.service.settings import ServiceSettings
from ppsolve.solver.service.tasks import BODY, read_task
from ppsolve.solver.studies.bench.child import LENGTH


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
