"""Pipelines that run forwards only, as those of inference: no word of backwards."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from ppsolve.solver.api import api
from ppsolve.solver.api.kinds import parse_instance
from ppsolve.solver.cli.main import build
from ppsolve.solver.views.pipeline import pipeline_shape

SERVE = {
    "kind": "pipeline",
    "num_devices": 2,
    "num_microbatches": 2,
    "lengths": [10, 2],
    "times": {"forward": {"per_token": 2}, "backward": 0},
    "p2p": {"latency": [[0, 1], [0, 0]]},
}


def test_nothing_comes_back():
    """20 and 4 on each of two devices, 1 apart: in either order 20 + 1 + 20 + 4."""
    result = api.optimize(parse_instance(SERVE), time_limit=5)
    assert (result.status.value, result.value) == ("OPTIMAL", 45)


def test_no_backward_is_named(tmp_path):
    instance = parse_instance(SERVE)
    assert dict(pipeline_shape(instance))["backward"] == "none: forward only"
    training = parse_instance(
        {**SERVE, "times": {**SERVE["times"], "backward": [0, 1]}}
    )
    assert dict(pipeline_shape(training))["backward"] == "fused (B)"
    path = tmp_path / "serve.json"
    path.write_text(json.dumps(SERVE))
    line = ["show", str(path), "--heuristic", "gpipe", "--width", "100"]
    shown = CliRunner().invoke(build(), line)
    assert "F forward" in shown.stdout
    assert "B backward" not in shown.stdout
