"""A benchmark run: its instances, what is still to do of its items, and doing it line by line."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import STANDARD_STREAM, read_json, source_name
from ppsolve.models.instances import Instance
from ppsolve.models.studies.bench.file import BenchFile
from ppsolve.models.studies.bench.record import BenchRecord
from ppsolve.solver.api.kinds import NO_INSTANCES, is_result, load_instance, parse_instance
from ppsolve.solver.studies.bench.item import BenchItem, solve_item
from ppsolve.solver.studies.bench.pool import Engine, Limits


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

    Parameters
    ----------
    files : iterable of str
        Files of instances, globs, directories that are searched with all below them, or ``-``.
    tell : callable
        Told in a line of each JSON file of a directory that is no instance.

    Returns
    -------
    list of Source
        In the order given, files of a directory or glob by name.

    Raises
    ------
    InputError
        Nothing is there, or a file is no valid instance.
    """
    return list(_load(files, tell))


def _load(files: Iterable[str], tell: Callable[[str], None]) -> Iterator[Source]:
    for path, is_from_directory in dict(_expand(files)).items():
        if not is_from_directory:
            yield Source(path, load_instance(path))
            continue
        data = read_json(path)
        if _is_instance(data):
            yield Source(path, parse_instance(data, path))
        else:
            tell(f"note: {path} is not an instance, left out")


def _is_instance(data: Any) -> bool:
    """Whether a file of a directory is worth reading: no result, no plan, nothing else."""
    return (
        isinstance(data, dict)
        and "kind" in data
        and not (is_result(data) or data["kind"] in NO_INSTANCES)
    )


def _expand(files: Iterable[str]) -> Iterator[tuple[str, bool]]:
    for file in files:
        path = Path(file)
        if path.is_dir():
            found = list(_json_files(path))
        elif file == STANDARD_STREAM or path.exists() or not glob.has_magic(file):
            yield file, False
            continue
        else:
            found = glob.glob(file, recursive=True)
        if not found:
            raise InputError("no instance files there", source=file)
        for name in sorted(found, key=_human):
            yield name, path.is_dir()


def _json_files(directory: Path) -> Iterator[str]:
    """Yield the files below `directory`, without those in hidden directories such as .venv."""
    for folder, inner, files in os.walk(directory):
        inner[:] = [name for name in inner if not name.startswith(".")]
        for path in (Path(folder, name) for name in files if name.endswith(".json")):
            if path.is_file():
                yield str(path)


def _human(name: str) -> list[tuple[int, Fraction | str]]:
    """Return a key that puts 2 before 10, and 1.5 between 1 and 2."""
    parts = re.split(r"(\d+(?:\.\d+)?)", name)
    return [(0, Fraction(part)) if part[:1].isdecimal() else (1, part) for part in parts]


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
            raise InputError(f'expected a part such as 1/4 or 4/4, got "{text}"', field="--shard")
        return cls(int(match[1]), int(match[2]))

    def has(self, item: BenchItem) -> bool:
        """Return true if an item is in this part."""
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
        self._attempts: dict[str, int] = {}
        if retry_failed:
            self._drop_failed()
        done = {record.key for record in file.records}
        self.waiting = [item for item in items if item.key not in done]

    @property
    def records(self) -> list[BenchRecord]:
        """Records of these items so far."""
        asked = {item.key for item in self._items}
        return [record for record in self._file.records if record.key in asked]

    @property
    def others(self) -> list[BenchRecord]:
        """Records of these instances with other settings or code."""
        asked = {item.key for item in self._items}
        names = {(item.family, item.instance.name) for item in self._items}
        return [
            record
            for record in self._file.records
            if record.key not in asked and (record.family, record.instance) in names
        ]

    def _drop_failed(self) -> None:
        failed = {record.key for record in self.records if record.failure is not None}
        if failed:
            kept = [record for record in self._file.records if record.key not in failed]
            self._attempts = {
                record.key: record.attempts for record in self.records if record.key in failed
            }
            self._file.keep(kept)

    def run(self, engine: Engine, limits: Limits, tell: Callable[[BenchRecord], None]) -> None:
        """Solve what is waiting, and write each record to the file.

        Parameters
        ----------
        engine : Engine
            Where to solve.
        limits : Limits
            Of each item.
        tell : callable
            Takes each record once it is written.
        """
        for finished in engine.map(solve_item, self.waiting, limits):
            item = self.waiting[finished.index]
            record = item.record(finished, self._attempts.get(item.key, 0))
            self._file.append(record)
            tell(record)
