"""Errors as problem documents (RFC 9457)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from ppsolve.models.documents.errors import ErrorCode, PpsolveError

PROBLEM = "application/problem+json"


@dataclass(frozen=True)
class HttpProblem:
    """Why a request is not answered."""

    status: int  # of HTTP
    code: str  # what is wrong, for programs
    detail: str  # what is wrong and what would be right, in a sentence
    field: str | None = None  # of the document
    expected: Any = None  # in its place
    headers: tuple[tuple[str, str], ...] = ()  # of the response

    @classmethod
    def of(cls, error: Exception) -> HttpProblem:
        """Return the problem that an error in an answer is."""
        if isinstance(error, PpsolveError):
            return cls(422, error.code, str(error), error.field, error.expected)
        if isinstance(error, MemoryError):
            text = "the answer takes more memory than is allowed"
            return cls(422, ErrorCode.OUT_OF_MEMORY, text)
        if isinstance(error, RecursionError):
            return cls(422, ErrorCode.SYNTAX, "the document is nested too deeply")
        name = type(error).__name__
        text = f"{name}: a defect of ppsolve; please report it"
        return cls(500, ErrorCode.INTERNAL, text)

    @property
    def body(self) -> bytes:
        """The document."""
        parts = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            "field": self.field,
            "expected": self.expected,
        }
        said = {name: part for name, part in parts.items() if part is not None}
        return json.dumps(said).encode()


def busy(reason: str, seconds: int) -> HttpProblem:
    """Return the problem of a request that may be sent again in some seconds."""
    headers = (("Retry-After", str(seconds)),)
    return HttpProblem(429, "busy", f"{reason}; ask again later", headers=headers)


class ProblemError(Exception):
    """Raised where a request is not answered."""

    def __init__(self, problem: HttpProblem) -> None:
        super().__init__(problem.detail)
        self.problem = problem
