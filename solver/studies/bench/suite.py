"""A benchmark run: its items (instances, settings, users' code), what is still to do, doing it."""

from __future__ import annotations

import glob
import hashlib
import json
import math
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

from ppsolve.models.core.result import (
    Figure,
    HeuristicEntry,
    Result,
    Status,
    StopReason,
)
from ppsolve.models.documents.contents import INSTANCE, describe_document
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.files import STANDARD_STREAM, read_json, source_name
from ppsolve.models.documents.text import fingerprint, instance_data
from ppsolve.models.instances import Instance
from ppsolve.models.studies.bench.file import MOST_MOMENTS, BenchFile, BenchRecord
from ppsolve.solver.api import api
from ppsolve.solver.api.kinds import load_instance, lower, parse_instance
from ppsolve.solver.api.registry import ENTRY_POINTS
from ppsolve.solver.heuristics.own import is_spec, source_of
from ppsolve.solver.run.progress import Progress
from ppsolve.solver.studies.bench.fork_server import STOPPED
from ppsolve.solver.studies.bench.machine import this_machine
from ppsolve.solver.studies.bench.pool import CallLink, Engine, Finished, Limits
from ppsolve.solver.studies.bench.report.groups import natural_key
from ppsolve.solver.studies.generate.instances import DrawnBy


@dataclass(frozen=True)
class BenchItem:
    """An instance with the options of `ppsolve.optimize` that it is solved with."""

    instance: Instance
    family: str  # the name of its folder, or of its recipe
    path: str | None  # its file, if it has one
    options: Mapping[str, Any]  # plain data
    # Of users' heuristics, by `code_of`.
    code: Mapping[str, str] = field(default_factory=dict)
    drawn: DrawnBy | None = None  # where the instance comes from, if it is from no file

    @property
    def settings(self) -> dict[str, Any]:
        """Options other than the time limit, the version that solves, and users' code if any."""
        options = {
            name: value for name, value in self.options.items() if name != "time_limit"
        }
        code = {"code": dict(self.code)} if self.code else {}
        return {**options, **code, "version": version("ppsolve")}

    @property
    def time_limit(self) -> float | None:
        """Limit in seconds, None without one."""
        limit = self.options.get("time_limit")
        return None if limit is None or math.isinf(limit) else float(limit)

    @cached_property
    def content(self) -> str:
        """Hash of the instance's question."""
        return fingerprint(self.instance)

    @cached_property
    def key(self) -> str:
        """Hash of the instance's question, the settings and the version."""
        asked = {
            "instance": self.content,
            "settings": self.settings,
            "time_limit": self.time_limit,
        }
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[
            :32
        ]

    @property
    def origin(self) -> dict[str, Any]:
        """The fields of a record from which the instance can be made again."""
        if self.drawn is None:
            return {"instance_document": instance_data(self.instance)}
        return {"recipe": self.drawn.recipe, "recipe_seed": self.drawn.seed}

    @property
    def factors(self) -> dict[str, str | float]:
        """What reports group by: options of the recipe, and figures of the instance."""
        options = {} if self.drawn is None else self.drawn.options
        texts = {name: str(value) for name, value in options.items()}
        return texts | self.instance.factors

    def record(self, finished: Finished, attempts: int = 0) -> BenchRecord:
        """Return the record of an answer of `solve_item`, or of a failure.

        `attempts`: how often the item was begun before.
        """
        answer = finished.value or {
            "status": Status.UNKNOWN,
            "seconds": _rounded(finished.seconds),
        }
        return BenchRecord.parse(
            {
                "key": self.key,
                "content": self.content,
                "instance": self.instance.name,
                "family": self.family,
                "path": self.path,
                **self.origin,
                "factors": self.factors,
                "kind": self.instance.kind,
                "time_unit": self.instance.time_unit,
                **answer,
                "failure": finished.failure,
                "error": finished.error,
                "attempts": attempts + finished.attempts,
                "time_limit": self.time_limit,
                "settings": self.settings,
                "machine": finished.machine or this_machine(),
            }
        )


def solve_item(item: BenchItem) -> dict[str, Any]:
    """Solve an item; return the fields of its record that say what was found.

    Raises `ChangedCodeError` where a user's heuristic is not the code that the item was asked with.
    """
    check_code(item.options, item.code)
    history = History()
    result = api.optimize(
        item.instance, on_progress=history, stop=STOPPED, **item.options
    )
    return {
        "ops": lower(item.instance, exact=bool(item.options.get("exact"))).num_ops,
        "objective": str(result.objective),
        "status": result.status.value,
        **{
            name: getattr(result, name)
            for name in ("value", "bound", "bound_by", "best_by")
        },
        "gap": result.gap,
        "stop_reason": result.stop_reason.value,
        "seconds": result.wall_seconds,
        "seconds_to_best": history.time_to_best(result),
        "seconds_to_proof": history.time_to_proof(result),
        "bounds": [
            *(bound.model_dump(mode="json") for bound in result.bounds),
            *(
                {"name": bound.name, "value": bound.value}
                for bound in result.own_bounds
                if bound.value is not None
            ),
        ],
        "own_bounds": [bound.model_dump() for bound in result.own_bounds] or None,
        "heuristics": [history.heuristic(entry) for entry in result.heuristics],
        "anytime": history.curve(result),
    }


def _rounded(seconds: float) -> float:
    """Return seconds to a tenth of a millisecond, less than two runs differ by."""
    return round(seconds, 4)


Moment = tuple[float, Figure | None, Figure | None]


class History:
    """Listener that keeps when values and bounds got better, and how long heuristics took."""

    def __init__(self) -> None:
        self._moments: list[Moment] = []
        self._seconds: dict[str, float] = {}
        self._latest = Progress("start", 0.0, "")
        self._began = 0.0

    def __call__(self, event: Progress) -> None:
        """Take note of an event."""
        previous = self._moments[-1][1:] if self._moments else (None, None)
        if (event.incumbent, event.bound) != previous:
            moment = _rounded(event.seconds)
            self._moments.append((moment, event.incumbent, event.bound))
        # Events of a heuristic's own, as better schedules of one that searches, lie in its time.
        if event.source != self._latest.source:
            self._began = self._latest.seconds
        if event.event == "heuristic":
            self._seconds[event.source] = _rounded(event.seconds - self._began)
        self._latest = event

    def heuristic(self, entry: HeuristicEntry) -> dict[str, Any]:
        """Return the entry of a heuristic in a record; it has no time where it was not run."""
        gap = entry.gap
        return {
            "name": entry.name,
            "status": entry.status.value,
            "value": entry.value,
            "gap": gap if gap is None or math.isfinite(gap) else None,
            "seconds": self._seconds.get(entry.name),
            "reason": entry.reason,
        }

    def time_to_best(self, result: Result) -> float | None:
        """Return the seconds after which the best schedule was known, None without one."""
        if result.value is None:
            return None
        times = (
            seconds for seconds, value, _ in self._moments if value == result.value
        )
        return next(times, result.wall_seconds)

    def time_to_proof(self, result: Result) -> float | None:
        """Return the seconds after which the answer was proved, None where it was not."""
        if result.status is Status.INFEASIBLE:
            return result.wall_seconds
        if result.status is not Status.OPTIMAL or result.value is None:
            return None
        proved = (
            seconds
            for seconds, value, bound in self._moments
            if value is not None
            and value == result.value
            and bound is not None
            and bound >= value
        )
        return next(proved, result.wall_seconds)

    def curve(self, result: Result) -> list[Moment]:
        """Return the moments at which value or bound got better, the last as in the result."""
        last = (result.wall_seconds, result.value, result.bound)
        previous = self._moments[-1][1:] if self._moments else (None, None)
        moments = [*self._moments, *([] if previous == last[1:] else [last])]
        return thinned(moments, MOST_MOMENTS)


def thinned(moments: Sequence[Moment], limit: int) -> list[Moment]:
    """Return at most `limit` moments in their order, evenly taken, with the first and the last."""
    if len(moments) <= limit:
        return list(moments)
    step = (len(moments) - 1) / (limit - 1)
    return [moments[round(index * step)] for index in range(limit)]


class ChangedCodeError(Exception):
    """A heuristic's file is not the one that the item was asked with."""


def code_of(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the hash of the file of each user's heuristic or bound that options run.

    Hashes are by the name that was given, sorted; installed heuristics are there too, if all that
    apply are run. Modules that a file imports do not count.

    `options`: keywords of `ppsolve.optimize`; heuristics are given by name.
    """
    return {name: _hash(spec) for name, spec in sorted(set(_own(options)))}


def check_code(options: Mapping[str, Any], expected: Mapping[str, str]) -> None:
    """Raise `ChangedCodeError` if a heuristic's file is not what it was when the run began.

    `expected`: what `code_of` returned then.
    """
    for name, digest in code_of(options).items():
        if expected.get(name) != digest:
            raise ChangedCodeError(f"{name} is not the code that the run began with")


def _own(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    heuristics = options.get("heuristics")
    own = (*options.get("more_heuristics", ()), *options.get("bounds", ()))
    for function in (*(heuristics or ()), *own):
        if is_spec(function):
            yield function, function
    if heuristics is None:
        yield from _installed()


@cache
def _installed() -> tuple[tuple[str, str], ...]:
    return tuple(
        (point.name, point.value) for point in entry_points(group=ENTRY_POINTS)
    )


def _hash(spec: str) -> str:
    path = source_of(spec)
    try:
        data = b"" if path is None else path.read_bytes()
    except OSError:
        data = b""
    return hashlib.sha256(data).hexdigest()[:16]


@dataclass(frozen=True)
class Source:
    """An instance and the file that it is from; ``-`` is standard input."""

    path: str
    instance: Instance

    @property
    def family(self) -> str:
        """Name of the folder of the file."""
        if self.path == STANDARD_STREAM:
            return source_name(self.path)
        return Path(self.path).resolve().parent.name


def collect(files: Iterable[str], tell: Callable[[str], None]) -> list[Source]:
    """Read all instances that files, globs and directories name, each file once.

    They are in the order given, files of a directory or glob by name. An `InputError` says that
    nothing is there, or that a file is no valid instance.

    `files`: files of instances, globs, directories that are searched with all below them, or ``-``.
    `tell`: told in a line of each JSON file of a directory that is no instance.
    """
    return list(_load(files, tell))


def _load(files: Iterable[str], tell: Callable[[str], None]) -> Iterator[Source]:
    for path, is_from_directory in dict(_expand(files)).items():
        if not is_from_directory:
            yield Source(path, load_instance(path))
            continue
        data = read_json(path)
        if describe_document(data) == INSTANCE:
            yield Source(path, parse_instance(data, path))
        else:
            tell(f"note: {path} is not an instance, left out")


def _expand(files: Iterable[str]) -> Iterator[tuple[str, bool]]:
    for file in files:
        path = Path(file)
        if path.is_dir():
            paths = list(_json_files(path))
        elif file == STANDARD_STREAM or path.exists() or not glob.has_magic(file):
            yield file, False
            continue
        else:
            paths = glob.glob(file, recursive=True)
        if not paths:
            raise InputError(
                "no instance files there", source=file, code=ErrorCode.MISSING
            )
        for name in sorted(paths, key=natural_key):
            yield name, path.is_dir()


def _json_files(directory: Path) -> Iterator[str]:
    """Yield the files below `directory`, without those in hidden directories such as .venv."""
    for folder, inner, files in os.walk(directory):
        inner[:] = [name for name in inner if not name.startswith(".")]
        for path in (Path(folder, name) for name in files if name.endswith(".json")):
            if path.is_file():
                yield str(path)


@dataclass(frozen=True)
class Shard:
    """One of several parts that items are divided into by their keys, whatever their order."""

    number: int = 1
    of: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``2/8``, the second of eight; raises InputError for other texts."""
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise InputError(
                f'expected a part such as 1/4 or 4/4, got "{text}"',
                field="--shard",
                code=ErrorCode.SYNTAX,
            )
        return cls(int(match[1]), int(match[2]))

    def has(self, item: BenchItem) -> bool:
        """Whether an item is in this part."""
        return int(item.key, 16) % self.of == self.number - 1


def distinct(
    items: Iterable[BenchItem],
) -> tuple[list[BenchItem], list[tuple[BenchItem, BenchItem]]]:
    """Return items whose questions differ, and each other item with the one that it equals."""
    first: dict[str, BenchItem] = {}
    doubles = []
    for item in items:
        same = first.setdefault(item.key, item)
        if same is not item:
            doubles.append((item, same))
    return list(first.values()), doubles


class Suite:
    """Items with different keys, and the open file of their results.

    Items that have a record are not run again, except failed ones with `retry_failed`.
    """

    def __init__(
        self, items: Sequence[BenchItem], file: BenchFile, *, retry_failed: bool = False
    ) -> None:
        self._items, self._file = items, file
        self._asked = {item.key for item in items}
        self._attempts: dict[str, int] = {}
        if retry_failed:
            self._drop_failed()
        done = {record.key for record in file.records}
        self.waiting = [item for item in items if item.key not in done]

    @property
    def records(self) -> list[BenchRecord]:
        """Records of these items so far."""
        return [record for record in self._file.records if record.key in self._asked]

    @property
    def others(self) -> list[BenchRecord]:
        """Records of these instances with other settings or code."""
        identities = {
            (i.family, i.instance.name, c)
            for i in self._items
            for c in (None, i.content)
        }
        return [
            record
            for record in self._file.records
            if record.key not in self._asked
            and (record.family, record.instance, record.content) in identities
        ]

    def _drop_failed(self) -> None:
        failed = {record.key for record in self.records if record.failure is not None}
        if failed:
            kept = [record for record in self._file.records if record.key not in failed]
            self._attempts = {
                record.key: record.attempts
                for record in self.records
                if record.key in failed
            }
            self._file.keep(kept)

    def run(
        self,
        engine: Engine,
        limits: Limits,
        tell: Callable[[BenchRecord], None],
        stop: threading.Event | None = None,
    ) -> None:
        """Solve what is waiting, write each record to the file, and tell of it.

        `stop`: once set, what has not ended stays waiting.
        """
        for finished in engine.map(solve_item, self.waiting, limits, CallLink(stop)):
            item = self.waiting[finished.index]
            record = item.record(finished, self._attempts.get(item.key, 0))
            if record.stop_reason is StopReason.CANCELLED:
                continue
            self._file.append(record)
            tell(record)
