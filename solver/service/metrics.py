"""Counts of requests and jobs as text for Prometheus."""

from __future__ import annotations

from collections import Counter, defaultdict


class RequestCounts:
    """How many requests came, by route and status, and how long they took."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, int]] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def add(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._counts[route, status] += 1
        self._seconds[route] += seconds

    def text(self, jobs: dict[str, int], waiting: int, *, is_sound: bool) -> str:
        """Return all figures, with jobs by state, and the questions that wait."""
        rows = ["# TYPE ppsolve_requests_total counter"]
        rows += [
            f'ppsolve_requests_total{{path="{route}",status="{status}"}} {count}'
            for (route, status), count in sorted(self._counts.items())
        ]
        rows.append("# TYPE ppsolve_request_seconds_total counter")
        rows += [
            f'ppsolve_request_seconds_total{{path="{route}"}} {seconds:.6f}'
            for route, seconds in sorted(self._seconds.items())
        ]
        rows.append("# TYPE ppsolve_jobs gauge")
        rows += [f'ppsolve_jobs{{state="{state}"}} {n}' for state, n in jobs.items()]
        rows += ["# TYPE ppsolve_questions gauge", f"ppsolve_questions {waiting}"]
        rows += ["# TYPE ppsolve_store_up gauge", f"ppsolve_store_up {int(is_sound)}"]
        return "\n".join(rows) + "\n"
