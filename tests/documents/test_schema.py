"""The printed JSON Schema agrees with the parser: on files, on pages, and on spoilt documents."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import random
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

import ppsolve
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.solver.cli.schema import schema_command
from tests.documents.mutations import (
    added,
    any_path,
    copied,
    cut,
    emptied,
    lost,
    replaced,
    scaled_number,
    scaled_numbers,
    strange_value,
    swapped,
    wrapped,
)
from tests.paths import ROOT

KINDS = {"pipeline", "graph", "kfac", "overlap", "plan"}

SAID = {
    ErrorCode.TYPE,
    ErrorCode.UNKNOWN_FIELD,
    ErrorCode.MISSING,
    ErrorCode.LENGTH,
    ErrorCode.RANGE,
}
"""What a schema says too; other faults are about several fields, names or units at once."""

TEXTS = ("80GB", "24 ms", "16MiB", "1.25p", "25GB/s", "3 us", " 1.5e3 s ", "7 lb", "1")


def with_text(data: Any, rng: random.Random) -> Any:
    """Put a text with a unit, or one that looks like it, in the place of a number."""
    path = any_path(data, rng, (int, float))
    return data if path is None else replaced(data, path, rng.choice(TEXTS))


MUTATIONS = (
    strange_value, scaled_number, scaled_numbers, wrapped, lost, lost, emptied, added, swapped,
    copied, cut, with_text, with_text,
)  # fmt: skip


@cache
def validator(kind: str | None) -> Draft202012Validator:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        schema_command(kind)
    return Draft202012Validator(json.loads(printed.getvalue()))


def validator_of(document: Any) -> Draft202012Validator:
    is_plan = isinstance(document, dict) and document.get("kind") == "plan"
    return validator("plan" if is_plan else None)


def refusal(document: Any) -> InputError | None:
    is_plan = isinstance(document, dict) and document.get("kind") == "plan"
    try:
        (ppsolve.parse_request if is_plan else ppsolve.parse_instance)(document)
    except InputError as error:
        return error
    return None


@cache
def shipped() -> dict[Path, Any]:
    documents = {
        path: json.loads(path.read_text())
        for path in sorted((ROOT / "instances").rglob("*.json"))
    }
    return {
        path: document
        for path, document in documents.items()
        if isinstance(document, dict) and document.get("kind") in KINDS
    }


@cache
def on_pages() -> dict[str, Any]:
    """JSON documents on pages, whole ones, which parse; by page and number."""
    blocks = re.compile(
        r"```json\n(.*?)```|<< *'?END'?[^\n]*\n(.*?)\n *END\b", re.DOTALL
    )
    documents = {}
    for page in sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]):
        for number, block in enumerate(blocks.finditer(page.read_text())):
            with contextlib.suppress(json.JSONDecodeError):
                document = json.loads(block[1] or block[2])
                if isinstance(document, dict) and document.get("kind") in KINDS:
                    documents[f"{page.name} {number}"] = document
    return {
        name: document for name, document in documents.items() if not refusal(document)
    }


def refused_by_schema(documents: dict[Any, Any]) -> list[Any]:
    return [
        name
        for name, document in documents.items()
        if not validator_of(document).is_valid(document)
    ]


def test_every_shipped_instance_is_valid() -> None:
    assert len(shipped()) > 150
    assert refused_by_schema(shipped()) == []


def test_every_document_on_a_page_is_valid() -> None:
    assert len(on_pages()) > 8
    assert refused_by_schema(on_pages()) == []


LAYERS = {
    "kind": "pipeline",
    "time_unit": "ms",
    "num_devices": 2,
    "num_microbatches": 4,
    "layers": {"body": {"count": 4, "forward": "3 ms", "backward": "6e3us", "activation": "9MiB"}},
    "memory": {"unit": "GB", "capacity": ["80GB", "1.25p"]},
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "is_valid"),
    [
        ({}, True),
        ({"layers": None}, False),
        ({"layers": None, "times": {"forward": "24 ms", "backward": 1}}, False),
        (
            {
                "layers": None,
                "memory": None,
                "times": {"forward": "24 ms", "backward": 1},
            },
            True,
        ),
        ({"layers": None, "memory": None, "times": {"forward": "24 ms"}}, False),
        (
            {
                "layers": None,
                "memory": None,
                "times": {"forward": "24 lb", "backward": 1},
            },
            False,
        ),
        ({"times": 3}, False),
        ({"kind": None}, False),
    ],
)
def test_amounts_with_units_and_layers(changes: dict[str, Any], is_valid: bool) -> None:
    document = LAYERS | changes
    assert validator(None).is_valid(document) is is_valid
    assert (refusal(document) is None) is is_valid


def spoilt(seed: int) -> Any:
    rng = random.Random(seed)
    small = [d for d in shipped().values() if len(json.dumps(d)) < 6000]
    document = copy.deepcopy(rng.choice([*small, *on_pages().values()]))
    for _ in range(rng.choice((1, 1, 2))):
        document = rng.choice(MUTATIONS)(document, rng)
    return document


def disagreement(document: Any) -> str | None:
    """Say where the schema is stricter than the parser, or does not say what it could."""
    try:
        document = json.loads(json.dumps(document, allow_nan=False))
    except ValueError:
        return None
    error, is_valid = refusal(document), validator_of(document).is_valid(document)
    if error is None:
        return None if is_valid else "the schema refuses what the parser takes"
    # Whole numbers without a limit of their own end where amounts do, which no schema says.
    is_huge = error.code is ErrorCode.RANGE and "1E+15" in str(error.expected)
    # Pydantic reports rules of one field; rules between fields no schema says.
    is_of_field = isinstance(error.__context__, ValidationError)
    is_said = error.code in SAID and is_of_field
    if is_valid and is_said and not is_huge:
        return f"the schema takes what the parser refuses: {error.code}: {error}"
    return None


@pytest.mark.parametrize(
    "first",
    [0, *(pytest.param(n, marks=pytest.mark.fuzz) for n in range(60, 2060, 500))],
)
def test_schema_and_parser_refuse_the_same(first: int) -> None:
    seeds = range(first, first + (60 if first == 0 else 500))
    differences = {seed: disagreement(spoilt(seed)) for seed in seeds}
    assert {seed: text for seed, text in differences.items() if text} == {}
