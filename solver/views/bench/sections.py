"""Sections of a report in the order in which people read them, the alarms first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.studies.bench.report import rows
from ppsolve.solver.studies.bench.report.cases import Contradiction, Method
from ppsolve.solver.studies.bench.report.comparison import Comparison, Difference
from ppsolve.solver.studies.bench.report.report import FamilyFigures, Report
from ppsolve.solver.views.figures import ABSENT, counted, percent, seconds
from ppsolve.solver.views.tables import Field, FittingTable, Row, table_of
from ppsolve.solver.views.wording import spaced

texts = Field
notes = partial(Field, wraps=True)  # texts without a known length
counts = partial(Field, show="{:,}".format)
shares = partial(Field, show=percent)
hundredths = partial(Field, show=lambda share: percent(share).removesuffix(" %"))
times = partial(Field, show=seconds)


@dataclass(frozen=True)
class Section:
    """A part of a report."""

    title: str
    notes: tuple[str, ...] = ()  # sentences below the title
    sheet: FittingTable | None = None
    is_alarm: bool = False  # something is wrong, which readers should see first
    family: str | None = None  # that it is about; None where it is about all of them
    picture: str | None = None  # name of the picture that belongs to it


LONG_NAME = 24  # letters; beyond, names of methods and families take several lines
PROFILES, ANYTIME = "profiles", "anytime"

# Definitions below every report.
FOOTER = (
    "gap: (value - bound) / value of ppsolve, 0 where the value is proved optimal.",
    "over best: (value - best) / best, best being the smallest value of any method on the "
    "instance in this file; over the instances that the method solved.",
    "solved: a valid schedule, or a proof that there is none. A heuristic that breaks a rule, such "
    "as a memory limit, is infeasible and its value does not count.",
    "wins: instances on which no method has a smaller value; ties count for each of them.",
    "Performance profile: share of instances on which a method is within a ratio of the best "
    "value. Instances that it did not solve, or that it is not made for, count as never reached.",
    "Mean gap over time: a run counts as 100 % until it has both a value and a bound.",
)


def sections(report: Report) -> Iterator[Section]:
    """Yield the sections of a report; those about single families come last but for machines.

    Where the report names columns its tables keep those, and tables without any are left out, but
    for alarms and methods by family.
    """
    for section in _whole_sections(report):
        sheet = section.sheet
        if (
            sheet is None
            or not report.columns
            or section.is_alarm
            or section.title == GRID
        ):
            yield section
        elif (kept := sheet.kept(report.columns)) is not None:
            yield replace(section, sheet=kept)


def check_columns(report: Report) -> None:
    """Raise `InputError` for a name with which no column of the tables begins."""
    sheets = [part.sheet for part in _whole_sections(report) if part.sheet is not None]
    titles = list(dict.fromkeys(c.title for sheet in sheets for c in sheet.columns[1:]))
    for name in report.columns:
        if not any(title.lower().startswith(name.lower()) for title in titles):
            raise InputError.unknown(
                "no column begins with",
                name,
                titles,
                listed=len(titles),
                field="--columns",
            )


def _whole_sections(report: Report) -> Iterator[Section]:
    yield from _alarms(report)
    every = report.families[0] if len(report.families) == 1 else report.every
    totals = [family.total for family in report.families]
    totals += [every.total] if len(totals) != 1 else []
    alike = tuple(
        f"{n} instances are called {name}." for name, n in report.namesakes.items()
    )
    yield Section("Families", alike, _named(totals, FAMILIES))
    yield _methods("Methods", every)
    if len(report.families) > 1:
        yield _by_family(report)
    if within := with_profiles(every):
        notes = ("Instances in %, by how far a value may be over the best one.",)
        yield Section(
            "Near the best", notes, _named(within, WITHIN_FIELDS), picture=PROFILES
        )
    yield Section("Mean gap over time", picture=ANYTIME)
    if report.reasons:
        yield Section(
            "Why methods have no schedule", sheet=table_of(report.reasons, *REASONS)
        )
    if len(report.families) > 1:
        for family in report.families:
            name = family.total.family
            methods = _methods(f"Methods on {name}", family)
            yield replace(methods, family=name, picture=f"{PROFILES}-{name}")
    yield Section("Machines", tuple(f"{machine}." for machine in report.machines))


GRID = "Methods by family"
BY_FAMILY = (
    "Mean % above the best value of any method, over the instances that the method solved; in "
    "brackets the number of those on which it is infeasible, - where it solved none."
)


def _by_family(report: Report) -> Section:
    """Return the table of methods by families."""
    methods = [row.method for row in report.every.methods]
    cells = {
        family.total.family: {row.method: row for row in family.methods}
        for family in report.families
    }
    fields: list[Field[Method]] = [texts("method", lambda method: method.name)]
    for number, (name, by_method) in enumerate(cells.items(), 1):
        fields.append(Field(name, by_method.get, number, _cell))
    return Section(GRID, (BY_FAMILY,), table_of(methods, *fields))


def _cell(row: rows.MethodRow) -> str:
    mean = (
        "-" if row.excess.mean is None else percent(row.excess.mean).removesuffix(" %")
    )
    return f"{mean} ({row.infeasible:,})" if row.infeasible else mean


def headline(report: Report) -> str:
    """Return the report in one sentence."""
    total = report.every.total
    text = f"{total.instances:,} instances, {total.solved:,} solved, "
    text += f"{total.proved:,} proved, "
    text += f"mean gap {percent(total.gap.mean)}, {total.failures:,} failed, "
    text += seconds(total.seconds)
    if report.comparison is not None:
        text += f", {counted(len(report.comparison.regressions), 'regression')}"
        text += f", {counted(len(report.comparison.improvements), 'improvement')}"
    return text


def about(report: Report, family: str | None = None) -> str:
    """Return instances, time limits and machine of a report, or of one of its families."""
    totals = [
        entry.total for entry in report.families if family in (None, entry.total.family)
    ]
    count = counted(sum(total.instances for total in totals), "instance")
    families = _listed([total.family for total in totals], 3)
    limits = _listed([f"{limit:g} s" for limit in report.time_limits], 3)
    machines = [", ".join(machine.split(", ")[:2]) for machine in report.machines]
    facts = [
        f"{count} of {families}",
        limits,
        _listed(list(dict.fromkeys(machines)), 2),
    ]
    return "; ".join(filter(None, facts))


def origin(report: Report) -> str:
    """Return the files of a report as a line."""
    compared = "" if report.baseline is None else f", compared with {report.baseline}"
    return f"{report.source}{compared}"


def _methods(title: str, family: FamilyFigures) -> Section:
    applicable = [row for row in family.methods if row.not_applicable < row.instances]
    hidden = [row.method.name for row in family.methods if row not in applicable]
    notes = [f"Not applicable to any instance: {', '.join(hidden)}."] if hidden else []
    count = max(row.common.count for row in family.methods)
    excluded = [row.method.name for row in applicable if count and not row.common.count]
    but = f" but {', '.join(excluded)}" if excluded else ""
    among = f"{counted(count, 'instance')} solved by all methods here{but}"
    notes.append(f"%: above the best value of any method. In common: {among}.")
    return Section(
        title,
        tuple(notes),
        _named(applicable, method_fields(count, family.total.family)),
    )


def _named(rows: Sequence[Row], fields: Sequence[Field[Row]]) -> FittingTable:
    """Return a table whose first column, of names, wraps only where one is long."""
    first = fields[0]
    is_long = any(len(first.get(row)) > LONG_NAME for row in rows)
    return table_of(rows, replace(first, wraps=is_long), *fields[1:])


def with_profiles(family: FamilyFigures) -> list[rows.PerformanceProfile]:
    """Return the profiles of methods that solved anything, in the order of the methods."""
    by_method = {
        profile.method: profile for profile in family.profiles if profile.steps
    }
    return [by_method[row.method] for row in family.methods if row.method in by_method]


def _alarms(report: Report) -> Iterator[Section]:
    if report.contradictions:
        note = (
            "These answers cannot all be right: please report them with their instances, "
            "if none is of a function of your own."
        )
        table = table_of(report.contradictions, *CONTRADICTIONS)
        yield Section("Contradictions", (note,), table, is_alarm=True)
    if report.comparison is not None:
        yield from _compared(report.comparison)


def _compared(comparison: Comparison) -> Iterator[Section]:
    worse, better = comparison.regressions, comparison.improvements
    common = comparison.instances
    notes = [f"{common:,} instance{' is' if common == 1 else 's are'} in both files."]
    if comparison.is_other_machine:
        notes.append("They were not all solved on one machine: times say little.")
    if comparison.has_other_limit:
        notes.append("Time limits differ, and so may what was found within them.")
    lists = {"earlier": comparison.only_before, "later": comparison.only_after}
    notes += [
        f"Only in the {which} file: {_listed(names)}."
        for which, names in lists.items()
        if names
    ]
    if not worse:
        notes.append("No regression.")
    table = table_of(worse, *CHANGES) if worse else None
    yield Section("Regressions", tuple(notes), table, is_alarm=bool(worse))
    if better:
        yield Section("Improvements", sheet=table_of(better, *CHANGES))


def _listed(names: Sequence[str], limit: int = 10) -> str:
    excess = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {excess:,} more" if excess > 0 else "")


def _worst_at(spread: rows.Spread) -> str:
    return (spread.worst_at or ABSENT) if spread.worst else ABSENT


def _place(finding: Contradiction | Difference) -> str:
    return f"{finding.family}/{finding.instance}"


FAMILIES: tuple[Field[rows.FamilyRow], ...] = (
    texts("family", lambda row: row.family),
    counts("instances", lambda row: row.instances),
    counts("solved", lambda row: row.solved, 3),
    counts("proved", lambda row: row.proved),
    counts("failed", lambda row: row.failures, 4),
    shares("mean\ngap", lambda row: row.gap.mean),
    shares("median gap", lambda row: row.gap.median, 2),
    shares("worst\ngap", lambda row: row.gap.worst),
    notes("worst on", lambda row: _worst_at(row.gap)),
    times("to best,\nmedian", lambda row: row.to_best.median, 5),
    times("to proof,\nmedian", lambda row: row.to_proof.median, 1),
    times("to proof,\nlongest", lambda row: row.to_proof.worst, 5),
    times("in all", lambda row: row.seconds, 4),
)


def method_fields(common: int, family: str) -> tuple[Field[rows.MethodRow], ...]:
    """Return the columns of methods that have `common` instances in common.

    Names of instances do not repeat that of the family.
    """
    return (
        texts("method", lambda row: row.method.name),
        texts("is", lambda row: row.method.role.value, 6),
        counts("solved", lambda row: row.solved),
        counts("proved", lambda row: row.proved, 6),
        counts("wins", lambda row: row.wins),
        hundredths("mean %", lambda row: row.excess.mean),
        hundredths(f"on {common:,} in\ncommon", lambda row: row.common.mean),
        hundredths("median %", lambda row: row.excess.median, 3),
        hundredths("worst %", lambda row: row.excess.worst),
        notes("worst on", lambda row: _worst_at(row.excess).removeprefix(f"{family}/")),
        counts("infeasible", lambda row: row.infeasible, 1),
        counts("failed", lambda row: row.failed, 4),
        counts("n.a.", lambda row: row.not_applicable, 5),
        times("median time", lambda row: row.seconds.median, 7),
        times("longest time", lambda row: row.seconds.worst, 7),
    )


def _within(excess: float) -> Field[rows.PerformanceProfile]:
    name = "best" if excess == 0 else f"{excess:.0%}\nover"
    priority = rows.WITHIN.index(excess) // 4
    return Field(name, lambda p: p.share(excess), priority, lambda x: f"{100 * x:.3g}")


WITHIN_FIELDS: tuple[Field[rows.PerformanceProfile], ...] = (
    texts("method", lambda profile: profile.method.name),
    *map(_within, rows.WITHIN),
)
REASONS: tuple[Field[rows.ReasonRow], ...] = (
    counts("times", lambda row: row.count),
    texts("status", lambda row: spaced(row.state.value)),
    notes("reason", lambda row: row.reason),
    notes("methods", lambda row: ", ".join(row.methods)),
)
CONTRADICTIONS: tuple[Field[Contradiction], ...] = (
    notes("instance", _place),
    notes("contradiction", lambda one: one.text),
)
CHANGES: tuple[Field[Difference], ...] = (
    texts("what", lambda one: one.change.value),
    notes("instance", _place),
    notes("before", lambda one: one.before),
    notes("after", lambda one: one.after),
    shares("by", lambda one: one.size),
)
