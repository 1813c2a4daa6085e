"""Pipelines with parts beside each other, held to the plain model of all that they leave open."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import Status
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from tests.kinds.pipeline.open.drawn import MORE, PAIRS, drawn
from tests.outside.combined_model import combined_optimum
from tests.outside.plain_model import Instance

MANY = 150
"""Seeds of each pair in the long run; the default run tries every other pair, each way to ask."""

ASKED: tuple[dict[str, Any], ...] = (
    {"workers": 1},
    {"workers": 1, "heuristics": []},
    {"workers": 1, "deterministic": True},
    {"workers": 2},
)
"""Ways to ask, of which each seed takes one."""


def agrees(name: str, seed: int) -> None:
    """Ask for the optimum of a drawn pipeline, and hold the answer to the plain model."""
    data = drawn(name, seed)
    instance = PipelineInstance.parse(data)
    best = combined_optimum(data)
    try:
        result = ppsolve.optimize(instance, time_limit=60, **ASKED[seed % len(ASKED)])
    except InputError as error:
        assert "filler that waits for itself" in error.message
        assert best is None
        return
    if best is None:
        assert result.status is Status.INFEASIBLE
        return
    assert result.status is Status.OPTIMAL
    assert (exact(result.value), exact(result.bound)) == (best, best)
    document = json.loads(result.model_dump_json(by_alias=True, exclude_none=True))
    assert ppsolve.check(instance, result) == []
    assert ppsolve.check(instance, document) == []
    for changed in false_claims(data, document):
        assert is_refuted(instance, changed)


def is_refuted(instance: PipelineInstance, document: dict[str, Any]) -> bool:
    """Whether a claim is found false; blocks that are not claimed are names of no ops."""
    try:
        return ppsolve.check(instance, document) != []
    except InputError:
        return True


def exact(value: Any) -> Fraction:
    return Fraction(str(value))


def false_claims(data: Instance, document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the document with another choice, under which ops take another time or device."""
    yield document | {"value": document["value"] + 1}
    if document.get("layers"):
        yield from _other_layers(data, document)
    if document.get("modes"):
        yield from _other_modes(data, document)
    if document.get("fused"):
        yield document | {"fused": document["fused"][1:]}
    if document.get("assignment"):
        rows = document["assignment"]
        yield document | {"assignment": rows[1:] + rows[:1]}
    for filler in data.get("fillers", []):
        if filler.get("devices"):
            moved = dict(document.get("devices") or {})
            if moved.pop(filler["name"], None) is None:
                moved[filler["name"]] = filler["devices"][0]
            yield document | {"devices": moved}


def _other_layers(data: Instance, document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    first, second, *behind = document["layers"]
    if sum(first.values()) > 1:
        name = next(iter(first))
        fewer = first | {name: first[name] - 1}
        more = second | {name: second.get(name, 0) + 1}
        yield document | {"layers": [fewer, more, *behind]}
    yield document | {"layers": [first | {"keep": first.get("keep", 0) + 1}, second]}


def _other_modes(data: Instance, document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    names, memory = document["modes"], data["memory"]
    entry = memory.get("recompute") or memory["offload"]
    if isinstance(entry.get("decide"), list) or not isinstance(names[0], str):
        return
    for mode in memory.get("recompute", {}).get("modes", []):
        time = mode["time"][0] if isinstance(mode["time"], list) else mode["time"]
        if names[0] == "keep" and time:
            changed = [mode["name"], *names[1:]]
            if entry.get("decide") == "all":
                changed = [mode["name"]] * len(names)
            yield document | {"modes": changed}


@pytest.mark.parametrize(
    ("name", "seed"),
    [(name, place % len(ASKED)) for place, name in enumerate(PAIRS[::2])],
)
def test_two_parts_are_solved_to_their_optimum(name: str, seed: int) -> None:
    agrees(name, seed)


@pytest.mark.parametrize("seed", range(2))
def test_three_parts_are_solved_to_their_optimum(seed: int) -> None:
    agrees(MORE, seed)


def test_modes_of_microbatches_are_proved_where_no_model_has_them_all() -> None:
    """Asking about the relaxed problem again and again proves nothing: cells are branched on."""
    agrees("pipes recompute", 17)


@pytest.mark.fuzz
@pytest.mark.parametrize("first", range(0, MANY, 10))
@pytest.mark.parametrize("name", [*PAIRS, MORE])
def test_many_are_solved_to_their_optimum(name: str, first: int) -> None:
    for seed in range(first, min(first + 10, MANY)):
        agrees(name, seed)
