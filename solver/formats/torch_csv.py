"""PyTorch's schedule files, one row of actions per rank: written, read back, held to every rule.

Read by ``_PipelineScheduleRuntime(stages, m, loss_fn=...)._load_csv(path, format=...)`` of
``torch.distributed.pipelining`` 2.13.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from ppsolve.models.core.result import HeuristicEntry
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.errors import (
    ErrorCode,
    InputError,
    errors_about,
    errors_in,
)
from ppsolve.models.documents.files import read_text, source_name
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.joint import replica_of
from ppsolve.solver.bounds import best_bound, lower_bounds
from ppsolve.solver.formats.order_file import DATA_ORDER, DataOrder
from ppsolve.solver.formats.program import Format, RuntimeProgram
from ppsolve.solver.kinds.pipeline.grammar import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    Communication,
    ComputeStep,
    Step,
    actions_of,
    parse_step,
)
from ppsolve.solver.kinds.pipeline.programs import rules
from ppsolve.solver.kinds.pipeline.programs.communications import with_communications
from ppsolve.solver.kinds.pipeline.programs.shape import shape_of
from ppsolve.solver.run.entries import relative_gap
from ppsolve.solver.structure.implied import ImpliedOrder

Rows = list[list[Step]]


def csv_text(rows: Iterable[Sequence[Step]]) -> str:
    """Return a file with one row per rank: no header, no blank line, a newline at its end."""
    return "".join(",".join(map(str, row)) + "\n" for row in rows)


def torch_csv(
    program: RuntimeProgram, form: Format = "compute_only", *, shards: bool = False
) -> str:
    """Write a program whose last stage runs micro-batches in order as PyTorch's schedule file.

    `form`: ``compute_only``: the runtime adds sends, receives and reductions; ``compute_comms``:
        they are in the file.
    `shards`: with ``compute_comms``, gather the parameters of each stage before its first op and
        drop them after its last one, as stages that are FSDP modules need.
    """
    if form == "compute_only":
        return csv_text(program.rows)
    return csv_text(with_communications(program.rows, program.ends, shards=shards))


def read_csv(path: str | Path) -> Rows:
    """Return the steps of each rank of a file; empty cells are left out.

    Raises `InputError` where the file cannot be read, a cell is no action, or a row or a cell
    between communications is empty.
    """
    with errors_in(source_name(path)):
        try:
            texts = list(csv.reader(StringIO(read_text(path)), strict=True))
        except csv.Error as error:
            raise InputError(
                f"not usable CSV: {error}", code=ErrorCode.SYNTAX
            ) from None
        if not texts:
            raise InputError(
                "expected a row of actions per rank, the file is empty",
                code=ErrorCode.SYNTAX,
            )
        rows = [_row(cells, rank) for rank, cells in enumerate(texts, 1)]
        if _has_communications(rows):
            _refuse_empty(texts)
        return rows


def _row(cells: list[str], rank: int) -> list[Step]:
    row = []
    for column, cell in enumerate(cells, 1):
        with errors_about(f"row {rank}, column {column}"):
            row += [parse_step(cell)] if cell.strip() else []
    if not row:
        raise InputError(
            "expected the actions of a rank, the row is empty",
            field=f"row {rank}",
            code=ErrorCode.SYNTAX,
        )
    return row


def _refuse_empty(texts: list[list[str]]) -> None:
    for rank, cells in enumerate(texts, 1):
        for column, cell in enumerate(cells, 1):
            if not cell.strip():
                raise InputError(
                    "expected an action, the cell is empty; files with sends and receives have "
                    "no empty cells",
                    field=f"row {rank}, column {column}",
                    code=ErrorCode.SYNTAX,
                )


def _has_communications(rows: Rows) -> bool:
    return any(isinstance(step, Communication) for row in rows for step in row)


def check_csv(
    path: str | Path,
    instance: PipelineInstance,
    order: DataOrder | None = None,
    document: Any = None,
    *,
    exact: bool = False,
) -> list[Violation]:
    """Check a file against every rule of the runtime and of a pipeline.

    The rules of its schedule are checked where its program breaks none, see `broken_rules` and
    `broken_exchanges`. Raises `InputError` where the file (``-`` is standard input) cannot be read,
    or no file can be of such a pipeline.

    `order`: the micro-batch of the pipeline that stands at each index of the file; as many, in
        their own order, by default. A pipeline with replicas needs that of one replica.
    `document`: a result, which claims the memory modes or the layers of stages that are open; every
        activation is kept and layers are split evenly by default.
    `exact`: refuse times without a common tick within the limit instead of rounding them up.
    """
    rows, fed = read_csv(path), _fed(instance, order)
    broken = _broken(rows, fed)
    steps = _computing(rows, order if fed is instance and not broken else None)
    return broken or rules.simulated(steps, fed, document, exact=exact)[1]


def convert_torch_csv(
    path: str | Path,
    instance: PipelineInstance,
    order: DataOrder | None = None,
    document: Any = None,
    *,
    exact: bool = False,
) -> tuple[HeuristicEntry, float]:
    """Run the order of a file on a pipeline; also say by how much it is above the optimum.

    The entry is named ``torch-csv``. Its schedule starts each op as early as the order allows, and
    is infeasible where that breaks a rule of the pipeline such as memory. Micro-batches have the
    numbers of the pipeline; where that has replicas, those of the file. The share of the optimum by
    which the schedule is above it at most, by the analytic bounds, is that of its modes and layers,
    and without a meaning where it breaks a rule.

    Raises `InputError` where the program breaks a rule of the runtime, or as for `check_csv`.
    """
    rows, fed = read_csv(path), _fed(instance, order)
    broken = _broken(rows, fed)
    if broken:
        raise InputError(
            str(broken[0]), source=source_name(path), code=ErrorCode.SCHEDULE
        )
    steps = _computing(rows, order if fed is instance else None)
    entry, proposal = rules.simulated_entry(
        steps, fed, "torch-csv", document, exact=exact
    )
    bound = best_bound(lower_bounds(ImpliedOrder(proposal.schedule.problem))).value
    return entry, relative_gap(proposal.schedule.value, bound, bound)


def _fed(instance: PipelineInstance, order: DataOrder | None) -> PipelineInstance:
    """Return a pipeline, of one with replicas that of the one whose micro-batches a file has."""
    if order is not None and instance.replicas is not None:
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
    computing = _computing(rows)
    violations = _unsplit_backwards(computing)
    violations = violations or list(rules.broken_rules(computing, shape_of(instance)))
    if not violations and _has_communications(rows):
        violations = list(rules.broken_exchanges(rows))
    return violations


def _unsplit_backwards(computing: Sequence[Sequence[ComputeStep]]) -> list[Violation]:
    """Say once that input gradients are written B, as PyTorch up to 2.5 wrote them."""
    steps = [action for row in computing for step in row for action in actions_of(step)]
    weights = {step[::2] for step in steps if step.kind == BACKWARD_WEIGHT}
    wrong = [s for s in steps if s.kind == BACKWARD and s[::2] in weights]
    if not wrong or any(step.kind == BACKWARD_INPUT for step in steps):
        return []
    names = tuple(map(str, wrong))
    text = (
        f"{names[0]} is a whole backward, and its weight gradient W is there too ({len(wrong)} "
        "such B); PyTorch up to 2.5 wrote B for input gradients, which are I now"
    )
    return [Violation("twice", text, names)]


def _computing(rows: Rows, order: DataOrder | None = None) -> list[list[ComputeStep]]:
    computing = [
        [step for step in row if not isinstance(step, Communication)] for row in rows
    ]
    return (
        computing
        if order is None
        else [[step.renumbered(order) for step in row] for row in computing]
    )
