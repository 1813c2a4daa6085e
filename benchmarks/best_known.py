"""Prove the best-known bounds of instances again, or improve them.

    python benchmarks/best_known.py verify [DIR]
    python benchmarks/best_known.py update [DIR] --time-limit 60 --only 'uniform/*'

Exit codes: 0 all is well, 2 the files cannot be used, 5 a bound is wrong or contradicts what is
known, 130 interrupted.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from fractions import Fraction
from functools import partial
from pathlib import Path

from best_known_files import (
    SCHEDULES,
    BestKnown,
    Claim,
    Entry,
    StoredSchedule,
    load_best_known,
    save_best_known,
)
from shipped import BEST_KNOWN, INSTANCES, instance_files

import ppsolve
from ppsolve import InputError, Instance, Objective, Result
from ppsolve.models.documents.base import as_decimal
from ppsolve.models.documents.printable import printable
from ppsolve.models.documents.text import fingerprint
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.studies.bench.machine import this_machine

WRONG, USAGE, INTERRUPTED = 5, 2, 130

SHOWN_VIOLATIONS = 3

EXACT_TICKS = 10**9
"""Below this many ticks the checker's tolerance, 1e-9 of the makespan, is less than one tick, so
that values which it takes for equal are equal."""


@dataclass(frozen=True)
class Verified:
    """Outcome for one instance file; no problems means that all of it was proven again."""

    name: str
    entry: Entry | None
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Updated:
    """Outcome for one instance: its entry before and after, and what is wrong if anything is."""

    name: str
    before: Entry | None
    after: Entry | None
    problem: str | None = None


def verify(directory: Path) -> Iterator[Verified]:
    """Yield, for every instance file and every entry of the best-known file, what is wrong.

    Checked are the entry itself (lower <= upper, closed if and only if equal), that it is about
    the instance as it is now, that the stored schedule breaks no rule and has the upper bound as
    its value, and that no analytic lower bound exceeds the upper bound. A lower bound found by
    search is not proven again: that takes as long as finding it.

    Raises
    ------
    InputError
        The directory has no instances, or its best-known file is missing or not valid.
    """
    files = instance_files(directory)
    path = directory / BEST_KNOWN
    if not path.exists():
        raise InputError(
            'no such file; "best_known.py update" makes it', source=str(path)
        )
    known = load_best_known(directory).instances
    for name in files:
        entry = known.get(name)
        if entry is None:
            yield Verified(name, None, (f"no entry in {BEST_KNOWN}",))
            continue
        try:
            problems = _entry_problems(
                directory, entry, ppsolve.load_instance(directory / name)
            )
        except InputError as error:
            problems = [str(error)]
        yield Verified(name, entry, tuple(problems))
    for name in sorted(known.keys() - set(files)):
        yield Verified(name, known[name], ("an entry, but no such instance file",))


def _entry_problems(directory: Path, entry: Entry, instance: Instance) -> list[str]:
    problems = entry.contradictions()
    if entry.instance_sha256 != fingerprint(instance):
        return [*problems, "the instance has changed since; run the update again"]
    # Bounds are what is asked for: gpipe, which takes no time, keeps all heuristics from running.
    analytic = ppsolve.optimize(instance, time_limit=0, heuristics=["gpipe"])
    problems += _description_problems(entry, instance, analytic)
    problems += _stored_problems(directory, entry, instance)
    return [*problems, *_bound_problems(entry, analytic)]


def _description_problems(
    entry: Entry, instance: Instance, analytic: Result
) -> Iterator[str]:
    if (entry.objective, entry.time_unit) != (analytic.objective, analytic.time_unit):
        yield (
            f"the entry has {entry.objective} in {entry.time_unit}, the instance "
            f"{analytic.objective} in {analytic.time_unit}"
        )
    ops = lower(instance).num_ops
    if (entry.ops, entry.kind) != (ops, instance.kind):
        yield (
            f"the entry has {entry.ops} ops of kind {entry.kind}, the instance {ops} of "
            f"{instance.kind}"
        )


def _stored_problems(directory: Path, entry: Entry, instance: Instance) -> list[str]:
    if entry.schedule is None or entry.upper is None:
        return []
    path = directory / entry.schedule
    try:
        return schedule_problems(instance, StoredSchedule.load(path), entry)
    except InputError as error:
        raise error.located(str(path)) from None


def schedule_problems(
    instance: Instance, stored: StoredSchedule, entry: Entry
) -> list[str]:
    """Return the faults of the schedule of an upper bound: broken rules, another value.

    Parameters
    ----------
    instance : Instance
        What the schedule is for.
    stored : StoredSchedule
        The schedule.
    entry : Entry
        Has the upper bound that the schedule must have as its value.

    Returns
    -------
    list of str
        Empty if the bound is proven; at most `SHOWN_VIOLATIONS` broken rules are written out.

    Raises
    ------
    InputError
        The schedule is of another instance.
    """
    assert entry.upper is not None
    claims = stored.claims
    absent = ppsolve.check(instance, {"ops": [], **claims})
    rows = stored.rows(name for violation in absent for name in violation.ops)
    document = {
        "value": entry.upper.value,
        "iterations_of": stored.iterations,
        **claims,
        "schedule": {"ops": rows},
    }
    broken = ppsolve.check(instance, document)
    problems = [str(violation) for violation in broken[:SHOWN_VIOLATIONS]]
    if len(broken) > SHOWN_VIOLATIONS:
        problems.append(f"{len(broken) - SHOWN_VIOLATIONS} more broken rules")
    if entry.objective is Objective.ITERATIONS:
        return problems  # whole numbers, which the checker compares without a tolerance
    return [*problems, *_inexact(stored, entry)]


def _inexact(stored: StoredSchedule, entry: Entry) -> Iterator[str]:
    """Yield why the checker's tolerance may hide a difference of the bound to the schedule."""
    assert entry.upper is not None
    tick, value = Fraction(stored.tick), Fraction(entry.upper.value)
    if float(round(value / tick) * tick) != float(value):
        yield f"the upper bound {entry.upper.value} is no multiple of the schedule's tick {tick}"
    if entry.objective is not Objective.MAKESPAN:
        # A span begins at some start: what is above is then more than the makespan.
        value += stored.last_start * tick
    if value / tick >= EXACT_TICKS:
        yield f"a schedule of {EXACT_TICKS:,} ticks or more cannot be compared exactly"


def _bound_problems(entry: Entry, analytic: Result) -> Iterator[str]:
    upper = entry.upper
    if upper is None:
        return
    if analytic.status is ppsolve.Status.INFEASIBLE:
        yield f"proven infeasible: {analytic.reason}"
    elif analytic.bound is not None and as_decimal(analytic.bound) > upper.value:
        by, bound = analytic.bound_by, analytic.bound
        yield f"the {by} bound {bound} is above the upper bound {upper.value}"


def update(
    directory: Path,
    *,
    time_limit: float = 60.0,
    only: str | None = None,
    workers: int | None = None,
    seed: int = 0,
    again: bool = False,
    today: datetime.date | None = None,
) -> Iterator[Updated]:
    """Solve the instances below `directory` and keep whatever is better than what is known.

    The file is written, whole or not at all, after each instance. What optimize returns is
    checked before it is believed; a result that contradicts what is known changes nothing.

    Parameters
    ----------
    directory : Path
        Instance files, and the best-known file that is made or improved.
    time_limit : float
        Seconds per instance.
    only : str, optional
        Pattern such as ``uniform/*``; other instances are left alone.
    workers, seed
        As for `ppsolve.optimize`.
    again : bool
        Solve closed instances too.
    today : datetime.date, optional
        Date of new claims.

    Raises
    ------
    InputError
        No instance matches, one is not valid, or the file cannot be read or written.
    """
    names = [
        name
        for name in instance_files(directory)
        if only is None or fnmatch(name, only)
    ]
    if not names:
        raise InputError(f'no instance matches "{only}"', source=str(directory))
    day = today or datetime.datetime.now(datetime.UTC).date()
    for name in names:
        instance = ppsolve.load_instance(directory / name)
        before = _known_of(load_best_known(directory), name, instance)
        if before is not None and before.is_closed and not again:
            yield Updated(name, before, before)
            continue
        result = ppsolve.optimize(
            instance, time_limit=time_limit, workers=workers, seed=seed
        )
        # Read again: another process may have written the file since.
        known = load_best_known(directory)
        before = _known_of(known, name, instance)
        outcome = _merged(directory, name, instance, before, result, day)
        if outcome.problem is None and outcome.after is not None:
            _save(directory, known, name, outcome.after)
        yield outcome


def _save(directory: Path, known: BestKnown, name: str, entry: Entry) -> None:
    entries = {**known.instances, name: entry}
    save_best_known(directory, known.model_copy(update={"instances": entries}))


def _known_of(known: BestKnown, name: str, instance: Instance) -> Entry | None:
    """Return the entry of an instance unless it is about an older version of it."""
    entry = known.instances.get(name)
    if entry is None or entry.instance_sha256 != fingerprint(instance):
        return None
    return entry


def _merged(
    directory: Path,
    name: str,
    instance: Instance,
    before: Entry | None,
    result: Result,
    day: datetime.date,
) -> Updated:
    fresh = _entry_of(name, instance, result, day)
    stored = StoredSchedule.of(result) if result.schedule is not None else None
    if wrong := _result_problems(instance, result, stored, fresh):
        return Updated(
            name, before, before, "optimize returned a wrong result: " + wrong[0]
        )
    replaces = _replaces_schedule(directory, instance, before, fresh)
    after = _better_of(before, fresh, take_upper=replaces)
    if contradictions := after.contradictions():
        return Updated(name, before, before, "CONTRADICTION: " + contradictions[0])
    if replaces and stored is not None and fresh.schedule is not None:
        stored.save(directory / fresh.schedule)
    return Updated(name, before, after)


def _entry_of(
    name: str, instance: Instance, result: Result, day: datetime.date
) -> Entry:
    versions = result.versions
    claim = partial(
        Claim,
        version=f"ppsolve {versions.ppsolve}, ortools {versions.ortools or 'not used'}",
        machine=printable(this_machine()),
        date=day,
        seconds=round(as_decimal(result.wall_seconds), 2),
        workers=result.workers,
    )
    reached, proved = (
        None
        if value is None
        else claim(value=as_decimal(value), method=by or "unknown")
        for value, by in (
            (result.value, result.best_by),
            (result.bound, result.bound_by),
        )
    )
    return Entry(
        kind=str(instance.kind),
        ops=lower(instance).num_ops,
        objective=result.objective,
        time_unit=result.time_unit,
        status="open",
        upper=reached,
        lower=proved,
        schedule=None if reached is None else f"{SCHEDULES}/{name}.gz",
        instance_sha256=fingerprint(instance),
    )


def _result_problems(
    instance: Instance, result: Result, stored: StoredSchedule | None, fresh: Entry
) -> list[str]:
    """Return the faults of a result, and of the entry that would be stored of it."""
    if fresh.upper is None:
        return []
    if stored is None:
        return ["a value without a schedule"]
    violations = [str(violation) for violation in ppsolve.check(instance, result)]
    return violations or schedule_problems(instance, stored, fresh)


def _replaces_schedule(
    directory: Path, instance: Instance, before: Entry | None, fresh: Entry
) -> bool:
    """Return whether the fresh upper bound is better, or as good and the stored one unproven."""
    if fresh.upper is None:
        return False
    if before is None or before.upper is None or before.schedule is None:
        return True
    if fresh.upper.value != before.upper.value:
        return fresh.upper.value < before.upper.value
    try:
        return bool(_stored_problems(directory, before, instance))
    except InputError:
        return True


def _better_of(before: Entry | None, fresh: Entry, *, take_upper: bool) -> Entry:
    lowers = [
        entry.lower for entry in (before, fresh) if entry is not None and entry.lower
    ]
    lower_claim = max(lowers, key=lambda claim: claim.value, default=None)
    best = fresh if take_upper or before is None else before
    merged = best.model_copy(update={"lower": lower_claim})
    return merged.model_copy(
        update={"status": "closed" if merged.is_closed else "open"}
    )


def report_verified(directory: Path) -> int:
    """Print what `verify` finds; return the exit code."""
    total = wrong = 0
    for verified in verify(directory):
        total += 1
        wrong += bool(verified.problems)
        for problem in verified.problems:
            print(f"WRONG {verified.name}: {problem}")
        if not verified.problems:
            print(f"ok    {verified.name}: {verified.entry}", flush=True)
    print(
        f"{total - wrong} of {total} verified" + (f", {wrong} wrong" if wrong else "")
    )
    return WRONG if wrong else 0


def report_updated(outcomes: Iterator[Updated]) -> int:
    """Print what `update` does; return the exit code."""
    wrong = 0
    for outcome in outcomes:
        if outcome.problem is not None:
            wrong += 1
            print(f"WRONG {outcome.name}: {outcome.problem}", file=sys.stderr)
            continue
        word = "same  " if outcome.after == outcome.before else "better"
        print(f"{word} {outcome.name}: {outcome.after}", flush=True)
    return WRONG if wrong else 0


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", required=True)
    verifying = actions.add_parser("verify", help="prove every upper bound again")
    updating = actions.add_parser(
        "update", help="solve open instances, keep better bounds"
    )
    for action in (verifying, updating):
        action.add_argument("directory", nargs="?", type=Path, default=INSTANCES)
    updating.add_argument(
        "--time-limit", type=float, default=60.0, help="seconds per instance"
    )
    updating.add_argument("--only", help='only files that match, e.g. "uniform/*"')
    updating.add_argument("--workers", type=int, help="search workers")
    updating.add_argument("--seed", type=int, default=0, help="seed of the search")
    updating.add_argument(
        "--again", action="store_true", help="solve closed instances too"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run the script; return the exit code."""
    options = vars(parse_options(arguments))
    try:
        if options.pop("action") == "verify":
            return report_verified(options["directory"])
        return report_updated(update(**options))
    except ppsolve.PpsolveError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
