"""The kind ``graph``: its problem is all there is."""

from __future__ import annotations

from ppsolve.models.kinds.graph import GraphInstance, lower_graph
from ppsolve.solver.kinds.kind import Kind

GRAPH = Kind("graph", GraphInstance, lower_graph)
