"""An adapter that runs what `ppsolve export --to primus` writes in Primus; not tested against it.

In a run: ``schedule_table_factory.pp_algorithm_map[table["pp_algorithm"]] = adapter(table,
scheduler_node.SchedulerNode, scheduler_node.FuncType)``, before the launcher makes its table.
"""

import json
from types import SimpleNamespace
from typing import Any

import ppsolve
from ppsolve.solver.formats.primus import primus_table
from ppsolve.solver.formats.program import Settings, read_program


def adapter(table: dict[str, Any], node: Any, kinds: Any) -> type:
    """Return a class that stands in for an algorithm, made of Primus' node and its types."""
    place = {
        s: (r, c) for r, row in enumerate(table["stages"]) for c, s in enumerate(row)
    }

    class Solved:
        def __init__(
            self, pp_size: int, vpp_size: int, micro_batches: int, **_: Any
        ) -> None:
            self.pp_size, self.vpp_size, self.micro_batches = (
                pp_size,
                vpp_size,
                micro_batches,
            )
            sizes = [table[name] for name in ("pp_size", "vpp_size", "micro_batches")]
            assert sizes == [pp_size, vpp_size, micro_batches], (
                "the table is of another size"
            )

        def generate_schedule_table(self) -> list[list[Any]]:
            fields = "mini_batch", "chunk", "args"
            return [
                [
                    node(kinds[row["func_type"]], *(row[name] for name in fields))
                    for row in rows
                ]
                for rows in table["table"]
            ]

        def direction_map(self, rank: int, chunk: int, kind: Any) -> dict[str, Any]:
            stage, step = table["stages"][rank][chunk], 1 if kind.name == "F" else -1
            before, after = (
                place.get(s, (None, 0)) for s in (stage - step, stage + step)
            )
            ends = {"prev": (before[0], kinds["RF" if step > 0 else "RB"])}
            ends["next"] = after[0], kinds["SF" if step > 0 else "SB"]
            return {**ends, "recv_from_chunk": before[1], "send_to_chunk": after[1]}

        def last_pp_stage_rank(self) -> int:
            return place[max(place)][0]

    return Solved


if __name__ == "__main__":
    times = {"forward": 10, "backward_input": 10, "backward_weight": 10}
    shape = {"num_devices": 2, "num_microbatches": 2, "placement": "vshape"}
    pipeline = ppsolve.PipelineInstance(times=times, **shape)
    entry = ppsolve.simulate(pipeline, "zbv").model_dump(mode="json")
    given = json.loads(primus_table(read_program(entry, pipeline), Settings()))
    names = {
        name: SimpleNamespace(name=name)
        for name in ("F", "B", "W", "SF", "RF", "SB", "RB")
    }
    made = adapter(given, lambda kind, *fields: (kind.name, *fields), names)(2, 2, 2)
    for number, nodes in enumerate(made.generate_schedule_table()):
        print(
            f"rank {number}:",
            " ".join(f"{kind}{index}/{c}" for kind, index, c, _ in nodes[:8]),
        )
    print("the loss is on rank", made.last_pp_stage_rank())
