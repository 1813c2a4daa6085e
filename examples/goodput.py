"""Fit step times to measurements and choose replicas and batch size by goodput."""

from pathlib import Path

import ppsolve
from ppsolve import fit_goodput
from ppsolve.models.studies.goodput.files import load_observations

OBSERVATIONS = (
    Path(__file__).resolve().parents[1] / "instances" / "plans" / "observations.csv"
)


def main() -> None:
    """Print the fitted model, and the best configuration of some allocations."""
    observed = load_observations(OBSERVATIONS)
    fitted = fit_goodput(*observed.columns())
    print(f"{len(observed)} observations, objective {fitted.objective:.4f}")
    print(f"a micro-batch of 32 takes {fitted.params.accum_time(32):.4f} s")

    model = ppsolve.GoodputModel(fitted.params, ppsolve.GradParams(0.02, 4), 128)
    for nodes, replicas in ((1, 1), (1, 8), (2, 8), (2, 16), (4, 32)):
        goodput, atomic_bsz, accum_steps = model.optimize(
            nodes,
            replicas,
            max_batch_size=4096,
            atomic_bsz_range=(1, 64),
            accumulation=True,
        )
        batch_size = replicas * atomic_bsz * (accum_steps + 1)
        print(
            f"{nodes} nodes, {replicas:2} replicas: batch {batch_size:4}, {goodput:6.1f} /s"
        )


if __name__ == "__main__":
    main()
