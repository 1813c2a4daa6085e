"""Records of a report with the best known values, each method's outcome, and contradictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from operator import attrgetter

from ppsolve.models.core.result import HeuristicStatus, Status
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.studies.bench.file import BenchPeer, BenchRecord

OURS = "ppsolve"
PROVED = (Status.OPTIMAL, Status.INFEASIBLE)

TOLERANCE = 1e-9
"""Relative difference up to which values count as equal: that of the checker."""

Identity = tuple[str | None, ...]
"""Family, name and content of an instance, its objective where that is not known, and settings
where they tell two records apart."""


class Role(StrEnum):
    """What a method is."""

    OURS = "ours"
    PEER = "peer"
    HEURISTIC = "heuristic"


class OutcomeState(StrEnum):
    """How a method ended on an instance."""

    SOLVED = "solved"
    INFEASIBLE = "infeasible"
    NOT_APPLICABLE = "not_applicable"
    FAILED = "failed"


@dataclass(frozen=True, order=True)
class Method:
    """A method by its role and name; ours is the solver with all that it runs."""

    role: Role
    name: str


@dataclass(frozen=True)
class Outcome:
    """The outcome of one method on one instance."""

    method: Method
    state: OutcomeState  # solved: it has a valid schedule, or proved that there is none
    value: float | None = (
        None  # of its schedule, in the unit of the instance's objective
    )
    bound: float | None = None  # lower bound that it proved
    proved: bool = False  # whether it proved its answer
    seconds: float | None = None  # wall time
    reason: str | None = None  # why it has no schedule


@dataclass(frozen=True)
class ScoredRecord:
    """A record with the best value that any record has for its instance."""

    record: BenchRecord
    outcomes: tuple[Outcome, ...]  # of ours, of peers and of heuristics
    best: float | None  # least value that any method reached

    @property
    def family(self) -> str:
        """The family of the instance."""
        return self.record.family

    @property
    def name(self) -> str:
        """The instance's name within its family."""
        return self.record.instance

    @property
    def label(self) -> str:
        """Family and name."""
        return f"{self.family}/{self.name}"

    @cached_property
    def bounds(self) -> dict[str, float]:
        """Lower bounds by name: of each rule, of our run as a whole, and of peers."""
        bounds = {bound.name: float(bound.value) for bound in self.record.bounds}
        for outcome in self.outcomes:
            if outcome.bound is not None:
                bounds[f"{outcome.method.name}, in the end"] = outcome.bound
        return bounds

    def excess(self, value: float | None) -> float | None:
        """Return (value - best) / best; None without a value, or where best is 0 and value not."""
        if value is None or self.best is None:
            return None
        if is_equal(value, self.best):
            return 0.0
        return (value - self.best) / self.best if self.best else None

    def is_best(self, outcome: Outcome) -> bool:
        """Whether no method has a smaller value."""
        return self.excess(outcome.value) == 0.0


def is_equal(value: float, reference: float) -> bool:
    """Whether two values differ by at most `TOLERANCE` of the larger one, as rounding does."""
    return math.isclose(value, reference, rel_tol=TOLERANCE)


def is_above(value: float, reference: float, tolerance: float = TOLERANCE) -> bool:
    """Whether a value is above another one by more than a share of the larger one."""
    return value - reference > max(tolerance, TOLERANCE) * max(
        abs(value), abs(reference)
    )


def written(value: float | None) -> str:
    """Return a value in digits, or none."""
    return "none" if value is None else f"{value:,.10g}"


def instances(
    files: Iterable[Sequence[BenchRecord]],
) -> Callable[[BenchRecord], Identity]:
    """Return the identity of instances, whatever the versions: by content if all records tell."""
    is_told = all(record.content for records in files for record in records)
    return attrgetter("family", "instance", "content" if is_told else "objective")


def _settings(record: BenchRecord) -> Identity:
    """Return the settings that people choose."""
    names = ("deterministic", "deterministic_limit", "gap", "seed", "workers")
    return (
        repr(record.time_limit),
        *(repr(record.settings.get(name)) for name in names),
    )


def identities(
    files: Sequence[Sequence[BenchRecord]],
) -> Callable[[BenchRecord], Identity]:
    """Return the shortest identity that tells the records of each file apart."""
    named = instances(files)
    repeated = any(len({*map(named, records)}) < len(records) for records in files)
    return (lambda record: (*named(record), *_settings(record))) if repeated else named


def by_identity(
    records: Sequence[BenchRecord], name: Callable[[BenchRecord], Identity], source: str
) -> dict[Identity, BenchRecord]:
    """Return the records of one file by identity, in the order of the file.

    An `InputError` says that an instance appears twice with the same settings.

    `name`: returns the identity of a record.
    `source`: name of the file.
    """
    indexed: dict[Identity, BenchRecord] = {}
    for number, record in enumerate(records, 1):
        if name(record) in indexed:
            raise InputError(
                f'"{record.instance}" of family "{record.family}" appears twice with the same '
                "settings: expected one record of it in a file that is compared",
                source=f"{source}: line {number}",
                field="instance",
                code=ErrorCode.CONFLICT,
            )
        indexed[name(record)] = record
    return indexed


def cases_of(records: Sequence[BenchRecord]) -> list[ScoredRecord]:
    """Return the case of every record; records of one instance share their best value."""
    by_record = [tuple(_outcomes(record)) for record in records]
    identity = instances([records])
    best: dict[Identity, float] = {}
    for record, outcomes in zip(records, by_record, strict=True):
        values = [outcome.value for outcome in outcomes if outcome.value is not None]
        if values:
            best[identity(record)] = min(*values, best.get(identity(record), values[0]))
    return [
        ScoredRecord(record, outcomes, best.get(identity(record)))
        for record, outcomes in zip(records, by_record, strict=True)
    ]


def _outcomes(record: BenchRecord) -> Iterator[Outcome]:
    yield _ours(record)
    for peer in record.peers or ():
        yield _of_peer(peer)
    for entry in record.heuristics:
        is_solved = entry.status is HeuristicStatus.FEASIBLE
        yield Outcome(
            Method(Role.HEURISTIC, entry.name),
            OutcomeState.SOLVED if is_solved else OutcomeState(entry.status.value),
            value=_number(entry.value) if is_solved else None,
            seconds=entry.seconds,
            reason=entry.reason,
        )


def _ours(record: BenchRecord) -> Outcome:
    is_solved = record.value is not None or record.status is Status.INFEASIBLE
    failed = record.failure is not None
    reason = (
        f"{record.failure}: {record.error or 'no message'}"
        if failed
        else "no schedule found"
    )
    return Outcome(
        Method(Role.OURS, OURS),
        OutcomeState.SOLVED if is_solved else OutcomeState.FAILED,
        value=_number(record.value),
        bound=_number(record.bound),
        proved=record.status in PROVED and not failed,
        seconds=record.seconds,
        reason=None if is_solved else reason,
    )


def _of_peer(peer: BenchPeer) -> Outcome:
    status = peer.status.upper()
    is_found = status in {Status.OPTIMAL, Status.FEASIBLE} and peer.value is not None
    is_proved = is_found if status == Status.OPTIMAL else status == Status.INFEASIBLE
    is_made_for_others = peer.status == OutcomeState.NOT_APPLICABLE
    unsolved = (
        OutcomeState.NOT_APPLICABLE if is_made_for_others else OutcomeState.FAILED
    )
    return Outcome(
        Method(Role.PEER, peer.name),
        OutcomeState.SOLVED if is_found or is_proved else unsolved,
        value=_number(peer.value) if is_found else None,
        bound=_number(peer.bound),
        proved=is_proved,
        seconds=peer.seconds,
        reason=None if is_found or is_proved else f"status {peer.status}",
    )


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


@dataclass(frozen=True)
class Contradiction:
    """Two answers on one instance that cannot both be right."""

    family: str
    instance: str
    text: str


def contradictions(cases: Sequence[ScoredRecord]) -> list[Contradiction]:
    """Return bounds above values, and proofs of infeasibility beside schedules."""
    return [
        Contradiction(case.family, case.name, text)
        for case in cases
        if case.best is not None
        for text in _contradictions(case, case.best)
    ]


def _contradictions(case: ScoredRecord, best: float) -> Iterator[str]:
    names = [outcome.method.name for outcome in case.outcomes if case.is_best(outcome)]
    by = f"the value {best:,.10g} of {', '.join(names) or 'another run'}"
    for name, bound in case.bounds.items():
        if is_above(bound, best):
            yield f'the bound "{name}" {bound:,.10g} is above {by}'
    for outcome in case.outcomes:
        name = outcome.method.name
        if outcome.proved and outcome.value is None:
            yield f"{name} calls it infeasible, beside {by}"
        elif (
            outcome.proved
            and outcome.value is not None
            and is_above(outcome.value, best)
        ):
            yield f"{name} calls {outcome.value:,.10g} optimal, which is above {by}"
