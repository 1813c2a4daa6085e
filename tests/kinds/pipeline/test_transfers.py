"""Transfers and latencies that are orders of magnitude from the ops are questioned by field."""

from __future__ import annotations

from typing import Any

import pytest

from ppsolve.models.kinds.kfac.instance import KfacInstance
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.transfers import doubtful_units, hops
from ppsolve.solver.api.kinds import kind_of
from tests.kinds.kfac.described_instances import described_instance

TIMES = {"forward": [2, 10], "backward": 50}
"""The shortest op takes 2, the longest 50."""

EQUAL = {"forward": 1, "backward": 1}


def pipeline(p2p: dict[str, Any], **fields: Any) -> PipelineInstance:
    data = {
        "num_devices": 2,
        "num_microbatches": 2,
        "times": TIMES,
        "p2p": p2p,
        **fields,
    }
    return PipelineInstance.parse(data)


def link(bandwidth: Any, size: Any = 6, **more: Any) -> dict[str, Any]:
    return {"mode": "link", "bytes": size, "bandwidth": bandwidth, **more}


@pytest.mark.parametrize(
    ("p2p", "line"),
    [
        (
            link(6e6),
            "p2p.bandwidth: a transfer takes 1E-06 us where the shortest op takes 2 us",
        ),
        (
            link(1e-4),
            "p2p.bandwidth: a transfer takes 6E+04 us where the longest op takes 50 us",
        ),
        (
            {"latency": 1e-6},
            "p2p.latency: it is 1E-06 us where the shortest op takes 2 us",
        ),
        (
            {"latency": 6e4},
            "p2p.latency: it is 6E+04 us where the longest op takes 50 us",
        ),
    ],
)
def test_the_field_and_both_times_are_named(p2p: dict[str, Any], line: str) -> None:
    assert list(doubtful_units(pipeline(p2p))) == [f"{line}: is the unit right?"]


@pytest.mark.parametrize(
    "p2p",
    [
        {},
        {"latency": 2e-6},
        {"latency": 50_000},
        link(3_000_000),
        link(0.00012),
        link(1, 0),
        # One slow link among fast ones is no wrong unit, nor is one that carries next to nothing.
        link([[1, 1e9], [1, 1]]),
        link(1, [[1e-9, 6]]),
    ],
)
def test_the_limits_themselves_and_zeros_are_no_question(p2p: dict[str, Any]) -> None:
    assert list(doubtful_units(pipeline(p2p))) == []


def test_both_fields_may_be_questioned() -> None:
    lines = list(doubtful_units(pipeline(link(1e-4, latency=1e-9))))
    assert [line.partition(":")[0] for line in lines] == [
        "p2p.bandwidth",
        "p2p.latency",
    ]


def test_nothing_is_asked_without_transfers() -> None:
    assert (
        list(doubtful_units(pipeline({"latency": 1e9}, num_devices=1, times=EQUAL)))
        == []
    )


def test_the_pipeline_of_kfac_work_is_asked_too() -> None:
    work = ("curvature_a", "curvature_b", "inverse_a", "inverse_b", "precondition")
    module = {"name": "m", **dict.fromkeys(work, 1)}
    instance = described_instance(module, 2, 2)
    assert isinstance(instance, KfacInstance)
    assert instance.pipeline is not None
    slow = instance.pipeline.model_copy(update={"p2p": pipeline({"latency": 1e9}).p2p})
    (line,) = kind_of(instance).doubts(instance.model_copy(update={"pipeline": slow}))
    assert line.startswith("pipeline.p2p.latency: it is 1E+09 us where")


def test_hops_join_different_devices_in_both_directions() -> None:
    instance = pipeline({}, stages_per_device=2, placement="vshape", times=EQUAL)
    assert hops(instance) == [(0, 0, 1), (0, 1, 0), (2, 0, 1), (2, 1, 0)]
