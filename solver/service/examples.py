"""Requests and answers that the description of the service shows; tests send each."""

from __future__ import annotations

from typing import Any

SMALL: dict[str, Any] = {
    "kind": "pipeline",
    "name": "small",
    "num_devices": 2,
    "num_microbatches": 2,
    "times": {"forward": 10, "backward": 20},
}

ASKED: dict[str, dict[str, Any]] = {
    "quick": {"instance": SMALL},
    "picture": {"instance": SMALL, "drawn": ["1f1b"], "heuristics": ["1f1b", "gpipe"]},
    "export": {"instance": SMALL, "schedule": "1f1b", "runtime": "torch"},
    "simulate": {"instance": SMALL, "heuristic": "1f1b"},
    "check": {
        "instance": SMALL,
        "schedule": {
            "ops": [
                {"id": "F0.0", "start": 0},
                {"id": "F1.0", "start": 10},
                {"id": "B1.0", "start": 20},
                {"id": "B0.0", "start": 40},
                {"id": "F0.1", "start": 10},
                {"id": "F1.1", "start": 40},
                {"id": "B1.1", "start": 50},
                {"id": "B0.1", "start": 60},
            ]
        },
    },
    "what-if": {"instance": SMALL, "changes": {"microbatches": ["4"]}},
    "jobs": {"task": "optimize", "instance": SMALL, "options": {"time_limit": 10}},
}

ANSWERED: dict[str, dict[str, Any]] = {
    "quick": {
        "value": 90,
        "bound": 90,
        "by": "1f1b",
        "bound_by": "work",
        "published": {"1f1b": 90, "gpipe": 90, "looped-bfs": 90},
        "gap": 0.0,
        "time_unit": "us",
    },
    "picture": {"value": 90, "bound": 90, "by": "1f1b", "time_unit": "us"},
    "export": {
        "files": {"order.csv": "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"},
        "notes": [],
    },
    "simulate": {"name": "1f1b", "status": "feasible", "value": 90},
    "check": {
        "valid": False,
        "violations": [
            {
                "rule": "precedence",
                "message": "B0.1 starts at 60 us, before B1.1 ends at 70 us",
                "ops": ["B1.1", "B0.1"],
            }
        ],
    },
    "what-if": {"kind": "what-if", "instance": "small", "interrupted": False},
    "jobs": {"task": "optimize", "attempts": 0, "error": None, "result": None},
}
"""The answers, or parts of them where they are long or differ from run to run."""
