"""The server below the application: its socket, and connections that do not come to a question."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.solver.service.settings import ServiceSettings


class TimedConnection(H11Protocol):  # type: ignore[misc]
    """A connection that is closed unless the head of its next request comes in time.

    uvicorn waits for ever for a head that begins, or that drips.
    """

    def __init__(self, settings: ServiceSettings, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._settings = settings
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take a connection, unless there are too many."""
        super().connection_made(transport)
        # Each has a handle, which the store and processes of jobs need too.
        if len(self.connections) > self._settings.connections:
            transport.abort()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._stop_timer()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._await_head()
        super().on_response_complete()

    def _await_head(self) -> None:
        self._stop_timer()
        seconds = self._settings.head_seconds
        self._timer = self.loop.call_later(seconds, self._end_without, self.cycle)

    def _end_without(self, last: Any) -> None:
        # `cycle` is the request at work, or the last one.
        if self.cycle is last:
            self.transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def listening(settings: ServiceSettings) -> socket.socket:
    """Return a socket that listens; raises `InputError` where that is not possible."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio sends without delay (TCP_NODELAY) only where a socket names its protocol: head and
    # body of an answer are two packets, and the second would wait for the receipt of the first.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        # Whoever reads the address may connect at once.
        listener.listen(2048)
    except OSError as error:
        listener.close()
        text = f"cannot listen at {settings.host}: {error.strerror}"
        raise InputError(text, field="--port", code=ErrorCode.FILE) from None
    return listener


def address_of(listener: socket.socket) -> str:
    """Return the address of a service behind a socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def server_of(app: Any, settings: ServiceSettings) -> uvicorn.Server:
    """Return the server of an application; its `run` takes sockets that listen."""
    config = uvicorn.Config(
        app,
        http=partial(TimedConnection, settings),
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=int(settings.head_seconds),
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)
