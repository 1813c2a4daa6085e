"""Files of all kinds that are mutated, and the commands that read them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.formats.recording import Recording, fsdp
from tests.studies.traces.cases import rows

ROOT = Path(__file__).parents[2]
UNLIMITED = 5.0  # seconds that a command without a limit may take

SOLVED = "optimize {file} -t 0.3 -q -o {out}"


@dataclass(frozen=True)
class Seed:
    """A file that is mutated, and what the program makes of it, by role."""

    name: str
    role: str
    source: Any  # a document, a text, or the path of a file
    derived: Mapping[str, str] = field(
        default_factory=dict
    )  # commands by the role of their output
    suffix: str = "json"


@dataclass(frozen=True)
class Reading:
    """A command that reads files of some roles."""

    line: str  # words, with {file} for the mutated file
    roles: frozenset[str]

    @property
    def argv(self) -> list[str]:
        """Its words."""
        return self.line.split()

    @property
    def limit(self) -> float:
        """Seconds that it was given; 0 asks for what needs no search, and is no limit."""
        given = re.search(r" -t ([0-9.]+)", self.line)
        return (float(given[1]) if given else 0.0) or UNLIMITED


def _instance(name: str, kind: str, source: Any, **derived: str) -> Seed:
    return Seed(name, kind, source, {f"{kind}-result": SOLVED, **derived})


def _shipped(name: str, kind: str = "pipeline", **derived: str) -> Seed:
    path = ROOT / "instances" / f"{name}.json"
    return _instance(path.stem, kind, path, **derived)


PLAIN = {
    "kind": "pipeline",
    "name": "plain",
    "num_devices": 2,
    "num_microbatches": 3,
    "times": {"forward": [2, 3], "backward_input": 2, "backward_weight": 1},
    "p2p": {"mode": "delay", "latency": 0.5},
    "memory": {"capacity": 3, "activation": 1},
}
V_SHAPED = {
    "kind": "pipeline",
    "name": "v-shaped",
    "num_devices": 2,
    "num_microbatches": 4,
    "placement": "vshape",
    "stages_per_device": 2,
    "times": {"forward": 1, "backward": 2},
}
LAYERED = {
    "kind": "pipeline",
    "name": "layered",
    "num_devices": 2,
    "num_microbatches": 4,
    "layers": {
        "first": {"forward": 1, "backward": 2},
        "body": {"count": 5, "forward": 2, "backward": 4, "activation": 1},
        "recompute": [{"name": "full", "time": 2, "held": 0.1}],
    },
    "memory": {"capacity": 6},
}
REPLICATED = {
    "kind": "pipeline",
    "name": "replicated",
    "num_devices": 2,
    "num_microbatches": 4,
    "times": {"forward": [[1, 2, 3, 4], 2], "backward": [2, [5, 6, 7, 8]]},
    "memory": {"capacity": [2, 1], "activation": 1},
    "optimizer": 3,
    "replicas": {"count": 2, "assignment": "free"},
}
BLOCKS = {
    "kind": "pipeline",
    "name": "blocks",
    "num_devices": 2,
    "stages_per_device": 2,
    "num_microbatches": 4,
    "placement": "interleaved",
    "times": {"forward": 2, "backward_input": 2, "backward_weight": 1},
    "memory": {"capacity": 8, "activation": 1},
    "overlap": {"time": 3},
}
JOB_SHOP = {
    "kind": "graph",
    "name": "job-shop",
    "time_unit": "min",
    "resources": ["lathe", "mill"],
    "ops": [
        {"id": "a", "duration": 3, "resources": ["lathe"]},
        {"id": "b", "duration": 2, "resources": ["mill"]},
        {"id": "c", "duration": 4, "resources": ["mill"]},
        {"id": "d", "duration": 1, "resources": ["lathe"]},
    ],
    "precedences": [
        {"before": "a", "after": "b"},
        {"before": "c", "after": "d", "lag": 1},
    ],
}
PERF = {
    "alpha_c": 0.02, "beta_c": 0.002, "alpha_n": 0.1, "beta_n": 0.007, "alpha_r": 0.01,
    "beta_r": 0.001, "gamma": 2.5,
}  # fmt: skip
PARAMS = {"params": PERF, "grad": {"sqr": 0.0002, "var": 0.09}, "init_batch_size": 128}
CONFIG = {
    "num_stages": 3,
    "num_batches": 5,
    "forward_times": [1.0, 1.5, 0.1],
    "backward_times": [2, 2, 3],
    "p2p_time": 0.25,
    "output_file": "picture.png",
}

LAYERS_OF_SAPP = {
    "layers_description": [
        {"type": "BODY", "nb_layer": 8, "time": 10, "memory_activation": 5}
    ]
}
ORDER = {
    f"stage{stage}": [f"{op}{i}" for op in "FB" for i in range(4)] for stage in (0, 1)
}
POLICY = [
    {
        "model_configs": {"hidden_size": 8},
        "optimpipeline_policy": [
            {
                "num_layers": 5,
                "pipeline_model_parallel_size": 2,
                "enable_scheduler": 1,
                "pp_schedule_list": ORDER,
                "optimal_layers": [3, 2],
            }
        ],
    }
]

SUFFIXES = {"bench": "jsonl", "torch-csv": "csv"}
"""Ends of the names of files that are no JSON document, by role."""


def recorded_kernels() -> dict[str, Any]:
    """Return a profile of a step of FSDP."""
    made = Recording()
    fsdp(0, recording=made)
    return {"traceEvents": made.events}


QUICK = (
    _instance(
        "plain",
        "pipeline",
        PLAIN,
        curve="curve {file} --microbatches 2,3 -t 0.5 -q -o {out}",
        what_if="what-if {file} --microbatches 2,3 -t 0.5 -q -o {out}",
        bench="bench run {file} --processes 1 -t 0.2 -q -o {out}",
        **{
            "torch-csv": "export {pipeline-result} --heuristic 1f1b --to torch -o {out}"
        },
    ),
    _instance("job-shop", "graph", JOB_SHOP),
    _shipped("kfac/measured/packing", "kfac"),
)
"""Files that are made in a moment."""

SEEDS = (
    *QUICK,
    _instance("v-shaped", "pipeline", V_SHAPED),
    _instance("layered", "pipeline", LAYERED),
    _instance("replicated", "pipeline", REPLICATED),
    _instance("blocks", "pipeline", BLOCKS),
    _shipped("slices/llama-8b-32k-4x2"),
    _shipped("overlap_pipelines/tp-fused-2x8-2p"),
    _shipped("virtual_stages/explicit-3x6"),
    _shipped("virtual_stages/bidirectional-4x8"),
    _shipped("step_end/bidirectional-allreduce-4x8"),
    _shipped("p2p_heavy/nic-40-4x8"),
    _shipped("fillers/checkpoint-4x8"),
    _shipped("fillers/muon-4x8-anywhere"),
    _shipped("memory/llama-8b-4x16"),
    _shipped("memory/llama-8b-4x16-offload"),
    _shipped("heterogeneous/uneven-microbatches-4x8-1p"),
    _shipped("kfac/measured/barrier", "kfac"),
    _shipped("kfac/free/bert-6x6-split", "kfac"),
    _shipped("kfac/measured/bert-base-1f1b-4x4", "kfac"),
    _shipped("overlap/tensor-parallel-6l", "overlap"),
    _shipped("overlap/fsdp-step-4l-memory", "overlap"),
    Seed(
        "small-plan",
        "plan",
        ROOT / "instances/plans/small-12x4.plan.json",
        {"plan-result": "plan {file} -t 1 -q --result-out {out}"},
    ),
    Seed("params", "goodput", PARAMS),
    Seed(
        "observations",
        "observations",
        ROOT / "instances/plans/observations.csv",
        suffix="csv",
    ),
    Seed("config", "config", CONFIG),
    Seed("layers", "sapp", LAYERS_OF_SAPP),
    Seed("layered.policy", "mindspeed", POLICY),
    Seed(
        "run",
        "table",
        "".join(json.dumps(row) + "\n" for row in rows()),
        suffix="jsonl",
    ),
    Seed("rank", "trace", ROOT / "tests/data/traces/primus_pp8/pp_rank_0.json"),
    Seed("kernels", "trace", recorded_kernels()),
    Seed("graph", "overlap-graph", ROOT / "tests/data/overlap/I1_half_rule.json"),
)

INSTANCES = "pipeline graph kfac overlap"
RESULTS = "pipeline-result graph-result kfac-result overlap-result"
PIPELINES = "pipeline pipeline-result"

TABLE = {
    "optimize {file} -t 0.2 -q -o {out}": f"{INSTANCES} {RESULTS}",
    "optimize {file} -t 0.2 --json": INSTANCES,
    "optimize {file} -t 0 --verbose": INSTANCES,
    "optimize {file} -t 0.2 -q --for torch": "pipeline",
    "optimize {file} -t 0.2 -q --for megatron": "pipeline",
    "optimize {file} -t 0.2 -q --robust 0.1": "pipeline graph",
    "optimize {instance} -t 0.2 -q --start {file}": RESULTS,
    "optimize {file} -t 0.2 -q --start {result}": INSTANCES,
    "compare {file} {instance} -t 0.2 -q": INSTANCES,
    "bench run {file} --processes 1 -t 0.2 -q -o {out}": INSTANCES,
    "bench merge {file} -o {out}": "bench",
    "bench report {file} -o {out}": "bench",
    "bench report {file} {origin} --json": "bench",
    "plan {file} -t 0.5 -q --result-out {out}": "plan",
    "plan {file} -t 0.5 -q --for torch --json": "plan",
    "simulate {file} --heuristic 1f1b": "pipeline",
    "simulate {file} --heuristic list-critical --json": INSTANCES,
    "heuristics {file}": INSTANCES,
    "check {file}": RESULTS,
    "check {instance} {file}": RESULTS,
    "check {file} {result}": INSTANCES,
    "check {file} --json": RESULTS,
    "show {file}": f"{INSTANCES} {RESULTS} curve what_if plan-result",
    "show {file} --links --width 80": RESULTS,
    "show {instance} {file}": RESULTS,
    "show {file} {result}": INSTANCES,
    "show {file} --heuristic 1f1b": "pipeline",
    "show {file} --order": RESULTS,
    "show {file} --svg {out}": f"{RESULTS} curve plan-result",
    "show {instance} {file} --svg {out}": RESULTS,
    "show {file} --png {out} --picture memory": RESULTS,
    "show {file} --pdf {out} --picture gaps": RESULTS,
    "report {file} -o {out}": f"{RESULTS} what_if plan-result",
    "report {file} --heuristic 1f1b -o {out}": "pipeline-result",
    "goodput fit {file}": "observations",
    "goodput optimize {file} --replicas 1-8 --max-batch-size 1024": "goodput",
    "what-if {file} --microbatches 2,3 -t 0.5 -q": PIPELINES,
    "what-if {file} -t 0.5 -q --html {out}": PIPELINES,
    "curve {file} --microbatches 2,3 -t 0.5 -q": PIPELINES,
    "buckets {file} --latency 2 -t 0.5": "overlap",
    "stress {file} --jitter 0.1 --runs 20": RESULTS,
    "stress {file} --jitter 0.1 --runs 20 --instance {instance} --json": RESULTS,
    "diagnose {file} -t 0.5": "trace table",
    "export {file} --to perfetto -o {out}": RESULTS,
    "export {file} --to torch -o {out}": PIPELINES,
    "export {file} --to torchtitan -o {out}": "pipeline-result",
    "export {file} --to megatron": "pipeline-result",
    "export {file} --to colossalai -o {out}": "pipeline-result",
    "export {file} --to primus -o {out}": "pipeline-result",
    "export {file} --to deepspeed -o {out}": "pipeline-result plan-result",
    "export {file} --to mindformers -o {out}": "pipeline-result",
    "export {file} --to json -o {out}": f"{RESULTS} plan-result",
    "convert visualizer {file} -o {out}": "config",
    "convert pipefisher {file} -o {out}": "trace",
    "convert pipefisher-schedule {file} -o {out}": "kfac-result",
    "convert overlap-graph {file} -o {out}": "overlap-graph",
    "convert kineto-overlap {file} -o {out}": "trace",
    "convert torch-csv {file} --instance {instance} -o {out}": "torch-csv",
    "convert trace {file} -o {dir}": "trace table",
    "convert sapp {file} --stages 4 --microbatches 8 --memory 1000 -o {out}": "sapp",
    "convert mindspeed {file} --instance {instance} -o {out}": "mindspeed",
}

READING = tuple(
    Reading(line, frozenset(roles.split())) for line, roles in TABLE.items()
)
"""Every command that reads files, with the roles of the files that it reads."""
