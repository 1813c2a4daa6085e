"""``ppsolve bench``: a group whose command ``run`` need not be named."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from ppsolve.solver.cli.bench.merge import bench_merge_command
from ppsolve.solver.cli.bench.report import bench_report_command
from ppsolve.solver.cli.bench.run import bench_run_command

SUMMARY = "Solve many instances into one file that survives every kill."
DEFAULT = "run"


class _RunByDefault(TyperGroup):
    """Takes whatever begins with no subcommand for arguments of ``run``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put ``run`` before arguments that name no subcommand."""
        helps = ctx.help_option_names
        if args and args[0] not in self.commands and args[0] not in helps:
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    """Add the command group to `app`."""
    group = typer.Typer(cls=_RunByDefault, no_args_is_help=True)
    group.command("run", short_help="Solve instances; `bench PATHS` is short for it.")(
        bench_run_command
    )
    group.command("merge", short_help="Put several files of results into one.")(bench_merge_command)
    group.command("report", short_help="Tables, curves and regressions of results.")(
        bench_report_command
    )
    group.callback()(_group)
    app.add_typer(group, name="bench", short_help=SUMMARY)


def _group() -> None:
    """Solve many instances into one file that survives every kill.

    `ppsolve bench PATHS... -o results.jsonl` is short for `ppsolve bench run PATHS... -o ...`;
    its options are listed by `ppsolve bench run --help`.
    """
