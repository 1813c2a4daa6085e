"""The ``ppsolve`` program: its commands, its version, its entry point."""

from __future__ import annotations

import importlib
import sys
from typing import Annotated

import typer

from ppsolve.solver.cli.guard import ExitCode, GuardedGroup

COMMANDS = (
    "optimize",
    "compare",
    "plan",
    "goodput.commands",
    "simulate",
    "check",
    "show",
    "generate",
    "convert",
    "schema",
)
"""Modules of this package, each with a ``register(app)``; they import what is slow when called."""


def _print_version(asked: bool) -> None:
    if asked:
        from ppsolve import __version__

        typer.echo(f"ppsolve {__version__}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True),
]


def build() -> typer.Typer:
    """Return the program with all its commands."""
    app = typer.Typer(
        name="ppsolve",
        cls=GuardedGroup,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name in COMMANDS:
        importlib.import_module(f"ppsolve.solver.cli.{name}").register(app)
    return app


def _root(version: Version = False) -> None:
    """Exact schedules for distributed training: optimum, proven bound, heuristic gaps.

    `ppsolve optimize instance.json` finds the best schedule of an instance; `ppsolve show`
    draws one. Every command has its own `--help`.
    """


def run() -> None:
    """Run the program; the entry point of the ``ppsolve`` script."""
    try:
        build()(prog_name="ppsolve")
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
