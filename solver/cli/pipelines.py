"""Pipelines that commands read beside another file."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import source_name
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.solver.optimize.kinds import load_instance


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
