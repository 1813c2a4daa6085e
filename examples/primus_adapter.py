"""Run a schedule of ppsolve in Primus: an adapter that reads `ppsolve export --to primus`.

Not tested against Primus. In a run, put the class in the place of an algorithm before the launcher
makes its table:

    from primus.core.pipeline_parallel.scheduler import schedule_table_factory, scheduler_node
    from primus_adapter import adapter, load

    table = load("schedule.json")
    made = adapter(table, scheduler_node.SchedulerNode, scheduler_node.FuncType)
    schedule_table_factory.pp_algorithm_map[table["pp_algorithm"]] = made
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ppsolve
from ppsolve.solver.export.primus import primus_table
from ppsolve.solver.export.program import read_program
from ppsolve.solver.export.settings import Settings


def load(path: str) -> dict[str, Any]:
    """Return the table of a file."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def adapter(table: dict[str, Any], node: Any, func_type: Any) -> type:
    """Return a class that stands in for an algorithm of Primus.

    Parameters
    ----------
    table : dict
        What `ppsolve export --to primus` wrote.
    node, func_type : type
        ``SchedulerNode`` and ``FuncType`` of Primus.

    Returns
    -------
    type
        The class; its instances give the table and its placement.
    """
    is_v = table["pp_algorithm"] == "zbv-formatted"
    ranks, chunks = table["pp_size"], table["vpp_size"]

    class Solved:
        """An algorithm whose table is given."""

        def __init__(self, pp_size: int, vpp_size: int, micro_batches: int, **_: Any) -> None:
            given = pp_size, vpp_size, micro_batches
            if given != (ranks, chunks, table["micro_batches"]):
                raise ValueError(f"the table is of another size than {given}")
            self.pp_size, self.vpp_size, self.micro_batches = given

        def generate_schedule_table(self) -> list[list[Any]]:
            """Return the nodes of each rank."""
            return [
                [
                    node(func_type[row["func_type"]], row["mini_batch"], row["chunk"], row["args"])
                    for row in rows
                ]
                for rows in table["table"]
            ]

        def direction_map(self, rank: int, chunk: int, kind: Any) -> dict[str, Any]:
            """Return the neighbours of an op: who sends to it, and who gets its result."""
            is_forward = kind.name == "F"
            stage = _stage(rank, chunk, ranks, is_v=is_v)
            step = 1 if is_forward else -1
            before, after = (_place(s, ranks, chunks, is_v) for s in (stage - step, stage + step))
            receive, send = ("RF", "SF") if is_forward else ("RB", "SB")
            return {
                "prev": (before[0], func_type[receive]),
                "next": (after[0], func_type[send]),
                "recv_from_chunk": before[1],
                "send_to_chunk": after[1],
            }

        def first_pp_stage_rank(self) -> int:
            """Return the rank that reads the data."""
            return 0

        def last_pp_stage_rank(self) -> int:
            """Return the rank that has the loss."""
            return 0 if is_v else ranks - 1

    return Solved


def _stage(rank: int, chunk: int, ranks: int, *, is_v: bool) -> int:
    return 2 * ranks - 1 - rank if is_v and chunk else chunk * ranks + rank


def _place(stage: int, ranks: int, chunks: int, is_v: bool) -> tuple[int | None, int]:
    """Return rank and chunk of a stage; no rank for a stage that is not there."""
    if not 0 <= stage < ranks * chunks:
        return None, 0
    chunk, rank = divmod(stage, ranks)
    return (ranks - 1 - rank if is_v and chunk else rank), chunk


def main() -> None:
    """Show the table of a V schedule, with stand-ins for the classes of Primus."""
    pipeline = ppsolve.PipelineInstance(
        num_devices=2,
        num_microbatches=2,
        placement="vshape",
        times={"forward": 10, "backward_input": 10, "backward_weight": 10},
    )
    entry = ppsolve.simulate(pipeline, "zbv").model_dump(mode="json")
    table = json.loads(primus_table(read_program(entry, pipeline), Settings()))
    kinds = {name: SimpleNamespace(name=name) for name in ("F", "SF", "RF", "SB", "RB", "B", "W")}

    def node(kind: Any, *fields: Any) -> tuple[Any, ...]:
        return (kind.name, *fields)

    made = adapter(table, node, kinds)(2, 2, 2)
    for rank, nodes in enumerate(made.generate_schedule_table()):
        print(f"rank {rank}:", " ".join(f"{kind}{index}/{c}" for kind, index, c, _ in nodes[:8]))
    print("rank 1 hands chunk", 0, "to", made.direction_map(1, 0, kinds["F"])["next"][0])


if __name__ == "__main__":
    main()
