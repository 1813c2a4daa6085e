"""The description of the service (OpenAPI): bodies that processes read, examples, problems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel

from ppsolve.solver.service.examples import ANSWERED, ASKED

TEMPLATE = "#/components/schemas/{model}"

PROBLEM_SCHEMA = {
    "type": "object",
    "title": "Problem",
    "description": "RFC 9457",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "what is wrong, for programs"},
        "detail": {"type": "string", "description": "what is wrong, in a sentence"},
        "field": {"type": "string", "description": "path in the document"},
        "expected": {"description": "in the place of the field"},
    },
}


def described(routes: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the description of routes with bodies, examples, and the models of both."""
    # Models are imported where somebody asks for them.
    from ppsolve.solver.service.questions import QUESTIONS
    from ppsolve.solver.service.tasks import TASKS

    document = routes()
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for model in (*QUESTIONS.values(), *TASKS.values()):
        schema = model.model_json_schema(ref_template=TEMPLATE)
        schemas |= schema.pop("$defs", {})
        schemas[model.__name__] = schema
    schemas["Problem"] = PROBLEM_SCHEMA
    for path, asked in ASKED.items():
        operation = document["paths"][f"/{path}"]["post"]
        is_job = path == "jobs"
        models = (*TASKS.values(),) if is_job else (QUESTIONS[path],)
        if not is_job:
            operation["summary"] = (QUESTIONS[path].__doc__ or "").splitlines()[0]
        operation["requestBody"] = {"required": True, "content": _body(models, asked)}
        operation["responses"]["202" if is_job else "200"] = {
            "description": "the answer, or a part of it",
            "content": {"application/json": {"example": ANSWERED[path]}},
        }
    problem = {
        "description": "why there is no answer",
        "content": {
            "application/problem+json": {
                "schema": {"$ref": TEMPLATE.format(model="Problem")}
            }
        },
    }
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = problem
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    return document


def _body(models: Sequence[type[BaseModel]], example: Any) -> dict[str, Any]:
    schemas = [{"$ref": TEMPLATE.format(model=model.__name__)} for model in models]
    schema = schemas[0] if len(schemas) == 1 else {"oneOf": schemas}
    return {"application/json": {"schema": schema, "example": example}}
