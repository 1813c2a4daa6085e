"""Which parts of a pipeline cannot be beside which."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppsolve.models.documents.errors import InputError

if TYPE_CHECKING:
    from ppsolve.models.kinds.pipeline.instance import PipelineInstance

_SUCH, _BESIDE = 'no "{0}" with such {1}', 'no such {1} beside "{0}"'
_MODES = ("memory.recompute", "memory.offload")
_JOBS = "no layers, fused blocks or memory modes beside {0}"

REFUSED = (
    (
        "slices",
        _SUCH,
        ("replicas", "layers", "placement", "memory", "overlap", "fillers", "steps"),
    ),
    ("replicas", _SUCH, ("collectives", "placement", "steps", "fillers")),
    ("layers", "no such {1} with {0}", ("replicas", "placement")),
    ("memory", _BESIDE, ("replicas", "collectives inside ops")),
    ("overlap", _BESIDE, ("replicas", "layers", "collectives inside ops", *_MODES)),
    ("fillers or several steps", _JOBS, ("layers", "overlap", "memory")),
)
"""A part of a pipeline, what is expected where it is there, and parts refused beside it."""


def check_combination(instance: PipelineInstance) -> None:
    """Refuse parts of a pipeline that cannot be beside each other; an `InputError` says which."""
    memory, inside = instance.memory, instance.collectives
    plain = ("slices", "replicas", "layers", "overlap", "fillers", "collectives")
    used = {
        **{field: bool(getattr(instance, field)) for field in plain},
        **{
            mode: bool(getattr(memory, mode.rpartition(".")[2], None))
            for mode in _MODES
        },
        "placement": instance.placement == "bidirectional",
        "steps": instance.steps > 1,
        "memory": memory is not None and memory.has_modes,
        "collectives inside ops": inside is not None and bool(inside.by_kind()),
        "fillers or several steps": not instance.is_one_plain_step,
    }
    for part, expected, others in REFUSED:
        for other in others if used[part] else ():
            if used[other]:
                field = part if part == "slices" else other.split()[0]
                raise InputError(
                    "expected " + expected.format(part, other), field=field
                )
