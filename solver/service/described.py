"""The description of the service (OpenAPI): bodies that processes read, examples, problems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ppsolve.solver.service.examples import ANSWERED, ASKED
from ppsolve.solver.service.questions import QUESTIONS
from ppsolve.solver.service.tasks import TASKS

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


def body_of(path: str) -> dict[str, Any]:
    """Return the description of the body of a question, with an example."""
    models = list(TASKS.values()) if path == "jobs" else [QUESTIONS[path]]
    schemas = [{"$ref": TEMPLATE.format(model=model.__name__)} for model in models]
    schema = schemas[0] if len(schemas) == 1 else {"oneOf": schemas}
    content = {"application/json": {"schema": schema, "example": ASKED[path]}}
    return {"requestBody": {"required": True, "content": content}}


def answers_of(path: str, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """Return the description of the answers to a question, with an example."""
    content = {"application/json": {"example": ANSWERED[path]}}
    return {status: {"description": "the answer, or a part of it", "content": content}}


def described(routes: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the description of routes with the models of bodies and of problems."""
    document = routes()
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for model in (*QUESTIONS.values(), *TASKS.values()):
        schema = model.model_json_schema(ref_template=TEMPLATE)
        schemas |= schema.pop("$defs", {})
        schemas[model.__name__] = schema
    schemas["Problem"] = PROBLEM_SCHEMA
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
