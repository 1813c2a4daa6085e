"""Op kinds of K-FAC problems, and the timeline labels that they stand for."""

from __future__ import annotations

KIND_OF = {
    ("cov", "A"): "CA",
    ("cov", "B"): "CB",
    ("sync", "A"): "SA",
    ("sync", "B"): "SB",
    ("inv", "A"): "IA",
    ("inv", "B"): "IB",
}
"""Kind of K-FAC ops by class and factor: curvature, sync and inversion of factors A and B."""

PRECONDITION_KIND = "PC"
"""Preconditioning of a module's gradient, once an iteration."""

STEP_KIND = "STEP"
"""Zero-length ops between two iterations of a stage."""

KFAC_KINDS = frozenset(KIND_OF.values())
"""Kinds of curvature, sync and inversion ops."""
