"""``ppsolve check``: whether a schedule keeps every rule of its instance."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ppsolve.models.core.result import Result
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.errors import ErrorCode, InputError, errors_in
from ppsolve.models.documents.files import read_json, source_name
from ppsolve.solver.api.kinds import instance_in, kind_of, load_instance, owner_in
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.guard import ExitCode, about_file
from ppsolve.solver.cli.inputs import FedOrder, data_order, load_pipeline, refuse_given
from ppsolve.solver.cli.options import argument, flag
from ppsolve.solver.cli.output import print_json, stdout_console
from ppsolve.solver.formats.order_file import DATA_ORDER
from ppsolve.solver.views.figures import figure

if TYPE_CHECKING:
    from ppsolve.solver.api.bound_check import BoundCheck


def check_command(
    instance_file: Annotated[
        Path,
        argument("INSTANCE", "Instance, or a result that carries its own; - is stdin."),
    ],
    result_file: Annotated[
        Path | None,
        argument(
            "RESULT",
            "Result, heuristic entry, bare schedule, or PyTorch's .csv; - is stdin.",
            show_default=False,
        ),
    ] = None,
    fed: FedOrder = None,
    proves_bound: Annotated[
        bool,
        flag(
            "Prove the bound of the result again, however long that takes.", "--bound"
        ),
    ] = False,
    exact: opt.Exact = False,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
) -> None:
    """Check a schedule independently of the solver and list all violations.

    RESULT may be a schedule file of PyTorch (.csv). The command then checks the rules of the
    runtime, and the schedule that starts each op as early as the order of the file allows. Such a
    file does not say which activations are kept or which stage has which layers: if they were
    chosen, give the result instead of INSTANCE.

    Exit codes: 0 valid, 5 at least one violation, 2 the files cannot be used.
    """
    if result_file is not None and result_file.suffix.lower() == ".csv":
        from ppsolve.solver.formats.torch_csv import check_csv

        refuse_given({"--bound": proves_bound or None}, "expected a result")
        (pipeline, claims), bound = load_pipeline(instance_file), None
        with about_file(pipeline, instance_file):
            order = data_order(fed, pipeline, claims)
            violations = check_csv(result_file, pipeline, order, claims, exact=exact)
    else:
        refuse_given({DATA_ORDER: fed}, "expected a schedule file of PyTorch (.csv)")
        violations, bound = _check_files(
            instance_file, result_file, exact=exact, proves_bound=proves_bound
        )
    if as_json:
        entries = [
            {"rule": v.rule, "message": v.message, "ops": list(v.ops)}
            for v in violations
        ]
        proof = {} if bound is None else {"bound": asdict(bound)}
        print_json({"valid": not violations, "violations": entries} | proof)
    else:
        _print(str(result_file or instance_file), violations, bound, quiet=quiet)
    if violations:
        raise typer.Exit(ExitCode.CHECK_FAILED)


def _check_files(
    instance_file: Path, result_file: Path | None, *, exact: bool, proves_bound: bool
) -> tuple[list[Violation], BoundCheck | None]:
    if str(instance_file) == str(result_file) == "-":
        raise InputError(
            "only one of the two files can be standard input", code=ErrorCode.CONFLICT
        )
    source = source_name(result_file or instance_file)
    separate = None if result_file is None else load_instance(instance_file)
    data = read_json(result_file or instance_file)
    instance = separate or instance_in(data, source)
    with about_file(instance, instance_file), errors_in(source):
        is_bound_alone = proves_bound and _has_no_schedule(data, source)
        check = kind_of(instance).check
        violations = [] if is_bound_alone else check(instance, data, exact=exact)
        if proves_bound:
            from ppsolve.solver.api.bound_check import check_bound

            bound = check_bound(instance, data, exact=exact)
        else:
            bound = None
    if bound is not None and bound.proved_by is None:
        violations.append(Violation("bound", _refuted(bound), ()))
    return violations, bound


def _has_no_schedule(data: Any, source: str) -> bool:
    is_bare = isinstance(data, dict) and data.get("schedule") is None
    return is_bare and isinstance(owner_in(data, source), Result)


def _refuted(bound: BoundCheck) -> str:
    claim = (
        "that there is no schedule"
        if bound.claimed is None
        else f"that none is below {figure(bound.claimed)}"
    )
    return f"the file claims {claim}, but there is one of {figure(bound.better)}"


def _print(
    source: str, violations: list[Violation], bound: BoundCheck | None, *, quiet: bool
) -> None:
    def tell(*texts: str | tuple[str, str]) -> None:
        stdout_console().print(Text.assemble(*texts), soft_wrap=True)

    if bound is not None and bound.proved_by is not None:
        claim = (
            "no schedule" if bound.claimed is None else f"bound {figure(bound.claimed)}"
        )
        tell(f"{source}: {claim}, proved again by {bound.proved_by}")
    if violations:
        count = f"{len(violations)} violation" + ("s" if len(violations) > 1 else "")
        tell(f"{source}: ", ("not valid", "bold red"), f", {count}")
    else:
        tell(f"{source}: ", ("valid", "bold green"), ", no violations")
    for violation in () if quiet else violations:
        tell("  ", (violation.rule, "yellow"), f": {violation.message}")
