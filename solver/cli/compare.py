"""``ppsolve compare``: heuristics against the best, over many instances."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

from ppsolve.models.core.result import Result
from ppsolve.models.documents.errors import InputError, PpsolveError
from ppsolve.models.documents.files import read_json, source_name
from ppsolve.models.instances import Instance
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.doubts import note_rounding, question_units
from ppsolve.solver.cli.guard import ExitCode, say
from ppsolve.solver.cli.output import check_writable, deliver, stdout_console
from ppsolve.solver.cli.solving import exit_code, solve
from ppsolve.solver.optimize.kinds import NO_INSTANCES, is_result, load_instance, parse_instance
from ppsolve.solver.render.comparison import comparison
from ppsolve.solver.render.reports import report, summary_line

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
class _Case:
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
    solved, codes = _solve_all(cases, options, fail_on_gap, quiet=quiet, verbose=verbose)
    if ExitCode.INTERRUPTED in codes:
        done = sum(exit_code(result) is not ExitCode.INTERRUPTED for _, result in solved)
        say(f"interrupted; {len(cases) - done} of {len(cases)} not solved")
    if not deliver([result for _, result in solved], output, as_json=as_json):
        _print(solved, quiet=quiet, verbose=verbose)
    raise typer.Exit(next(code for code in SEVERITY if code in codes))


def _cases(files: list[str]) -> list[_Case]:
    """Read all files; instances that share a name are shown with their files."""
    loaded = list(_load(files))
    count = Counter(instance.name for _, instance in loaded)
    return [
        _Case(
            path,
            instance,
            instance.name
            if count[instance.name] == 1
            else f"{instance.name} ({source_name(path)})",
        )
        for path, instance in loaded
    ]


def _load(files: list[str]) -> Iterator[tuple[str, Instance]]:
    for path, is_from_directory in dict(_expand(files)).items():
        if not is_from_directory:
            yield path, load_instance(path)
            continue
        data = read_json(path)
        if _is_instance(data):
            yield path, parse_instance(data, path)
        else:
            say(f"note: {path} is not an instance, left out")


def _is_instance(data: Any) -> bool:
    """Whether a file of a directory is worth reading: no result, no plan, nothing else."""
    return (
        isinstance(data, dict)
        and "kind" in data
        and not (is_result(data) or data["kind"] in NO_INSTANCES)
    )


def _expand(files: list[str]) -> Iterator[tuple[str, bool]]:
    """Yield each path and whether it was found in a directory."""
    for file in files:
        path = Path(file)
        if path.is_dir():
            found = list(_json_files(path))
        elif file == "-" or path.exists() or not glob.has_magic(file):
            yield file, False
            continue
        else:
            found = glob.glob(file, recursive=True)
        if not found:
            raise InputError("no instance files there", source=file)
        for name in sorted(found, key=_human):
            yield name, path.is_dir()


def _json_files(directory: Path) -> Iterator[str]:
    """Yield the files below `directory`, without those in hidden directories such as .venv."""
    for folder, inner, files in os.walk(directory):
        inner[:] = [name for name in inner if not name.startswith(".")]
        for path in (Path(folder, name) for name in files if name.endswith(".json")):
            if path.is_file():
                yield str(path)


def _human(name: str) -> list[tuple[int, Fraction | str]]:
    """Return a key that puts 2 before 10, and 1.5 between 1 and 2."""
    parts = re.split(r"(\d+(?:\.\d+)?)", name)
    return [(0, Fraction(part)) if part[:1].isdecimal() else (1, part) for part in parts]


def _solve_all(
    cases: list[_Case],
    options: opt.SolveOptions,
    fail_on_gap: float | None,
    *,
    quiet: bool,
    verbose: bool,
) -> tuple[list[tuple[_Case, Result]], set[ExitCode]]:
    """Solve one after the other; a crash costs one instance, an interrupt ends it all."""
    solved: list[tuple[_Case, Result]] = []
    codes = {ExitCode.FOUND}
    for number, case in enumerate(cases, 1):
        label = f"[{number}/{len(cases)}] {case.shown}" if len(cases) > 1 else ""
        try:
            result = solve(
                case.path, case.instance, options, quiet=quiet, verbose=verbose, label=label
            )
        except KeyboardInterrupt:
            codes.add(ExitCode.INTERRUPTED)
            break
        except PpsolveError:
            raise
        except Exception as error:
            if verbose or len(cases) == 1:
                raise
            say(f"internal error: {case.shown}: {type(error).__name__}: {error}")
            codes.add(ExitCode.INTERNAL)
            continue
        solved.append((case, result))
        codes.add(exit_code(result, fail_on_gap))
        if ExitCode.INTERRUPTED in codes:
            break
    return solved, codes


def _print(solved: list[tuple[_Case, Result]], *, quiet: bool, verbose: bool) -> None:
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
