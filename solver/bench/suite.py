"""A benchmark run: what is still to do of a list of items, and doing it line by line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ppsolve.models.bench.file import BenchFile
from ppsolve.models.bench.record import BenchRecord
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.bench.item import BenchItem, solve_item
from ppsolve.solver.bench.pool import Engine, Limits


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
            tell(self._file.append(record))
