"""Questions that the service takes, as documents, and the answers of `ppsolve` to them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from decimal import Decimal
from typing import Annotated, Any, Literal, cast

import numpy as np
from annotated_types import MaxLen
from pydantic import AfterValidator, Field

from ppsolve.models.documents.base import StrictModel, describe, error_at
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.instances import Instance
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api import api
from ppsolve.solver.api.kinds import parse_instance
from ppsolve.solver.api.registry import known_heuristic
from ppsolve.solver.kinds.pipeline.quick import QuickAnswer, quick
from ppsolve.solver.service.pictures import picture_of
from ppsolve.solver.service.runtime_files import runtime_files

Document = dict[str, Any]


def _known(name: str) -> str:
    # A function of a user has a colon in its name, and is not looked for.
    try:
        return known_heuristic(name).name
    except InputError as error:
        raise error_at((), error.message, error.code) from None


HeuristicName = Annotated[str, AfterValidator(_known)]
"""The name of a heuristic of the program; functions of users are not run for others."""


Amount = str | Decimal


class ServiceQuestion(StrictModel):
    """A question that is answered while its sender waits."""

    def answer(self, ops: int) -> str:
        """Return the answer as JSON.

        `ops`: of the largest pipeline.
        """
        raise NotImplementedError


def instance_of(document: Document, ops: int) -> Instance:
    """Return an instance of at most so many ops, where it says how many it has."""
    instance = parse_instance(document)
    sizes = [
        getattr(instance, name, 1)
        for name in ("num_stages", "num_microbatches", "steps")
    ]
    if 3 * math.prod(sizes) > ops:
        text = f"expected at most {ops} ops (stages x micro-batches x 3 x steps)"
        raise InputError(text, field="instance.num_microbatches", code=ErrorCode.RANGE)
    return instance


def pipeline_of(document: Document, ops: int) -> PipelineInstance:
    """Return a pipeline of at most so many ops."""
    instance = instance_of(document, ops)
    if instance.kind != "pipeline":
        text = f'expected "pipeline", got {describe(instance.kind)}'
        raise InputError(
            text, field="kind", expected="pipeline", code=ErrorCode.UNSUPPORTED
        )
    return cast("PipelineInstance", instance)


class QuickQuestion(ServiceQuestion):
    """`ppsolve.quick`."""

    instance: Document
    arrays: dict[str, list[float] | list[list[float]]] = Field(default={})

    def answer(self, ops: int) -> str:
        """Return value and bound, of each column where there are arrays."""
        instance = instance_of(self.instance, ops)
        # `quick` refuses other kinds.
        answer = quick(cast("PipelineInstance", instance), **self.arrays)
        if not isinstance(answer, QuickAnswer):
            # JSON has no number for what does not fit.
            columns = {
                name: np.asarray(np.where(column == column, column, None)).tolist()
                for name, column in vars(answer).items()
            }
            return json.dumps(columns)
        unit = {"gap": answer.gap, "time_unit": instance.time_unit}
        return json.dumps({**asdict(answer), **unit})


class PictureQuestion(ServiceQuestion):
    """What the page shows of a pipeline: the chart of schedules, a row for each heuristic.

    `drawn`: names of heuristics, and documents that hold a schedule of the instance.
    """

    instance: Document
    drawn: tuple[HeuristicName | Document, ...] = Field(default=(), max_length=8)
    heuristics: Literal["all"] | Annotated[tuple[HeuristicName, ...], MaxLen(100)] = ()

    def answer(self, ops: int) -> str:
        """Return value and bound, with the columns of the report's chart and the rows."""
        instance = pipeline_of(self.instance, ops)
        picture = picture_of(instance, self.drawn, self.heuristics)
        return json.dumps(picture, separators=(",", ":"))


class ExportQuestion(ServiceQuestion):
    """The files of a training runtime.

    `schedule`: the name of a heuristic, or a document that holds a schedule of the instance.
    """

    instance: Document
    schedule: HeuristicName | Document
    runtime: str

    def answer(self, ops: int) -> str:
        """Return the texts of the files by their names, and what their reader has to know."""
        instance = pipeline_of(self.instance, ops)
        return json.dumps(runtime_files(instance, self.schedule, self.runtime))


class SimulateQuestion(ServiceQuestion):
    """`ppsolve.simulate`."""

    instance: Document
    heuristic: HeuristicName
    group_size: int | None = Field(default=None, ge=1)
    exact: bool = False

    def answer(self, ops: int) -> str:
        """Return the entry of the heuristic."""
        instance = instance_of(self.instance, ops)
        entry = api.simulate(
            instance, self.heuristic, group_size=self.group_size, exact=self.exact
        )
        return entry.model_dump_json()


class CheckQuestion(ServiceQuestion):
    """`ppsolve.check`."""

    instance: Document
    schedule: Document
    exact: bool = False

    def answer(self, ops: int) -> str:
        """Return the broken rules."""
        instance = instance_of(self.instance, ops)
        violations = api.check(instance, self.schedule, exact=self.exact)
        rows = [
            {"rule": v.rule, "message": v.message, "ops": list(v.ops)}
            for v in violations
        ]
        return json.dumps({"valid": not rows, "violations": rows})


class WhatIfQuestion(ServiceQuestion):
    """`ppsolve.what_if`, for some seconds."""

    instance: Document
    changes: dict[
        Literal["microbatches", "capacity", "placements", "recompute", "comm", "slow"],
        Amount | Annotated[list[Amount], Field(max_length=100)],
    ]
    time_limit: float = Field(default=5.0, gt=0, le=15)

    def answer(self, ops: int) -> str:
        """Return the rows of the what-if."""
        from ppsolve.solver.studies.curve import what_if

        instance = instance_of(self.instance, ops)
        changes = cast("Mapping[str, Any]", self.changes)
        answer = what_if(instance, changes, time_limit=self.time_limit, workers=1)
        return answer.model_dump_json()


QUESTIONS: dict[str, type[ServiceQuestion]] = {
    "quick": QuickQuestion,
    "picture": PictureQuestion,
    "export": ExportQuestion,
    "simulate": SimulateQuestion,
    "check": CheckQuestion,
    "what-if": WhatIfQuestion,
}
"""Questions by the path that they are sent to."""
