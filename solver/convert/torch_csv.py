"""PyTorch's schedule files back to schedules, and whether they keep every rule."""

from __future__ import annotations

import csv
from io import StringIO
from pathlib import Path

from ppsolve.models.core.result import HeuristicEntry
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import read_text, source_name
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.pipeline.joint import replica_of
from ppsolve.solver.bounds.lower_bounds import best_bound, lower_bounds
from ppsolve.solver.convert.data_order import DATA_ORDER, DataOrder
from ppsolve.solver.kinds.entries import relative_gap
from ppsolve.solver.pipeline.grammar import Communication, ComputeStep, Step, parse_step
from ppsolve.solver.pipeline.programs.rules import broken_exchanges, broken_rules
from ppsolve.solver.pipeline.programs.timing import shape_of, simulated, simulated_entry
from ppsolve.solver.structure.implied import ImpliedOrder

NAME = "torch-csv"
"""Name of the entry that a file becomes."""

Rows = list[list[Step]]


def read_csv(path: str | Path) -> Rows:
    """Return the steps of each rank of a file; empty cells are left out.

    Raises
    ------
    InputError
        The file cannot be read, a cell is no action, or a row or a cell between communications
        is empty.
    """
    source = source_name(path)
    try:
        texts = list(csv.reader(StringIO(read_text(path)), strict=True))
    except csv.Error as error:
        raise InputError(f"not usable CSV: {error}", source=source) from None
    if not texts:
        raise InputError("expected a row of actions per rank, the file is empty", source=source)
    rows = [_row(cells, source, rank) for rank, cells in enumerate(texts)]
    if has_communications(rows):
        _refuse_empty(texts, source)
    return rows


def _row(cells: list[str], source: str, rank: int) -> list[Step]:
    row = []
    for column, cell in enumerate(cells):
        try:
            row += [parse_step(cell)] if cell.strip() else []
        except InputError as error:
            where = f"row {rank + 1}, column {column + 1}"
            raise InputError(error.message, source=source, field=where) from None
    if not row:
        raise InputError(
            "expected the actions of a rank, the row is empty",
            source=source,
            field=f"row {rank + 1}",
        )
    return row


def _refuse_empty(texts: list[list[str]], source: str) -> None:
    for rank, cells in enumerate(texts):
        for column, cell in enumerate(cells):
            if not cell.strip():
                raise InputError(
                    "expected an action, the cell is empty; files with sends and receives have "
                    "no empty cells",
                    source=source,
                    field=f"row {rank + 1}, column {column + 1}",
                )


def has_communications(rows: Rows) -> bool:
    """Say if a program has sends, receives or steps of stages (``compute_comms``)."""
    return any(isinstance(step, Communication) for row in rows for step in row)


def check_csv(
    path: str | Path,
    instance: PipelineInstance,
    order: DataOrder | None = None,
    *,
    exact: bool = False,
) -> list[Violation]:
    """Check a file against every rule of the runtime and of a pipeline.

    Parameters
    ----------
    path : str or Path
        The file; ``-`` is standard input.
    instance : PipelineInstance
        The pipeline that it is for.
    order : tuple of int, optional
        The micro-batch of the pipeline that stands at each index of the file; as many, in their
        own order, by default. A pipeline with replicas needs that of one replica.
    exact : bool
        Refuse times without a common tick within the limit instead of rounding them up.

    Returns
    -------
    list of Violation
        Broken rules of the program, see `broken_rules` and `broken_exchanges`; where there are
        none, those of its schedule.

    Raises
    ------
    InputError
        The file cannot be read, or no file can be of such a pipeline.
    """
    rows, fed = read_csv(path), _fed(instance, order)
    found = _broken(rows, fed)
    return found or simulated(_computing(rows), fed, exact=exact)[1]


def convert_torch_csv(
    path: str | Path,
    instance: PipelineInstance,
    order: DataOrder | None = None,
    *,
    exact: bool = False,
) -> tuple[HeuristicEntry, float]:
    """Run the order of a file on a pipeline.

    Parameters
    ----------
    path : str or Path
        The file; ``-`` is standard input.
    instance : PipelineInstance
        The pipeline.
    order, exact
        As for `check_csv`.

    Returns
    -------
    entry : HeuristicEntry
        Named ``torch-csv``, with the schedule that starts each op as early as the order allows,
        infeasible where that breaks a rule of the pipeline such as memory. Its micro-batches have
        the numbers of the pipeline; where that has replicas, those of the file.
    excess : float
        Share of the optimum by which the schedule is above it at most, by the analytic bounds.

    Raises
    ------
    InputError
        The program breaks a rule of the runtime, or as for `check_csv`.
    """
    rows, fed = read_csv(path), _fed(instance, order)
    broken = _broken(rows, fed)
    if broken:
        raise InputError(str(broken[0]), source=source_name(path))
    steps = _computing(rows)
    if order is not None and instance.replicas is None:
        steps, fed = [[step.renumbered(order) for step in row] for row in steps], instance
    entry, proposal = simulated_entry(steps, fed, NAME, exact=exact)
    problem = proposal.schedule.problem
    bound = best_bound(lower_bounds(ImpliedOrder(problem))).value
    value = proposal.schedule.value
    return entry, relative_gap(value, bound, bound)


def _fed(instance: PipelineInstance, order: DataOrder | None) -> PipelineInstance:
    """Return the pipeline of one replica, whose micro-batches have the numbers of a file."""
    if order is not None:
        return replica_of(instance, order)
    if instance.replicas is not None:
        raise InputError(
            f"expected {DATA_ORDER} with the micro-batches of one replica, as its export wrote "
            f"them; the pipeline has {instance.replicas.count} replicas",
            source=instance.name,
            field="replicas",
        )
    return instance


def _broken(rows: Rows, instance: PipelineInstance) -> list[Violation]:
    violations = list(broken_rules(_computing(rows), shape_of(instance)))
    if not violations and has_communications(rows):
        violations = list(broken_exchanges(rows))
    return violations


def _computing(rows: Rows) -> list[list[ComputeStep]]:
    return [[step for step in row if not isinstance(step, Communication)] for row in rows]
