"""Pipelines that commands read beside another file."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import source_name
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.solver.optimize.kinds import load_instance


def load_pipeline(path: Path) -> PipelineInstance:
    """Read an instance file that must be a pipeline; errors as in `load_instance`."""
    instance = load_instance(path)
    if instance.kind != "pipeline":
        raise InputError(
            f'expected "pipeline", got "{instance.kind}"', source=source_name(path), field="kind"
        )
    return cast("PipelineInstance", instance)
