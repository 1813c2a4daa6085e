"""What every request must have, and every response has."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from ppsolve.models.documents.errors import ErrorCode, PpsolveError
from ppsolve.models.documents.printable import printable
from ppsolve.solver.service.metrics import RequestCounts
from ppsolve.solver.service.problems import (
    PROBLEM,
    HttpProblem,
    ProblemError,
    busy,
)
from ppsolve.solver.service.settings import LOOPBACK, ServiceSettings
from ppsolve.solver.service.store import StoreError

# The page may load scripts (ES modules), styles and pictures from files beside it, and ask this
# service. The browser refuses scripts and styles inside HTML, attributes such as `style=` and
# `onclick=`, eval, and all that is elsewhere. Scripts may set `element.style.width`, draw on
# canvases, and offer downloads as `blob:` or `data:` addresses.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)

# Notebooks of this machine may show the page in a frame.
LOCAL_POLICY = f"{POLICY} http://localhost:* http://127.0.0.1:*"


class Gate:
    """Middleware: names of the host, requests at once, headers, counts.

    `app`: the application behind it.
    """

    def __init__(
        self, app: Any, settings: ServiceSettings, counts: RequestCounts
    ) -> None:
        self._app, self._counts = app, counts
        self._is_local, self._most = settings.is_local, settings.requests
        self._active = 0
        policy = LOCAL_POLICY if settings.is_local else POLICY
        self._headers = [
            (b"content-security-policy", policy.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"cache-control", b"no-cache"),
        ]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 0

        async def send_with_headers(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *self._headers]
            await send(message)

        self._active += 1
        try:
            problem = self._obstacle(scope)
            app = self._app if problem is None else response_of(problem)
            await app(scope, receive, send_with_headers)
        finally:
            self._active -= 1
            route = getattr(scope.get("route"), "path", "page")
            self._counts.add(route, status, time.monotonic() - began)

    def _obstacle(self, scope: Any) -> HttpProblem | None:
        if self._is_local and _host(scope) not in LOOPBACK:
            # Names that are made to lead to this machine would open it to pages of others.
            return HttpProblem(
                421, "host", "expected localhost or 127.0.0.1 as the host"
            )
        if self._active > self._most:
            return busy(f"{self._most} requests are being answered", 1)
        return None


def _host(scope: Any) -> str:
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    name = hosts[0].decode("latin-1") if len(hosts) == 1 else ""
    without_port = name.rpartition(":")[0] if not name.endswith("]") else name
    return (without_port or name).strip("[]").lower()


def response_of(problem: HttpProblem) -> Response:
    """Return a problem as a response."""
    return Response(problem.body, problem.status, dict(problem.headers), PROBLEM)


def add_problems(app: FastAPI) -> None:
    """Let an application answer errors with problem documents."""

    def handle(kind: type[Exception], problem: Callable[[Any], HttpProblem]) -> None:
        async def answer(_: Request, error: Exception) -> Response:
            return response_of(problem(error))

        app.add_exception_handler(kind, answer)

    handle(ProblemError, lambda error: error.problem)
    handle(StoreError, lambda error: HttpProblem(507, "store", str(error)))
    handle(PpsolveError, HttpProblem.of)
    handle(RequestValidationError, _of_parameters)
    handle(HTTPException, _of_http)
    handle(Exception, HttpProblem.of)


def _of_parameters(error: RequestValidationError) -> HttpProblem:
    issue = error.errors()[0]
    field = ".".join(map(str, issue["loc"]))
    return HttpProblem(
        422, ErrorCode.VALUE, printable(f"{field}: {issue['msg']}"), field
    )


def _of_http(error: HTTPException) -> HttpProblem:
    headers = tuple((error.headers or {}).items())
    return HttpProblem(error.status_code, "http", str(error.detail), headers=headers)
