"""Engine of many machines: dask's workers, each call there in a watched process of its own.

Dask finds out that a worker is gone and gives its items to others, a bounded number of times; it
also starts workers by Slurm, PBS, LSF and others (dask-jobqueue). Nothing of that is done here.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.studies.bench.file import Failure
from ppsolve.solver.studies.bench.fork_server import EngineError, shared_fork_server
from ppsolve.solver.studies.bench.machine import memory_share
from ppsolve.solver.studies.bench.pool import (
    NO_LINK,
    POOL,
    CallLink,
    Engine,
    Finished,
    Limits,
    LocalEngine,
)


@dataclass(frozen=True)
class ClusterParams:
    """Patience with a cluster."""

    ahead: int = (
        1000  # items that the scheduler holds; fewer let clusters grow more slowly
    )
    connecting: float = 10.0  # seconds in which a scheduler has to answer
    closing: float = (
        30.0  # seconds that a cluster of this machine and a client get to close
    )
    hurried: float = 0.5  # those seconds if the run was interrupted


CLUSTER = ClusterParams()


class DaskEngine(Engine):
    """Runs calls on the workers of a dask cluster.

    `scheduler`: address of the scheduler, or the file that it wrote its address to.
    `cluster`: a cluster of dask's, for example of dask-jobqueue; it is not closed.
    `processes`: workers of a cluster of this machine, where neither is given.
    Raises `InputError`: dask is not installed.
    """

    def __init__(
        self, scheduler: str | None = None, *, cluster: Any = None, processes: int = 1
    ) -> None:
        try:
            import distributed
        except ImportError:
            text = "dask is not installed; install ppsolve[dask]"
            raise InputError(
                text, field="--engine", code=ErrorCode.NOT_INSTALLED
            ) from None
        self._dask = distributed
        self._scheduler, self._cluster, self._processes = scheduler, cluster, processes

    def map(
        self,
        function: Callable[[Any], Any],
        items: Iterable[Any],
        limits: Limits,
        link: CallLink = NO_LINK,
    ) -> Iterator[Finished]:
        """Yield answers as they finish; raises EngineError if the scheduler does not answer.

        Without a limit of memory it is a worker's own limit, shared by its threads.
        """
        waiting = enumerate(items)
        with ExitStack() as stack:
            client = self._client(stack)
            topic = stack.enter_context(self._linked(client, link))
            ended = self._dask.as_completed()
            indices: dict[Any, int] = {}

            def submit(count: int) -> None:
                for index, item in islice(waiting, count):
                    call = function, item, limits
                    future = client.submit(_on_worker, *call, index, topic, pure=False)
                    indices[future.key] = index
                    ended.add(future)

            submit(CLUSTER.ahead)
            while indices:
                future = next(ended)
                finished = self._finished(future, indices.pop(future.key))
                if finished is not None:
                    yield finished
                    submit(1)

    @contextmanager
    def _linked(self, client: Any, link: CallLink) -> Iterator[str | None]:
        """Pass news of calls on, and tell calls to stop; their topic is None without either."""
        if link == NO_LINK:
            yield None
            return
        topic, closed = f"ppsolve-{secrets.token_hex(8)}", threading.Event()
        listener, stop = link.listener, link.stop

        def watch(stop: threading.Event) -> None:
            while not closed.wait(POOL.look):
                if stop.is_set():
                    self._dask.Event(topic, client=client).set()
                    return

        if listener is not None:
            client.subscribe_topic(topic, lambda event: listener(*event[1]))
        if stop is not None:
            threading.Thread(target=watch, args=(stop,), daemon=True).start()
        try:
            yield topic
        finally:
            closed.set()

    def _client(self, stack: ExitStack) -> Any:
        """Return a client of the cluster; leaving `stack` lets go of it and of all items."""
        cluster = self._cluster
        if self._scheduler is None and cluster is None:
            cluster = self._dask.LocalCluster(
                n_workers=self._processes,
                threads_per_worker=1,
                memory_limit=memory_share(self._processes),
                dashboard_address=":0",
                silence_logs=logging.ERROR,
            )
            stack.enter_context(_closed_in_time(cluster))
        try:
            client = self._dask.Client(
                cluster or self._address(), timeout=CLUSTER.connecting
            )
        except (OSError, ValueError) as error:
            raise EngineError(
                f"no dask scheduler at {self._scheduler}: {error}"
            ) from None
        stack.enter_context(_closed_in_time(client))
        return client

    def _address(self) -> str:
        """Return the scheduler's address, which may stand in a file."""
        address = str(self._scheduler)
        if not Path(address).is_file():
            return address
        from ppsolve.models.documents.files import read_json

        data = read_json(address)
        if not isinstance(data, dict) or not isinstance(data.get("address"), str):
            raise InputError(
                "expected the file of a dask scheduler",
                source=address,
                code=ErrorCode.FILE,
            )
        return str(data["address"])

    def _finished(self, future: Any, index: int) -> Finished | None:
        """Return the answer of a call, None where the caller stopped before it began."""
        if future.status == "finished":
            finished: Finished | None = future.result()
            return finished and replace(finished, index=index)
        if future.status == "error":
            error = future.exception()
            if isinstance(error, self._dask.scheduler.KilledWorker):
                count = error.allowed_failures + 1
                words = f"{count} workers were lost while they ran it"
                return Finished(
                    index, failure=Failure.CRASH, error=words, attempts=count
                )
            return Finished(
                index, failure=Failure.ERROR, error=f"{type(error).__name__}: {error}"
            )
        raise EngineError(
            "the dask scheduler has gone; the same command goes on with the rest"
        )


@contextmanager
def _closed_in_time(opened: Any) -> Iterator[None]:
    """Close a client or a cluster at the end of the block, once: a second time may hang."""
    seconds = CLUSTER.closing
    try:
        yield
    except BaseException:
        seconds = CLUSTER.hurried
        raise
    finally:
        with suppress(TimeoutError):
            opened.close(timeout=seconds)


def _on_worker(
    function: Callable[[Any], Any],
    item: Any,
    limits: Limits,
    index: int,
    topic: str | None,
) -> Finished | None:
    """Make a call in a watched process on a worker, while somebody waits for it."""
    from distributed import Event, get_worker

    worker = get_worker()
    key = worker.get_current_task()
    total = worker.memory_manager.memory_limit
    if limits.memory is None and total:
        limits = replace(limits, memory=total // worker.state.nthreads)

    def is_wanted() -> bool:
        task = worker.state.tasks.get(key)
        return task is not None and task.state == "executing"

    def tell(_: int, news: Any) -> None:
        worker.log_event(topic, (index, news))

    link = NO_LINK
    if topic is not None:
        # Dask's event is asked as one of a thread is.
        link = CallLink(cast("threading.Event", Event(topic)), tell)
        if link.stop is not None and link.stop.is_set():
            return None
    engine = LocalEngine(1, shared_fork_server(), is_wanted)
    for finished in engine.map(function, [item], limits, link):
        return finished
    return Finished(0, failure=Failure.ERROR, error="nobody waits for it any more")
