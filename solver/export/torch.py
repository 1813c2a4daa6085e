"""PyTorch's schedule files: one row of actions per rank.

Read by ``_PipelineScheduleRuntime(stages, m, loss_fn=...)._load_csv(path, format=...)`` of
``torch.distributed.pipelining`` 2.13.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from ppsolve.solver.export.program import RuntimeProgram
from ppsolve.solver.pipeline.grammar import Step
from ppsolve.solver.pipeline.programs.communications import with_communications

Format = Literal["compute_only", "compute_comms"]

FORMATS: tuple[Format, ...] = ("compute_only", "compute_comms")


def csv_text(rows: Iterable[Sequence[Step]]) -> str:
    """Return a file with one row per rank: no header, no blank line, a newline at its end."""
    return "".join(",".join(map(str, row)) + "\n" for row in rows)


def torch_csv(
    program: RuntimeProgram, form: Format = "compute_only", *, shards: bool = False
) -> str:
    """Write a program as PyTorch's schedule file.

    Cells say an order, so idle time needs none.

    Parameters
    ----------
    program : RuntimeProgram
        A program whose last stage runs micro-batches in order.
    form : str
        ``compute_only``: the runtime adds sends, receives and reductions; ``compute_comms``: they
        are in the file.
    shards : bool
        With ``compute_comms``, gather the parameters of each stage before its first op and drop
        them after its last one, as stages that are FSDP modules need.

    Returns
    -------
    str
        The text of the file.
    """
    if form == "compute_only":
        return csv_text(program.rows)
    return csv_text(with_communications(program.rows, program.ends, shards=shards))
