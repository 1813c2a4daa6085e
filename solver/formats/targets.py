"""The runtimes to which schedules are exported, in the order of the help."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ppsolve.models.documents.errors import ErrorCode, InputError, did_you_mean
from ppsolve.models.kinds.pipeline.origin import PlanOrigin
from ppsolve.solver.formats.colossalai import colossalai_nodes
from ppsolve.solver.formats.deepspeed import deepspeed_parts
from ppsolve.solver.formats.layers import RECOMPUTE, counts_of, layers_of
from ppsolve.solver.formats.megatron import megatron_flags
from ppsolve.solver.formats.mindformers import mindformers_lists
from ppsolve.solver.formats.perfetto import PICTURES
from ppsolve.solver.formats.primus import primus_table
from ppsolve.solver.formats.program import FORMATS, Format, RuntimeProgram, Settings
from ppsolve.solver.formats.torch_csv import torch_csv
from ppsolve.solver.formats.torchtitan import torchtitan_files
from ppsolve.solver.kinds.pipeline.programs.communications import with_communications

Writer = Callable[[RuntimeProgram, Settings, Path], dict[Path, str]]

SPLIT = frozenset({"layers_per_stage"})
EVERY = frozenset(PlanOrigin.model_fields)

NOT_TESTED = "not tested against the runtime"


@dataclass(frozen=True)
class Target:
    """A runtime, or our own format."""

    name: str  # what ``--to`` says
    # callable: returns the texts of the files for a `RuntimeProgram`, `Settings` and a path; raises
    # `InputError` with the rule and the first op that the runtime cannot say
    files: Writer
    is_tested: bool = False  # whether its files were run by the runtime
    formats: tuple[Format, ...] = ()  # what ``--format`` may say, the default first
    recomputes: bool = (
        False  # whether it can say how many layers of a stage are recomputed
    )
    says: frozenset[str] = SPLIT  # the fields of `PlanOrigin` that its files say

    def settings(
        self,
        form: str | None = None,
        *,
        fsdp: bool = False,
        model: str | None = None,
        recomputed: tuple[int, ...] | None = None,
    ) -> Settings:
        """Return settings for this runtime, in its first format by default.

        Raises `InputError` where the runtime has no such format, parameters or recomputed layers,
        or `model` is none.
        """
        formats = [name for name in self.formats if form in {None, name}]
        if form is not None and not formats:
            hint = did_you_mean(form, self.formats) if self.formats else ""
            raise InputError(
                f'{self.name} has no format "{form}"{hint}',
                field="--format",
                code=ErrorCode.UNKNOWN_NAME,
                expected=tuple(self.formats),
            )
        if fsdp and self.name != "json" and formats[:1] != ["compute_comms"]:
            raise InputError(
                "expected --to torch --format compute_comms",
                field="--fsdp",
                code=ErrorCode.CONFLICT,
            )
        if model is not None:
            layers_of(model)
        if recomputed is not None and not self.recomputes:
            able = " or ".join(target.name for target in TARGETS if target.recomputes)
            raise InputError(
                f"expected --to {able}", field=RECOMPUTE, code=ErrorCode.CONFLICT
            )
        return Settings(formats[0] if formats else FORMATS[0], fsdp, model, recomputed)

    def unsaid(self, program: RuntimeProgram) -> Iterator[str]:
        """Yield what the reader of a file of this runtime has to set by hand, or to tell."""
        decisions = {} if program.plan is None else dict(program.plan.decisions())
        if program.layers is not None:
            counts = ",".join(map(str, program.layers))
            decisions["layers_per_stage"] = f"layers per stage {counts}"
        elif "layers_per_stage" in self.says:
            yield f"{self.name}: the layers of each stage are not known; --layers says them"
        missing = [
            words for field, words in decisions.items() if field not in self.says
        ]
        if missing:
            yield f"{self.name}: not in the file, set by hand: {'; '.join(missing)}"


def _neutral_json(program: RuntimeProgram, settings: Settings) -> str:
    """Write our own form: a program with and without communications, placement, split, data."""
    comms = with_communications(program.rows, program.ends, shards=settings.shards)
    document = {
        "schema": 1,
        "kind": "pipeline-program",
        "name": program.name,
        "num_ranks": len(program.rows),
        "num_stages": program.num_stages,
        "num_microbatches": program.num_microbatches,
        "stage_to_rank": program.stage_to_rank,
        "layers_per_stage": counts_of(program),
        "data_order": program.microbatches,
        "modes": program.modes,
        "layer_modes": program.layer_modes,
        "plan": None if program.plan is None else program.plan.model_dump(mode="json"),
        "compute_only": [[str(step) for step in row] for row in program.rows],
        "compute_comms": [[str(step) for step in row] for row in comms],
    }
    return json.dumps(document) + "\n"


def _single(write: Callable[[RuntimeProgram, Settings], str]) -> Writer:
    return lambda program, settings, path: {path: write(program, settings)}


TARGETS = (
    Target(
        "torch",
        _single(
            lambda p, settings: torch_csv(p, settings.form, shards=settings.shards)
        ),
        is_tested=True,
        formats=FORMATS,
        says=frozenset(),
    ),
    Target("torchtitan", torchtitan_files, says=SPLIT | {"tensor_parallel"}),
    Target(
        "megatron", _single(megatron_flags), recomputes=True, says=EVERY - {"replicas"}
    ),
    Target("colossalai", _single(colossalai_nodes), says=frozenset()),
    Target(
        "primus", _single(primus_table), recomputes=True, says=frozenset({"recompute"})
    ),
    Target("deepspeed", _single(deepspeed_parts)),
    Target("mindformers", _single(mindformers_lists), says=SPLIT | {"recompute"}),
    Target("json", _single(_neutral_json), is_tested=True, says=EVERY),
)


def chosen(name: str) -> Target:
    """Return the target of this name.

    Raises `InputError` where there is none of this name.
    """
    targets = {target.name: target for target in TARGETS}
    if name not in targets:
        raise InputError.unknown(
            "unknown runtime",
            name,
            [*targets, *PICTURES],
            field="--to",
        )
    return targets[name]
