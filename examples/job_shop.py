"""Solve a job shop: an instance of ops, resources and precedences, written out one by one.

Whatever can be said in these words can be solved, proved and checked like a pipeline.
"""

from itertools import pairwise

import ppsolve

JOBS = {
    "red": [("saw", 3), ("drill", 2), ("paint", 2)],
    "green": [("saw", 2), ("paint", 1), ("drill", 4)],
    "blue": [("drill", 4), ("paint", 3)],
}
"""Machine and duration of each step of each job, in order."""


def job_shop() -> ppsolve.GraphInstance:
    """Return the job shop as a graph instance."""
    ops = [
        {"id": f"{job}-{machine}", "duration": duration, "resources": [machine]}
        for job, steps in JOBS.items()
        for machine, duration in steps
    ]
    precedences = [
        {"before": f"{job}-{first}", "after": f"{job}-{then}"}
        for job, steps in JOBS.items()
        for (first, _), (then, _) in pairwise(steps)
    ]
    return ppsolve.parse_instance(
        {
            "kind": "graph",
            "name": "job-shop",
            "time_unit": "min",
            "resources": ["saw", "drill", "paint"],
            "ops": ops,
            "precedences": precedences,
        }
    )


def main() -> None:
    """Print the best schedule, machine by machine."""
    result = ppsolve.optimize(job_shop(), time_limit=60)
    print(f"{result.instance}: {result.status}, {result.makespan} {result.time_unit}")
    for machine in ("saw", "drill", "paint"):
        ops = [op for op in result.schedule.ops if op.id.endswith(machine)]
        print(f"{machine:6}", "  ".join(f"{op.start}-{op.end} {op.id}" for op in ops))


if __name__ == "__main__":
    main()
