"""Program orders in figures: exposed communication, peaks, estimates, and why a pass fails."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from ppsolve.models.core.result import HeuristicEntry, HeuristicStatus
from ppsolve.models.overlap.instance import OverlapInstance
from ppsolve.models.overlap.result import (
    ExposedCollective,
    OverlapEntry,
    OverlapResult,
    ProgramFigures,
)
from ppsolve.solver.overlap.passes import RAISE_FAILURE, STABLE
from ppsolve.solver.render.drawing import heuristic_table
from ppsolve.solver.render.figures import ABSENT, figure, figures, percent
from ppsolve.solver.render.tables import Column, indented, table
from ppsolve.solver.render.wording import entry_status

COMPILED = ("original", "inductor-default")
"""Orders that the best one is compared with: the program's and the compiler's."""

MOST_SHOWN = 5
"""Exposed collectives that are listed unless all are asked for."""

LAST_CAUSES = 4
"""Nodes of the chain behind an exposed collective that are shown unless all are asked for."""

_PLAIN = {RAISE_FAILURE: "raise_comms: several collectives left to come first"}
_OVER_CAP = re.compile(r"memory: (?P<pool>.+) holds (?P<used>\S+) of (?P<cap>\S+) at ")
_COMPLETED = re.compile(r" \(completed: (?P<passes>.+)\)$")


def program_facts(
    found: ProgramFigures,
    makespan: float | None,
    unit: str,
    instance: OverlapInstance | None = None,
    least: float | None = None,
) -> Iterator[tuple[str, str]]:
    """Yield names and values of a program order.

    Caps are known where the instance is; `least` bounds the peak of live bytes from below.
    """
    if found.exposed_wait is not None:
        yield "exposed", exposed_text(found, makespan, unit)
    if found.max_in_flight is not None:
        yield "max in flight", f"{found.max_in_flight}{_flight_cap(instance)}"
    is_capped = instance is not None and instance.max_live_bytes is not None
    if found.peak_live_bytes is not None and (found.peak_live_bytes or is_capped):
        yield "peak live bytes", _peak(found.peak_live_bytes, instance, least)
    if found.estimate is not None:
        yield "own estimate", f"{figure(found.estimate)} {unit} (Inductor's figure, not the time)"


def exposed_text(found: ProgramFigures, makespan: float | None, unit: str) -> str:
    """Return the exposed communication with its share of the makespan."""
    wait = found.exposed_wait
    share = _share(wait, makespan)
    return f"{figure(wait)} {unit}" + (f", {percent(share)} of the makespan" if share else "")


def limited(cap: float | None) -> str:
    """Return a cap, or that there is none."""
    return "no limit" if cap is None else figure(cap)


def _flight_cap(instance: OverlapInstance | None) -> str:
    groups = () if instance is None else instance.groups
    caps = {group: instance.cap_of(group) for group in groups} if instance else {}
    per_group = " per group" if len(groups) > 1 else ""
    if len(set(caps.values())) > 1:
        named = (f"{group}: {limited(cap)}" for group, cap in caps.items())
        return f"{per_group} ({', '.join(named)})"
    cap = next(iter(caps.values()), None)
    return per_group if cap is None else f" of {cap}{per_group}"


def _peak(peak: float, instance: OverlapInstance | None, least: float | None) -> str:
    cap = None if instance is None else instance.max_live_bytes
    texts = figures(peak, None if cap is None else float(cap), least)
    text = texts[0] + ("" if cap is None else f" of {texts[1]}")
    if least is None:
        return text
    proof = "proven least" if peak == least else f"at least {texts[2]}"
    return f"{text} ({proof} at this makespan)"


def overlap_heuristics(
    entries: Sequence[HeuristicEntry], result: OverlapResult, *, verbose: bool
) -> Iterator[RenderableType]:
    """Yield the table of passes and other heuristics, and why some have no valid order.

    Variants without dependence on names are listed only where they differ, unless `verbose`.
    """
    shown = [entry for entry in entries if verbose or not _is_repeated(entry, entries)]
    programs = [e if isinstance(e, ProgramFigures) else ProgramFigures() for e in shown]
    older = [figure(found.estimate_seed) for found in programs] if verbose else None
    yield heuristic_table(
        shown,
        result,
        (Column("gap"), [percent(entry.gap) for entry in shown]),
        (Column("exposed", expendable=1), [figure(found.exposed_wait) for found in programs]),
        (Column("own\nestimate", expendable=2), [figure(found.estimate) for found in programs]),
        (Column("older\nestimate", expendable=3), older),
        (Column("status", is_text=True), [_word(entry, result) for entry in shown]),
    )
    reasons = _reasons(shown, verbose=verbose)
    notes = [f"{reason} ({', '.join(names)})" for reason, names in reasons]
    if len(shown) < len(entries):
        what = f"{STABLE} variants (ties by program order) that change nothing"
        notes.append(f"{what} are not listed (--verbose lists all)")
    for note in notes:
        yield indented(Text(note, "dim"))


def _word(entry: HeuristicEntry, result: OverlapResult) -> str:
    """Return what became of a heuristic in a word; reasons are given below the table."""
    if entry.reason:
        return entry.status.value.replace("_", " ")
    return entry_status(entry, result, verbose=False)


def _reasons(
    entries: Sequence[HeuristicEntry], *, verbose: bool
) -> Iterable[tuple[str, list[str]]]:
    """Return why entries gave no valid order, each reason with the names it holds for."""
    found: dict[str, list[str]] = defaultdict(list)
    for entry in entries:
        if not entry.reason:
            continue
        name, over = entry.name, _OVER_CAP.match(entry.reason)
        if entry.status is HeuristicStatus.FAILED:
            reason = plain_failure(entry.reason, verbose=verbose)
        elif over and not verbose:
            reason = f"{over['pool']} above the cap of {over['cap']}"
            name = f"{name}: {over['used']}"
        else:
            reason = entry.reason
        found[f"{entry.status.value.replace('_', ' ')}, {reason}"].append(name)
    return found.items()


def _is_repeated(entry: HeuristicEntry, entries: Sequence[HeuristicEntry]) -> bool:
    """Whether a variant reaches exactly what its original does."""
    base = entry.name.removesuffix(STABLE)
    return base != entry.name and any(
        (other.status, other.value) == (entry.status, entry.value)
        for other in entries
        if other.name == base
    )


def plain_failure(reason: str, *, verbose: bool = True) -> str:
    """Return why a pass failed: in plain words, then its own ones and what ran before it."""
    completed = _COMPLETED.search(reason)
    own = reason[: completed.start()] if completed else reason
    plain = _PLAIN.get(own)
    if not verbose:
        return plain or own
    after = f"; completed before: {completed['passes']}" if completed else ""
    return (f"{plain} ({own.partition(': ')[2]})" if plain else own) + after


def most_exposed(result: OverlapResult, *, verbose: bool) -> Iterator[RenderableType]:
    """Yield the collectives that the compute stream waits for longest, and why."""
    if not result.exposed:
        return
    shown = result.exposed if verbose else result.exposed[:MOST_SHOWN]
    found = table(
        (Column("exposed collective", is_text=True), [one.name for one in shown]),
        (Column("waited"), [f"{figure(one.waited)} {result.time_unit}" for one in shown]),
        (
            Column("because of", is_text=True, wraps=True),
            [_because(one, verbose=verbose) for one in shown],
        ),
    )
    yield indented(found)
    hidden = len(result.exposed) - len(shown)
    note = "in a chain each node starts when the one before it ends"
    if hidden:
        note = f"and {hidden} more (--verbose lists them); {note}"
    yield indented(Text(note, "dim"))


def _because(collective: ExposedCollective, *, verbose: bool) -> str:
    chain = collective.because
    if not chain:
        return ABSENT
    cut = 0 if verbose else max(len(chain) - LAST_CAUSES, 0)
    return " > ".join([*(["..."] if cut else []), *chain[cut:]])


def overlap_entry_facts(
    entry: OverlapEntry, unit: str, instance: OverlapInstance
) -> Iterator[tuple[str, str]]:
    """Yield names and values of what one heuristic makes of a program."""
    if entry.makespan is not None:
        yield "makespan", f"{figure(entry.makespan)} {unit}"
    yield from program_facts(entry, entry.makespan, unit, instance)
    if entry.estimate is not None:
        older = entry.estimate_seed
        failed = "none: two collectives run at the same time"
        yield "older estimate", failed if older is None else f"{figure(older)} {unit}"


def program_comparison(results: Sequence[OverlapResult], fold_names: bool) -> RenderableType:
    """Return what is exposed and held by the best program orders, and by the default passes."""
    shares = [_share(result.exposed_wait, result.makespan) for result in results]
    return table(
        (Column("program", is_text=True, wraps=fold_names), [r.instance for r in results]),
        (Column("exposed"), [figure(r.exposed_wait) for r in results]),
        (Column("of\nmakespan"), [percent(share) for share in shares]),
        (Column("max in\nflight", expendable=1), [figure(r.max_in_flight) for r in results]),
        (Column("peak live\nbytes", expendable=2), [figure(r.peak_live_bytes) for r in results]),
        *(
            (Column(f"exposed,\n{name}", expendable=3), [_exposed(r, name) for r in results])
            for name in COMPILED
        ),
    )


def _share(wait: float | None, makespan: float | None) -> float | None:
    return wait / makespan if wait is not None and makespan else None


def _exposed(result: OverlapResult, name: str) -> str:
    entry = next((entry for entry in result.heuristics if entry.name == name), None)
    if not isinstance(entry, OverlapEntry):
        return ABSENT
    if entry.status is HeuristicStatus.FEASIBLE:
        return figure(entry.exposed_wait)
    return entry.status.value.replace("_", " ")
