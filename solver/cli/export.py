"""``ppsolve export``: a schedule or plan as the file that a training runtime reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.files import read_json, source_name, write_text
from ppsolve.solver.api.kinds import load_instance
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.guard import say
from ppsolve.solver.cli.inputs import load_pipeline, refuse_given
from ppsolve.solver.cli.options import argument, flag, value
from ppsolve.solver.cli.output import check_writable
from ppsolve.solver.formats.activations import notes_on_modes, with_recomputed
from ppsolve.solver.formats.data_order import in_data_order
from ppsolve.solver.formats.layers import counts_of, parse_counts
from ppsolve.solver.formats.order_file import DATA_ORDER
from ppsolve.solver.formats.perfetto import PICTURES, picture, shown_in
from ppsolve.solver.formats.program import RuntimeProgram, Settings, read_program
from ppsolve.solver.formats.targets import NOT_TESTED, Target, chosen


@dataclass(frozen=True)
class RuntimeOptions:
    """What only files of runtimes have."""

    format: Annotated[
        str | None, value("NAME", "torch: compute_only or compute_comms.")
    ] = None
    replica: Annotated[
        int | None, value("R", "Export this replica, counted from 0.", min=0)
    ] = None
    data_order: Annotated[
        Path | None,
        value(
            "FILE",
            "Renumber micro-batches if needed, and write the micro-batch at each "
            "index here (JSON).",
        ),
    ] = None
    layers: Annotated[
        str | None, value("N,N,...", "Layers of each stage; a plan needs none.")
    ] = None
    model: Annotated[
        str | None,
        value(
            "LAYERS",
            "Kinds of these layers, such as Et*10L [decoder layers].",
        ),
    ] = None
    recompute: Annotated[
        str | None,
        value(
            "N,N,...",
            "megatron, primus: layers of each stage that are recomputed in the backward.",
        ),
    ] = None
    offload_modules: Annotated[
        str | None,
        value(
            "NAME,...",
            "megatron: modules whose inputs are offloaded, such as core_attn.",
        ),
    ] = None
    fsdp: Annotated[
        bool,
        flag(
            "torch, compute_comms: gather and free the parameters of each stage.",
            "--fsdp",
        ),
    ] = False

    def settings(self, target: Target) -> Settings:
        """Return the settings for a runtime; raises InputError where it cannot have them."""
        again = (
            None
            if self.recompute is None
            else parse_counts(self.recompute, "--recompute")
        )
        settings = target.settings(
            self.format, fsdp=self.fsdp, model=self.model, recomputed=again
        )
        if self.offload_modules is None:
            return settings
        if target.name != "megatron":
            raise InputError(
                "expected --to megatron",
                field="--offload-modules",
                code=ErrorCode.CONFLICT,
            )
        return replace(settings, offload_modules=tuple(self.offload_modules.split(",")))

    def given(self) -> dict[str, object]:
        """Return the values by option."""
        return {
            f"--{name.replace('_', '-')}": value for name, value in vars(self).items()
        }


@opt.with_option_groups
def export_command(
    options: RuntimeOptions,
    result: Annotated[
        str,
        argument("RESULT", "Result, heuristic entry, schedule or plan; - is stdin."),
    ],
    to: Annotated[
        str,
        value(
            "NAME",
            "torch, torchtitan, megatron, colossalai, primus, deepspeed, mindformers or json; "
            "perfetto: a trace to look at, of any kind of instance.",
        ),
    ],
    output: opt.TextOutput = "-",
    instance: Annotated[
        Path | None,
        value(
            "FILE",
            "Instance, if the file contains none; the schedule is checked with it.",
        ),
    ] = None,
    heuristic: Annotated[
        str | None, value("NAME", "Export this heuristic's order instead.")
    ] = None,
    beside: Annotated[
        list[str] | None,
        value("RESULT", "perfetto: show this schedule in the same trace; repeatable."),
    ] = None,
) -> None:
    """Write the schedule of a result, or a plan, as the file that a training runtime reads.

    The command refuses what the runtime cannot run, and names the rule and the first op that breaks
    it (exit code 2). docs/runtimes.md lists what each runtime can run.

    `--to perfetto` writes a trace for ui.perfetto.dev and chrome://tracing instead.
    """
    inputs: list[str | Path] = [
        result,
        *(beside or []),
        *([instance] if instance else []),
    ]
    check_writable(Path(output), *inputs)
    check_writable(options.data_order, *inputs, option=DATA_ORDER)
    if to in PICTURES:
        refuse_given(
            options.given(), f"expected a runtime; {to} shows the schedule as it is"
        )
        _export_picture(
            to, [result, *(beside or [])], Path(output), instance, heuristic
        )
        return

    target = chosen(to)
    refuse_given({"--beside": beside}, f"expected --to {' or '.join(PICTURES)}")
    settings = options.settings(target)
    counts = None if options.layers is None else parse_counts(options.layers)
    pipeline = None if instance is None else load_pipeline(instance, result)[0]
    with _about_result(result):
        data = read_json(result)
        program = read_program(
            data, pipeline, heuristic=heuristic, replica=options.replica
        )
        program = in_data_order(program, may_permute=options.data_order is not None)
        program = program if counts is None else _split_as(program, counts)
        counts_of(program)
        settings = with_recomputed(program, settings, target.name)
        notes = [
            *notes_on_modes(program, settings, target.name),
            *target.unsaid(program),
        ]
        texts = target.files(program, settings, Path(output))
    for path in texts:
        check_writable(path, *inputs)
    for path, text in texts.items():
        write_text(path, text)
    _tell_order(program, options.data_order)
    untested = () if target.is_tested else (f"{target.name}: {NOT_TESTED}",)
    say(*(f"note: {note}" for note in (*notes, *untested)))


@contextmanager
def _about_result(file: str) -> Iterator[None]:
    """Name the file in errors that name no option."""
    try:
        yield
    except InputError as error:
        is_option = error.field is not None and error.field.startswith("--")
        raise (error if is_option else error.located(source_name(file))) from None


def _split_as(program: RuntimeProgram, counts: tuple[int, ...]) -> RuntimeProgram:
    if program.layers not in {None, counts}:
        split = ",".join(map(str, program.layers or ()))
        raise InputError(
            f"expected the split of the schedule, {split}", field="--layers"
        )
    return replace(program, layers=counts)


def _export_picture(
    to: str,
    files: Sequence[str],
    output: Path,
    instance: Path | None,
    heuristic: str | None,
) -> None:
    """Write the schedules of documents as one file of a viewer; `heuristic` is of the first."""
    if [*files, str(instance)].count("-") > 1:
        raise InputError(
            "only one of the files can be standard input", code=ErrorCode.CONFLICT
        )
    fallback = None if instance is None else load_instance(instance)
    schedules, names = [], [source_name(file) for file in files]
    for index, (file, name) in enumerate(zip(files, names, strict=True)):
        carried, page_schedule = shown_in(
            read_json(file),
            name,
            heuristic=heuristic if index == 0 else None,
            otherwise=fallback,
        )
        broken = check_schedule(page_schedule.schedule.problem, page_schedule.schedule)
        if broken:
            say(f"warning: {name}: {broken[0]} (ppsolve check lists everything)")
        schedules.append(page_schedule)
        fallback = fallback or carried
    write_text(output, picture(to, schedules, names))


def _tell_order(program: RuntimeProgram, path: Path | None) -> None:
    if path is not None:
        write_text(path, json.dumps(list(program.microbatches)) + "\n")
    if program.is_renumbered:
        first = ", ".join(map(str, program.microbatches[:8]))
        ellipsis = ", ..." if program.num_microbatches > 8 else ""
        say(
            f"note: micro-batches are renumbered: 0, 1, 2, ... of the file are {first}{ellipsis}"
        )
