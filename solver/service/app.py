"""The web application: its routes, and what a request must have to reach them."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import PlainTextResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.sse import EventSourceResponse, ServerSentEvent
from fastapi.staticfiles import StaticFiles
from starlette.requests import ClientDisconnect

from ppsolve import __version__
from ppsolve.solver.service.answering import AnswerPool
from ppsolve.solver.service.described import described
from ppsolve.solver.service.examples import ASKED
from ppsolve.solver.service.gate import Gate, add_problems
from ppsolve.solver.service.jobs import JobRunner
from ppsolve.solver.service.metrics import RequestCounts
from ppsolve.solver.service.problems import HttpProblem, ProblemError, busy
from ppsolve.solver.service.settings import ServiceSettings
from ppsolve.solver.service.store import JobState, JobStore, StoredJob
from ppsolve.solver.views import page

PAGE = Path(__file__).parent / "page"
CHART = Path(page.__file__).parent / "assets"
"""The chart of reports, whose modules the page imports."""

LOOK = 0.05
"""Seconds between looks for news that a listener is sent."""


class Service:
    """What the routes of one application share."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self.store = JobStore(settings.store, settings.kept)
        self.runner = JobRunner(settings, self.store)
        self.pool = AnswerPool(settings)
        self.counts = RequestCounts()
        self._held = 0  # bytes of requests

    @asynccontextmanager
    async def running(self, _: FastAPI) -> AsyncIterator[None]:
        """Run jobs and answer questions as long as the application is there."""
        await self.pool.start()
        self.runner.start()
        try:
            yield
        finally:
            self.pool.close()
            await run_in_threadpool(self.runner.close)
            self.store.close()

    async def ask(self, path: str, request: Request) -> bytes:
        """Return the answer to the question in a request."""
        async with self._body(request) as body:
            return await self.pool.answer(path, body)

    async def submit(self, request: Request) -> StoredJob:
        """Return the job of the question in a request, an equal one if it is there."""
        async with self._body(request) as body:
            task, digest = json.loads(await self.pool.answer("jobs", body))
            question = body.decode()
            return await run_in_threadpool(self.runner.submit, task, digest, question)

    @asynccontextmanager
    async def _body(self, request: Request) -> AsyncIterator[bytes]:
        """Yield the body of a request, whose bytes are counted as long as it is in use."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip()
        if kind.lower() != "application/json":
            # A page of another site may send text unasked; JSON it may not.
            text = "expected a JSON document, with Content-Type: application/json"
            raise ProblemError(HttpProblem(415, "content-type", text))
        body = bytearray()
        try:
            await self._receive(request, body)
            yield bytes(body)
        finally:
            self._held -= len(body)

    async def _receive(self, request: Request, body: bytearray) -> None:
        try:
            async with asyncio.timeout(self.settings.body_seconds):
                async for chunk in request.stream():
                    body += chunk
                    self._held += len(chunk)
                    self._refuse_more(len(body))
        except ClientDisconnect:
            # Nobody reads it, nor is it a defect.
            raise ProblemError(
                HttpProblem(400, "gone", "the sender has gone")
            ) from None
        except TimeoutError:
            text = f"expected all of it within {self.settings.body_seconds:g} s"
            raise ProblemError(HttpProblem(408, "slow", text)) from None

    def _refuse_more(self, size: int) -> None:
        limit = self.settings.body_bytes
        if size > limit:
            text = f"expected at most {limit} bytes"
            raise ProblemError(HttpProblem(413, "too-large", text))
        if self._held > self.settings.held_bytes:
            raise ProblemError(busy("other requests fill the memory", 1))

    async def job(self, id: str) -> StoredJob:
        """Return a job; raises `ProblemError` where there is none."""
        job = await run_in_threadpool(self.store.get, id)
        if job is None:
            raise ProblemError(
                HttpProblem(404, "no-job", f'there is no job "{id[:40]}"')
            )
        return job

    def response(self, job: StoredJob, status: int = 200) -> Response:
        """Return a job as JSON, its result as it is stored."""
        live = self.runner.live(job)
        head = {
            "id": job.id,
            "task": job.task,
            "state": job.state,
            "attempts": job.attempts,
            "created": job.created,
            "ended": job.ended,
            "best": live.best,
            "bound": live.bound,
            "error": job.error,
        }
        text = f'{json.dumps(head)[:-1]}, "result": {job.result or "null"}}}'
        headers = {"Location": f"/jobs/{job.id}"}
        return Response(text, status, headers, "application/json")

    async def events(
        self, job: StoredJob, after: int
    ) -> AsyncIterator[ServerSentEvent]:
        """Yield the news of a job until it has ended, then its state."""
        live = self.runner.live(job)
        while True:
            kept = await run_in_threadpool(self.store.get, job.id)
            for number, news in live.since(after):
                after = number
                yield ServerSentEvent(data=news, event=news["event"], id=str(number))
            if kept is None or kept.state.is_final:
                yield ServerSentEvent(data={"event": "ended"}, event="ended")
                return
            while not (live.is_over or any(live.since(after))):
                await asyncio.sleep(LOOK)


def build_app(settings: ServiceSettings) -> FastAPI:
    """Return the application.

    Raises `InputError` where its store cannot be used.
    """
    service = Service(settings)
    app = FastAPI(
        title="ppsolve",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        lifespan=service.running,
    )
    app.state.service = service
    guards = [Depends(_token_check(settings.token))] if settings.token else []
    for routes in (_questions(service), _jobs(service), _facts(service)):
        app.include_router(routes, dependencies=guards)
    app.mount("/chart", StaticFiles(directory=CHART))
    app.mount("/", StaticFiles(directory=PAGE, html=True))
    add_problems(app)
    app.add_middleware(Gate, settings=settings, counts=service.counts)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Last-Event-ID"],
        )
    app.openapi = cache(partial(described, app.openapi))
    return app


BEARER = HTTPBearer(auto_error=False)


def _token_check(token: str) -> Callable[..., None]:
    def check(
        given: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)],
    ) -> None:
        words = given.credentials if given else ""
        if not secrets.compare_digest(words.encode(), token.encode()):
            headers = (("WWW-Authenticate", "Bearer"),)
            text = "expected the token of this service: Authorization: Bearer TOKEN"
            raise ProblemError(HttpProblem(401, "token", text, headers=headers))

    return check


def _questions(service: Service) -> APIRouter:
    routes = APIRouter(tags=["questions"])

    def route(name: str) -> Callable[..., Any]:
        async def ask(request: Request) -> Response:
            answer = await service.ask(name, request)
            return Response(answer, media_type="application/json")

        return ask

    for name in ASKED:
        if name != "jobs":
            routes.post(f"/{name}", name=name)(route(name))
    return routes


async def existing_job(request: Request, id: str) -> StoredJob:
    """Return the job that a path names; raises `ProblemError` where there is none."""
    service: Service = request.app.state.service
    return await service.job(id)


ExistingJob = Annotated[StoredJob, Depends(existing_job)]


def _jobs(service: Service) -> APIRouter:
    routes = APIRouter(prefix="/jobs", tags=["jobs"])

    @routes.post(
        "",
        summary="Begin a job, or find the equal one that is there.",
        status_code=202,
    )
    async def submit(request: Request) -> Response:
        job = await service.submit(request)
        return service.response(job, 200 if job.state is JobState.DONE else 202)

    @routes.get("/{id}", summary="State, best value, bound and result of a job.")
    async def job(job: ExistingJob) -> Response:
        return service.response(job)

    @routes.get(
        "/{id}/events",
        summary="Values, bounds and steps of a job as they come (server-sent events).",
        response_class=EventSourceResponse,
    )
    async def events(
        job: ExistingJob,
        last_event_id: Annotated[int, Header(ge=0)] = 0,
    ) -> AsyncIterator[ServerSentEvent]:
        async for event in service.events(job, last_event_id):
            yield event

    @routes.delete("/{id}", summary="Stop a job; the best so far is its result.")
    async def cancel(job: ExistingJob) -> Response:
        if not job.state.is_final:
            await run_in_threadpool(service.runner.cancel, job)
        return service.response(await service.job(job.id))

    return routes


def _facts(service: Service) -> APIRouter:
    routes = APIRouter(tags=["facts"])

    @routes.get("/schema", summary="JSON Schema of an instance, or of `kind`.")
    def schema(kind: str | None = None) -> dict[str, Any]:
        from ppsolve.solver.views.schema import schema_of

        return schema_of(kind)

    @routes.get("/heuristics", summary="What heuristics do, need and are from.")
    def heuristics() -> list[dict[str, Any]]:
        from ppsolve.solver.api.registry import all_heuristics
        from ppsolve.solver.views.heuristics import heuristic_rows

        return heuristic_rows(list(all_heuristics().values()))

    @routes.get("/instance", summary="The instance that the page shows first, or null.")
    def instance() -> dict[str, Any] | None:
        return service.settings.instance

    @routes.get("/health", summary="Whether jobs can run and be kept.")
    def health(response: Response) -> dict[str, Any]:
        fault = service.runner.fault
        response.status_code = 200 if fault is None else 503
        return {"status": "ok" if fault is None else fault, "version": __version__}

    @routes.get("/metrics", summary="Figures for Prometheus.")
    def metrics() -> PlainTextResponse:
        jobs, is_sound = service.store.counts(), service.runner.fault is None
        text = service.counts.text(jobs, service.pool.waiting, is_sound=is_sound)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    return routes
