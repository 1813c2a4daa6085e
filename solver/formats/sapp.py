"""SAPP, the pipeline balancer of MindFormers: its layers as an instance, its answer as a schedule.

Read in MindFormers r1.6.0-beta1, ``toolkit/pipeline_balance``. A file of layers lists a head, a
body and a tail (``layers_description``) with times, parameters and what each type of recomputing
keeps. An answer has lists ``[chunk][stage]``: `offset`, the layers beyond the even share, and how
many of them are recomputed.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from ppsolve.models.core.result import HeuristicEntry
from ppsolve.models.documents.base import Number, StrictModel, Whole, describe
from ppsolve.models.documents.errors import ErrorCode, InputError, errors_in
from ppsolve.models.documents.files import parse_json, read_json, read_text, source_name
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.layers import KEPT
from ppsolve.solver.formats.mindformers import LISTS
from ppsolve.solver.formats.visualizer import parse_yaml
from ppsolve.solver.kinds.pipeline.actions import Order
from ppsolve.solver.kinds.pipeline.grammar import COMPUTE_KINDS, Action
from ppsolve.solver.kinds.pipeline.interleaved import interleaved_1f1b
from ppsolve.solver.kinds.pipeline.one_stage import one_forward_one_backward
from ppsolve.solver.kinds.pipeline.programs import rules

PARTS = {"HEAD": "first", "BODY": "body", "TAIL": "last"}
"""Fields of an instance's layers, by SAPP's types of layers."""

TYPES = {
    "select": ("select_rec", "0.04", "memory_select_rec"),
    "comm": ("select_comm", "0.125", "memory_select_comm"),
    "both": ("both_comm_select", "0.165", "memory_both_comm_select"),
    "full": ("recompute", "0.5", "memory_recompute"),
}
"""Types of recomputing: how their times begin, their default share of a backward, what is kept."""


class LayerTable(StrictModel):
    """A row of SAPP's layers; of memory in MB, all of it as far as it is given."""

    type: Literal["HEAD", "BODY", "TAIL"]
    nb_layer: Annotated[Whole, Field(ge=1)] = 1
    time: Number | None = None
    forward_time: Number | None = None
    backward_time: Number | None = None
    memory_parameter: Number = Field(default=0, validate_default=True)
    memory_activation: Number = Field(default=0, validate_default=True)

    @model_validator(mode="after")
    def _has_a_time(self) -> Self:
        if self.forward_time is None and self.time is None:
            raise ValueError('expected "forward_time" or "time"')
        return self

    @property
    def cost(self) -> dict[str, Any]:
        """Entry of an instance."""
        forward = self.time if self.forward_time is None else self.forward_time
        assert forward is not None
        return {
            "forward": forward,
            "backward": self.backward_time or 2 * forward,
            "activation": self.memory_activation,
            "static": self.memory_parameter,
        }


class LayerTables(StrictModel):
    """The rows of SAPP's layers."""

    layers_description: tuple[LayerTable, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _one_body(self) -> Self:
        if [row.type for row in self.layers_description].count("BODY") != 1:
            text = "expected one kind of layer of type BODY"
            raise InputError(text, field="layers_description")
        return self


def convert_sapp(
    path: str | Path, stages: int, microbatches: int, memory: float, chunks: int = 1
) -> tuple[PipelineInstance, list[str]]:
    """Return the pipeline with open layers that a file of SAPP's layers describes, with warnings.

    Raises `InputError` where the file is none, or a row of it is wrong.

    `memory`: MB of each device.
    `chunks`: stages of each device, interleaved.
    """
    source = source_name(path)
    document = read_json(path)
    with errors_in(source):
        rows = _rows(document)
    warnings = []
    if any(row.get("forward_time") is None for row in rows):
        warnings.append(
            f'{source}: "time" is taken for a forward, whose backward takes twice as long; '
            "versions before r1.6 counted a third of it, which changes no split"
        )
    fields = LayerTable.model_fields
    known = [{name: row[name] for name in fields if name in row} for row in rows]
    tables = LayerTables.parse({"layers_description": known}, source)
    layers: dict[str, Any] = {}
    for row, table in zip(rows, tables.layers_description, strict=True):
        field, cost = PARTS[table.type], table.cost
        if field == "body":
            layers["recompute"] = _recompute(row, cost)
            cost["count"] = table.nb_layer
        elif field in layers:
            cost = {name: cost[name] + layers[field][name] for name in cost}
        layers[field] = cost
    shape = {"placement": "interleaved", "stages_per_device": chunks}
    instance = {
        "name": document.get("name", "sapp"),
        "time_unit": "ms",
        "num_devices": stages,
        "num_microbatches": microbatches,
        "layers": layers,
        "memory": {"capacity": memory, "unit": "MB"},
        **({"placement": "linear"} if chunks == 1 else shape),
    }
    return PipelineInstance.parse(instance, source), warnings


def _rows(document: Any) -> list[dict[str, Any]]:
    rows = document.get("layers_description") if isinstance(document, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(
            "expected the layers of SAPP, a list of objects",
            field="layers_description",
            code=ErrorCode.TYPE,
        )
    # A name of SAPP's own writer ends in a blank.
    return [{name.strip(): value for name, value in row.items()} for row in rows]


def _recompute(row: Mapping[str, Any], cost: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the types of recomputing that keep something."""
    modes = []
    for name, (prefix, default, memory) in TYPES.items():
        if not row.get(memory):
            continue
        time = row.get(f"{prefix}_time") or None
        share = row.get(f"{prefix}_coef")
        extra = cost["backward"] * Decimal(str(default if share is None else share))
        if time is not None:
            extra = Decimal(str(time)) - cost["backward"]
        modes.append({"name": name, "time": extra, "held": row[memory]})
    return modes


def sapp_answer(
    path: str | Path, instance: PipelineInstance, *, less_memory: bool = False
) -> HeuristicEntry:
    """Return the schedule of an answer of SAPP, its order started as early as can be.

    The order is 1F1B, with several stages on a device interleaved 1F1B. The entry is infeasible
    where it breaks the memory of the pipeline. Raises `InputError` where the file has no lists, or
    lists of other stages or layers.

    `path`: YAML (``.yml``, ``.yaml``) or JSON with the lists, alone or in settings of MindFormers.
    `less_memory`: the interleaved order with shorter warm-ups.
    """
    source = source_name(path)
    text = read_text(path)
    with errors_in(source):
        is_yaml = Path(path).suffix.lower() in {".yml", ".yaml"}
        document = parse_yaml(text) if is_yaml else parse_json(text, source)
        claims = {"layers": _layers(_settings(document), instance)}
    ranks, count = instance.num_devices, instance.num_microbatches
    chunks = instance.num_stages // ranks
    if chunks == 1:
        orders = one_forward_one_backward(ranks, count)
    else:
        slope = 1 if less_memory else 2
        orders = interleaved_1f1b(ranks, chunks, count, slope=slope)
    rows = [_actions(order) for order in orders]
    return rules.simulated_entry(rows, instance, "sapp", claims)[0]


def _actions(order: Order) -> list[Action]:
    columns = zip(
        order.stage.tolist(),
        order.kind.tolist(),
        order.microbatch.tolist(),
        strict=True,
    )
    return [
        Action(stage, COMPUTE_KINDS[kind], number) for stage, kind, number in columns
    ]


def _settings(document: Any) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise InputError(
            f"expected an object, got {describe(document)}", code=ErrorCode.TYPE
        )
    config = document.get("model", {}).get("model_config", {})
    return {**document, **config, **document.get("recompute_config", {})}


def _layers(
    settings: Mapping[str, Any], instance: PipelineInstance
) -> list[dict[str, int]]:
    layers = instance.layers
    if layers is None:
        raise InputError(
            "expected an instance with layers",
            field="layers",
            code=ErrorCode.UNSUPPORTED,
        )
    if "offset" not in settings:
        raise InputError(
            "this field is required", field="offset", code=ErrorCode.MISSING
        )
    even = layers.body.count // instance.num_stages
    offsets = _flat(settings, "offset", instance.num_stages)
    counts = [even + offset for offset in offsets]
    listed = {
        name: _flat(settings, name, instance.num_stages, everything=counts)
        for name in LISTS
    }
    stages = []
    for stage, count in enumerate(counts):
        full, select, comm = (listed[name][stage] for name in LISTS)
        both = max(min(select, comm) - full, 0)
        types = {
            "full": full,
            "both": both,
            "select": max(select - full - both, 0),
            "comm": max(comm - full - both, 0),
        }
        types[KEPT] = count - sum(types.values())
        _check(types, stage, layers.names)
        stages.append({name: number for name, number in types.items() if number})
    if sum(counts) != layers.body.count:
        text = f"expected {layers.body.count} layers in all, got {sum(counts)}"
        raise InputError(text, field="offset", code=ErrorCode.LENGTH)
    return stages


def _check(types: Mapping[str, int], stage: int, names: tuple[str, ...]) -> None:
    total = sum(types.values())
    if total < 1 or types[KEPT] < 0:
        text = (
            f"expected a layer on stage {stage}, and no more recomputed than there are"
        )
        raise InputError(text, field="offset")
    unknown = next((n for n, k in types.items() if k and n not in names), None)
    if unknown is not None:
        text = f"the layers of the instance have no type {unknown}, stage {stage} has"
        raise InputError(text, field="recompute")


def _flat(
    settings: Mapping[str, Any],
    name: str,
    stages: int,
    everything: list[int] | None = None,
) -> list[int]:
    """Return a list by stage; 0 or false is none, true is all that there are."""
    value = settings.get(name, 0)
    if value is True and everything is not None:
        return everything
    if value is False or value == 0:
        return [0] * stages
    rows = value if isinstance(value, list) else [value]
    numbers = [n for row in rows for n in (row if isinstance(row, list) else [row])]
    if len(numbers) != stages or any(type(number) is not int for number in numbers):
        raise InputError(
            f"expected a whole number for each of {stages} stages, by chunk",
            field=name,
            code=ErrorCode.TYPE,
        )
    return numbers
