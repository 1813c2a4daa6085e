"""The shipped instances: reproducible, valid, named after their files, in families."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
from shipped import instance_files

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.text import instance_text
from ppsolve.models.kinds.kfac.instance import KfacInstance
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import load_instance, lower, parse_instance
from tests.paths import ROOT

INSTANCES = ROOT / "instances"
EVERY = instance_files(INSTANCES)
KFAC = [name for name in EVERY if name.startswith("kfac/")]
OVERLAP = [name for name in EVERY if name.startswith("overlap/")]
SETS = (
    "kfac",
    "overlap",
    "overlap_pipelines",
    "memory",
    "moe",
    "fillers",
    "slices",
    "fused",
    "combined",
    "measured",
)
OF_OTHER_SCRIPTS = tuple(f"{name}/" for name in SETS)
FILES = [name for name in EVERY if not name.startswith(OF_OTHER_SCRIPTS)]


@cache
def script(name: str = "make_instances") -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        name, ROOT / "benchmarks" / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@cache
def instance_of(name: str) -> PipelineInstance:
    instance = load_instance(INSTANCES / name)
    assert isinstance(instance, PipelineInstance)
    return instance


def test_at_least_40_in_families() -> None:
    families = {name.partition("/")[0] for name in FILES}
    assert len(FILES) >= 40
    assert families == {
        "few_microbatches",
        "heterogeneous",
        "large",
        "memory_curve",
        "memory_scan",
        "p2p_heavy",
        "published",
        "step_end",
        "tight_memory",
        "uniform",
        "virtual_stages",
    }


def test_script_makes_them_byte_for_byte() -> None:
    made = {name: instance_text(i) for name, i in script().every_instance().items()}
    assert sorted(made) == FILES
    shipped = {name: (INSTANCES / name).read_text(encoding="utf-8") for name in FILES}
    assert made == shipped


def test_script_makes_the_kfac_set_byte_for_byte() -> None:
    made = script("make_kfac_instances").every_instance()
    texts = {name: instance_text(instance) for name, instance in made.items()}
    assert sorted(texts) == KFAC
    assert texts == {
        name: (INSTANCES / name).read_text(encoding="utf-8") for name in KFAC
    }


def test_script_makes_the_overlap_set_byte_for_byte() -> None:
    made = script("make_overlap_instances").every_instance()
    texts = {name: instance_text(instance) for name, instance in made.items()}
    assert sorted(texts) == OVERLAP
    assert texts == {
        name: (INSTANCES / name).read_text(encoding="utf-8") for name in OVERLAP
    }


def test_script_makes_the_memory_set_byte_for_byte() -> None:
    made = script("make_memory_instances").every_instance()
    texts = {name: instance_text(instance) for name, instance in made.items()}
    assert len(texts) == 8
    assert texts == {
        name: (INSTANCES / name).read_text(encoding="utf-8") for name in texts
    }


def test_script_makes_the_set_with_experts_byte_for_byte() -> None:
    made = script("make_moe_instances").every_instance()
    texts = {name: instance_text(instance) for name, instance in made.items()}
    assert sorted(texts) == [name for name in EVERY if name.startswith("moe/")]
    assert texts == {
        name: (INSTANCES / name).read_text(encoding="utf-8") for name in texts
    }


def test_script_makes_the_fillers_byte_for_byte() -> None:
    made = script("make_filler_instances").every_instance()
    texts = {name: instance_text(instance) for name, instance in made.items()}
    assert sorted(texts) == [name for name in EVERY if name.startswith("fillers/")]
    assert texts == {
        name: (INSTANCES / name).read_text(encoding="utf-8") for name in texts
    }


def test_script_makes_the_sliced_set_byte_for_byte() -> None:
    made = script("make_slice_instances").every_instance()
    texts = {name: instance_text(instance) for name, instance in made.items()}
    assert len(texts) == 5
    assert texts == {
        name: (INSTANCES / name).read_text(encoding="utf-8") for name in texts
    }


def test_script_makes_the_recorded_set_byte_for_byte() -> None:
    made = script("make_measured_instances").every_instance()
    texts = {name: instance_text(instance) for name, instance in made.items()}
    assert sorted(texts) == [name for name in EVERY if name.startswith("measured/")]
    assert texts == {
        name: (INSTANCES / name).read_text(encoding="utf-8") for name in texts
    }


def test_script_makes_the_combined_set_byte_for_byte() -> None:
    made = script("make_combined_instances").every_instance()
    texts = {name: instance_text(instance) for name, instance in made.items()}
    assert sorted(texts) == [name for name in EVERY if name.startswith("combined/")]
    assert texts == {
        name: (INSTANCES / name).read_text(encoding="utf-8") for name in texts
    }


def test_script_makes_the_set_of_fused_blocks_byte_for_byte() -> None:
    made = script("make_fused_instances").every_instance()
    texts = {name: instance_text(instance) for name, instance in made.items()}
    assert sorted(texts) == [name for name in EVERY if name.startswith("fused/")]
    assert texts == {
        name: (INSTANCES / name).read_text(encoding="utf-8") for name in texts
    }


def test_script_makes_the_requests_for_plans_byte_for_byte() -> None:
    plans = script("make_plans")
    made = {
        name: instance_text(request) for name, request in plans.every_request().items()
    }
    made[plans.OBSERVATIONS] = plans.observations()
    shipped = {
        f"plans/{path.name}": path.read_text(encoding="utf-8")
        for path in (INSTANCES / "plans").iterdir()
    }
    assert made == shipped


def test_requests_for_plans_are_no_instances() -> None:
    assert not [name for name in EVERY if name.startswith("plans/")]
    with pytest.raises(InputError, match="`ppsolve plan` reads it"):
        load_instance(INSTANCES / "plans" / "small-12x4.plan.json")
    with pytest.raises(InputError, match="--instance-out FILE` writes its pipeline"):
        parse_instance({"kind": "plan-result"})
    with pytest.raises(InputError, match="`ppsolve goodput` reads them"):
        parse_instance({"kind": "goodput"})


def test_overlap_set_has_what_it_promises() -> None:
    loaded = [load_instance(INSTANCES / name) for name in OVERLAP]
    programs = [
        instance for instance in loaded if isinstance(instance, OverlapInstance)
    ]
    assert len(programs) == len(OVERLAP) >= 15
    assert max(len(program.nodes) for program in programs) >= 1000
    assert {program.collective_order for program in programs} == {"frozen", "free"}
    assert any(program.max_live_bytes is not None for program in programs)
    assert any(program.max_in_flight is not None for program in programs)
    assert any(len(program.groups) > 1 for program in programs)
    types = {node.collective for program in programs for node in program.nodes}
    assert {"all_gather", "reduce_scatter", "all_reduce", "all_to_all"} <= types


def test_kfac_set_has_what_it_promises() -> None:
    instances = [load_instance(INSTANCES / name) for name in KFAC]
    assert len(instances) >= 12
    kfac = [instance for instance in instances if isinstance(instance, KfacInstance)]
    assert len(kfac) == len(instances)
    assert sum(instance.timelines is not None for instance in kfac) >= 5
    assert any(instance.sync_groups for instance in kfac)
    assert any(instance.saved for instance in kfac)
    patterns = {instance.pattern for instance in kfac if instance.pipeline is not None}
    assert {"free", "gpipe", "1f1b", "chimera"} <= patterns


def test_names_are_file_names_and_unique() -> None:
    names = [load_instance(INSTANCES / name).name for name in EVERY]
    assert names == [Path(name).stem for name in EVERY]
    assert len({*names, *KFAC}) == len(names) + len(KFAC)


@pytest.mark.parametrize("name", FILES)
def test_lowers(name: str) -> None:
    instance = instance_of(name)
    problem = lower(instance)
    kinds = 3 if instance.times.is_split else 2
    assert problem.num_ops >= kinds * instance.num_stages * instance.num_microbatches
    alike = any(len(family) > 1 for family in problem.families)
    assert alike or instance.num_microbatches == 1 or "uneven" in name
    for pool in problem.pools:
        assert pool.initial + max(pool.amounts) <= pool.capacity


def test_scan_is_the_published_one() -> None:
    capacities = []
    for name in FILES:
        if not name.startswith("memory_scan/"):
            continue
        instance = instance_of(name)
        assert (instance.num_devices, instance.num_microbatches) == (4, 8)
        assert instance.times.by_kind() == {"F": 29718, "I": 29444, "W": 19927}
        assert instance.memory is not None
        assert instance.p2p.latency == 527
        assert float(instance.memory.released_by_backward_weight) == 0.43243243243243246
        capacities.append(float(str(instance.memory.capacity)))
    assert sorted(capacities) == [1, 1.5, 2, 2.5, 3, 3.5, 4.5, 5, 6, 7]


def test_shapes_that_the_set_promises() -> None:
    shapes = {
        (instance_of(n).num_devices, instance_of(n).num_microbatches)
        for n in FILES
        if n.startswith("uniform/")
    }
    assert shapes == {(4, 8), (8, 16), (8, 32), (16, 64), (32, 256)}
    placements = {
        str(instance_of(n).placement) for n in FILES if n.startswith("virtual_stages/")
    }
    assert {"interleaved", "vshape", "wave", "bidirectional"} <= placements
    modes = {instance_of(n).p2p.mode for n in FILES}
    assert modes == {"delay", "link", "nic"}
    assert {instance_of(n).objective for n in FILES} == {"makespan", "device_span"}
    v = instance_of("virtual_stages/v-4x8-cap8.json")
    assert v.memory is not None
    assert (v.num_stages, v.memory.capacity, v.memory.activation) == (8, 8, 1)
    assert float(v.memory.released_by_backward_weight) == 0.43


def test_readme_describes_every_family() -> None:
    text = (INSTANCES / "README.md").read_text(encoding="utf-8")
    for family in {name.rpartition("/")[0] for name in EVERY}:
        assert f"`{family}/`" in text
