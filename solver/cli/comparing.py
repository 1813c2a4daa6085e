"""Work of ``ppsolve optimize`` and ``compare``: solve named instances, print what was found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ppsolve.models.core.result import Result
from ppsolve.models.documents.errors import InputError, PpsolveError
from ppsolve.models.documents.files import read_json, source_name
from ppsolve.models.instances import Instance
from ppsolve.solver.api.kinds import load_instance
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.guard import ExitCode, about_file, say
from ppsolve.solver.cli.inputs import note_rounding, refuse_given, warn_of_units
from ppsolve.solver.cli.output import check_writable, deliver, stdout_console
from ppsolve.solver.cli.solving import exit_code, solve
from ppsolve.solver.views.reports import comparison, report, summary_line

SEVERITY = (
    ExitCode.INTERRUPTED,
    ExitCode.INTERNAL,
    ExitCode.NOTHING_FOUND,
    ExitCode.INFEASIBLE,
    ExitCode.GAP_EXCEEDED,
    ExitCode.FOUND,
)
"""The exit code of a comparison is the first of these that any instance had."""


@dataclass(frozen=True)
class NamedInstance:
    """An instance, its file, and a name that no other instance is shown by."""

    path: str
    instance: Instance
    shown: str


Solved = tuple[NamedInstance, Result]


def optimize_file(
    file: Path,
    options: opt.SolveOptions,
    reporting: opt.Reporting,
    *,
    fail_on_gap: float | None,
    start: Path | None,
    placements: str | None,
    began: float,
) -> ExitCode:
    """Solve one instance file and deliver the result; `began` is when the command did."""
    check_writable(reporting.output, file, *([start] if start else []))
    instance = load_instance(file)
    warn_of_units(instance, source_name(file))
    if placements is not None:
        refuse_given({"--start": start}, "this option cannot be used with --placements")
        cases, shared = _on_placements(file, instance, placements, options)
        return _finish(cases, shared, fail_on_gap, reporting, is_ranking=True)
    with _about_start(start) as initial:
        result = solve(file, instance, options, reporting, began=began, start=initial)
    if not deliver(result, reporting.output, as_json=reporting.as_json):
        solved = [(NamedInstance(str(file), instance, instance.name), result)]
        _print(solved, reporting)
    return exit_code(result, fail_on_gap)


def compare_files(
    files: list[str],
    options: opt.SolveOptions,
    reporting: opt.Reporting,
    fail_on_gap: float | None,
) -> ExitCode:
    """Solve every instance of the files and deliver the results."""
    cases = _cases(files)
    check_writable(reporting.output, *(case.path for case in cases))
    for case in cases:
        warn_of_units(case.instance, source_name(case.path))
    return _finish(cases, options, fail_on_gap, reporting)


def _on_placements(
    file: Path, instance: Instance, placements: str, options: opt.SolveOptions
) -> tuple[list[NamedInstance], opt.SolveOptions]:
    """Return a case for each placement, and options with an equal part of the time for each."""
    from ppsolve.solver.studies.curve import placements_of

    with about_file(instance, file):
        variants = placements_of(instance, [placements])
    share = replace(options, time_limit=options.time_limit / len(variants))
    return [
        NamedInstance(str(file), variant, variant.name) for variant in variants
    ], share


@contextmanager
def _about_start(path: Path | None) -> Iterator[Any]:
    """Read the result that the search begins with, and let every error about it name its file."""
    if path is None:
        yield None
        return
    try:
        yield read_json(path)
    except InputError as error:
        if error.field != "start":
            raise
        # A task that takes no start names the instance, which is not what has to change.
        raise error.moved(source_name(path), "start") from None


def _cases(files: list[str]) -> list[NamedInstance]:
    """Read all files; instances that share a name are shown with their files."""
    from ppsolve.solver.studies.bench.suite import collect

    loaded = collect(files, say)
    count = Counter(source.instance.name for source in loaded)
    cases = []
    for source in loaded:
        name = source.instance.name
        label = name if count[name] == 1 else f"{name} ({source_name(source.path)})"
        cases.append(NamedInstance(source.path, source.instance, label))
    return cases


def _finish(
    cases: list[NamedInstance],
    options: opt.SolveOptions,
    fail_on_gap: float | None,
    reporting: opt.Reporting,
    *,
    is_ranking: bool = False,
) -> ExitCode:
    solved, codes = _solve_all(cases, options, fail_on_gap, reporting)
    if is_ranking:
        from ppsolve.solver.studies.curve import rank_of

        solved.sort(key=lambda pair: rank_of(pair[1]))
    if ExitCode.INTERRUPTED in codes:
        done = sum(
            exit_code(result) is not ExitCode.INTERRUPTED for _, result in solved
        )
        say(f"interrupted; {len(cases) - done} of {len(cases)} not solved")
    if not deliver(
        [result for _, result in solved], reporting.output, as_json=reporting.as_json
    ):
        _print(solved, reporting)
    return next(code for code in SEVERITY if code in codes)


def _solve_all(
    cases: list[NamedInstance],
    options: opt.SolveOptions,
    fail_on_gap: float | None,
    reporting: opt.Reporting,
) -> tuple[list[Solved], set[ExitCode]]:
    """Solve one after the other; a crash costs one instance, an interrupt ends it all."""
    solved: list[Solved] = []
    codes = {ExitCode.FOUND}
    try:
        for number, case in enumerate(cases, 1):
            label = f"[{number}/{len(cases)}] {case.shown}" if len(cases) > 1 else ""
            try:
                result = solve(
                    case.path, case.instance, options, reporting, label=label
                )
            except Exception as error:
                if (
                    isinstance(error, PpsolveError)
                    or reporting.verbose
                    or len(cases) == 1
                ):
                    raise
                say(f"internal error: {case.shown}: {type(error).__name__}: {error}")
                codes.add(ExitCode.INTERNAL)
                continue
            solved.append((case, result))
            codes.add(exit_code(result, fail_on_gap))
            if ExitCode.INTERRUPTED in codes:
                break
    except KeyboardInterrupt:
        codes.add(ExitCode.INTERRUPTED)
    return solved, codes


def _print(solved: list[Solved], reporting: opt.Reporting) -> None:
    console = stdout_console()
    results = [
        result.model_copy(update={"instance": case.shown}) for case, result in solved
    ]
    if reporting.quiet:
        for result in results:
            console.print(summary_line(result), soft_wrap=True)
        return
    if reporting.verbose or len(results) == 1:
        for result, (case, _) in zip(results, solved, strict=True):
            console.print(
                report(result, verbose=reporting.verbose, instance=case.instance)
            )
    if len(results) > 1:
        for result, (case, _) in zip(results, solved, strict=True):
            note_rounding(result.tick_error, result.time_unit, case.instance)
        console.print(
            comparison(
                results, fold_names=any(c.shown != c.instance.name for c, _ in solved)
            )
        )
