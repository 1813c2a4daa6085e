"""The best-known file: who found which bound of which instance, when and how."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from ppsolve.models.core.problem import Objective
from ppsolve.models.documents.base import Number, StrictModel, Whole
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import read_json, write_text
from ppsolve.models.plan.request import REQUEST_SUFFIX

FILE_NAME = "best_known.json"
SCHEDULES = "best_known_schedules"


class Claim(StrictModel):
    """One bound on the objective, in the instance's time unit, and where it comes from."""

    value: Number
    method: str
    version: str
    date: datetime.date
    seconds: Number
    workers: Annotated[Whole, Field(ge=1)] | None = None


class Entry(StrictModel):
    """What is known of one instance.

    Parameters
    ----------
    objective, time_unit
        As the instance has them.
    status : {"open", "closed"}
        Closed once `lower` equals `upper`.
    upper, lower : Claim, optional
        Value of the best schedule, and the best proven bound.
    schedule : str, optional
        Stored schedule that reaches `upper`, relative to the directory.
    instance_sha256 : str
        Fingerprint of the instance that the claims are about.
    """

    objective: Objective
    time_unit: str
    status: Literal["open", "closed"]
    upper: Claim | None = None
    lower: Claim | None = None
    schedule: str | None = None
    instance_sha256: str

    @property
    def is_closed(self) -> bool:
        """Whether the two bounds meet, whatever `status` says."""
        return (
            self.upper is not None
            and self.lower is not None
            and (self.lower.value == self.upper.value)
        )

    def contradictions(self) -> list[str]:
        """Return what the entry alone shows to be wrong."""
        found = []
        lower, upper = self.lower, self.upper
        if lower is not None and upper is not None and lower.value > upper.value:
            found.append(
                f"lower bound {lower.value} ({lower.method}) is above upper bound {upper.value} "
                f"({upper.method}): one of them is wrong"
            )
        if (self.status == "closed") != self.is_closed:
            found.append(f'status is "{self.status}", the bounds say otherwise')
        if (upper is None) != (self.schedule is None):
            found.append("an upper bound and its schedule must be there together")
        return found


class BestKnown(StrictModel):
    """The whole file; keys are instance files relative to the directory, with ``/``."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    instances: dict[str, Entry] = Field(default_factory=dict)


def load_best_known(directory: Path) -> BestKnown:
    """Read the best-known file of `directory`; an empty one if there is none.

    Raises
    ------
    InputError
        The file is there and not valid.
    """
    path = directory / FILE_NAME
    return BestKnown.parse(read_json(path), str(path)) if path.exists() else BestKnown()


def save_best_known(directory: Path, known: BestKnown) -> None:
    """Write the best-known file whole or not at all, one claim a line, sorted by instance.

    Raises
    ------
    InputError
        An entry contradicts itself (nothing is written), or the file cannot be written.
    """
    path = directory / FILE_NAME
    for name, entry in known.instances.items():
        for message in entry.contradictions():
            raise InputError(message, source=str(path), field=name)
    blocks = [
        f"  {json.dumps(name)}: {_entry_text(known.instances[name])}"
        for name in sorted(known.instances)
    ]
    body = ",\n".join(blocks)
    write_text(path, f'{{"schema": 1, "instances": {{\n{body}\n}}}}\n')


def _entry_text(entry: Entry) -> str:
    fields = entry.model_dump(mode="json", exclude_none=True)
    lines = [f"    {json.dumps(name)}: {json.dumps(value)}" for name, value in fields.items()]
    return "{\n" + ",\n".join(lines) + "}"


def instance_files(directory: Path) -> list[str]:
    """Return the instance files below `directory`, relative to it, sorted.

    Requests for plans (``*.plan.json``) are no instances.

    Raises
    ------
    InputError
        It is no directory, or has no instance file.
    """
    if not directory.is_dir():
        raise InputError("expected a directory of instances", source=str(directory))
    names = sorted(
        path.relative_to(directory).as_posix()
        for path in directory.rglob("*.json")
        if path.name != FILE_NAME and not path.name.endswith(REQUEST_SUFFIX)
    )
    if not names:
        raise InputError("no instance (*.json) below this directory", source=str(directory))
    return names
