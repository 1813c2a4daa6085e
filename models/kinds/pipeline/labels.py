"""Kinds of the ops of a pipeline that are no computation of a stage and micro-batch."""

from __future__ import annotations

ALLREDUCE_KINDS = {"F": "ARF", "B": "ARB", "I": "ARI"}
ALLTOALL_KINDS = {"F": "A2AF", "B": "A2AB", "I": "A2AI"}
"""Kind of the collectives inside the ops of each kind."""

ALLREDUCE_KIND = "AR"
REDUCE_SCATTER_KIND = "RS"
ALL_GATHER_KIND = "AG"
OPTIMIZER_KIND = "OPT"

STEP_KIND = "STEP"
"""Zero-length ops between two steps of a stage on a device."""

RECOMPUTE_KIND, OFFLOAD_KIND, RELOAD_KIND = "R", "O", "L"

FILLER_KIND = "X"
