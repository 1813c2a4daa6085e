"""Jobs that a service sends to a cluster of dask."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import ppsolve
from tests.service.asking import ask, ended
from tests.service.cases import OPEN, pipeline, small
from tests.service.conftest import serving

pytestmark = [pytest.mark.dask, pytest.mark.serve]

CLUSTER = """
import sys
from distributed import LocalCluster

if __name__ == "__main__":
    options = dict(n_workers=2, threads_per_worker=1, dashboard_address=":0")
    with LocalCluster(host="127.0.0.1", **options) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    pytest.importorskip("distributed")
    with subprocess.Popen(
        [sys.executable, "-c", CLUSTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as cluster:
        assert cluster.stdout is not None
        yield cluster.stdout.readline().strip()
        cluster.communicate(timeout=60)


def test_jobs_run_on_a_cluster_tell_how_and_stop(scheduler: str) -> None:
    with serving("--dask", scheduler) as service:
        options = {"time_limit": 20, "workers": 1}
        told: list[ppsolve.Progress] = []
        result = service.client().optimize(
            pipeline(small(5)), on_progress=told.append, **options
        )
        known = ppsolve.optimize(pipeline(small(5)), **options)  # type: ignore[arg-type]
        assert (result.status, result.value) == (known.status, known.value)
        assert {"bound", "incumbent"} <= {progress.event for progress in told}
        bench = {"task": "bench", "instances": [small(1), small(2)], "options": options}
        records = ended(service, ask(service, "POST", "/jobs", bench)[1]["id"])[
            "result"
        ]
        assert [record["instance"] for record in records] == ["small 1", "small 2"]
        question = {
            "task": "optimize",
            "instance": OPEN,
            "options": {"time_limit": 600},
        }
        id = ask(service, "POST", "/jobs", question)[1]["id"]
        while ask(service, "GET", f"/jobs/{id}")[1]["best"] is None:
            time.sleep(0.05)
        ask(service, "DELETE", f"/jobs/{id}")
        job = ended(service, id)
        assert job["state"] == "cancelled"
        assert ppsolve.check(pipeline(OPEN), job["result"]) == []


def test_jobs_wait_for_a_cluster_that_does_not_answer() -> None:
    pytest.importorskip("distributed")
    with serving("--dask", "tcp://127.0.0.1:9", "--workers", "1") as service:
        question = {"task": "optimize", "instance": small(1)}
        id = ask(service, "POST", "/jobs", question)[1]["id"]
        status, health = 200, {"status": "ok"}
        while status == 200:
            time.sleep(0.05)
            status, health, _ = ask(service, "GET", "/health")
        assert status == 503
        assert "127.0.0.1:9" in health["status"]
        job = ask(service, "GET", f"/jobs/{id}")[1]
        assert (job["state"], job["attempts"]) == ("queued", 0)
        assert ask(service, "DELETE", f"/jobs/{id}")[1]["state"] == "cancelled"
