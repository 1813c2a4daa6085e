"""A goodput model, and measured curves of pipelines for it."""

from __future__ import annotations

from typing import Any

from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.studies.goodput.params import GradParams, PerfParams
from ppsolve.solver.studies.goodput.curve import ScheduleCurve
from ppsolve.solver.studies.goodput.model import GoodputModel
from ppsolve.solver.studies.plan.curve import measure_curve
from tests.studies.goodput.curve_cases import numbers_of

GRAD = GradParams(0.002, 0.03)
SIZES = (1, 2, 4, 8)


def performance(**changed: float) -> PerfParams:
    plain = {"alpha_c": 0.02, "beta_c": 0.002, "alpha_n": 0.12, "beta_n": 0.007}
    plain |= {"alpha_r": 0.013, "beta_r": 0.0009, "gamma": 2.75}
    return PerfParams(**{**plain, **changed})


def model(init_batch_size: float = 16, **changed: float) -> GoodputModel:
    return GoodputModel(performance(**changed), GRAD, init_batch_size)


def pipeline(**fields: Any) -> PipelineInstance:
    plain = {
        "num_devices": 4,
        "num_microbatches": 4,
        "times": {"forward": 1, "backward": 2},
    }
    return PipelineInstance.parse({"time_unit": "ms", **plain, **fields})


def measured(name: str = "1f1b", **fields: Any) -> dict[int, ScheduleCurve]:
    """Return curves of 4 stages with latency whose times grow with the micro-batch size."""
    curves = {}
    for size in SIZES:
        times = {"forward": 2 + size, "backward": 4 + 2 * size}
        instance = pipeline(times=times, p2p={"latency": 3}, **fields)
        curves[size] = measure_curve(instance, numbers_of(instance), heuristics=[name])
    return curves
