"""The ``ppsolve`` program: its commands, its version, its entry point."""

from __future__ import annotations

import gc
import importlib
import os
import re
from functools import cache
from typing import Annotated, Any

import typer
from typer import Option

from ppsolve.solver.cli.guard import (
    ExitCode,
    GuardedGroup,
    end_like_ctrl_c,
    end_process,
    open_streams,
    output_kept,
)

COMMANDS = {
    "optimize": (
        "optimize",
        "Find the best schedule of an instance and prove how good it is.",
    ),
    "compare": (
        "optimize",
        "Compare heuristics with the best schedule, on many instances.",
    ),
    "bench": (
        "bench",
        "Solve many instances and write one file; a killed run can be resumed.",
    ),
    "plan": ("plan", "Choose the configuration with the highest goodput."),
    "plan init": ("plan", "Write a plan request from the sizes of a model."),
    "simulate": ("heuristics", "Run one heuristic and report its schedule."),
    "heuristics": (
        "heuristics",
        "List heuristics: what each does, what it needs, and its source.",
    ),
    "check": ("check", "Check a schedule, list all violations."),
    "show": ("show", "Draw a schedule in the terminal, or as a picture for a paper."),
    "report": ("report", "Show results as one HTML page."),
    "generate": (
        "generate",
        "Write a pipeline instance: by options, a profile, or at random.",
    ),
    "schema": ("schema", "Print the JSON Schema of an instance kind or of results."),
    "goodput": ("goodput", "Goodput of data-parallel jobs."),
    "what-if": (
        "curve",
        "Gains of changes: micro-batches, memory, placement, recomputing.",
    ),
    "curve": ("curve", "Best makespan over memory or micro-batches."),
    "buckets": ("buckets", "Find which collectives of a program to merge."),
    "stress": ("stress", "Replay a schedule with random durations."),
    "diagnose": ("traces", "Compute how far from optimal a recorded run was."),
    "serve": ("serve", "Answer questions and run jobs over HTTP."),
    "explore": (
        "serve",
        "Open a page that shows schedules while you change a pipeline.",
    ),
    "export": ("export", "Write a schedule as a file of a runtime or a viewer."),
    "convert": ("convert", "Convert other programs' files."),
}
"""Module of each command in this package, and its line in the help."""


@cache
def load(name: str) -> Any:
    """Import the module of a command and return the command: ``NAME_command``, or a group."""
    module, summary = COMMANDS[name]
    commands = importlib.import_module(f"ppsolve.solver.cli.{module}")
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    function = getattr(commands, f"{re.sub('[ -]', '_', name)}_command", None)
    if function is None:
        app.add_typer(commands.group, name=name, short_help=summary)
    else:
        app.command(name, short_help=summary)(function)
    return typer.main.get_group(app).commands[name]


class _LazyGroup(GuardedGroup):
    """The group of all commands; it lists them without loading any."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        # Names alone, from which the nearest one is suggested for a wrong one.
        self.commands: dict[str, Any] = dict.fromkeys(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return load(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        two = " ".join(args[:2])
        if len(args) > 1 and two in COMMANDS:
            return two, self.get_command(ctx, two), args[2:]
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, summary) for name, (_, summary) in COMMANDS.items()]
            )


def _print_version(asked: bool) -> None:
    if asked:
        from ppsolve import __version__

        typer.echo(f"ppsolve {__version__}")
        raise typer.Exit


def build() -> typer.Typer:
    """Return the program with all its commands."""
    app = typer.Typer(
        name="ppsolve",
        cls=_LazyGroup,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    return app


def _root(
    version: Annotated[
        bool,
        Option(
            "--version",
            help="Print the version.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Exact schedules for distributed training: optimum, proven bound, heuristic gaps.

    `ppsolve optimize instance.json` finds the best schedule of an instance; `ppsolve show`
    draws one. Every command has its own `--help`.
    """


def run() -> None:
    """Run the program; the entry point of the ``ppsolve`` script."""
    # All matrices here are tiny; threads for them cost memory, and under a limit the start.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Looking for plugins of pydantic means reading what every installed package declares.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    # What imports make is never garbage; looking for it takes a tenth of a short command.
    gc.set_threshold(200_000)
    end_like_ctrl_c()
    open_streams()
    try:
        end_process(_code_of_run())
    except KeyboardInterrupt:
        end_process(ExitCode.INTERRUPTED)


def _code_of_run() -> str | int | None:
    try:
        with output_kept():
            build()(prog_name="ppsolve")
    except SystemExit as end:
        return end.code
    except typer.Exit as end:
        return end.exit_code
    return None
