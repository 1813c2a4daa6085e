"""JSON Schema of what the program reads and writes."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter

from ppsolve.models.core.result import HeuristicEntry, Result, ScheduleDocument
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.kfac.result import RefreshEntry, RefreshResult
from ppsolve.models.kinds.overlap.result import OverlapEntry, OverlapResult
from ppsolve.models.studies.curve import Curve
from ppsolve.models.studies.goodput.files import GoodputRows, ParamsDocument
from ppsolve.models.studies.plan.request import PlanRequest
from ppsolve.models.studies.plan.result import Plan
from ppsolve.models.studies.what_if import WhatIf
from ppsolve.solver.api.kinds import all_kinds


def schema_of(kind: str | None) -> dict[str, Any]:
    """Return the schema of a document by its name; None: of any instance."""
    documents: dict[str, type[BaseModel]] = {
        **{kind.name: kind.instance for kind in all_kinds()},
        "result": Result,
        "heuristic": HeuristicEntry,
        "schedule": ScheduleDocument,
        "kfac-result": RefreshResult,
        "kfac-heuristic": RefreshEntry,
        "overlap-result": OverlapResult,
        "overlap-heuristic": OverlapEntry,
        "plan": PlanRequest,
        "plan-result": Plan,
        "curve": Curve,
        "what-if": WhatIf,
        "goodput": ParamsDocument,
        "goodput-result": GoodputRows,
    }
    if kind is not None and kind not in documents:
        raise InputError.unknown(
            "unknown kind",
            kind,
            documents,
        )
    schema = _any_instance() if kind is None else documents[kind].model_json_schema()
    schema = _with_limits(schema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _any_instance() -> dict[str, Any]:
    union: Any = reduce(or_, (kind.instance for kind in all_kinds()))
    schema = TypeAdapter(Annotated[union, Field(discriminator="kind")]).json_schema()
    return {"title": "ppsolve instance", "required": ["kind"], **schema}


LIMITS = {
    "ge": "minimum",
    "le": "maximum",
    "gt": "exclusiveMinimum",
    "lt": "exclusiveMaximum",
}
"""What pydantic calls the limits of numbers behind a validator of our own, and JSON Schema."""


def _with_limits(schema: Any) -> Any:
    """Return a schema whose limits have the names that validators know."""
    if isinstance(schema, list):
        return [_with_limits(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        LIMITS.get(key, key) if isinstance(value, int | float) else key: _with_limits(
            value
        )
        for key, value in schema.items()
    }
