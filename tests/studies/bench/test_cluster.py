"""Dask clusters: the same items, the same file; lost workers and full memory lose nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ppsolve.models.studies.bench.file import read_records
from tests.studies.bench.conftest import Bench
from tests.studies.bench.misbehaving import write
from tests.studies.bench.test_failures import FORTY, FORTY_OPTIONS, check_forty, results

pytestmark = pytest.mark.dask

DASK = ("--engine", "dask", "--processes", "2", "-t", "0")


def test_forty_items_of_which_four_fail(tmp_path: Path, bench: Bench) -> None:
    write(tmp_path / "forty", [*FORTY, "eat"])
    bench("forty", "-o", "x.jsonl", *FORTY_OPTIONS, "--engine", "dask", code=1)
    check_forty(tmp_path / "x.jsonl")


def test_a_killed_worker_loses_nothing(tmp_path: Path, bench: Bench) -> None:
    once = str(tmp_path / "once")
    does = [*["fine"] * 10, "kill_worker_once", *["fine"] * 10]
    write(tmp_path / "many", does, argument=once)
    bench("many", "-o", "x.jsonl", *DASK)
    assert Path(once).exists()
    found = read_records(tmp_path / "x.jsonl").records
    assert len({record.key for record in found}) == len(found) == 21
    assert all(record.failure is None and record.value == 1 for record in found)


def test_an_item_that_kills_every_worker_is_given_up(
    tmp_path: Path, bench: Bench
) -> None:
    write(tmp_path / "many", ["fine", "kill_worker", "fine"])
    bench("many", "-o", "x.jsonl", *DASK, code=1)
    found = results(tmp_path / "x.jsonl")
    assert found["kill_worker"] == ("crash", "4 workers were lost while they ran it")
    assert found["fine"] == ("none", None)
    attempts = {
        r.attempts for r in read_records(tmp_path / "x.jsonl").records if r.failure
    }
    assert attempts == {4}


def test_an_item_has_the_memory_of_its_worker(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    write(tmp_path / "many", ["fine", "eat", "fine"])
    script = """
from distributed import LocalCluster
from ppsolve.solver.studies.bench.cluster import DaskEngine

if __name__ == "__main__":
    options = dict(n_workers=2, threads_per_worker=1, memory_limit="1GiB")
    with LocalCluster(dashboard_address=":0", **options) as cluster:
        run(DaskEngine(cluster=cluster))
"""
    assert answers(script, tmp_path, environment) == [
        "0 OPTIMAL None",
        "1 None memory",
        "2 OPTIMAL None",
    ]


def test_workers_of_dask_jobqueue(tmp_path: Path, environment: dict[str, str]) -> None:
    pytest.importorskip("dask_jobqueue")
    write(tmp_path / "many", ["fine", "abort", "fine"])
    script = """
from dask_jobqueue.local import LocalCluster
from ppsolve.solver.studies.bench.cluster import DaskEngine

if __name__ == "__main__":
    with LocalCluster(cores=1, processes=1, memory="2GiB") as cluster:
        cluster.scale(jobs=2)
        run(DaskEngine(cluster=cluster))
        run(DaskEngine(cluster.scheduler_address))
"""
    once = ["0 OPTIMAL None", "1 None crash", "2 OPTIMAL None"]
    assert answers(script, tmp_path, environment) == once + once


RUN = """
def run(engine):
    import ppsolve
    from pathlib import Path

    files = sorted(Path("many").iterdir())
    instances = [ppsolve.load_instance(file) for file in files]
    found = ppsolve.optimize_many(instances, engine=engine, time_limit=0)
    for answer in sorted(found, key=lambda answer: answer.index):
        print(answer.index, answer.result and answer.result.status, answer.failure, flush=True)
"""


def answers(script: str, folder: Path, environment: dict[str, str]) -> list[str]:
    """Run a script in a process of its own; return its lines."""
    (folder / "script.py").write_text(RUN + script)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_wrong_schedulers(tmp_path: Path, bench: Bench) -> None:
    write(tmp_path / "one", ["fine"])
    (tmp_path / "file.json").write_text("[]")
    options = ("one", "-o", "x.jsonl", "-t", "0", "--engine", "dask")
    done = bench(*options, "--scheduler", "tcp://127.0.0.1:9", code=2)
    assert "error: no dask scheduler at tcp://127.0.0.1:9: " in done.stderr
    done = bench(*options, "--scheduler", "file.json", code=2)
    assert "error: file.json: expected the file of a dask scheduler" in done.stderr


def test_a_cluster_passes_news_on_and_is_told_to_stop(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    script = """
import threading
from distributed import LocalCluster
from ppsolve.solver.studies.bench.cluster import DaskEngine
from ppsolve.solver.studies.bench.pool import CallLink, Limits
from tests.studies.bench.test_many import count_aloud

if __name__ == "__main__":
    told, stop = [], threading.Event()

    def listen(index, number):
        told.append((index, number))
        if len(told) == 20:
            stop.set()

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        engine = DaskEngine(cluster=cluster)
        calls = engine.map(count_aloud, [10] * 4, Limits(), CallLink(stop, listen))
        print(*sorted((call.index, call.value) for call in calls))
        print(sorted(told) == [(i, n) for i in sorted({i for i, _ in told}) for n in range(10)])
"""
    (tmp_path / "many").mkdir()
    lines = answers(script, tmp_path, environment)
    assert lines[0].count("stopped") == 2
    assert lines[1] == "True"
