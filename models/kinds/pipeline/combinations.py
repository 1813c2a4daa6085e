"""Which parts of a pipeline cannot be beside which."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppsolve.models.documents.errors import ErrorCode, InputError

if TYPE_CHECKING:
    from ppsolve.models.kinds.pipeline.instance import PipelineInstance

REFUSED = (
    ("slices", "overlap", "blocks are told by micro-batch, not by slice"),
    ("replicas", "collectives", "those of replicas join them at the end of a step"),
    ("replicas", "placement", "bidirectional pipes replicate the stages already"),
    ("replicas", "steps", "micro-batches are shared out anew in every step"),
    ("replicas", "fillers", "a filler names the device of one pipeline"),
    ("replicas", "overlap", "blocks are told by micro-batch, whatever its replica"),
    ("layers", "placement", "bidirectional pipes hold every layer twice"),
    ("overlap", "collectives inside ops", "blocks hide them already"),
)
"""Two parts of a pipeline that refuse each other, and why."""


def check_combination(instance: PipelineInstance) -> None:
    """Refuse parts of a pipeline that cannot be beside each other; an `InputError` says which."""
    inside = instance.collectives
    plain = ("slices", "replicas", "layers", "overlap", "fillers", "collectives")
    used = {
        **{field: bool(getattr(instance, field)) for field in plain},
        "placement": instance.placement == "bidirectional",
        "steps": instance.steps > 1,
        "collectives inside ops": inside is not None and bool(inside.by_kind()),
    }
    for part, refused, why in REFUSED:
        if used[part] and used[refused]:
            text = f'expected no "{refused}" beside "{part}": {why}'
            raise InputError(text, field=refused.split()[0], code=ErrorCode.CONFLICT)
