"""``ppsolve check``: whether a schedule keeps every rule of its instance."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import read_json, source_name
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.guard import ExitCode, about_file
from ppsolve.solver.cli.output import print_json, stdout_console
from ppsolve.solver.cli.pictures import refuse_given
from ppsolve.solver.cli.pipelines import FedOrder, data_order, load_pipeline
from ppsolve.solver.convert.data_order import DATA_ORDER
from ppsolve.solver.convert.torch_csv import check_csv
from ppsolve.solver.optimize import api
from ppsolve.solver.optimize.kinds import load_instance

Instance = Annotated[
    Path,
    typer.Argument(metavar="INSTANCE", help="Instance; - is stdin.", show_default=False),
]
Result = Annotated[
    Path,
    typer.Argument(
        metavar="RESULT",
        help="Result, heuristic entry, bare schedule, or PyTorch's .csv; - is stdin.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("check", short_help="Check a schedule, list all violations.")(check_command)


def check_command(
    instance_file: Instance,
    result_file: Result,
    fed: FedOrder = None,
    exact: opt.Exact = False,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
) -> None:
    """Check a schedule independently of the solver and list all violations.

    RESULT may be a schedule file of PyTorch (.csv): then the rules of the runtime are checked, and
    the schedule that starts each op as early as the order of the file allows.

    Exit codes: 0 valid, 5 at least one violation, 2 the files cannot be used.
    """
    violations = check_files(instance_file, result_file, fed, exact=exact)
    if as_json:
        found = [{"rule": v.rule, "message": v.message, "ops": list(v.ops)} for v in violations]
        print_json({"valid": not violations, "violations": found})
    else:
        _print(str(result_file), violations, quiet=quiet)
    if violations:
        raise typer.Exit(ExitCode.CHECK_FAILED)


def check_files(
    instance_file: Path, result_file: Path, fed: Path | None = None, *, exact: bool = False
) -> list[Violation]:
    """Check the schedule of one file against the instance of another.

    Parameters
    ----------
    instance_file, result_file : Path
        The files; one of them may be ``-``, standard input.
    fed : Path, optional
        Data order of a runtime's file.
    exact : bool
        Refuse times without a common tick within the limit instead of rounding them up.

    Returns
    -------
    list of Violation
        Every broken rule; empty for a valid schedule.

    Raises
    ------
    InputError
        A file cannot be used, or both are standard input.
    """
    if str(instance_file) == str(result_file) == "-":
        raise InputError("only one of the two files can be standard input")
    if result_file.suffix.lower() == ".csv":
        pipeline = load_pipeline(instance_file)
        with about_file(pipeline, instance_file):
            return check_csv(result_file, pipeline, data_order(fed, pipeline), exact=exact)
    refuse_given({DATA_ORDER: fed}, "expected a schedule file of PyTorch (.csv)")
    instance = load_instance(instance_file)
    data: Any = read_json(result_file)
    with about_file(instance, instance_file):
        try:
            return api.check(instance, data, exact=exact)
        except InputError as error:
            raise error.located(source_name(result_file)) from None


def _print(source: str, violations: list[Violation], *, quiet: bool) -> None:
    console = stdout_console()
    if not violations:
        console.print(
            Text.assemble(f"{source}: ", ("valid", "bold green"), ", no violations"), soft_wrap=True
        )
        return
    count = f"{len(violations)} violation" + ("s" if len(violations) > 1 else "")
    console.print(
        Text.assemble(f"{source}: ", ("not valid", "bold red"), f", {count}"), soft_wrap=True
    )
    for violation in () if quiet else violations:
        console.print(
            Text.assemble("  ", (violation.rule, "yellow"), f": {violation.message}"),
            soft_wrap=True,
        )
