"""Writing instances: one text that people can read, one fingerprint that ignores layout."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ppsolve.models.documents.base import StrictModel, field_names
from ppsolve.models.documents.files import write_text
from ppsolve.models.documents.printable import plain_json

ALWAYS_WRITTEN = ("schema", "kind", "name", "time_unit", "placement", "objective")
"""Fields that a reader wants to see even where they have their default."""


def instance_text(instance: StrictModel) -> str:
    """Return the JSON text of an instance or a request: one field a line, defaults left out.

    Numbers are written as the nearest double, ints where whole; the text ends in a newline.
    """
    lines = [
        f"  {json.dumps(name)}: {json.dumps(value)}"
        for name, value in instance_data(instance).items()
    ]
    return plain_json("{\n" + ",\n".join(lines) + "\n}\n")


def instance_data(instance: StrictModel) -> dict[str, Any]:
    """Return the plain JSON data of an instance or a request, defaults left out.

    Numbers are the nearest doubles, ints where whole.
    """
    always = {"schema_version", *ALWAYS_WRITTEN}
    shown = instance.model_dump(mode="json", include=always, exclude_none=True) | _sparse(instance)
    return {name: shown[name] for name in field_names(type(instance)) if name in shown}


def document_text(document: BaseModel) -> str:
    """Return the JSON text of any other document on one line, fit for a terminal."""
    return plain_json(document.model_dump_json()) + "\n"


def fingerprint(instance: StrictModel) -> str:
    """Return the SHA-256 of an instance's question, as hex; name and description do not count."""
    asked = {
        key: value for key, value in _sparse(instance).items() if key not in {"name", "description"}
    }
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def _sparse(instance: StrictModel) -> dict[str, Any]:
    return instance.model_dump(mode="json", exclude_none=True, exclude_defaults=True)


def write_instances(instances: Mapping[str, StrictModel], directory: Path) -> None:
    """Write instances to files below a directory.

    Parameters
    ----------
    instances : mapping of str to model
        Instances by file name, relative to the directory.
    directory : Path
        Made if it is not there, as are the directories of the names.

    Raises
    ------
    InputError
        A file cannot be written.
    """
    for name, instance in instances.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, instance_text(instance))
