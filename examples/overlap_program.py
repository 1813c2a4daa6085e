"""Reorder a program of kernels and collectives so that communication runs behind compute."""

import ppsolve


def program() -> ppsolve.Instance:
    """Return two micro-batches of tensor parallelism, one after the other as a compiler has it."""
    nodes = []
    for batch in "ab":
        before = []
        for layer in range(3):
            kernel, reduce = f"mlp{layer}{batch}", f"reduce{layer}{batch}"
            nodes += [
                {"name": kernel, "kind": "compute", "duration": 100, "deps": before},
                {"name": reduce, "kind": "comm", "duration": 60, "deps": [kernel]},
                {"name": f"wait{layer}{batch}", "kind": "wait", "deps": [reduce]},
            ]
            before = [f"wait{layer}{batch}"]
    return ppsolve.parse_instance(
        {
            "kind": "overlap",
            "name": "two-batches",
            "nodes": nodes,
            "collective_order": "free",
        }
    )


def main() -> None:
    """Print the program as it is, Inductor's order, and the best one."""
    result = ppsolve.optimize(program(), time_limit=60)
    print(f"{result.instance}: {result.status}")
    for entry in result.heuristics:
        if entry.name in {"original", "inductor-default"}:
            print(
                f"{entry.name:17}{entry.makespan:>5}, exposed {entry.exposed_wait:>4}"
            )
    print(f"{'best':17}{result.makespan:>5}, exposed {result.exposed_wait:>4}")
    print("order:", " ".join(result.order))


if __name__ == "__main__":
    main()
