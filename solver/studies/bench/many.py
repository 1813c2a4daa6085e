"""The library's way to solve many instances: answers come as they finish."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from inspect import signature
from typing import Any

from ppsolve.models.core.result import Result
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.instances import Instance
from ppsolve.models.studies.bench.file import Failure
from ppsolve.solver.api import api
from ppsolve.solver.api.kinds import kind_of, known_kind
from ppsolve.solver.run.options import Options, default_workers
from ppsolve.solver.studies.bench.fork_server import STOPPED
from ppsolve.solver.studies.bench.machine import GIB, memory_share
from ppsolve.solver.studies.bench.pool import (
    CallLink,
    Engine,
    Limits,
    LocalEngine,
    wall_cap,
)


@dataclass(frozen=True)
class Answer:
    """Outcome of one instance of `optimize_many`.

    Parameters
    ----------
    index : int
        Its place, from 0.
    result : Result or None
        As from `ppsolve.optimize`; None if the instance failed.
    failure, error : Failure and str, or None
        Kind of failure, and its message.
    """

    index: int
    result: Result | None = None
    failure: Failure | None = None
    error: str | None = None


def optimize_many(
    instances: Iterable[Instance],
    *,
    engine: str | Engine = "local",
    processes: int = 1,
    hard_limit: float | None = None,
    memory_limit: float | None = None,
    stop: threading.Event | None = None,
    **options: Any,
) -> Iterator[Answer]:
    """Optimize instances in processes of their own, and yield answers as they finish.

    A crash, a hang or a lack of memory costs its own instance only. Closing the iterator ends all
    running instances.

    Parameters
    ----------
    instances : iterable of Instance
        Validated instances, taken as they are needed.
    engine : str or Engine
        ``local``, ``dask`` (a cluster of this machine), or an engine such as
        ``DaskEngine(cluster=...)`` of `ppsolve.solver.studies.bench.cluster`.
    processes : int
        Instances that run at once, for the engines ``local`` and ``dask``.
    hard_limit : float or None
        Seconds after which an instance is given up; a little over the time limit by default.
    memory_limit : float or None
        GiB that one may take; by default its share of the memory.
    stop : threading.Event or None
        Once set, from any thread, instances that are being solved are answered with their best
        schedules so far, as `ppsolve.optimize` does, and all others have no answer.
    **options
        Options of `ppsolve.optimize` other than `on_progress` and `began`. By default instances
        that run at once share the processors.

    Returns
    -------
    iterator of Answer
        In order of finish.

    Raises
    ------
    InputError
        An option is unknown or out of range.
    """
    set_up_run = set_up(engine, options, processes, hard_limit, memory_limit)
    return _answers(instances, *set_up_run, CallLink(stop))


def set_up(
    engine: str | Engine,
    options: Mapping[str, Any],
    processes: int,
    hard_limit: float | None,
    memory_limit: float | None,
) -> tuple[Engine, dict[str, Any], Limits]:
    """Return the engine, options and limits of a run; parameters as of `optimize_many`.

    The options get `workers`. Without a `memory_limit` workers of a cluster have that of their own
    machines. An `InputError` says that an option is unknown, has no meaning in another process, or
    is out of range.

    `hard_limit`, `memory_limit`: seconds and GiB of each instance.
    """
    engine = _engine(engine, processes)
    is_local = isinstance(engine, LocalEngine)
    checked = _checked_options(
        options, default_workers() // processes if is_local else 1
    )
    is_kept = not checked.get("deterministic", False)
    memory = None if memory_limit is None else int(memory_limit * GIB)
    limits = Limits(
        hard_limit or wall_cap(checked["time_limit"], is_kept=is_kept),
        memory_share(processes) if memory is None and is_local else memory,
    )
    return engine, checked, limits


def _checked_options(options: Mapping[str, Any], workers: int) -> dict[str, Any]:
    elsewhere = ("on_progress", "began", "stop")
    for name in options:
        if name in elsewhere:
            raise InputError(
                "expected none for many instances: they run elsewhere",
                field=name,
                code=ErrorCode.CONFLICT,
            )
        allowed = signature(api.optimize).parameters.keys() - {"instance", *elsewhere}
        if name not in allowed:
            raise InputError.unknown(
                "unknown option",
                name,
                sorted(allowed),
            )
    settings = {"time_limit": 60.0, "workers": None, **options}
    if settings["workers"] is None:
        settings["workers"] = 1 if settings.get("deterministic") else max(1, workers)
    checked = {field.name for field in fields(Options)}
    Options(**{name: value for name, value in settings.items() if name in checked})
    return settings


def _engine(engine: str | Engine, processes: int) -> Engine:
    if processes < 1:
        raise InputError(
            f"expected at least 1, got {processes}",
            field="processes",
            code=ErrorCode.RANGE,
        )
    if not isinstance(engine, str):
        return engine
    if engine == "local":
        return LocalEngine(processes)
    if engine == "dask":
        from ppsolve.solver.studies.bench.cluster import DaskEngine

        return DaskEngine(processes=processes)
    raise InputError(
        f'expected local, dask or an engine, got "{engine}"',
        field="engine",
        code=ErrorCode.UNKNOWN_NAME,
    )


def _answers(
    instances: Iterable[Instance],
    engine: Engine,
    options: Mapping[str, Any],
    limits: Limits,
    link: CallLink,
) -> Iterator[Answer]:
    solve = partial(_solve, options=dict(options))
    for finished in engine.map(solve, instances, limits, link):
        result = None if finished.value is None else _result(*finished.value)
        yield Answer(finished.index, result, finished.failure, finished.error)


def _solve(instance: Instance, options: dict[str, Any]) -> tuple[str, str, str]:
    """Return the kind, the unit of values and the result as JSON: its parts are made when read."""
    result = api.optimize(instance, stop=STOPPED, **options)
    return (
        instance.kind,
        kind_of(instance).value_unit(instance),
        result.model_dump_json(),
    )


def _result(name: str, unit: str, text: str) -> Result:
    kind = known_kind(name)
    assert kind is not None, "an instance of this kind was solved"
    model, _ = kind.documents(unit)
    return model.model_validate_json(text)
