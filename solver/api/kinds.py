"""The list of kinds, and documents as their instances, results and entries."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from ppsolve.models.core.result import HeuristicEntry, Result
from ppsolve.models.documents.base import (
    MAX_MOMENT,
    as_moment,
    describe,
    field_path,
    leaves,
    validated,
)
from ppsolve.models.documents.contents import (
    INSTANCE,
    RESULT,
    describe_document,
    kind_named,
    refuse_others,
)
from ppsolve.models.documents.errors import (
    ErrorCode,
    InputError,
    errors_in,
)
from ppsolve.models.documents.files import read_json, source_name
from ppsolve.models.instances import Instance

if TYPE_CHECKING:
    from ppsolve.models.core.problem import Problem
    from ppsolve.models.core.schedule import Schedule
    from ppsolve.solver.kinds.kind import Kind

KINDS: dict[str, Kind[Any] | str] = {
    "pipeline": "ppsolve.solver.kinds.pipeline.kind:PIPELINE",
    "graph": "ppsolve.solver.kinds.graph:GRAPH",
    "kfac": "ppsolve.solver.kinds.kfac.kind:KFAC",
    "overlap": "ppsolve.solver.kinds.overlap.kind:OVERLAP",
}
"""Every kind by name, or ``module:name`` until its first use, in the order of reports."""

ENTRY_POINTS = "ppsolve.kinds"
"""Group of entry points in which other packages declare kinds: `Kind` objects by name."""

CARRIED = "instance_document"
"""Field of a result that holds its instance."""


def known_kind(name: str) -> Kind[Any] | None:
    """Import the kind of this name, one of an installed package included; None without any."""
    if name not in KINDS:
        for point in entry_points(group=ENTRY_POINTS, name=name):
            KINDS[name] = point.value
    kind = KINDS.get(name)
    if isinstance(kind, str):
        kind = KINDS[name] = resolve_name(kind)
    return kind


def all_kinds() -> list[Kind[Any]]:
    """Import every kind that is listed, in the order of reports."""
    return [kind for kind in map(known_kind, list(KINDS)) if kind is not None]


def kind_of(instance: Instance) -> Kind[Any]:
    """Return the kind of an instance.

    An `InputError` says that it is no instance, or that no kind has the name in its ``kind``.
    """
    if not isinstance(getattr(instance, "kind", None), str):
        raise InputError(
            f"expected an instance, as load_instance and parse_instance return, got "
            f"{describe(instance)}",
            code=ErrorCode.TYPE,
        )
    kind = known_kind(instance.kind)
    if kind is None:
        raise InputError.unknown(
            "unknown kind", instance.kind, KINDS, source=instance.name, field="kind"
        )
    return kind


def is_result(data: Any) -> bool:
    """Whether parsed JSON is a result, a heuristic's entry or a bare schedule."""
    is_bare = isinstance(data, dict) and "ops" in data and "kind" not in data
    return is_bare or describe_document(data) == RESULT


def parse_instance(data: Any, source: str | None = None) -> Instance:
    """Validate parsed JSON as the instance kind that its ``kind`` names.

    Parameters
    ----------
    data, source
        Parsed JSON, and how errors name it.

    Returns
    -------
    Instance

    Raises
    ------
    InputError
        Names `source`, the field and what would be right.
    """
    if not isinstance(data, dict):
        text = f"expected an object, got {describe(data)}"
        raise InputError(text, source=source, code=ErrorCode.TYPE)
    description = describe_document(data)
    if description is not None and description != INSTANCE:
        raise InputError(description, source=source, code=ErrorCode.TYPE)
    if "kind" not in data:
        text = f"this field is required (one of {', '.join(KINDS)})"
        raise InputError(text, source=source, field="kind", code=ErrorCode.MISSING)
    name = data["kind"]
    kind = known_kind(name) if isinstance(name, str) else None
    if kind is None:
        if not isinstance(name, str):
            raise InputError(
                f"expected one of {', '.join(KINDS)}, got {describe(name)}",
                source=source,
                field="kind",
                code=ErrorCode.TYPE,
                expected=tuple(KINDS),
            )
        raise InputError.unknown(
            "unknown kind", name, KINDS, source=source, field="kind"
        )
    version = data.get("schema", 1)
    if version != 1 or isinstance(version, bool):
        text = f"expected 1 (the only version), got {describe(version)}"
        raise InputError(text, source=source, field="schema", code=ErrorCode.VALUE)
    return kind.parse(data, source)


def read_with_files(path: str | Path) -> Any:
    """Read JSON (``-``: standard input) with the files beside it that its kind lets it name."""
    with errors_in(source_name(path)):
        data = read_json(path)
        name = data.get("kind") if isinstance(data, dict) else None
        kind = known_kind(name) if isinstance(name, str) else None
        return data if kind is None else kind.with_files(data, Path(path).parent)


def load_instance(path: str | Path) -> Instance:
    """Read an instance file (``-``: standard input).

    Raises
    ------
    InputError
        The file cannot be read, is not JSON, or is not a valid instance.
    """
    return parse_instance(read_with_files(path), source_name(path))


def instance_in(
    data: Any, source: str | None = None, *, otherwise: Instance | None = None
) -> Instance:
    """Return the instance that the parsed JSON of a result carries, else `otherwise`.

    An `InputError` names `source`: `data` is no result, or there is no instance at all.
    """
    if not is_result(data):
        refuse_others(data, "a result", RESULT, source)
        raise InputError("expected a result", source=source)
    document = data.get(CARRIED)
    if document is None and otherwise is not None:
        return otherwise
    if document is None:
        text = "this result carries no instance; give the instance too"
        raise InputError(text, source=source, field=CARRIED, code=ErrorCode.MISSING)
    try:
        return parse_instance(document)
    except InputError as error:
        raise error.located(f"{source}: {CARRIED}" if source else CARRIED) from None


def schedule_in(
    data: Any, source: str | None = None, *, otherwise: Instance | None = None
) -> tuple[Instance, Schedule]:
    """Read the instance and the schedule in the parsed JSON of a result, an entry or a schedule.

    `otherwise` is the instance of a document that carries none. An `InputError` names `source`:
    there is no instance or no whole schedule, or its claims contradict each other.
    """
    instance = instance_in(data, source, otherwise=otherwise)
    if data.get("schedule", data.get("ops")) is None:
        raise InputError(
            "there is no schedule in it",
            source=source,
            field="schedule",
            code=ErrorCode.MISSING,
        )
    kind = kind_of(instance)
    problem = kind.lower(instance, document=data)
    schedule, violations = kind.read(instance, problem, data, source)
    if schedule is None or violations:
        wrong = "not a whole schedule" if schedule is None else "it breaks a rule"
        raise InputError(
            f"{wrong}: {violations[0]}",
            source=source,
            field="schedule",
            code=ErrorCode.SCHEDULE,
        )
    return instance, schedule


def lower(instance: Instance, *, exact: bool = False) -> Problem:
    """Lower an instance to the problem that solvers work on, its times in ticks."""
    return kind_of(instance).lower(instance, exact=exact)


def owner_in(
    data: dict[str, Any], source: str | None
) -> Result | HeuristicEntry | None:
    """Return the result or heuristic's entry that a document is, None for a bare schedule.

    An `InputError` names `source`, the first wrong field and what would be right.
    """
    refuse_huge_numbers(data, source)
    named = kind_named(data)
    kind = None if named is None else known_kind(named)
    models = (
        kind.documents(data.get("value_unit")) if kind else (Result, HeuristicEntry)
    )
    if "instance" in data:
        model: type[Result | HeuristicEntry] = models[0]
    elif "name" in data:
        model = models[1]
    else:
        return None
    return validated(model, data, source)


def schedule_of(
    entry: HeuristicEntry, instance: Instance, problem: Problem
) -> Schedule | None:
    """Return the schedule behind a heuristic's entry, with all that its ops wait for.

    It is the heuristic's schedule anew where the entry says the same, else the schedule in the
    entry, else that of its orders; None where it has neither. An `InputError` or `DeadlockError`
    says that they are not of the problem.
    """
    kind = kind_of(instance)
    heuristic = next(
        (h for h in kind.heuristics_of(instance) if h.name == entry.name), None
    )
    if heuristic is not None and (entry.pattern or not heuristic.is_search):
        outcome = kind.run_heuristic(heuristic, instance, problem)
        schedule = outcome.schedule
        if (
            schedule is not None
            and outcome.orders == entry.orders
            and problem.scale.time(schedule.makespan) == entry.makespan
        ):
            return schedule
    followed = stored = None
    if entry.schedule is not None:
        stored = kind.read(instance, problem, entry.model_dump(mode="json"))[0]
    with suppress(*([InputError] if stored else [])):
        if entry.orders is not None:
            followed = kind.follow(instance, problem, entry.orders).schedule
    if stored is None or followed is None or followed.waits is None:
        return stored or followed
    before, after, lag = followed.waits
    kept = stored.start[after] >= stored.end[before] + lag
    return replace(stored, waits=(before[kept], after[kept], lag[kept]))


def refuse_huge_numbers(data: Any, source: str | None) -> None:
    """Refuse numbers that would take the validation of whole numbers forever, or crash it.

    The `InputError` names `source` and the field of the number.
    """
    limit = MAX_MOMENT.adjusted()
    for path, value in leaves(data):
        if isinstance(value, Decimal | int) and Decimal(value).adjusted() > limit:
            try:
                as_moment(value)
            except ValueError as error:
                raise InputError(
                    str(error),
                    source=source,
                    field=field_path(path),
                    code=getattr(error, "code", ErrorCode.VALUE),
                ) from None
