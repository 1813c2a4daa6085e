"""The page in a frame of a notebook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from urllib.parse import unquote

import pytest

import ppsolve
from tests.paths import ROOT
from tests.service.cases import drawn

pytestmark = pytest.mark.serve

SHOWN = """
import json, urllib.request, ppsolve
instance = ppsolve.parse_instance(json.loads({document!r}))
frame = ppsolve.explore(instance, height=500)
other = ppsolve.explore()
print(json.dumps([frame.url, other.url, frame._repr_html_()]))
with urllib.request.urlopen(frame.url) as answer:
    print(json.dumps([dict(answer.headers), answer.read().decode()]))
"""


def test_notebooks_show_the_page_of_a_pipeline_in_a_frame() -> None:
    """The service is on a thread of the notebook's process, and ends with it."""
    pytest.importorskip("fastapi")
    document = json.dumps(drawn(4) | {"name": 'a "b" <c> é'})
    done = subprocess.run(
        [sys.executable, "-c", SHOWN.format(document=document)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    (url, other, shown), (headers, page) = map(json.loads, done.stdout.splitlines())
    address, _, pipeline_text = url.partition("#pipeline=")
    assert address == other
    assert json.loads(unquote(pipeline_text))["name"] == 'a "b" <c> é'
    assert shown.startswith(f'<iframe src="{url}" ')
    assert 'height="500"' in shown
    assert (
        "frame-ancestors 'self' http://localhost:*"
        in headers["content-security-policy"]
    )
    assert page.startswith("<!doctype html>")


def test_frames_show_pipelines_only() -> None:
    pytest.importorskip("fastapi")
    op = {"id": "x", "duration": 1, "resources": ["a"]}
    graph = ppsolve.parse_instance({"kind": "graph", "resources": ["a"], "ops": [op]})
    with pytest.raises(ppsolve.InputError, match='expected "pipeline"'):
        ppsolve.explore(graph)
