"""Megatron-LM: flags of a program, layouts with times as instances, and recorded runs.

Its order is fixed, the split of layers and the size of groups are free. Recorded runs, also of
Primus, are ``pp_rank_<r>.json`` per pipeline rank, and ``config.json``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from ppsolve.models.documents.base import Number, StrictModel, Whole, as_clock, describe
from ppsolve.models.documents.errors import ErrorCode, InputError, errors_in
from ppsolve.models.documents.files import read_json, source_name
from ppsolve.models.kinds.pipeline.entries import HasBackward
from ppsolve.models.kinds.pipeline.fields import P2P
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.modes import OFFLOAD, group_sizes
from ppsolve.models.studies.trace.table import COLUMNS, KINDS, NANOSECONDS, Notes, Trace
from ppsolve.solver.formats import layers
from ppsolve.solver.formats.activations import recomputed_modes
from ppsolve.solver.formats.kineto.calls import letters_of
from ppsolve.solver.formats.layers import MegatronLayout
from ppsolve.solver.formats.program import RuntimeProgram, Settings, cannot_say
from ppsolve.solver.kinds.pipeline.interleaved import interleaved_1f1b
from ppsolve.solver.kinds.pipeline.layers.rules import FULL
from ppsolve.solver.kinds.pipeline.runtimes.families import MEGATRON
from ppsolve.solver.kinds.pipeline.runtimes.megatron_waits import (
    OVERLAP_FLAGS,
    P2P_OVERLAP,
)
from ppsolve.solver.kinds.pipeline.runtimes.recomputing import is_selective, modules_of
from ppsolve.solver.studies.traces.fits import boundaries_of


def megatron_flags(program: RuntimeProgram, settings: Settings) -> str:
    """Write a program in the order of Megatron-LM as flags, one a line.

    Raises `InputError` where the placement, the order or the split is one that no flags say.
    """
    order = MEGATRON.order_of(program.rows, program.shape)
    ranks, chunks = program.shape.num_ranks, program.shape.chunks
    flags = [f"--pipeline-model-parallel-size {ranks}"]
    if order is not None and order.group_size is not None:
        flags.append(
            f"--microbatch-group-size-per-virtual-pipeline-stage {order.group_size}"
        )
    letters = layers.letters_of(program, settings.model)
    if letters is not None:
        layout = layers.parse_layout("|".join(letters), ranks)
        count = sum(layout.layers_per_stage)
        flags += [
            f"--num-layers {count}",
            f'--pipeline-model-parallel-layout "{layout.text()}"',
        ]
    elif chunks > 1:
        flags.append(f"--num-virtual-stages-per-pipeline-rank {chunks}")
    overlap = program.settings.get(P2P_OVERLAP)
    if overlap is not None:
        flags.append(OVERLAP_FLAGS[overlap])
    recomputation = _recomputation(program, settings)
    if order is not None and order.is_combined:
        flags.append("--overlap-moe-expert-parallel-comm")
        if recomputation and not _stands_beside_blocks(recomputation):
            rule = "recomputes no layers where forwards and backwards are combined, and no moe"
            raise InputError(
                f"{MEGATRON.title} {rule}",
                field=layers.RECOMPUTE,
                code=ErrorCode.UNSUPPORTED,
            )
    flags += recomputation + _offloading(program, settings)
    return "\n".join([*flags, *_chosen(program)]) + "\n"


def _chosen(program: RuntimeProgram) -> Iterator[str]:
    """Yield the flags of what a plan chose beside the split and recomputed layers."""
    plan = program.plan
    if plan is None:
        return
    if plan.tensor_parallel > 1:
        yield f"--tensor-model-parallel-size {plan.tensor_parallel}"
    if plan.recompute == "selective":
        yield "--recompute-granularity selective"
    if plan.rank_order == "stages_first":
        yield "--use-tp-pp-dp-mapping"
    yield f"--micro-batch-size {plan.microbatch_size}"
    yield f"--global-batch-size {plan.microbatch_size * plan.replicas * program.num_microbatches}"


def _stands_beside_blocks(recomputation: list[str]) -> bool:
    """Whether flags of recomputing are of modules that combined forwards and backwards allow."""
    words = " ".join(recomputation).split()
    return "selective" in words and "moe" not in words


def _recomputation(program: RuntimeProgram, settings: Settings) -> list[str]:
    """Return the flags of recomputed layers: one number for all stages, or modules of all layers.

    Of each stage the first n layers are recomputed, or all where there are fewer (method
    ``block`` of ``TransformerBlock``, which every virtual stage has one of). Where all are, their
    number is not asked for (method ``uniform``, layer by layer).
    """
    named = recomputed_modes(program)
    for mode in sorted(filter(is_selective, named)):
        modules = " ".join(modules_of(mode))
        if len(named) > 1 or settings.recomputed is not None:
            rule = (
                f"{MEGATRON.title} recomputes {mode} of all layers and micro-batches or "
                "of none"
            )
            raise cannot_say(
                f"modes: {rule}, and no whole layers beside it (--recompute)"
            )
        listed = [f"--recompute-modules {modules}"] if modules else []
        return ["--recompute-granularity selective", *listed]
    method, num_layers = "uniform", int(named == {FULL})
    if settings.recomputed is not None:
        method, num_layers = "block", max(settings.recomputed)
    decoders = layers.decoders_of(program, settings) if settings.recomputed else ()
    for stage, (count, there) in enumerate(
        zip(settings.recomputed or (), decoders, strict=True)
    ):
        if count != min(num_layers, there):
            wrong = f"{min(num_layers, there)} of stage {stage}, not {count}"
            text = f"{MEGATRON.title} recomputes as many layers of every stage: {wrong}"
            raise InputError(text, field=layers.RECOMPUTE, code=ErrorCode.UNSUPPORTED)
    names = {"granularity": "full", "method": method, "num-layers": num_layers}
    return (
        [f"--recompute-{name} {value}" for name, value in names.items()]
        if num_layers
        else []
    )


def _offloading(program: RuntimeProgram, settings: Settings) -> list[str]:
    """Return the flags of offloaded activations: as much of every stage and micro-batch.

    A fraction is that of the groups (of a module and layer) of each stage and micro-batch, the
    first ones in the order of forwards; which of them a mode keeps is not known, so it is all.
    """
    kept = [
        (s, k)
        for s, row in enumerate(program.modes)
        for k, m in enumerate(row)
        if m != OFFLOAD
    ]
    if len(kept) == program.num_stages * program.num_microbatches or not program.modes:
        return []
    if kept:
        raise cannot_say(
            f"modes: {MEGATRON.title} offloads the first share of the groups of every stage and "
            f"micro-batch, stage {kept[0][0]} does not offload micro-batch {kept[0][1]}"
        )
    if not settings.offload_modules:
        text = f"expected the modules of {MEGATRON.title} whose inputs are offloaded"
        raise InputError(text + ", such as core_attn", field="--offload-modules")
    return [
        "--fine-grained-activation-offloading",
        f"--offload-modules {' '.join(settings.offload_modules)}",
        "--activation-offload-fraction 1.0",
    ]


class OneLayer(HasBackward):
    """Times of one micro-batch in one layer."""

    forward: Number
    backward: Number | None = None
    backward_input: Number | None = None
    backward_weight: Number | None = None


NO_TIME = OneLayer(forward=Decimal(0), backward=Decimal(0))


class LayerTimes(StrictModel):
    """Times of the layers of a model, and what else an instance needs.

    Decoder layers have one time for all, or one for each; the embedding, multi-token prediction and
    the loss take no time by default. Transfers are those between stages on different ranks.
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
    """Return the pipeline of a layout: stages take as long as their layers together.

    Empty stages take no time. Backwards are split where those of all given layers are. Raises
    `InputError` where there are other numbers of decoder layers.
    """
    stages = _layers_of_stages(layout, times)
    timed = [layer for stage in stages for layer in stage if layer is not NO_TIME]
    halves = ("backward_input", "backward_weight")
    is_split = all(layer.is_split for layer in timed)

    def each(*names: str) -> list[Decimal]:
        amounts = [
            [getattr(layer, name) for layer in stage for name in names]
            for stage in stages
        ]
        return [sum(filter(None, row), Decimal(0)) for row in amounts]

    backwards = {name: each(name) for name in halves}
    return PipelineInstance.parse(
        {
            "name": times.name,
            "time_unit": times.time_unit,
            "num_devices": layout.num_ranks,
            "num_microbatches": times.num_microbatches,
            "placement": "linear" if layout.chunks == 1 else "interleaved",
            "stages_per_device": layout.chunks,
            "times": {"forward": each("forward")}
            | (backwards if is_split else {"backward": each("backward", *halves)}),
            "p2p": times.p2p,
        }
    )


def _layers_of_stages(
    layout: MegatronLayout, times: LayerTimes
) -> list[list[OneLayer]]:
    decoder, count = times.decoder, layout.layers.count(layers.DECODER)
    decoder = (decoder,) * count if isinstance(decoder, OneLayer) else decoder
    if len(decoder) != count:
        text = f"expected one entry for each of {count} layers t, got {len(decoder)}"
        raise InputError(text, field="decoder", code=ErrorCode.LENGTH)
    following = iter(decoder)
    by_letter = {
        layers.EMBEDDING: times.embedding,
        layers.MTP: times.mtp,
        layers.LOSS: times.loss,
    }
    return [
        [
            next(following) if letter == layers.DECODER else by_letter[letter]
            for letter in stage
        ]
        for stage in layout.stages
    ]


NAMES = ("minibatch", "chunk")
"""Ends of the names of lists that say which op a call is."""

RANK_FILE = re.compile(r"pp_rank_(\d{1,6})\.json")
CONFIG = "config.json"


def read_megatron(paths: Sequence[str | Path]) -> Trace:
    """Read the files of one run, with `config.json` among them or in their folder.

    The k-th call of a list is micro-batch k, unless lists of micro-batches and chunks say another
    one (Primus). With virtual stages (`vp_size` > 1) it is the k-th entry of Megatron's interleaved
    schedule: groups of micro-batches pass chunk after chunk, backwards in reverse (Narayanan et al.
    2021, arXiv 2104.04473), as many as calls come in. Times are milliseconds from the start of the
    iteration on each rank. Raises `InputError` where a rank is missing or twice, a list has another
    length than the configuration says, or calls come in no groups or in several.
    """
    files, config_file = _sorted_files([Path(path) for path in paths])
    with errors_in(source_name(config_file)):
        config = _config(read_json(config_file))
        absent = next((rank for rank in range(config.pp) if rank not in files), None)
        if absent is not None:
            text = f"pp_rank_{absent}.json is missing, pp_size is {config.pp}"
            raise InputError(text, field="pp_size", code=ErrorCode.MISSING)
        if len(files) > config.pp:
            text = f"expected ranks below pp_size = {config.pp}, got {max(files)}"
            raise InputError(text, field="pp_size", code=ErrorCode.RANGE)
    sources = [source_name(files[rank]) for rank in range(config.pp)]
    rows: list[tuple[int, ...]] = []
    totals: list[list[tuple[int, int]]] = []
    data = [_iterations(files[rank]) for rank in range(config.pp)]
    for source, iterations in zip(sources, data, strict=True):
        unshared = sorted(iterations.keys() ^ data[0].keys(), key=int)
        if unshared:
            text = f"is in one of this file and {sources[0]} only; are two runs mixed?"
            raise InputError(text, source=source, field=f"iteration {unshared[0]}")
    config, notes = _in_groups(config, data, source_name(config_file))
    for rank, (source, iterations) in enumerate(zip(sources, data, strict=True)):
        with errors_in(source):
            totals.append(
                [_read(rows, rank, *named, config) for named in iterations.items()]
            )
    is_named = config.chunks == 2 and all(
        _has_names(next(iter(iterations.values()))) for iterations in data
    )
    warning = (
        "the clocks of the ranks have no common zero: spans are those of each rank, and the "
        "recorded schedule has clocks set so that transfers take as long in either direction"
    )
    trace = Trace.of(
        dict(zip((*COLUMNS, "origin"), np.array(rows, dtype=np.int64).T, strict=True)),
        unit="ms",
        sources=tuple(sources),
        format="megatron",
        is_aligned=config.pp == 1,
        notes=Notes(_outside(totals), (*notes, warning) if config.pp > 1 else notes),
    )
    return _placed(trace, config.pp) if is_named and config.pp > 1 else trace


def _placed(trace: Trace, ranks: int) -> Trace:
    """Return a run of two chunks a rank on the placement that its times allow, looped or V."""
    stages = np.where(trace.chunk == 0, trace.device, 2 * ranks - 1 - trace.device)
    folded = replace(trace, stage=stages)
    looped_trip, folded_trip = (
        min(
            boundary.round_trip
            for _, _, replica_step in placed.parts()
            for boundary in boundaries_of(replica_step)
        )
        for placed in (trace, folded)
    )
    if folded_trip > looped_trip:
        return folded.warn(
            "its chunks are on a V placement: looped, clocks would differ"
        )
    return trace


@dataclass(frozen=True)
class _Config:
    pp: int
    chunks: int
    microbatches: int
    calls: tuple[tuple[int, int], ...]  # chunk and micro-batch of each forward


def _config(data: Any) -> _Config:
    if not isinstance(data, dict):
        raise InputError(
            f"expected an object, got {describe(data)}", code=ErrorCode.TYPE
        )

    def count(*names: str, default: int | None = None) -> int:
        value = next(
            (data[name] for name in names if data.get(name) is not None), default
        )
        if type(value) is not int or not 1 <= value <= 10**6:
            raise InputError(
                f"expected a whole number from 1, got {_found(value)}",
                field=names[0],
                code=ErrorCode.RANGE,
            )
        return value

    # The second names are those of Primus' simulator.
    pp, chunks = count("pp_size"), count("vp_size", "vpp_size", default=1)
    microbatches = count("num_mbs", "micro_batches")
    calls = tuple(interleaved_calls(pp, chunks, microbatches))
    return _Config(pp, chunks, microbatches, calls)


def _in_groups(
    config: _Config, data: Sequence[dict[str, dict[str, Any]]], source: str
) -> tuple[_Config, tuple[str, ...]]:
    """Return the configuration with the calls of the groups that ranks run, and what is noted."""
    ranks, chunks, microbatches = config.pp, config.chunks, config.microbatches
    first = [next(iter(iterations.values())) for iterations in data]
    if chunks == 1 or any(_has_names(iteration) for iteration in first):
        return config, ()
    letters = [_letters(iteration) for iteration in first]
    fitting = []
    for size in group_sizes(ranks, microbatches):
        orders = interleaved_1f1b(ranks, chunks, microbatches, size)
        if [*map(letters_of, orders)] == letters:
            fitting.append(size)
    if fitting == [ranks]:
        return config, ()
    sizes = ", ".join(map(str, fitting))
    if ranks in fitting:
        text = f"groups of {ranks} micro-batches are assumed, of sizes {sizes} all fit"
        return config, (f"{source}: {text}",)
    if len(fitting) != 1:
        text = f"calls in groups of {sizes}" if fitting else "calls in no groups"
        raise InputError(
            f"expected calls in groups of one size, got {text}; lists fwd_minibatch, fwd_chunk, "
            "bwd_minibatch and bwd_chunk beside their times would say which op each is",
            source=source,
        )
    calls = tuple(interleaved_calls(ranks, chunks, microbatches, fitting[0]))
    note = f"{source}: its calls come in groups of {fitting[0]} micro-batches"
    return replace(config, calls=calls), (note,)


def _has_names(iteration: dict[str, Any]) -> bool:
    """Whether lists say the micro-batch and the chunk of each call."""
    return all(
        iteration.get(f"{kind}_{name}") for kind in ("fwd", "bwd") for name in NAMES
    )


def _letters(iteration: dict[str, Any]) -> str:
    """Return the kinds of the calls of a rank, as they begin."""
    begun: list[tuple[Decimal, str]] = []
    for kind, prefix in (("F", "fwd"), ("B", "bwd")):
        starts = iteration.get(f"{prefix}_start")
        with suppress(ValueError, TypeError):
            begun += [(as_clock(start), kind) for start in starts or ()]
    return "".join(kind for _, kind in sorted(begun))


def _found(value: Any) -> str:
    return "nothing" if value is None else describe(value)


def interleaved_calls(
    devices: int, chunks: int, microbatches: int, group_size: int | None = None
) -> Iterator[tuple[int, int]]:
    """Yield chunk and micro-batch of every forward call of a device, in Megatron's order.

    Groups have as many micro-batches as there are pipeline ranks, or of another size. Backwards
    come in the same order, with the chunks reversed.
    """
    size = (group_size or devices) if chunks > 1 else microbatches
    for first in range(0, microbatches, size):
        for chunk in range(chunks):
            for microbatch in range(first, min(first + size, microbatches)):
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
            raise InputError(
                "expected pp_rank_<number>.json or config.json", source=str(path)
            )
        rank = int(match[1])
        if rank in files:
            text = (
                f"rank {rank} appears twice, also as {files[rank]}; are two runs mixed?"
            )
            raise InputError(text, source=str(path), code=ErrorCode.CONFLICT)
        files[rank] = path
    if not files:
        raise InputError(
            "expected pp_rank_<number>.json, there is none",
            source=str(paths[0]),
            code=ErrorCode.MISSING,
        )
    folders = {path.parent for path in files.values()}
    if len(folders) > 1:
        text = "expected the ranks of one run in one folder; are two runs mixed?"
        raise InputError(text, source=str(max(folders)), code=ErrorCode.CONFLICT)
    return files, config or folders.pop() / CONFIG


def _iterations(path: Path) -> dict[str, dict[str, Any]]:
    with errors_in(source_name(path)):
        data = read_json(path)
        if not isinstance(data, dict) or not data:
            raise InputError(f"expected iterations by number, got {describe(data)}")
        for name, iteration in data.items():
            if not name.isascii() or not name.isdigit() or len(name) > 15:
                raise InputError(
                    f'expected the number of an iteration, got "{name[:40]}"'
                )
            if not isinstance(iteration, dict):
                text = f"expected an object, got {describe(iteration)}"
                raise InputError(text, field=f"iteration {name}", code=ErrorCode.TYPE)
    return data


def _read(
    rows: list[tuple[int, ...]],
    rank: int,
    name: str,
    iteration: dict[str, Any],
    config: _Config,
) -> tuple[int, int]:
    """Append the ops of one iteration of a rank; return its total time and the span of its ops."""
    field, count = f"iteration {name}", len(config.calls)
    total = _time(iteration.get("total"), f"{field}.total")
    begins, ends = [], []
    backwards = "I" if iteration.get("wgrad_start") else "B"
    for kind, prefix in (("F", "fwd"), (backwards, "bwd"), ("W", "wgrad")):
        if kind == "W" and backwards == "B":
            continue
        start, end = (
            _times(iteration.get(f"{prefix}_{side}"), count, f"{field}.{prefix}_{side}")
            for side in ("start", "end")
        )
        begins += start
        ends += end
        calls = _calls(iteration, prefix, config, field)
        for (chunk, microbatch), *moments in zip(calls, start, end, strict=True):
            stage = chunk * config.pp + rank
            op = (int(name), 0, stage, chunk, KINDS.index(kind), microbatch)
            rows.append((*op, *moments, rank, rank))
    return total, max(ends) - min(begins)


def _calls(
    iteration: dict[str, Any], prefix: str, config: _Config, field: str
) -> list[tuple[int, int]]:
    """Return chunk and micro-batch of the calls of a list."""
    if not _has_names(iteration):
        is_forward = prefix == "fwd"
        last = config.chunks - 1
        return [(c if is_forward else last - c, k) for c, k in config.calls]
    limits = {"chunk": config.chunks, "minibatch": config.microbatches}
    columns = []
    for name, limit in limits.items():
        column, place = iteration.get(f"{prefix}_{name}"), f"{field}.{prefix}_{name}"
        if not isinstance(column, list) or len(column) != len(config.calls):
            text = f"expected the {name} of each of {len(config.calls)} calls"
            raise InputError(f"{text}, got {_found(column)}", field=place)
        for number in column:
            if type(number) is not int or not 0 <= number < limit:
                text = f"expected whole numbers below {limit}, got {_found(number)}"
                raise InputError(text, field=place, code=ErrorCode.RANGE)
        columns.append(column)
    calls = [*zip(*columns, strict=True)]
    if len(set(calls)) < len(calls):
        raise InputError(
            "a micro-batch passes a chunk twice", field=f"{field}.{prefix}_chunk"
        )
    return calls


def _outside(totals: list[list[tuple[int, int]]]) -> dict[str, float]:
    """Return the share of the iterations of each rank that lies outside the longest span of ops.

    Within it a rank computes or waits for others; outside are optimizer, data and logging.
    """
    spans = [max(span for _, span in row) for row in zip(*totals, strict=True)]
    return {
        f"rank {rank}": max(
            0.0, 1 - sum(spans) / max(1, sum(total for total, _ in row))
        )
        for rank, row in enumerate(totals)
    }


def _times(value: Any, count: int, field: str) -> list[int]:
    if not isinstance(value, list):
        raise InputError(
            f"expected a list of times, got {_found(value)}",
            field=field,
            code=ErrorCode.TYPE,
        )
    if len(value) != count:
        text = f"expected {count} calls (micro-batches x chunks of config.json), got {len(value)}"
        raise InputError(text, field=field, code=ErrorCode.LENGTH)
    return [_time(item, f"{field}[{index}]") for index, item in enumerate(value)]


def _time(value: Any, field: str) -> int:
    try:
        number = as_clock(value) * NANOSECONDS["ms"]
    except ValueError as error:
        raise InputError(
            str(error), field=field, code=getattr(error, "code", ErrorCode.VALUE)
        ) from None
    if abs(number) > Decimal(10) ** 18:
        raise InputError(
            f"expected milliseconds within 31 years, got {value}",
            field=field,
            code=ErrorCode.RANGE,
        )
    return int(number.to_integral_value())
