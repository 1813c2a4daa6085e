"""``ppsolve schema``: JSON Schema of what the program reads and writes."""

from __future__ import annotations

from typing import Annotated

from ppsolve.solver.cli.options import argument
from ppsolve.solver.cli.output import print_json
from ppsolve.solver.views.schema import schema_of


def schema_command(
    kind: Annotated[
        str | None,
        argument(
            "[KIND]",
            "pipeline, graph, kfac, overlap, result, heuristic, schedule, or kfac-result, "
            "kfac-heuristic, overlap-result, overlap-heuristic, or plan, plan-result, curve, "
            "what-if, goodput, goodput-result; none: any instance.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print the JSON Schema of an instance kind or of results."""
    print_json(schema_of(kind))
