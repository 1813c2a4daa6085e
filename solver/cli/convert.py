"""``ppsolve convert``: other programs' files to instances."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ppsolve.solver.cli.output import check_writable

Config = Annotated[
    str, typer.Argument(metavar="CONFIG", help="JSON, or YAML if named .yml/.yaml; - is stdin.")
]
Output = Annotated[
    str, typer.Option("--output", "-o", metavar="FILE", help="File to write; - is stdout.")
]


def register(app: typer.Typer) -> None:
    """Add the command group to `app`."""
    group = typer.Typer(no_args_is_help=True, help="Convert other programs' files to instances.")
    group.command("visualizer")(convert_visualizer_command)
    group.callback()(_group)
    app.add_typer(group, name="convert")


def _group() -> None:
    """Convert other programs' files to instances."""


def convert_visualizer_command(config: Config, output: Output = "-") -> None:
    """Convert a visualizer config to a pipeline instance.

    The config is that of the pipeline-parallelism visualizer. Warnings about lists that were
    continued or cut go to stderr.
    """
    check_writable(Path(output), config)
    from ppsolve.models.instance_text import instance_text
    from ppsolve.models.io import write_text
    from ppsolve.solver.convert.visualizer import convert_visualizer

    instance, warnings = convert_visualizer(config)
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)
    write_text(output, instance_text(instance))
