"""One line of a file of benchmark results: an instance, what solved it, and how long that took."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from ppsolve.models.core.result import LARGEST, Figure, HeuristicStatus, Status, StopReason
from ppsolve.models.documents.base import StrictModel

MOST_MOMENTS = 200
"""Most entries of `BenchRecord.anytime`: a curve that is drawn needs no more, and a line with them
stays below 10 kB."""

Value = Annotated[Figure, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(allow_inf_nan=False)]
Moment = tuple[Seconds, Value | None, Value | None]
"""Seconds since the start, best value and best bound at that moment."""


class Failure(StrEnum):
    """Why an item has no result."""

    CRASH = "crash"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    ERROR = "error"


class BenchLine(StrictModel):
    """Base of all that stands in a line: numbers are the nearest doubles, no fields are unknown."""

    @field_validator("*", mode="before")
    @classmethod
    def _plain_numbers(cls, value: Any) -> Any:
        return _without_decimals(value)


class BenchHeuristic(BenchLine):
    """One heuristic on one instance; `gap` is (its value - best value) / best value."""

    name: str
    status: HeuristicStatus
    value: Value | None = None
    gap: Share | None = None
    seconds: Seconds | None = None
    reason: str | None = None


class BenchBound(BenchLine):
    """One lower bound by name."""

    name: str
    value: Value


class BenchPeer(BenchLine):
    """Another solver on the same instance, with the same limits."""

    name: str
    status: str
    value: Value | None = None
    bound: Value | None = None
    seconds: Seconds | None = None


class BenchRecord(BenchLine):
    """One item: every heuristic and the solver on one instance, or how that failed.

    `key` is a hash of the instance, the settings, the version and users' code. `gap` is
    (value - bound) / value. `seconds_to_proof` is null where nothing was proved. `machine` names
    processor, cores, memory, platform and versions behind the times.
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    key: str = Field(min_length=1)
    instance: str
    family: str
    path: str | None = None
    kind: str
    ops: int | None = Field(default=None, ge=0)
    objective: str | None = None
    time_unit: str
    status: Status
    value: Value | None = None
    bound: Value | None = None
    bound_by: str | None = None
    best_by: str | None = None
    gap: Share | None = None
    stop_reason: StopReason | None = None
    seconds: Seconds
    seconds_to_best: Seconds | None = None
    seconds_to_proof: Seconds | None = None
    bounds: tuple[BenchBound, ...] = ()
    heuristics: tuple[BenchHeuristic, ...] = ()
    anytime: tuple[Moment, ...] = Field(default=(), max_length=MOST_MOMENTS)
    peers: tuple[BenchPeer, ...] | None = None
    failure: Failure | None = None
    error: str | None = None
    attempts: int = Field(default=1, ge=1)
    time_limit: Seconds | None = None
    settings: dict[str, Any] = Field(default={})
    machine: str

    def line(self) -> bytes:
        """Return the record as one line of a file, its end included."""
        left_out = {"peers"} if self.peers is None else set()
        return self.model_dump_json(exclude=left_out).encode() + b"\n"

    def answer(self) -> dict[str, Any]:
        """Return the part of the record that two runs of one key should share."""
        return {
            "status": self.status.value,
            "value": self.value,
            "bound": self.bound,
            "failure": None if self.failure is None else self.failure.value,
        }


def _without_decimals(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {key: _without_decimals(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_decimals(one) for one in value]
    return value
