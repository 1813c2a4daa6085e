"""How each kind is drawn, by its name."""

from __future__ import annotations

from ppsolve.models.core.result import ScheduleDocument
from ppsolve.solver.render.drawing import Drawing
from ppsolve.solver.render.kfac.drawing import KfacDrawing
from ppsolve.solver.render.overlap.drawing import OverlapDrawing
from ppsolve.solver.render.pipeline.drawing import PipelineDrawing

DRAWINGS: dict[str, Drawing] = {
    "pipeline": PipelineDrawing(),
    "kfac": KfacDrawing(),
    "overlap": OverlapDrawing(),
}
"""Kinds that are not here are drawn as any kind can be."""

ANY = Drawing()


def drawing_of(kind: str | None) -> Drawing:
    """Return the drawing of a kind, the default one if it has none of its own."""
    return DRAWINGS.get(kind or "", ANY)


def drawing_of_document(document: ScheduleDocument) -> Drawing:
    """Return the drawing of a schedule without its instance, by the names of its ops."""
    known = DRAWINGS.values()
    return next((drawing for drawing in known if drawing.recognises(document)), ANY)
