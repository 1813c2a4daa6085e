"""Flags of Megatron-LM: its order is fixed, the split of layers and the size of groups are free.

Read in Megatron-LM main (2026-08-22): 1F1B with p - r - 1 forwards first, or interleaved with
2 (p - r - 1) + (v - 1) N, for rank r of p, v chunks per rank and groups of N micro-batches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from ppsolve.models.documents.base import Number, StrictModel, Whole, as_clock, describe
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import read_json, source_name
from ppsolve.models.pipeline.entries import check_backward
from ppsolve.models.pipeline.instance import P2P, PipelineInstance
from ppsolve.models.trace.table import COLUMNS, KINDS, NANOSECONDS, Notes, Trace
from ppsolve.solver.formats.layers import (
    DECODER,
    EMBEDDING,
    FIELD,
    LOSS,
    MTP,
    MegatronLayout,
    decoders_of,
    letters_of,
    parse_layout,
)
from ppsolve.solver.formats.placement import chunks_if_looped, refuse_other_orders
from ppsolve.solver.formats.program import RuntimeProgram, Settings
from ppsolve.solver.pipeline.grammar import FORWARD
from ppsolve.solver.pipeline.interleaved import interleaved_1f1b
from ppsolve.solver.pipeline.one_stage import one_forward_one_backward

NAME = "Megatron-LM"


def megatron_flags(program: RuntimeProgram, settings: Settings) -> str:
    """Write a program as flags, one a line.

    Parameters
    ----------
    program : RuntimeProgram
        The program, in the order that Megatron-LM runs.
    settings : Settings
        Says which layers the model has.

    Returns
    -------
    str
        The flags.

    Raises
    ------
    InputError
        The placement, the order or the split is one that no flags say.
    """
    ranks = len(program.rows)
    chunks = chunks_if_looped(program, NAME)
    flags = [f"--pipeline-model-parallel-size {ranks}"]
    if chunks == 1:
        orders = one_forward_one_backward(ranks, program.num_microbatches)
        refuse_other_orders(program, orders, f"{NAME} runs 1F1B with one stage per rank")
    else:
        flags.append(f"--microbatch-group-size-per-virtual-pipeline-stage {_group(program)}")
    letters = letters_of(program, settings.model)
    if letters is not None:
        layout = parse_layout("|".join(letters), ranks)
        layers = sum(layout.layers_per_stage)
        flags += [f"--num-layers {layers}", f'--pipeline-model-parallel-layout "{layout.text()}"']
    elif chunks > 1:
        flags.append(f"--num-virtual-stages-per-pipeline-rank {chunks}")
    flags += _recomputation(program, settings)
    return "\n".join([*flags, *_batch(program)]) + "\n"


def _group(program: RuntimeProgram) -> int:
    """Return the micro-batches per group of an interleaved order.

    Raises
    ------
    InputError
        The order is another one.
    """
    ranks, count = len(program.rows), program.num_microbatches
    if ranks == 1:
        raise InputError(
            f"placement: {NAME} needs several ranks for several stages per rank", field="schedule"
        )
    leading = [a for a in program.actions(0) if a.kind == FORWARD]
    size = next((n for n, action in enumerate(leading) if action.stage), len(leading))
    if not ranks <= size <= count or 0 < count % size < ranks:
        raise InputError(
            f"order: {NAME} runs groups of {ranks} to {count} micro-batches, the last one not "
            f"below {ranks}; rank 0 begins with {size} forwards of its first stage ({leading[0]})",
            field="schedule",
        )
    orders = interleaved_1f1b(ranks, program.num_stages // ranks, count, size)
    rule = f"{NAME} runs interleaved 1F1B in groups of {size}"
    refuse_other_orders(program, orders, rule)
    return size


def _recomputation(program: RuntimeProgram, settings: Settings) -> list[str]:
    """Return the flags of recomputed layers: one number for all stages.

    Of each stage the first n layers are recomputed, or all where there are fewer (method
    ``block`` of ``TransformerBlock``, of which every virtual stage is one).

    Raises
    ------
    InputError
        Stages recompute different numbers of layers.
    """
    if settings.recomputed is None:
        return []
    most = max(settings.recomputed)
    decoders = decoders_of(program, settings)
    for stage, (count, there) in enumerate(zip(settings.recomputed, decoders, strict=True)):
        if count != min(most, there):
            raise InputError(
                f"{NAME} recomputes as many layers of every stage: {min(most, there)} of stage "
                f"{stage}, not {count}",
                field=FIELD,
            )
    if not most:
        return []
    names = {"granularity": "full", "method": "block", "num-layers": most}
    return [f"--recompute-{name} {value}" for name, value in names.items()]


def _batch(program: RuntimeProgram) -> list[str]:
    """Return the flags of the batch, of a plan."""
    size, batch = (program.chosen.get(name) for name in ("microbatch_size", "batch_size"))
    if size is None or batch is None:
        return []
    return [f"--micro-batch-size {size}", f"--global-batch-size {batch}"]


LAYER_FIELDS = {EMBEDDING: "embedding", DECODER: "decoder", MTP: "mtp", LOSS: "loss"}
"""Field of `LayerTimes` of each layer."""


class OneLayer(StrictModel):
    """Times of one micro-batch in one layer."""

    forward: Number
    backward: Number | None = None
    backward_input: Number | None = None
    backward_weight: Number | None = None

    @model_validator(mode="after")
    def _one_backward(self) -> Self:
        check_backward(self.backward, self.backward_input, self.backward_weight)
        return self


NO_TIME = OneLayer(forward=Decimal(0), backward=Decimal(0))


class LayerTimes(StrictModel):
    """Times of the layers of a model, and what an instance needs beside them.

    Parameters
    ----------
    num_microbatches : int
        Micro-batches of a step.
    decoder : OneLayer or list of OneLayer
        Times of every decoder layer, or of each.
    embedding, mtp, loss : OneLayer, optional
        Times of the other layers; none by default.
    p2p : P2P
        Transfers between stages on different ranks.
    """

    name: str = "layout"
    time_unit: str = "us"
    num_microbatches: Annotated[Whole, Field(ge=1)]
    decoder: OneLayer | tuple[OneLayer, ...]
    embedding: OneLayer = NO_TIME
    mtp: OneLayer = NO_TIME
    loss: OneLayer = NO_TIME
    p2p: P2P = P2P()


def instance_of(layout: MegatronLayout, times: LayerTimes) -> PipelineInstance:
    """Return the pipeline of a layout.

    Parameters
    ----------
    layout : MegatronLayout
        Layers of each stage.
    times : LayerTimes
        Times of the layers; backwards are split where those of all given layers are.

    Returns
    -------
    PipelineInstance
        Stages take as long as their layers together; empty stages take no time.

    Raises
    ------
    InputError
        There are other numbers of decoder layers.
    """
    stages = _layers_of_stages(layout, times)
    given = [layer for stage in stages for layer in stage if layer is not NO_TIME]
    is_split = all(layer.backward is None for layer in given)

    def each(amount: Callable[[OneLayer], Decimal]) -> list[Decimal]:
        return [sum(map(amount, stage), Decimal(0)) for stage in stages]

    fields: dict[str, Any] = {"forward": each(lambda layer: layer.forward)}
    if is_split:
        fields["backward_input"] = each(lambda layer: layer.backward_input or Decimal(0))
        fields["backward_weight"] = each(lambda layer: layer.backward_weight or Decimal(0))
    else:
        fields["backward"] = each(_whole_backward)
    return PipelineInstance.parse(
        {
            "name": times.name,
            "time_unit": times.time_unit,
            "num_devices": layout.num_ranks,
            "num_microbatches": times.num_microbatches,
            "placement": "linear" if layout.chunks == 1 else "interleaved",
            "stages_per_device": layout.chunks,
            "times": fields,
            "p2p": times.p2p,
        }
    )


def _layers_of_stages(layout: MegatronLayout, times: LayerTimes) -> list[list[OneLayer]]:
    decoder = times.decoder
    count = layout.layers.count(DECODER)
    if isinstance(decoder, OneLayer):
        decoder = (decoder,) * count
    if len(decoder) != count:
        raise InputError(
            f"expected one entry for each of {count} layers t, got {len(decoder)}", field="decoder"
        )
    following = iter(decoder)
    return [
        [
            next(following) if letter == DECODER else getattr(times, LAYER_FIELDS[letter])
            for letter in stage
        ]
        for stage in layout.stages
    ]


def _whole_backward(layer: OneLayer) -> Decimal:
    parts = (layer.backward, layer.backward_input, layer.backward_weight)
    return sum((part for part in parts if part is not None), Decimal(0))


RANK_FILE = re.compile(r"pp_rank_(\d{1,6})\.json")
CONFIG = "config.json"
LISTS = ("fwd_start", "fwd_end", "bwd_start", "bwd_end")

WARNING = (
    "the clocks of the ranks have no common zero: spans are those of each rank, and the recorded "
    "schedule has clocks set so that transfers take as long in either direction"
)


def read_megatron(paths: Sequence[str | Path]) -> Trace:
    """Read the files of one run, `config.json` among them or beside them.

    The k-th call of a list is micro-batch k. With virtual stages (`vp_size` > 1) it is the k-th
    entry of Megatron's interleaved schedule: groups of `pp_size` micro-batches pass chunk after
    chunk, backwards in reverse (Narayanan et al. 2021, arXiv 2104.04473). Times are milliseconds
    from the start of the iteration on each rank.

    Raises
    ------
    InputError
        A rank is missing or twice, or a list has another length than the configuration says.
    """
    files, config_file = _sorted_files([Path(path) for path in paths])
    config = _Config(config_file)
    if sorted(files) != list(range(config.pp)):
        absent = next((rank for rank in range(config.pp) if rank not in files), None)
        raise InputError(
            f"pp_rank_{absent}.json is missing, pp_size is {config.pp}"
            if absent is not None
            else f"expected ranks below pp_size = {config.pp}, got {max(files)}",
            source=source_name(config_file),
            field="pp_size",
        )
    sources = [source_name(files[rank]) for rank in range(config.pp)]
    data = [_iterations(files[rank]) for rank in range(config.pp)]
    _refuse_other_iterations(data, sources)
    columns: dict[str, list[int]] = {name: [] for name in (*COLUMNS, "origin")}
    totals = [
        [_read(columns, rank, name, one, config, sources[rank]) for name, one in iterations.items()]
        for rank, iterations in enumerate(data)
    ]
    return Trace.of(
        columns,
        unit="ms",
        sources=sources,
        format="megatron",
        is_aligned=config.pp == 1,
        notes=Notes(_outside(totals), (WARNING,) if config.pp > 1 else ()),
    )


class _Config:
    """The numbers of ``config.json`` that say how calls are counted."""

    def __init__(self, path: Path) -> None:
        data = read_json(path)
        if not isinstance(data, dict):
            raise InputError(f"expected an object, got {describe(data)}", source=source_name(path))
        self.pp = self._count(data, "pp_size", path)
        self.chunks = self._count(data, "vp_size", path, 1)
        self.microbatches = self._count(data, "num_mbs", path)
        self.calls = tuple(interleaved_calls(self.pp, self.chunks, self.microbatches))

    @staticmethod
    def _count(data: dict[str, Any], name: str, path: Path, default: int | None = None) -> int:
        value = data.get(name)
        value = default if value is None else value
        if type(value) is not int or not 1 <= value <= 10**6:
            found = "nothing" if value is None else describe(value)
            raise InputError(
                f"expected a whole number from 1, got {found}", source=source_name(path), field=name
            )
        return value


def interleaved_calls(devices: int, chunks: int, microbatches: int) -> Iterator[tuple[int, int]]:
    """Yield chunk and micro-batch of every forward call of a device, in Megatron's order.

    Parameters
    ----------
    devices : int
        Pipeline ranks, which is also the size of a group of micro-batches.
    chunks : int
        Model chunks of each rank.
    microbatches : int
        Micro-batches of a step.

    Yields
    ------
    (int, int)
        Chunk and micro-batch; backwards come in the same order, with the chunks reversed.
    """
    for first in range(0, microbatches, devices if chunks > 1 else microbatches):
        last = min(first + devices, microbatches) if chunks > 1 else microbatches
        for chunk in range(chunks):
            for microbatch in range(first, last):
                yield chunk, microbatch


def _sorted_files(paths: list[Path]) -> tuple[dict[int, Path], Path]:
    files: dict[int, Path] = {}
    config: Path | None = None
    for path in paths:
        match = RANK_FILE.fullmatch(path.name)
        if match is None and path.name == CONFIG:
            config = path
            continue
        if match is None:
            raise InputError("expected pp_rank_<number>.json or config.json", source=str(path))
        rank = int(match[1])
        if rank in files:
            text = f"rank {rank} is there twice, also as {files[rank]}; are two runs mixed?"
            raise InputError(text, source=str(path))
        files[rank] = path
    if not files:
        raise InputError("expected pp_rank_<number>.json, there is none", source=str(paths[0]))
    folders = {path.parent for path in files.values()}
    if len(folders) > 1:
        raise InputError(
            "expected the ranks of one run in one folder; are two runs mixed?",
            source=str(max(folders)),
        )
    return files, config or folders.pop() / CONFIG


def _iterations(path: Path) -> dict[str, dict[str, Any]]:
    data, source = read_json(path), source_name(path)
    if not isinstance(data, dict) or not data:
        raise InputError(f"expected iterations by number, got {describe(data)}", source=source)
    for name, one in data.items():
        if not name.isascii() or not name.isdigit() or len(name) > 15:
            raise InputError(
                f'expected the number of an iteration, got "{name[:40]}"', source=source
            )
        if not isinstance(one, dict):
            raise InputError(
                f"expected an object, got {describe(one)}", source=source, field=f"iteration {name}"
            )
    return data


def _refuse_other_iterations(data: list[dict[str, Any]], sources: list[str]) -> None:
    for iterations, source in zip(data, sources, strict=True):
        other = sorted(iterations.keys() ^ data[0].keys(), key=int)
        if other:
            text = "is in one of this file and " + sources[0] + " only; are two runs mixed?"
            raise InputError(text, source=source, field=f"iteration {other[0]}")


def _read(
    columns: dict[str, list[int]],
    rank: int,
    name: str,
    one: dict[str, Any],
    config: _Config,
    source: str,
) -> tuple[int, int]:
    """Append the ops of one iteration of a rank; return its total time and the span of its ops."""
    where = f"iteration {name}"
    times = {
        key: _times(one.get(key), len(config.calls), source, f"{where}.{key}") for key in LISTS
    }
    total = _time(one.get("total"), source, f"{where}.total")
    for kind, prefix in (("F", "fwd"), ("B", "bwd")):
        for call, (chunk, microbatch) in enumerate(config.calls):
            chunk = config.chunks - 1 - chunk if kind == "B" else chunk
            row = {
                "step": int(name),
                "replica": 0,
                "stage": chunk * config.pp + rank,
                "chunk": chunk,
                "kind": KINDS.index(kind),
                "microbatch": microbatch,
                "start": times[f"{prefix}_start"][call],
                "end": times[f"{prefix}_end"][call],
                "device": rank,
                "origin": rank,
            }
            for column, value in row.items():
                columns[column].append(value)
    ends, starts = times["fwd_end"] + times["bwd_end"], times["fwd_start"] + times["bwd_start"]
    return total, max(ends) - min(starts)


def _outside(totals: list[list[tuple[int, int]]]) -> dict[str, float]:
    """Return the share of the iterations of each rank that lies outside the longest span of ops.

    Within it a rank computes or waits for others; outside are optimizer, data and logging.
    """
    spans = [max(span for _, span in one) for one in zip(*totals, strict=True)]
    return {
        f"rank {rank}": max(0.0, 1 - sum(spans) / max(1, sum(total for total, _ in one)))
        for rank, one in enumerate(totals)
    }


def _times(value: Any, count: int, source: str, field: str) -> list[int]:
    if not isinstance(value, list):
        found = "nothing" if value is None else describe(value)
        raise InputError(f"expected a list of times, got {found}", source=source, field=field)
    if len(value) != count:
        raise InputError(
            f"expected {count} calls (micro-batches x chunks of config.json), got {len(value)}",
            source=source,
            field=field,
        )
    return [_time(item, source, f"{field}[{index}]") for index, item in enumerate(value)]


def _time(value: Any, source: str, field: str) -> int:
    try:
        number = as_clock(value) * NANOSECONDS["ms"]
    except ValueError as error:
        raise InputError(str(error), source=source, field=field) from None
    if abs(number) > Decimal(10) ** 18:
        raise InputError(
            f"expected milliseconds within 31 years, got {value}", source=source, field=field
        )
    return int(number.to_integral_value())
