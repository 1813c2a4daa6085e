"""What ``--for`` finds can be exported, and what it cannot is named before anything is searched."""

from __future__ import annotations

import json
from typing import Any

import pytest

import ppsolve
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import read_json
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.formats.program import read_program
from ppsolve.solver.kinds.pipeline.runtimes.families import MEGATRON
from ppsolve.solver.kinds.pipeline.runtimes.timing import settings_of
from tests.kinds.pipeline.runtimes.exporting import drawn, outcome
from tests.marks import first
from tests.paths import ROOT

MODULES = ROOT / "tests" / "data" / "recompute_modules"


@pytest.mark.parametrize("seed", first(10, range(100)))
def test_what_is_found_is_exported(seed: int) -> None:
    assert outcome(*drawn(seed))


@pytest.mark.fuzz
@pytest.mark.parametrize("block", range(10))
def test_much_that_is_found_is_exported(block: int) -> None:
    for seed in range(1000 + 200 * block, 1200 + 200 * block):
        assert outcome(*drawn(seed)), seed


def recomputing(*names: str, **fields: Any) -> PipelineInstance:
    """Return a pipeline in little memory whose stages may recompute."""
    modes = [{"name": name, "time": 2, "held": 4} for name in names]
    memory = {"capacity": 70, "activation": 10}
    return PipelineInstance.parse(
        {
            "kind": "pipeline",
            "name": "recomputing",
            "num_devices": 4,
            "num_microbatches": 8,
            "placement": "interleaved",
            "times": {"forward": 10, "backward": 20},
            "memory": memory | {"recompute": {"modes": modes, "decide": "all"}},
            **fields,
        }
    )


@pytest.mark.parametrize(
    ("name", "modules"),
    [("two-modules", "mla_up_proj mlp"), ("overlap-and-recompute", "mla_up_proj")],
)
def test_modules_become_flags(name: str, modules: str) -> None:
    """Where all is kept nothing fits; modules are allowed beside blocks, several in one mode."""
    instance = PipelineInstance.parse(read_json(MODULES / f"{name}.json"))
    lines = outcome(instance, "megatron").splitlines()
    assert lines[-2:] == [
        "--recompute-granularity selective",
        f"--recompute-modules {modules}",
    ]


@pytest.mark.parametrize(
    ("mode", "is_allowed"),
    [
        ("moe", False),
        ("full", False),
        ("mlp moe", False),
        ("mlp", True),
        ("selective", True),
    ],
)
def test_what_is_not_recomputed_beside_blocks_is_not_tried(
    mode: str, is_allowed: bool
) -> None:
    settings = settings_of(MEGATRON, recomputing(mode, overlap={"time": 24}))
    combined = [each.named["mode"] for each in settings if "combined" in each.named]
    assert set(combined) == ({"keep", mode} if is_allowed else {"keep"})


@pytest.mark.parametrize(
    ("runtime", "mode", "words"),
    [
        ("megatron", "mlp_up", '"mlp_up"'),
        ("megatron", "mlp core_atn", '"core_atn"; did you mean "core_attn"'),
        ("primus", "mlp", 'Primus recomputes whole layers (full), not "mlp"'),
    ],
)
def test_unknown_modes_are_named_before_a_search(
    runtime: str, mode: str, words: str
) -> None:
    with pytest.raises(InputError) as refused:
        ppsolve.optimize(recomputing(mode), runtime=runtime)
    assert refused.value.field == "runtime"
    assert words in refused.value.message
    given = {"capacity": 99, "activation": 1}
    given["recompute"] = {"modes": [{"name": mode, "time": 1}], "decide": ["keep"] * 8}
    assert outcome(recomputing(memory=given), runtime)


def test_unknown_types_of_layers_are_named_too() -> None:
    body = {"count": 8, "forward": 1, "backward": 2}
    layers = {"body": body, "recompute": [{"name": "comm", "time": 1}]}
    instance = PipelineInstance.parse(
        {"num_devices": 2, "num_microbatches": 4, "layers": layers}
    )
    with pytest.raises(
        InputError, match=r'layers: Megatron-LM recomputes .* not "comm"'
    ):
        ppsolve.optimize(instance, runtime="megatron")
    assert outcome(instance, "deepspeed")


def test_pieces_of_no_time_are_one_op() -> None:
    """A forward of which the first piece takes nothing begins with the collective inside it."""
    collectives = {"forward": {"pieces": [0, 1], "alltoall": [0, 2]}}
    instance = PipelineInstance.parse(
        {
            "num_devices": 2,
            "num_microbatches": 3,
            "times": {"forward": [0, 1], "backward": [2, 1]},
            "collectives": collectives,
        }
    )
    result = ppsolve.optimize(instance, runtime="megatron", time_limit=0)
    document = json.loads(result.model_dump_json())
    row, *_ = read_program(document).rows
    assert list(map(str, row)) == ["0F0", "0F1", "0B0", "0F2", "0B1", "0B2"]
    document["schedule"]["ops"].append(document["schedule"]["ops"][0])
    with pytest.raises(InputError, match="twice: 0F0 is there more than once"):
        read_program(document)
