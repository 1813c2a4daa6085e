"""Pipelines as the ranks of a runtime run them, where a document claims one."""

from __future__ import annotations

from typing import Any

from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.layers import in_chunks, open_chunks

RULE = "runtime"
"""Rule of schedules that a runtime does not run."""

CHUNKS = "virtual_stages"
"""Setting that says the stages of each device, where a pipeline leaves them open."""


def claims_runtime(document: Any) -> bool:
    """Whether a result or a schedule claims a runtime."""
    return isinstance(document, dict) and document.get(RULE) is not None


def as_claimed(instance: PipelineInstance, document: Any) -> PipelineInstance:
    """Return a pipeline as ranks run it, where a document claims a runtime.

    Where the pipeline leaves the stages of a device open, it has those that are claimed.
    """
    if not claims_runtime(document):
        return instance
    claim = document[RULE]
    settings = claim.get("settings") if isinstance(claim, dict) else None
    chunks = settings.get(CHUNKS) if isinstance(settings, dict) else None
    if type(chunks) is int and chunks in open_chunks(instance):
        instance = in_chunks(instance, chunks)
    return instance.by_rank()
