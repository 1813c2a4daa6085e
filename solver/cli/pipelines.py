"""Pipelines that commands read beside another file, and the data orders of such files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import source_name
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.solver.cli.guard import say
from ppsolve.solver.formats.torch_csv import DATA_ORDER, DataOrder, read_data_order
from ppsolve.solver.optimize.kinds import load_instance
from ppsolve.solver.pipeline.published import has_unequal_microbatches

FedOrder = Annotated[
    Path | None,
    typer.Option(
        DATA_ORDER,
        metavar="FILE",
        help="Which micro-batch stands at each index of a .csv, as export wrote it (JSON).",
    ),
]


def load_pipeline(path: Path, beside: str | Path = "") -> PipelineInstance:
    """Read an instance file that must be a pipeline.

    Parameters
    ----------
    path : Path
        The file; ``-`` is standard input.
    beside : str or Path
        Another file that the command reads.

    Returns
    -------
    PipelineInstance
        The pipeline.

    Raises
    ------
    InputError
        As in `load_instance`, or both files are standard input.
    """
    if str(path) == str(beside) == "-":
        raise InputError("only one of the two files can be standard input")
    instance = load_instance(path)
    if instance.kind != "pipeline":
        raise InputError(
            f'expected "pipeline", got "{instance.kind}"', source=source_name(path), field="kind"
        )
    return cast("PipelineInstance", instance)


def data_order(path: Path | None, pipeline: PipelineInstance) -> DataOrder | None:
    """Read the data order of a runtime's file; without one, say what its indices are taken for.

    Parameters
    ----------
    path : Path or None
        The file of the data order.
    pipeline : PipelineInstance
        The pipeline that the runtime's file is for.

    Returns
    -------
    tuple of int or None
        The micro-batch at each index; None without a file.

    Raises
    ------
    InputError
        As in `read_data_order`.
    """
    if path is not None:
        return read_data_order(path, pipeline)
    if pipeline.replicas is None and has_unequal_microbatches(pipeline):
        say(
            "note: micro-batches differ, and index i of the file is taken for micro-batch i; "
            f"{DATA_ORDER} FILE says which it is"
        )
    return None
