"""Text of instances and documents, and the fingerprint of an instance."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import BaseModel

from ppsolve.models.documents.base import StrictModel, field_names
from ppsolve.models.documents.printable import plain_json

ALWAYS_WRITTEN = ("schema", "kind", "name", "time_unit", "placement", "objective")
"""Fields that a reader wants to see even where they have their default."""


def instance_text(instance: StrictModel) -> str:
    """Return the JSON text of an instance or a request: one field a line, defaults left out."""
    lines = [
        f"  {json.dumps(name)}: {json.dumps(value)}"
        for name, value in instance_data(instance).items()
    ]
    return plain_json("{\n" + ",\n".join(lines) + "\n}\n")


def instance_data(instance: StrictModel) -> dict[str, Any]:
    """Return the plain JSON data of an instance or a request, defaults left out.

    Numbers are the nearest doubles, ints where whole.
    """
    always = {"schema_version", *ALWAYS_WRITTEN} - instance.unsaid
    values = instance.model_dump(
        mode="json", include=always, exclude_none=True
    ) | _sparse(instance)
    return {
        name: values[name] for name in field_names(type(instance)) if name in values
    }


def document_text(document: BaseModel) -> str:
    """Return the JSON text of any other document on one line, fit for a terminal."""
    return plain_json(document.model_dump_json()) + "\n"


def fingerprint(instance: StrictModel) -> str:
    """Return the SHA-256 of an instance as hex; name, origin and layout do not count."""
    unasked = {"name", "description", "plan"}
    asked = {
        key: value for key, value in _sparse(instance).items() if key not in unasked
    }
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def _sparse(instance: StrictModel) -> dict[str, Any]:
    return instance.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
