"""Questions that are answered at once: as the library does, or with a problem document."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import ppsolve
from tests.service.asking import ask
from tests.service.cases import drawn, pipeline
from tests.service.conftest import RunningService, serving

pytestmark = pytest.mark.serve


def test_every_example_of_the_description_is_answered_as_it_says(
    service: RunningService,
) -> None:
    _, description, _ = ask(service, "GET", "/openapi.json")
    tried = set()
    for path, operations in description["paths"].items():
        for operation in operations.values():
            assert operation["summary"]
            if "requestBody" not in operation:
                continue
            example = operation["requestBody"]["content"]["application/json"]["example"]
            (code, answered), *_ = (
                (code, response["content"]["application/json"]["example"])
                for code, response in operation["responses"].items()
                if code.startswith("2")
            )
            status, answer, _ = ask(service, "POST", path, example)
            assert str(status) == code
            assert {key: answer[key] for key in answered} == answered
            tried.add(path)
    questions = {"/quick", "/picture", "/export", "/simulate", "/check", "/what-if"}
    assert tried == questions | {"/jobs"}


def test_every_reference_of_the_description_leads_somewhere(
    service: RunningService,
) -> None:
    _, description, _ = ask(service, "GET", "/openapi.json")
    text = json.dumps(description)
    names = set(description["components"]["schemas"])
    used = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert used <= names
    assert "#/$defs" not in text


@pytest.mark.parametrize("seed", range(12))
def test_quick_answers_are_those_of_the_library(
    service: RunningService, seed: int
) -> None:
    document = drawn(seed)
    status, answer, _ = ask(service, "POST", "/quick", {"instance": document})
    known = ppsolve.quick(pipeline(document))  # type: ignore[arg-type]
    assert status == 200
    expected = {**asdict(known), "gap": known.gap, "time_unit": "us"}
    assert answer == json.loads(json.dumps(expected))


def test_arrays_have_a_row_of_answers(service: RunningService) -> None:
    question = {"instance": drawn(1), "arrays": {"latency": [0, 1, 50]}}
    status, answer, _ = ask(service, "POST", "/quick", question)
    known = ppsolve.quick(pipeline(drawn(1)), latency=[0, 1, 50])  # type: ignore[arg-type]
    assert status == 200
    assert answer["value"] == known.value.tolist()
    assert answer["by"] == known.by.tolist()


def test_schedules_come_as_columns_of_the_chart(service: RunningService) -> None:
    known = ppsolve.quick(pipeline(drawn(3)))  # type: ignore[arg-type]
    names = [*known.published, "list-tail"]
    question = {"instance": drawn(3), "drawn": names[-2:], "heuristics": names}
    _, answer, _ = ask(service, "POST", "/picture", question)
    assert len(answer["heuristics"]) == len(names)
    for row in answer["heuristics"]:
        entry = ppsolve.simulate(pipeline(drawn(3)), row["name"])
        assert (row["status"], row["makespan"]) == (entry.status, entry.makespan)
    shown = answer["chart"]["shown"]
    assert len(shown) == len(answer["chart"]["titles"]) >= 1
    count = len(shown[0]["start"])
    assert all(len(shown[0][name]) == count for name in ("duration", "kind", "stage"))


WRONG: list[tuple[str, Any, int, str | None]] = [
    ("/quick", {"instance": {"kind": "pipeline"}}, 422, "num_devices"),
    ("/quick", {"instance": drawn(1), "more": 1}, 422, "more"),
    ("/picture", {"instance": drawn(1), "drawn": [1]}, 422, None),
    ("/picture", {"instance": drawn(1), "drawn": ["1f1b"] * 9}, 422, "drawn"),
    ("/picture", {"instance": drawn(1), "heuristics": ["order-search"]}, 422, None),
    ("/export", {"instance": drawn(1), "schedule": "1f1b", "runtime": "x"}, 422, None),
    ("/quick", [], 422, None),
    ("/quick", b"\xff", 422, None),
    ("/quick", b"[" * 100_000, 422, None),
    ("/quick", b'{"instance": 1e999999999}', 422, "instance"),
    ("/quick", {"instance": drawn(1) | {"num_microbatches": 500_000}}, 422, None),
    ("/simulate", {"instance": drawn(1), "heuristic": "os:system"}, 422, "heuristic"),
    ("/simulate", {"instance": drawn(1), "heuristic": "v-half"}, 422, None),
    ("/check", {"instance": drawn(1), "schedule": {"ops": 5}}, 422, "ops"),
    ("/what-if", {"instance": drawn(1), "changes": {"x": 1}}, 422, None),
    ("/jobs", {"task": "optimise"}, 422, "task"),
    (
        "/jobs",
        {"task": "optimize", "instance": drawn(1), "options": {"seed": -1}},
        422,
        "options.seed",
    ),
    (
        "/jobs",
        {
            "task": "optimize",
            "instance": drawn(1),
            "options": {"heuristics": ["/etc/passwd.py:f"]},
        },
        422,
        "options.heuristics[0]",
    ),
    (
        "/jobs",
        {"task": "optimize", "instance": drawn(1), "options": {"time_limit": 1e9}},
        422,
        "options.time_limit",
    ),
    ("/nothing", {}, 405, None),
]


@pytest.mark.parametrize(("path", "document", "status", "field"), WRONG)
def test_wrong_questions_are_problems(
    service: RunningService, path: str, document: Any, status: int, field: str | None
) -> None:
    code, problem, headers = ask(service, "POST", path, document)
    assert code == status == problem["status"]
    assert headers["content-type"] == "application/problem+json"
    assert {"type", "title", "code", "detail"} <= problem.keys()
    assert problem.get("field") == field or field is None


def test_problems_say_what_would_be_right(service: RunningService) -> None:
    _, problem, _ = ask(service, "POST", "/jobs", {"task": "optimise"})
    assert problem["code"] == "unknown-name"
    assert problem["expected"] == ["optimize", "plan", "bench"]
    wrong = {"instance": drawn(1) | {"num_devices": "two"}}
    _, problem, _ = ask(service, "POST", "/quick", wrong)
    assert (problem["field"], problem["code"]) == ("num_devices", "type")


def test_requests_are_limited(service: RunningService) -> None:
    large = b'{"instance": "' + b"x" * 9_000_000 + b'"}'
    assert ask(service, "POST", "/quick", large)[0] == 413
    text = ask(service, "POST", "/quick", b"{}", Content_Type="text/plain")
    assert text[0] == 415
    elsewhere = ask(service, "GET", "/health", Host="evil.example")
    assert elsewhere[0] == 421
    assert ask(service, "GET", "/health", Host=f"localhost:{service.port}")[0] == 200


def test_the_page_is_behind_a_strict_policy(service: RunningService) -> None:
    status, page, headers = ask(service, "GET", "/")
    assert status == 200
    assert page.startswith(b"<!doctype html>")
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "access-control-allow-origin" not in headers
    assert ask(service, "GET", "/../app.py")[0] == 404
    assert ask(service, "GET", "/%2e%2e/app.py")[0] == 404


def test_facts_are_told(service: RunningService) -> None:
    assert ask(service, "GET", "/health")[1]["status"] == "ok"
    names = {row["name"] for row in ask(service, "GET", "/heuristics")[1]}
    assert {"1f1b", "list-tail"} <= names
    _, schema, _ = ask(service, "GET", "/schema?kind=pipeline")
    assert "num_devices" in schema["properties"]
    assert ask(service, "GET", "/schema?kind=x")[0] == 422
    assert ask(service, "GET", "/instance")[1] is None
    ask(service, "POST", "/quick", {})
    _, text, _ = ask(service, "GET", "/metrics")
    assert b'ppsolve_requests_total{path="/quick",status="422"}' in text
    assert b'ppsolve_jobs{state="queued"}' in text


def test_a_token_is_asked_for_where_there_is_one(tmp_path: Path) -> None:
    token = "0123456789abcdef"
    (tmp_path / "token").write_text(token + "\n")
    site = "https://notes.example"
    options = ("--token-file", tmp_path / "token", "--origin", site)
    with serving(*options, "--workers", "1") as service:
        status, problem, headers = ask(service, "GET", "/health")
        assert (status, problem["code"]) == (401, "token")
        assert headers["www-authenticate"] == "Bearer"
        wrong = ask(service, "GET", "/health", Authorization="Bearer 0123456789abcdeF")
        assert wrong[0] == 401
        right = ask(service, "GET", "/health", Authorization=f"Bearer {token}")
        assert right[0] == 200
        assert ask(service, "GET", "/")[0] == 200
        asked = {"Origin": site, "Access_Control_Request_Method": "POST"}
        allowed = ask(service, "OPTIONS", "/quick", **asked)
        assert allowed[2]["access-control-allow-origin"] == site
        known = ppsolve.quick(pipeline(drawn(2)))  # type: ignore[arg-type]
        assert service.client(token=token).quick(pipeline(drawn(2))) == known
        with pytest.raises(ppsolve.PpsolveError, match="expected the token"):
            service.client().quick(pipeline(drawn(2)))
