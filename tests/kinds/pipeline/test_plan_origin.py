"""What a plan chose stays with its pipeline, and changes nothing that is solved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.text import fingerprint, instance_text
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline
from ppsolve.solver.cli.main import build
from ppsolve.solver.studies.curve import placements_of
from tests.studies.plan.cases import document, planned

ORIGIN: dict[str, Any] = {
    "request": "mine",
    "layers_per_stage": [2, 3],
    "microbatch_size": 4,
}
PIPELINE: dict[str, Any] = {
    "name": "two",
    "num_devices": 2,
    "num_microbatches": 3,
    "times": {"forward": 1, "backward": 2},
    "plan": ORIGIN,
}


def test_solvers_do_not_see_it() -> None:
    given = PipelineInstance.parse(PIPELINE)
    plain = PipelineInstance.parse({**PIPELINE, "plan": None})
    one, other = lower_pipeline(given), lower_pipeline(plain)
    assert np.array_equal(one.duration, other.duration)
    assert np.array_equal(one.lag, other.lag)
    assert fingerprint(given) == fingerprint(plain)


def test_it_is_written_and_read() -> None:
    given = PipelineInstance.parse(PIPELINE)
    assert (
        '"plan": {"request": "mine", "layers_per_stage": [2, 3], "microbatch_size": 4}'
        in (instance_text(given))
    )
    assert given.plan is not None
    assert dict(given.plan.decisions()) == {
        "layers_per_stage": "layers per stage 2,3",
        "microbatch_size": "micro-batch size 4",
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"layers_per_stage": [5]},
            "plan.layers_per_stage: expected a number or 2 entries",
        ),
        ({"layers_per_stage": [0, 5]}, "plan.layers_per_stage[0]: "),
        ({"microbatch_size": 0}, "plan.microbatch_size: "),
        ({"recompute": "some"}, "plan.recompute: "),
        ({"depth": 1}, 'plan.depth: unknown field "depth"'),
    ],
)
def test_origins_that_are_none_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        PipelineInstance.parse({**PIPELINE, "plan": ORIGIN | changes})
    assert words in str(caught.value)


def test_another_placement_is_no_longer_that_of_the_plan() -> None:
    (made,) = placements_of(PipelineInstance.parse(PIPELINE), ["vshape"])
    assert made.plan is None


def test_a_plan_says_what_it_chose() -> None:
    data = document(4, 2, 1, pipeline_depths=[2], replicas=[1], batch_sizes=[8])
    ends = {"forward": 0, "backward": 0}
    block = {"count": 4, "forward": 1, "backward": 2}
    data["model"]["layers"] = [
        {"name": "embedding", **ends},
        block,
        {"name": "head", **ends},
    ]
    found = planned(data)
    assert found.instance is not None
    assert found.winner is not None
    origin = found.instance.plan
    assert origin is not None
    assert origin.layers_per_stage == found.winner.layers_per_stage
    assert (origin.request, origin.model, origin.rank_order) == ("plan", "Et*4L", None)
    assert origin.microbatch_size == found.winner.configuration.microbatch_size
    data["model"]["layers"][0]["count"] = 2
    twice = planned(data).instance
    assert twice is not None
    assert twice.plan is not None
    assert twice.plan.model is None


def test_the_order_of_ranks_is_said_where_it_matters() -> None:
    orders = {}
    for per_node in (2, 4):
        data = document(
            4, 4 // per_node, per_node, pipeline_depths=[2], batch_sizes=[8]
        )
        found = planned(data)
        assert found.instance is not None
        assert found.instance.plan is not None
        assert found.winner is not None
        assert found.instance.plan.replicas == 2
        orders[per_node] = found.instance.plan.rank_order
        if per_node == 2:
            assert orders[2] == found.winner.configuration.rank_order.value
    assert orders[4] is None


def test_reports_of_its_pipeline_name_it(tmp_path: Any) -> None:
    path = tmp_path / "two.json"
    path.write_text(instance_text(PipelineInstance.parse(PIPELINE)))
    words = "mine: layers per stage 2,3; micro-batch size 4"
    for command in (["show", str(path)], ["optimize", str(path)]):
        done = CliRunner().invoke(build(), command)
        assert done.exit_code == 0, done.stderr
        assert words in " ".join(done.stdout.split())
