"""Questions to a service from Python, by the standard library alone."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from inspect import Parameter, signature
from typing import Any, TypeVar
from urllib.parse import urlsplit

import numpy as np
from pydantic import BaseModel

from ppsolve.models.core.result import Result, ScheduleDocument
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import ErrorCode, InputError, PpsolveError
from ppsolve.models.documents.text import instance_data
from ppsolve.models.instances import Instance
from ppsolve.solver.api import api
from ppsolve.solver.api.kinds import kind_of, owner_in
from ppsolve.solver.clock import Clock
from ppsolve.solver.kinds.pipeline.quick import QuickAnswer, QuickAnswers, quick
from ppsolve.solver.run.params import paths
from ppsolve.solver.run.progress import HeededListener, Progress

PATIENCE = 30.0
"""Seconds for which a service that has gone may come back, as where it is started again."""

LOOK = 0.05
"""Seconds between looks whether the caller wants a job to stop."""

Method = TypeVar("Method", bound=Callable[..., Any])


class ServiceError(PpsolveError):
    """A service does not answer, or cannot."""


def _signed_as(function: Callable[..., Any]) -> Callable[[Method], Method]:
    """Show the signature of a function as that of a method."""

    def decorate(method: Method) -> Method:
        own = signature(function)
        first = Parameter("self", Parameter.POSITIONAL_ONLY)
        parameters = [
            p.replace(kind=Parameter.POSITIONAL_OR_KEYWORD) if not i else p
            for i, p in enumerate(own.parameters.values())
        ]
        shown = own.replace(parameters=[first, *parameters])
        method.__signature__ = shown  # type: ignore[attr-defined]
        return method

    return decorate


class Client:
    """A service that `ppsolve serve` started; threads may share a client.

    Parameters
    ----------
    url : str
        Address of the service, such as ``http://127.0.0.1:8765``.
    token : str or None
        The token of a service that has one.
    timeout : float
        Seconds after which a service that says nothing counts as gone.
    """

    def __init__(
        self, url: str, *, token: str | None = None, timeout: float = 60.0
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            text = f'expected an address such as http://127.0.0.1:8765, got "{url}"'
            raise InputError(text, field="url", code=ErrorCode.SYNTAX)
        self._url, self._timeout = parts, timeout
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._local = threading.local()

    @_signed_as(quick)
    def quick(self, instance: Instance, **arrays: Any) -> QuickAnswer | QuickAnswers:
        """Ask as `ppsolve.quick` does.

        Parameters
        ----------
        instance, **arrays
            As for `ppsolve.quick`.

        Returns
        -------
        QuickAnswer or QuickAnswers
            The latter where arrays are given.
        """
        columns = {name: np.asarray(rows).tolist() for name, rows in arrays.items()}
        question = {"instance": instance_data(instance), "arrays": columns}
        answer = self._ask("POST", "/quick", question)
        if arrays:
            value, bound, memory = (
                np.array(answer[name], dtype=np.float64)
                for name in ("value", "bound", "memory")
            )
            by, bound_by = (
                np.array(answer[name], dtype=object) for name in ("by", "bound_by")
            )
            return QuickAnswers(value, bound, by, bound_by, memory)
        names = ("value", "bound", "by", "bound_by", "published")
        held = answer["memory"] and tuple(answer["memory"])
        return QuickAnswer(**{name: answer[name] for name in names}, memory=held)

    @_signed_as(api.optimize)
    def optimize(self, instance: Instance, **options: Any) -> Result:
        """Optimize as `ppsolve.optimize` does, on the service.

        Equal questions are answered once. Whoever stops a job that others wait for stops it for
        them too.

        Parameters
        ----------
        instance, **options
            As for `ppsolve.optimize`; heuristics by name only.

        Returns
        -------
        Result
            As from `ppsolve.optimize`. An interrupt (Ctrl-C) returns the best schedule so far.

        Raises
        ------
        InputError
            As from `ppsolve.optimize`.
        ServiceError
            The service does not answer, or the job failed.
        """
        stop, on_progress = options.pop("stop", None), options.pop("on_progress", None)
        events = (stop or threading.Event(), threading.Event())
        clock = Clock(None, events)
        began = options.pop("began", None)
        if began is not None and options.get("time_limit", 60.0) is not None:
            spent = clock.began - began
            options["time_limit"] = max(0.0, options.get("time_limit", 60.0) - spent)
        listener = None if on_progress is None else HeededListener(on_progress, clock)
        job = self._submitted(_question(instance, options), clock)
        document = None if job is None else self._followed(job["id"], clock, listener)
        if document is None or document["result"] is None:
            # Nothing was begun: the library says so in the same words.
            clock.stop()
            result = api.optimize(instance, stop=events[1])
        else:
            owner = owner_in(document["result"], self._url.geturl())
            assert isinstance(owner, Result)
            result = owner
        if listener is not None:
            listener.raise_error(result)
        return result

    def _submitted(
        self, question: dict[str, Any], clock: Clock
    ) -> dict[str, Any] | None:
        """Return the job of a question; None where it was stopped while too many waited."""
        while not clock.is_stopped:
            try:
                return self._ask("POST", "/jobs", question)
            except _BusyError as error:
                deadline = time.monotonic() + error.seconds
                while time.monotonic() < deadline and not clock.is_stopped:
                    time.sleep(LOOK)
        return None

    def _followed(
        self, id: str, clock: Clock, listener: Callable[[Progress], object] | None
    ) -> dict[str, Any]:
        """Return a job that has ended; tell the listener of its progress, stop it by the clock."""
        over = threading.Event()

        def cancel() -> None:
            while not over.wait(LOOK):
                if clock.is_stopped:
                    with suppress(PpsolveError):
                        self._ask("DELETE", f"/jobs/{id}")
                    return

        watcher = threading.Thread(target=cancel, daemon=True)
        watcher.start()
        try:
            while True:
                try:
                    self._listen(id, listener)
                    return self._ask("GET", f"/jobs/{id}")
                except KeyboardInterrupt:
                    clock.stop()
        finally:
            over.set()

    def _listen(self, id: str, listener: Callable[[Progress], object] | None) -> None:
        """Tell a listener of the events of a job until it has ended."""
        last, deadline = "0", time.monotonic() + PATIENCE
        while True:
            try:
                for event in self._events(id, last):
                    last, deadline = event["id"] or last, time.monotonic() + PATIENCE
                    if event["event"] == "ended":
                        return
                    data = json.loads(event["data"])
                    if listener is not None and "source" in data:
                        listener(Progress(**data))
            except (OSError, http.client.HTTPException):
                pass
            if time.monotonic() > deadline:
                raise ServiceError(f"{self._url.geturl()} does not answer any more")
            time.sleep(LOOK)

    def _events(self, id: str, last: str) -> Iterator[dict[str, str]]:
        """Yield server-sent events behind the one with the number `last`."""
        connection = self._connected()
        try:
            headers = {**self._headers, "Last-Event-ID": last}
            connection.request("GET", f"/jobs/{id}/events", headers=headers)
            response = connection.getresponse()
            if response.status != 200:
                raise _error_of(response.status, response.read(), {})
            event = {"event": "", "data": "", "id": ""}
            for line in response:
                name, _, value = line.decode().rstrip("\r\n").partition(": ")
                if name in event:
                    event[name] = value
                elif not name and event["event"]:
                    yield event
                    event = {"event": "", "data": "", "id": ""}
        finally:
            connection.close()

    def _ask(self, method: str, path: str, question: Any = None) -> Any:
        """Return the answer to a question; errors of the service are raised."""
        body = None if question is None else json.dumps(question)
        headers = {**self._headers, "Content-Type": "application/json"}
        kept = getattr(self._local, "kept", None)
        # A connection that was open may have been closed meanwhile; no question does harm twice.
        for is_last in (kept is None, True):
            kept = kept or _KeptConnection(self._connected())
            try:
                kept.connection.request(method, path, body, headers)
                response = kept.connection.getresponse()
                content = response.read()
            except (OSError, http.client.HTTPException) as error:
                kept = self._local.kept = None
                if is_last:
                    text = f"no answer from {self._url.geturl()}: {error}"
                    raise ServiceError(text) from None
                continue
            self._local.kept = kept
            if response.status >= 400:
                raise _error_of(response.status, content, response.headers)
            return json.loads(content)
        raise AssertionError("the last attempt answers or raises")

    def _connected(self) -> http.client.HTTPConnection:
        is_safe = self._url.scheme == "https"
        kind = http.client.HTTPSConnection if is_safe else http.client.HTTPConnection
        return kind(str(self._url.hostname), self._url.port, timeout=self._timeout)


class _KeptConnection:
    """A connection of one thread, closed when nobody has it any more."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self.connection = connection

    def __del__(self) -> None:
        self.connection.close()


class _BusyError(ServiceError):
    def __init__(self, text: str, seconds: float) -> None:
        super().__init__(text)
        self.seconds = seconds


def _error_of(status: int, content: bytes, headers: Any) -> PpsolveError:
    try:
        problem = json.loads(content)
        detail, field = str(problem["detail"]), problem.get("field")
    except (ValueError, KeyError, TypeError):
        return ServiceError(f"the service answered with {status}")
    if status == 429:
        return _BusyError(detail, float(headers.get("Retry-After", 1)))
    if status == 422:
        codes = {code.value: code for code in ErrorCode}
        return InputError(
            detail.removeprefix(f"{field}: "),
            field=field,
            code=codes.get(problem["code"], ErrorCode.FAILED),
            expected=problem.get("expected"),
        )
    return ServiceError(detail)


def _question(instance: Instance, options: dict[str, Any]) -> dict[str, Any]:
    """Return the question of a job that optimizes."""
    known = signature(api.optimize).parameters
    for name in options:
        if name not in known:
            raise TypeError(f"optimize() got an unexpected keyword argument '{name}'")
    start = options.pop("start", None)
    asked = {name: _plain(name, value) for name, value in options.items()}
    if isinstance(start, Schedule):
        claims = kind_of(instance).claims_of(instance, start) or {}
        start = {**ScheduleDocument.of(start).model_dump(mode="json"), **claims}
    elif isinstance(start, BaseModel):
        start = start.model_dump(mode="json")
    return {
        "task": "optimize",
        "instance": instance_data(instance),
        "start": start,
        "options": asked,
    }


def _plain(name: str, value: Any) -> Any:
    if name in {"heuristics", "more_heuristics"} and value is not None:
        if isinstance(value, str) or not all(isinstance(one, str) for one in value):
            text = "expected a list of names: functions are not sent to a service"
            raise InputError(text, field=name, code=ErrorCode.TYPE)
        return list(value)
    if name == "params" and value is not None and not hasattr(value, "items"):
        return dict(paths(value))
    return dict(value) if name == "params" and value is not None else value
