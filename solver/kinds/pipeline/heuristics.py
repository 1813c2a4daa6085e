"""The published heuristics of pipelines, in the order of reports."""

from __future__ import annotations

from ppsolve.solver.kinds.pipeline.adapters import adapted
from ppsolve.solver.kinds.pipeline.adaptive_v import ADAPTIVE_V
from ppsolve.solver.kinds.pipeline.bubbles import WITH_FILLERS
from ppsolve.solver.kinds.pipeline.collectives import WITH_COLLECTIVES
from ppsolve.solver.kinds.pipeline.event_driven.schedulers import EVENT_DRIVEN
from ppsolve.solver.kinds.pipeline.microbatch_orders import ORDERS, PERMUTATIONS
from ppsolve.solver.kinds.pipeline.parts import PARTS
from ppsolve.solver.kinds.pipeline.published import PUBLISHED, SLICED_ORDERS
from ppsolve.solver.kinds.pipeline.replicas.heuristics import IN_REPLICAS

_ORDERS = (*PUBLISHED, *SLICED_ORDERS, *EVENT_DRIVEN, ADAPTIVE_V, *ORDERS)

HEURISTICS = (
    *(adapted(h, IN_REPLICAS, WITH_FILLERS, WITH_COLLECTIVES) for h in _ORDERS),
    # Its flow has the collectives: none is added to its schedules.
    adapted(PERMUTATIONS, IN_REPLICAS, WITH_FILLERS),
    *(h for part in PARTS for h in part.heuristics),
)
