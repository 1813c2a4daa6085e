"""Jobs: the library's answers, whatever is killed, full or asked twice meanwhile."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import resource
import signal
import sqlite3
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import ppsolve
from ppsolve.solver.api.kinds import owner_in
from ppsolve.solver.service.store import JobStore
from tests.paths import ROOT
from tests.service.asking import ask, ended
from tests.service.cases import OPEN, pipeline, second, small
from tests.service.conftest import RunningService, serving

pytestmark = pytest.mark.serve

VARYING = {"wall_seconds", "steps", "stop_reason", "versions"}
"""Fields of results that differ from run to run."""


def optimizing(document: dict[str, Any], **options: Any) -> dict[str, Any]:
    return {"task": "optimize", "instance": document, "options": options}


def submitted(service: RunningService, question: dict[str, Any]) -> str:
    status, job, headers = ask(service, "POST", "/jobs", question)
    assert status in {200, 202}, job
    assert headers["location"] == f"/jobs/{job['id']}"
    return str(job["id"])


def events_of(service: RunningService, id: str, last: int = 0) -> list[dict[str, Any]]:
    """Return all events of a job behind the one with the number `last`."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=120)
    connection.request(
        "GET", f"/jobs/{id}/events", headers={"Last-Event-ID": str(last)}
    )
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


def test_a_job_answers_as_the_library_does_and_tells_how(
    service: RunningService,
) -> None:
    options = {"time_limit": 30, "workers": 1}
    id = submitted(service, optimizing(small(5), **options))
    events = events_of(service, id)
    job = ended(service, id)
    known = ppsolve.optimize(pipeline(small(5)), **options)  # type: ignore[arg-type]
    assert job["state"] == "done"
    assert job["attempts"] == 1
    expected = json.loads(known.model_dump_json())
    assert job["result"].keys() == expected.keys()
    same = ("status", "value", "bound", "kind", "value_unit", "instance")
    assert [job["result"][k] for k in same] == [expected[k] for k in same]
    assert ppsolve.check(pipeline(small(5)), job["result"]) == []
    assert events[0] == {"event": "running"}
    assert events[-1] == {"event": "ended"}
    assert {"heuristic", "bound", "incumbent"} <= {event["event"] for event in events}
    bounds = [event["bound"] for event in events if event.get("bound") is not None]
    assert bounds == sorted(bounds)
    assert events_of(service, id, last=len(events) - 2) == events[-2:]
    status, again, _ = ask(service, "POST", "/jobs", optimizing(small(5), **options))
    assert (status, again["id"], again["result"]) == (200, id, job["result"])


def test_a_listener_that_comes_back_misses_nothing(service: RunningService) -> None:
    id = submitted(service, optimizing(OPEN, time_limit=600, seed=5))
    numbers: list[int] = []
    while len(numbers) < 6:
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=120)
        headers = {"Last-Event-ID": str(numbers[-1])} if numbers else {}
        connection.request("GET", f"/jobs/{id}/events", headers=headers)
        response = connection.getresponse()
        for line in itertools.islice(response, 8):
            name, _, value = line.decode().strip().partition(": ")
            if name == "id":
                numbers.append(int(value))
        response.close()
        connection.close()
    ask(service, "DELETE", f"/jobs/{id}")
    ended(service, id)
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_stopped_job_has_the_best_so_far(service: RunningService) -> None:
    question = optimizing(OPEN, time_limit=600)
    id = submitted(service, question)
    assert submitted(service, question) == id
    while ask(service, "GET", f"/jobs/{id}")[1]["best"] is None:
        time.sleep(0.02)
    assert ask(service, "DELETE", f"/jobs/{id}")[0] == 200
    job = ended(service, id)
    assert (job["state"], job["result"]["stop_reason"]) == ("cancelled", "cancelled")
    assert ppsolve.check(pipeline(OPEN), job["result"]) == []
    assert ask(service, "DELETE", f"/jobs/{id}")[1]["state"] == "cancelled"
    other = submitted(service, question)
    assert other != id
    ask(service, "DELETE", f"/jobs/{other}")
    ended(service, other)


def test_a_plan_and_a_benchmark_are_jobs_too(service: RunningService) -> None:
    path = ROOT / "instances" / "plans" / "small-12x4.plan.json"
    request = json.loads(path.read_text(encoding="utf-8"))
    plan = submitted(
        service,
        {
            "task": "plan",
            "request": request,
            "options": {"time_limit": 5, "finalists": 1},
        },
    )
    instances = [small(seed) for seed in (1, 2)]
    wrong = {"task": "bench", "instances": [*instances, {}]}
    assert ask(service, "POST", "/jobs", wrong)[0] == 422
    bench = submitted(
        service,
        {"task": "bench", "instances": instances, "options": {"time_limit": 20}},
    )
    records = ended(service, bench)["result"]
    assert [record["instance"] for record in records] == ["small 1", "small 2"]
    known = [ppsolve.optimize(pipeline(one), time_limit=20).value for one in instances]
    assert [record["value"] for record in records] == known
    planned = ended(service, plan)
    assert planned["state"] == "done"
    assert planned["result"]["status"] in {"OPTIMAL", "FEASIBLE"}


def test_what_is_not_there_is_said(service: RunningService) -> None:
    for method, path in [
        ("GET", "/jobs/x"),
        ("DELETE", "/jobs/x"),
        ("GET", "/jobs/x/events"),
    ]:
        assert ask(service, method, path)[0] == 404


def test_a_job_that_cannot_be_answered_fails_in_words(service: RunningService) -> None:
    question = optimizing(small(7), time_limit=5) | {"start": {"ops": []}}
    job = ended(service, submitted(service, question))
    assert job["state"] == "failed"
    assert "InputError" in job["error"]


def test_a_question_of_another_version_fails_and_others_go_on(tmp_path: Path) -> None:
    store = JobStore(tmp_path / "jobs", kept=10)
    old = store.add("optimize", "x", '{"task": "gone"}', 10)
    assert old is not None
    store.close()
    with serving("--store", tmp_path / "jobs", "--workers", "1") as service:
        job = ended(service, old.id)
        assert (job["state"], job["result"]) == ("failed", None)
        assert "unknown task" in job["error"]
        other = submitted(service, optimizing(small(1), time_limit=20))
        assert ended(service, other)["state"] == "done"


def children_of(process: int) -> list[int]:
    """Return the processes that solve jobs of a service."""
    tree = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    )
    rows = [tuple(map(int, line.split())) for line in tree.stdout.splitlines()]

    def below(parent: int) -> list[int]:
        inner = [pid for pid, ppid in rows if ppid == parent]
        return [pid for child in inner for pid in (*below(child), child)]

    direct = {pid for pid, ppid in rows if ppid == process}
    return [pid for pid in below(process) if pid not in direct]


def kill_jobs_of(service: RunningService) -> None:
    """Kill the processes of the jobs that run."""
    for pid in children_of(service.process.pid):
        # Some end by themselves meanwhile.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_killed_processes_and_services_lose_no_job_and_run_none_twice(
    tmp_path: Path,
) -> None:
    store = tmp_path / "jobs"
    questions = [
        optimizing(small(seed), time_limit=20, workers=1) for seed in range(20)
    ]
    with serving("--store", store) as service:
        ids = [submitted(service, question) for question in questions]
        assert len(set(ids)) == 20
        while not children_of(service.process.pid):
            time.sleep(0.01)
        kill_jobs_of(service)
        while ask(service, "GET", f"/jobs/{ids[3]}")[1]["state"] != "done":
            time.sleep(0.02)
        service.kill()
    with serving("--store", store) as service:
        assert [submitted(service, question) for question in questions] == ids
        jobs = [ended(service, id) for id in ids]
        for job, question in zip(jobs, questions, strict=True):
            instance = pipeline(question["instance"])
            known = ppsolve.optimize(instance, time_limit=20)
            assert (job["state"], job["result"]["value"]) == ("done", known.value)
            assert ppsolve.check(instance, job["result"]) == []
        counts = ask(service, "GET", "/metrics")[1]
        assert b'ppsolve_jobs{state="done"} 20' in counts
        assert service.end() == 0
    assert {path.name for path in tmp_path.iterdir()} == {"jobs"}


def times_of(result: ppsolve.Result) -> dict[str, tuple[Any, Any]]:
    """Return start and end of each op."""
    return {op["id"]: (op["start"], op["end"]) for op in result.to_dicts()}


@pytest.mark.fuzz
def test_two_hundred_jobs_outlive_kills(tmp_path: Path) -> None:
    """Each does the same work of about a second whenever it runs, and proves nothing."""
    store, count = tmp_path / "jobs", 200
    options = {"deterministic": True, "time_limit": 0.5, "verify": False}
    questions = [optimizing(second(seed), **options) for seed in range(count)]
    ids: list[str] = []
    for begin, last in ((0, 60), (60, 130), (130, count)):
        with serving("--store", store) as service:
            again = [submitted(service, question) for question in questions]
            assert again == (ids or again)
            ids = again
            for number in range(begin, last, 15):
                ended(service, ids[number])
                if number % 30 == 15:
                    kill_jobs_of(service)
            if last < count:
                service.kill()
                continue
            jobs = [ended(service, id) for id in ids]
            assert service.end() == 0
    instances = [pipeline(question["instance"]) for question in questions]
    known = ppsolve.optimize_many(instances, processes=2, **options)
    direct = {answer.index: answer.result for answer in known}
    for number, job in enumerate(jobs):
        result = direct[number]
        assert result is not None
        answer = owner_in(job["result"], f"job {number}")
        assert isinstance(answer, ppsolve.Result)
        assert job["state"] == "done"
        assert job["attempts"] <= 5
        same = ("status", "value", "bound", "best_by", "bound_by")
        assert [getattr(answer, k) for k in same] == [getattr(result, k) for k in same]
        assert times_of(answer) == times_of(result)
    with sqlite3.connect(store) as database:
        rows = database.execute("SELECT count(*), count(DISTINCT digest) FROM jobs")
        assert rows.fetchone() == (count, count)
    database.close()


def test_a_disk_that_fills_up_is_told_and_loses_nothing(tmp_path: Path) -> None:
    store = tmp_path / "jobs"
    question = optimizing(small(1), time_limit=20, workers=1)
    with serving("--store", store, "--workers", "1") as service:
        pid, largest = service.process.pid, resource.RLIM_INFINITY
        id = submitted(service, question)
        ended(service, id)
        # Larger files fail as on a full disk.
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1000, largest))
        status, problem, _ = ask(
            service, "POST", "/jobs", optimizing(small(2), time_limit=20)
        )
        assert (status, problem["code"]) == (507, "store")
        assert ask(service, "POST", "/quick", {"instance": small(1)})[0] == 200
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (largest, largest))
        other = submitted(service, optimizing(OPEN, time_limit=2, workers=1))
        while ask(service, "GET", f"/jobs/{other}")[1]["best"] is None:
            time.sleep(0.02)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1000, largest))
        while ask(service, "GET", "/health")[0] != 503:
            time.sleep(0.05)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (largest, largest))
        job = ended(service, other)
        assert job["state"] == "done"
        assert ppsolve.check(pipeline(OPEN), job["result"]) == []
        assert ask(service, "GET", "/health")[0] == 200


def test_memory_and_waiting_are_limited(tmp_path: Path) -> None:
    with serving("--workers", "1", "--memory-limit", "0.1") as service:
        job = ended(service, submitted(service, optimizing(OPEN, time_limit=20)))
        assert job["state"] == "failed"
        assert "memory" in job["error"]


def test_a_service_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("secret")
    for options, error in [
        (("--store", tmp_path), "--store: cannot be used as a store of jobs"),
        (("--host", "0.0.0.0"), "can be reached from other machines"),
        (("--token-file", tmp_path / "short"), "at least 16 ASCII characters"),
    ]:
        done = subprocess.run(
            [*RunningService.COMMAND, *map(str, options)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert done.returncode == 2
        assert error in done.stderr
