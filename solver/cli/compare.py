"""``ppsolve compare``: heuristics against the best, over many instances."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ppsolve.models.core.result import Result
from ppsolve.models.documents.files import source_name
from ppsolve.models.instances import Instance
from ppsolve.solver.bench.collect import collect
from ppsolve.solver.bench.engine import Limits
from ppsolve.solver.bench.local import InlineEngine
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.doubts import note_rounding, question_units
from ppsolve.solver.cli.guard import ExitCode, say
from ppsolve.solver.cli.output import check_writable, deliver, stdout_console
from ppsolve.solver.cli.solving import exit_code, solve
from ppsolve.solver.plan.placements import rank_of
from ppsolve.solver.render.reports import comparison, report, summary_line

Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...",
        help="Instances: files, quoted globs, directories; - is stdin.",
        show_default=False,
    ),
]
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
    """An instance, the file it is from, and a name that no other instance is shown by."""

    path: str
    instance: Instance
    shown: str


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    summary = "Compare heuristics with the best, many instances."
    app.command("compare", short_help=summary)(compare_command)


@opt.with_solve_options
def compare_command(
    files: Files,
    options: opt.SolveOptions,
    fail_on_gap: opt.FailOnGap = None,
    as_json: opt.Json = False,
    output: opt.Output = None,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
) -> None:
    """Solve every instance and compare each heuristic with the best schedule.

    All files are read before the first is solved. --json prints a list of results. The exit
    code is the worst one: 130 interrupted, 1 a solve crashed, 4, 3, 6, else 0 (see optimize).
    """
    cases = _cases(files)
    check_writable(output, *(case.path for case in cases))
    for case in cases:
        question_units(case.instance, source_name(case.path))
    kept = {"as_json": as_json, "quiet": quiet, "verbose": verbose}
    raise typer.Exit(finish(cases, options, fail_on_gap, output, **kept))


def finish(
    cases: list[NamedInstance],
    options: opt.SolveOptions,
    fail_on_gap: float | None,
    output: Path | None,
    *,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    is_ranking: bool = False,
) -> ExitCode:
    """Solve all cases and deliver their results.

    Parameters
    ----------
    cases : list of NamedInstance
        At least one.
    options : SolveOptions
        The same for each.
    fail_on_gap, output, as_json, quiet, verbose
        Those of the command.
    is_ranking : bool
        Give the best results first instead of keeping their order.

    Returns
    -------
    ExitCode
        The worst of the cases' codes, by `SEVERITY`.
    """
    solved, codes = _solve_all(cases, options, fail_on_gap, quiet=quiet, verbose=verbose)
    if is_ranking:
        solved.sort(key=lambda pair: rank_of(pair[1]))
    if ExitCode.INTERRUPTED in codes:
        done = sum(exit_code(result) is not ExitCode.INTERRUPTED for _, result in solved)
        say(f"interrupted; {len(cases) - done} of {len(cases)} not solved")
    if not deliver([result for _, result in solved], output, as_json=as_json):
        _print(solved, quiet=quiet, verbose=verbose)
    return next(code for code in SEVERITY if code in codes)


def _cases(files: list[str]) -> list[NamedInstance]:
    """Read all files; instances that share a name are shown with their files."""
    loaded = collect(files, say)
    count = Counter(source.instance.name for source in loaded)
    return [
        NamedInstance(
            source.path,
            source.instance,
            source.instance.name
            if count[source.instance.name] == 1
            else f"{source.instance.name} ({source_name(source.path)})",
        )
        for source in loaded
    ]


def _solve_all(
    cases: list[NamedInstance],
    options: opt.SolveOptions,
    fail_on_gap: float | None,
    *,
    quiet: bool,
    verbose: bool,
) -> tuple[list[tuple[NamedInstance, Result]], set[ExitCode]]:
    """Solve one after the other; a crash costs one instance, an interrupt ends it all."""

    def solve_case(place: tuple[int, NamedInstance]) -> Result:
        number, case = place
        label = f"[{number}/{len(cases)}] {case.shown}" if len(cases) > 1 else ""
        return solve(case.path, case.instance, options, quiet=quiet, verbose=verbose, label=label)

    solved: list[tuple[NamedInstance, Result]] = []
    codes = {ExitCode.FOUND}
    engine = InlineEngine(is_strict=verbose or len(cases) == 1)
    try:
        for finished in engine.map(solve_case, enumerate(cases, 1), Limits()):
            case = cases[finished.index]
            if finished.failure is not None:
                say(f"internal error: {case.shown}: {finished.error}")
                codes.add(ExitCode.INTERNAL)
                continue
            solved.append((case, finished.value))
            codes.add(exit_code(finished.value, fail_on_gap))
            if ExitCode.INTERRUPTED in codes:
                break
    except KeyboardInterrupt:
        codes.add(ExitCode.INTERRUPTED)
    return solved, codes


def _print(solved: list[tuple[NamedInstance, Result]], *, quiet: bool, verbose: bool) -> None:
    console = stdout_console()
    results = [result.model_copy(update={"instance": case.shown}) for case, result in solved]
    if quiet:
        for result in results:
            console.print(summary_line(result), soft_wrap=True)
        return
    if verbose or len(results) == 1:
        for result, (case, _) in zip(results, solved, strict=True):
            console.print(report(result, verbose=verbose, instance=case.instance))
    if len(results) > 1:
        for result in results:
            note_rounding(result.tick_error, result.time_unit)
        console.print(
            comparison(results, fold_names=any(c.shown != c.instance.name for c, _ in solved))
        )
