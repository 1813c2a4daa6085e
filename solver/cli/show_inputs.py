"""The files that ``ppsolve show`` reads: instances, results, plans, curves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ppsolve.models.core.result import HeuristicEntry, Result, ScheduleDocument
from ppsolve.models.curve import Curve
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import read_json, source_name
from ppsolve.models.instances import Instance
from ppsolve.solver.cli.inputs import validated, warn_of_units
from ppsolve.solver.formats.program import winner_in
from ppsolve.solver.optimize.kinds import (
    CARRIED,
    instance_in,
    is_result,
    owner_in,
    parse_instance,
    refuse_huge_numbers,
)


@dataclass(frozen=True)
class Given:
    """What files hold: an instance, the data of a result, or both; or a curve alone."""

    instance: Instance | None = None
    instance_source: str = ""  # name of its file in errors
    data: Any = None  # parsed JSON of a result, a heuristic's entry or a bare schedule
    source: str = ""  # name of the file of `data` or `curve` in errors
    curve: Curve | None = None

    @cached_property
    def owner(self) -> Result | HeuristicEntry | None:
        """The result or heuristic's entry, None for a bare schedule."""
        return None if self.data is None else owner_in(self.data, self.source)

    @cached_property
    def document(self) -> ScheduleDocument:
        """The schedule of a result that is alone; raises InputError if there is none."""
        written = self.data.get("schedule", self.data)
        if not isinstance(written, dict) or not written.get("ops"):
            raise InputError("there is no schedule in it", source=self.source)
        refuse_huge_numbers(self.data, self.source)
        return validated(ScheduleDocument, written, self.source)

    def with_carried(self) -> Given:
        """Return the same with the instance that the result carries, where it stands alone."""
        if self.instance is not None or self.data is None or self.data.get(CARRIED) is None:
            return self
        instance = instance_in(self.data, self.source)
        return replace(self, instance=instance, instance_source=self.source)


def read_given(files: list[Path]) -> Given:
    """Read one or two files, in either order: an instance is what has a ``kind``.

    Raises
    ------
    InputError
        A file cannot be read, or they do not belong together.
    """
    if len(files) > 2 or [str(file) for file in files] == ["-", "-"]:
        raise InputError("expected an instance, a result, or one of each")
    given = Given()
    for file in files:
        data, source = read_json(file), source_name(file)
        whole = _whole(data, source)
        if whole is not None and len(files) > 1:
            raise InputError("expected this file alone, it needs no other", source=source)
        given = whole or _with(given, data, source)
    return given


def _whole(data: Any, source: str) -> Given | None:
    """Return a plan or a curve, which stand alone; None for other files."""
    kind = data.get("kind") if isinstance(data, dict) else None
    if kind == "curve":
        refuse_huge_numbers(data, source)
        return Given(curve=validated(Curve, data, source), source=source)
    if kind == "plan-result":
        try:
            result, instance, _, _ = winner_in(data)
        except InputError as error:
            raise error.located(source) from None
        return Given(instance, source, result, source)
    return None


def _with(given: Given, data: Any, source: str) -> Given:
    if is_result(data):
        if given.data is not None:
            raise InputError("expected an instance, this is a second result", source=source)
        return replace(given, data=data, source=source)
    if given.instance is not None:
        raise InputError("expected a result (with a schedule) here", source=source)
    instance = parse_instance(data, source)
    warn_of_units(instance, source)
    return replace(given, instance=instance, instance_source=source)
