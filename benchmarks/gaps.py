"""Measure all tables of docs/data/gaps.md in one run, and write them into the page.

Examples::

    python benchmarks/gaps.py --write
    python benchmarks/gaps.py --only uneven --seeds 0-3
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from decimal import Decimal
from functools import cache, partial
from importlib.metadata import version
from itertools import islice, product
from typing import Any

from make_measured_instances import RUNS, recorded
from published import curve
from run_set import percent, seeds_of
from shipped import INSTANCES, ROOT, instance_files

import ppsolve
from ppsolve.models.core.result import Result, Status
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.solver.api.kinds import load_instance, lower
from ppsolve.solver.api.registry import all_heuristics
from ppsolve.solver.kinds.pipeline.kind import PIPELINE
from ppsolve.solver.kinds.pipeline.programs.communications import with_communications
from ppsolve.solver.kinds.pipeline.programs.waited import run_by
from ppsolve.solver.kinds.pipeline.runtimes.claims import ends_of
from ppsolve.solver.kinds.pipeline.runtimes.families import FAMILIES, MEGATRON
from ppsolve.solver.kinds.pipeline.runtimes.narrowing import RuntimeNarrowing
from ppsolve.solver.kinds.pipeline.runtimes.torch_waits import (
    as_torch_waits,
    torch_programs,
)
from ppsolve.solver.structure.holds import MemoryInfeasible
from ppsolve.solver.studies.generate.instances import generate

PAGE = ROOT / "docs" / "data" / "gaps.md"
PUBLISHED = ("1f1b", "zb-1p", "zb-h1", "zb-h2")
SWEEP = "list-sweep"

SHOWN = {
    "1f1b": "1f1b",
    "zb-1p": "zb-1p",
    "zb-h1": "zb-h1",
    "list-tail": "tail",
    "list-backward-first": "backward-first",
    SWEEP: "sweep",
}
"""Heuristics with a column for each uneven pipeline, where they ran."""

OVERLAP_PASSES = (
    "original",
    "sink-waits-iterative",
    "reorder-communication",
    "inductor-recommended",
    "simple-overlap",
    "overlap-scheduler",
)
FUSED_RULES = {
    "DualPipeV": ("dualpipe-v",),
    "combined 1F1B": ("combined-1f1b", "combined-interleaved-1f1b"),
    "1F1B": ("1f1b", "interleaved-1f1b"),
    "zero bubble": ("zb-h1", "zb-h2", "zbv", "interleaved-zb"),
}
"""Columns of the table of fused blocks; of several rules the best that keeps the memory."""

EXACT = 1e-9


def measure_uneven(options: argparse.Namespace) -> str:
    """Return the gaps of all heuristics on random pipelines with uneven stages."""
    runs = []
    for seed in seeds_of(options.seeds):
        instance = generate(seed=seed)
        result = with_sweep(instance, solve(instance, options, 20))
        runs.append((lower(instance).num_ops, result))
    results = [result for _, result in runs]
    proved = [result for result in results if result.status is Status.OPTIMAL]
    closed = [
        result
        for result in proved
        if any(entry.gap == 0 for entry in result.heuristics)
    ]
    seconds = [result.wall_seconds for result in results]
    best = [
        min(
            gap
            for name, gap in gaps_of(result).items()
            if name in PUBLISHED and gap is not None
        )
        for result in proved
    ]
    shown = [
        name
        for name in SHOWN
        if any(gaps_of(result).get(name) is not None for result in results)
    ]
    rows = [
        [
            result.instance,
            ops,
            f"{result.value:.0f}",
            result.bound_by,
            f"{result.wall_seconds:.2f}",
            result.best_by,
            *(percent(gaps_of(result).get(name)) for name in shown),
        ]
        for ops, result in runs
    ]
    head = [
        "instance",
        "ops",
        "value",
        "bound by",
        "seconds",
        "found by",
        *(SHOWN[name] for name in shown),
    ]
    return "\n\n".join(
        [
            f"{len(proved)} of {len(results)} are proved optimal; on {len(closed)} of them a "
            f"heuristic is optimal. Seconds: median {statistics.median(seconds):.2f}, largest "
            f"{max(seconds):.2f}.",
            table(
                [
                    "heuristic",
                    "optimal on",
                    "mean gap %",
                    "median",
                    "largest",
                    "feasible on",
                ],
                heuristic_rows(proved),
            ),
            f"The best *published* heuristic of each instance is optimal on {best.count(0)} of "
            f"{len(best)},\n{percent(statistics.fmean(best))} % above the optimum on average and "
            f"{percent(max(best))} % at worst.",
            table(head, rows),
        ]
    )


def with_sweep(instance: ppsolve.Instance, result: Result) -> Result:
    """Return a result with `list-sweep` run apart, where a proof came before it."""
    if SWEEP in gaps_of(result) or not result.value:
        return result
    entry = ppsolve.simulate(instance, SWEEP)
    gap = None if entry.value is None else entry.value / result.value - 1
    entry = entry.model_copy(update={"gap": gap})
    return result.model_copy(update={"heuristics": (*result.heuristics, entry)})


def heuristic_rows(results: list[Result]) -> Iterable[list[object]]:
    """Yield the figures of each heuristic that is feasible on some proved instance."""
    for name in all_heuristics():
        gaps = [
            gap for result in results if (gap := gaps_of(result).get(name)) is not None
        ]
        if gaps:
            figures = statistics.fmean(gaps), statistics.median(gaps), max(gaps)
            yield [name, gaps.count(0), *map(percent, figures), len(gaps)]


def gaps_of(result: Result) -> dict[str, float | None]:
    """Return the gap of each heuristic by name."""
    return {entry.name: entry.gap for entry in result.heuristics}


def measure_scan(options: argparse.Namespace) -> str:
    """Return optima over memory, and what published zero-bubble schedulers reach."""
    data = json.loads(
        (ROOT / "tests/data/zero_bubble_memory_scan_4x8.json").read_text()
    )
    rows = []
    for point in islice(data["rows"], options.points):
        limit = f"{point['lim']:g}"
        instance = load_instance(INSTANCES / "memory_scan" / f"scan-4x8-{limit}.json")
        result = solve(instance, options, 20)
        reached, value = float(point["zb_mk"]), float(result.value or 0)
        rows.append(
            [
                limit,
                f"{value:,.0f}",
                result.bound_by,
                f"{result.wall_seconds:.2f}",
                f"{reached:,.0f}",
                percent(reached / value - 1),
            ]
        )
    head = [
        "capacity",
        "value (us)",
        "bound by",
        "seconds",
        "zero-bubble scheduler",
        "its gap %",
    ]
    return table(head, rows)


def measure_curve(options: argparse.Namespace) -> str:
    """Return bubble rates over memory without CP-SAT, and the published ones."""
    linear = (point for point in curve() if "v-" not in point.instance.name)
    rows = []
    for point in islice(linear, min(9, options.points or 9)):
        result = solve(point.instance, options, 0)
        problem = lower(point.instance)
        work = float(problem.duration[problem.is_compute].sum() * problem.scale.tick)
        rates = [
            1 - work / len(problem.span_resources) / float(span)
            for span in (point.published, result.value or 1, result.bound or 1)
        ]
        rows.append(
            [
                point.instance.name.removeprefix("curve-").removesuffix("p"),
                f"{rates[0]:.4f}",
                f"{rates[1]:.4f} ({result.best_by})",
                f"{rates[2]:.4f} ({result.bound_by})",
                result.status,
            ]
        )
    return table(
        ["memory / p", "published rate", "best rate", "lower bound", "status"], rows
    )


def measure_uniform(options: argparse.Namespace) -> str:
    """Return the shipped pipelines of alike stages, without search."""
    rows = []
    for path in islice(sorted((INSTANCES / "uniform").glob("*.json")), options.points):
        instance = load_instance(path)
        result = solve(instance, options, 0)
        ops = lower(instance).num_ops
        seconds = f"{result.wall_seconds:.2f}"
        rows.append([instance.name, ops, result.status, result.best_by, seconds])
    return table(["instance", "ops", "status", "found by", "seconds"], rows)


def measure_fillers(options: argparse.Namespace) -> str:
    """Return what greedy filling loses on the shipped pipelines with fillers, 60 seconds each."""
    searches = {name for name, each in all_heuristics().items() if each.is_search}
    rows: list[list[object]] = []
    for path in islice(sorted((INSTANCES / "fillers").glob("*.json")), options.points):
        instance = load_instance(path)
        found = solve(instance, options, 60)
        greedy: list[object] = ["none fits", "-", "-"]
        best = min(
            (
                (each.value, each.name)
                for each in found.heuristics
                if each.status == "feasible" and each.name not in searches
            ),
            default=None,
        )
        if best is not None:
            greedy = [
                f"{best[0]:,.1f}",
                best[1],
                percent(float(best[0] / found.value) - 1),
            ]
        fillers = sum(
            instance.steps if each.per_step else 1 for each in instance.fillers
        )
        figures = f"{found.value:,.1f}", f"{found.bound:,.1f}", found.best_by
        rows.append([instance.name, fillers, *figures, *greedy])
    head = [
        "instance",
        "fillers",
        "value (ms)",
        "bound",
        "found by",
        "best greedy",
        "by",
        "gap %",
    ]
    return table(head, rows)


def measure_runtimes(options: argparse.Namespace) -> str:
    """Return what the rules of each runtime of few orders cost, 10 seconds for each pipeline."""
    rows: list[list[object]] = []
    prices: dict[str, list[float]] = {family.name: [] for family in FAMILIES}
    refused, unfit = Counter[str](), Counter[str]()
    for instance in islice(shipped_pipelines(), options.points):
        obstacles = {family.name: family.obstacle(instance) for family in FAMILIES}
        refused.update(name for name, why in obstacles.items() if why is not None)
        free = None
        for name in (
            each.name
            for each in FAMILIES
            if each.is_finite and not obstacles[each.name]
        ):
            few = {} if free is None else {"heuristics": ["1f1b"]}
            found = solve(instance, options, 0 if few else 10, runtime=name, **few)
            # Of all schedules the best is known from the first of these runtimes.
            free = free or found.runtime
            unfit[name] += found.value is None
            if found.value is not None and name == MEGATRON.name:
                rows.append(price_row(found))
            if found.value is not None:
                prices[name].append(found.value / free.free_value - 1)
        print(f"{instance.name}: {len(rows)} prices", file=sys.stderr)
    head = [
        "runtime",
        "refuses",
        "nothing fits",
        "runs",
        "mean price %",
        "median",
        "largest",
    ]
    summary = [
        [
            family.name,
            refused[family.name],
            unfit[family.name],
            *price_figures(prices[family.name]),
        ]
        for family in FAMILIES
        if family.is_finite
    ]
    any_order = ", ".join(
        f"`{each.name}` {refused[each.name]}" for each in FAMILIES if not each.is_finite
    )
    columns = [
        "pipeline",
        "Megatron-LM runs",
        "value",
        "any schedule",
        "bound",
        "price %",
        "at most",
    ]
    return "\n\n".join(
        [
            table(head, summary),
            f"Runtimes that read the order run any. Pipelines that they refuse:\n{any_order}.",
            table(columns, rows),
        ]
    )


def measure_waits(options: argparse.Namespace) -> str:
    """Return what Megatron-LM's ranks lose by waiting for transfers that meet their receives."""
    rows: dict[str, list[list[float]]] = defaultdict(list)
    for instance in islice(shipped_pipelines(), options.points):
        several = instance.num_stages > instance.num_devices
        chunks = "several stages per rank" if several else "1F1B"
        rows[f"shipped, {chunks}"] += lost_by_waiting(instance, options)
    for latency, seed in product((0, 10), range(40)):
        instance = interleaved_pipeline(seed, latency)
        rows[f"random, several stages per rank, latency {latency}"] += lost_by_waiting(
            instance, options
        )
    shares = ("default flags", "best flags", "PyTorch's own", "best program")
    head = ["pipelines", "number"]
    head += [f"{share}: {figure}" for share in shares for figure in ("mean %", "most")]
    return table(
        head,
        (
            [
                name,
                len(losses),
                *(
                    percent(figure(column))
                    for column in zip(*losses, strict=True)
                    for figure in (statistics.fmean, max)
                ),
            ]
            for name, losses in rows.items()
        ),
    )


def interleaved_pipeline(seed: int, latency: int) -> Any:
    """Return a random pipeline of 4 or 8 ranks, with forwards of 50 to 150."""
    rng = random.Random(seed)
    ranks, chunks = rng.choice([4, 8]), rng.choice([2, 3, 4])
    times = {
        name: [rng.randint(shortest, 3 * shortest) for _ in range(ranks * chunks)]
        for name, shortest in (("forward", 50), ("backward", 100))
    }
    return ppsolve.PipelineInstance(
        num_devices=ranks,
        num_microbatches=ranks * rng.choice([1, 2, 3]) + rng.randrange(ranks),
        placement="interleaved",
        stages_per_device=chunks,
        times=times,
        p2p={"latency": latency},
    )


def lost_by_waiting(instance: Any, options: argparse.Namespace) -> list[list[float]]:
    """Return by which shares waits lengthen a pipeline, nothing of one that cannot be run.

    Those of Megatron-LM with the group that is best by delays, then with the best settings; those
    of the same order as PyTorch adds transfers to it, then as they are exported for it.
    """
    few: dict[str, Any] = {"runtime": MEGATRON.name, "heuristics": ["1f1b"]}
    p2p = instance.p2p.model_copy(update={"mode": "rendezvous"})
    waiting = instance.model_copy(update={"p2p": p2p})
    if instance.p2p.has_ops or MEGATRON.obstacle(waiting) is not None:
        return []
    task = RuntimeNarrowing(PIPELINE, instance, MEGATRON.name, exact=False).task()
    with suppress(MemoryInfeasible):
        task.find_bounds()
    if task.schedule is None:
        return []
    found = solve(waiting, options, 0, **few)
    settings = task.settings[task.board.incumbent.by]
    values = {entry.name: entry.value for entry in found.heuristics}
    rows = [list(order) for order in settings.orders]
    ends = ends_of(task.schedule)
    exported = [as_torch_waits(row) for row in with_communications(rows, ends)]
    runs = [
        run_by(programs, task.schedule, waiting.by_rank()).makespan
        for programs in (torch_programs(rows), exported)
    ]
    delayed = float(task.shown(task.board.value))
    taken = [values[settings.words], found.value, *map(task.shown, runs)]
    return [[float(value) / delayed - 1 for value in taken]]


def shipped_pipelines() -> Iterator[Any]:
    """Yield the shipped pipelines of one step without fillers."""
    for name in instance_files(INSTANCES):
        if not name.startswith("best_known"):
            instance = load_instance(INSTANCES / name)
            if instance.kind == PIPELINE.name and instance.is_one_plain_step:
                yield instance


def price_row(found: Any) -> list[object]:
    """Return what the rules of a runtime cost on a pipeline, and the most that they may cost."""
    runtime = found.runtime
    return [
        found.instance,
        runtime.order,
        f"{found.value:,.0f}",
        f"{runtime.free_value:,.0f}",
        f"{runtime.free_bound:,.0f}",
        percent(runtime.price),
        percent(found.value / runtime.free_bound - 1),
    ]


def price_figures(prices: list[float]) -> list[object]:
    """Return the number of prices, their mean, median and largest."""
    if not prices:
        return [0, "-", "-", "-"]
    figures = statistics.fmean(prices), statistics.median(prices), max(prices)
    return [len(prices), *map(percent, figures)]


def measure_compiled(options: argparse.Namespace) -> str:
    """Return gaps of today's overlap passes on graphs that torch compiled, at equal memory."""
    found: dict[str, list[tuple[float | None, float]]] = {
        name: [] for name in OVERLAP_PASSES
    }
    rows = []
    for path in islice(
        sorted((ROOT / "tests/data/inductor").glob("*.json")), options.points
    ):
        dump = json.loads(path.read_text())
        graph = OverlapInstance.parse(dump["graph"] | {"collective_order": "free"})
        best = cache(partial(within, graph, options))
        for name, gaps in found.items():
            run = ppsolve.simulate(graph, name)
            peak = max(dump["peak"], run.peak_live_bytes)
            optimum = best(peak)
            gap = float(run.makespan) / float(optimum.value or 1) - 1
            is_proved = optimum.status is Status.OPTIMAL
            gaps.append((gap if is_proved else None, peak / dump["peak"] - 1))
        compiled = float(ppsolve.simulate(graph, "original").makespan)
        optimum = best(dump["peak"])
        values = [float(each or 0) for each in (optimum.value, optimum.bound)]
        shown = [f"{each:,.0f}" for each in (compiled, *values)]
        rows.append(
            [path.stem, len(graph.nodes), *shown, percent(1 - values[0] / compiled)]
        )
    head = ["graph", "nodes", "as compiled (us)", "best (us)", "bound (us)", "saved %"]
    return "\n\n".join([pass_table(found), table(head, rows)])


def within(graph: OverlapInstance, options: argparse.Namespace, peak: float) -> Result:
    """Return the best order of a compiled graph that holds no more bytes than `peak`."""
    return solve(
        graph.model_copy(update={"max_live_bytes": Decimal(round(peak))}), options, 30
    )


def pass_table(found: dict[str, list[tuple[float | None, float]]]) -> str:
    """Return the table of passes: gaps at equal memory, and the memory that they add."""
    rows: list[list[object]] = []
    for name, pairs in found.items():
        gaps = [gap for gap, _ in pairs if gap is not None]
        more = [share for _, share in pairs]
        figures = map(percent, (statistics.fmean(gaps), max(gaps)))
        optimal = sum(gap < EXACT for gap in gaps)
        memory = sum(share > 0 for share in more), percent(max(more))
        rows.append([name, f"{optimal} of {len(gaps)}", *figures, *memory])
    head = ["pass", "optimal on", "mean gap %", "largest", "more memory on", "most %"]
    return table(head, rows)


def measure_fused(options: argparse.Namespace) -> str:
    """Return published rules beside the best schedules of fused blocks at equal memory."""
    rows = []
    paths = sorted((INSTANCES / "fused").glob("deepseek-*-8x16-*.json"))
    for path in islice(paths, options.points):
        instance = load_instance(path)
        result = solve(instance, options, 60)
        found = {
            entry.name: entry.value
            for entry in result.heuristics
            if entry.gap is not None
        }
        columns = [
            min((found[name] for name in names if name in found), default=None)
            for names in FUSED_RULES.values()
        ]
        shown = ["-" if value is None else f"{value:,.1f}" for value in columns]
        best = f"{result.value:,.1f}", f"{result.bound:,.1f}", percent(result.gap)
        _, placement, _, capacity = instance.name.split("-")
        rows.append([capacity, placement, *shown, *best, result.best_by])
    rows.sort(key=lambda row: int(row[0]))
    head = [
        "activations",
        "placement",
        *FUSED_RULES,
        "best",
        "bound",
        "gap %",
        "found by",
    ]
    return table(head, rows)


def measure_recorded(options: argparse.Namespace) -> str:
    """Return recorded training runs beside 1F1B, the optimum and the same work in equal stages."""
    rows = []
    for run in islice(RUNS, options.points):
        result = solve(recorded(run), options, 20)
        even = solve(recorded(run, is_even=True), options, 20)
        rule = next(entry for entry in result.heuristics if entry.name == "1f1b")
        times = run.step, float(rule.value), float(result.value), float(even.value)
        status = "proved" if result.status is Status.OPTIMAL else percent(result.gap)
        rows.append(
            [
                run.name,
                *(f"{time:,.1f}" for time in times[:3]),
                status,
                percent(rule.gap),
                percent(1 - times[3] / times[1]),
            ]
        )
    head = [
        "run",
        "recorded (ms)",
        "1F1B",
        "best",
        "its gap %",
        "gap of 1F1B %",
        "equal stages save %",
    ]
    return table(head, rows)


SECTIONS = {
    "uneven": measure_uneven,
    "scan": measure_scan,
    "curve": measure_curve,
    "uniform": measure_uniform,
    "fillers": measure_fillers,
    "runtimes": measure_runtimes,
    "waits": measure_waits,
    "compiled": measure_compiled,
    "fused": measure_fused,
    "recorded": measure_recorded,
}


def solve(
    instance: ppsolve.Instance, options: argparse.Namespace, seconds: float, **more: Any
) -> Any:
    """Solve an instance within its limit and name it, as progress."""
    result = ppsolve.optimize(
        instance, time_limit=seconds, workers=options.workers, **more
    )
    print(
        f"{result.instance}: {result.status}, {result.wall_seconds:.2f} s",
        file=sys.stderr,
    )
    return result


def table(head: list[str], rows: Iterable[list[object]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def written(page: str, name: str, text: str) -> str:
    """Return a page with the text between the marks of a section replaced."""
    marks = f"<!-- measured: {name} -->", "<!-- end -->"
    pattern = re.compile(f"{re.escape(marks[0])}\n.*?{re.escape(marks[1])}", re.DOTALL)
    found, count = pattern.subn(lambda _: f"{marks[0]}\n{text}\n{marks[1]}", page)
    if count != 1:
        raise SystemExit(
            f"{PAGE}: expected the marks of {name} once, found them {count} times"
        )
    return found


def main() -> None:
    """Measure the chosen sections, then print them or write them into the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--seeds", default="0-39", help="seeds of the uneven pipelines")
    parser.add_argument(
        "--points", type=int, help="only the first points of the other tables"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--write", action="store_true", help="write the tables into docs/data/gaps.md"
    )
    options = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    made_with = (
        f"Measured with version {version('ppsolve')}, OR-tools {version('ortools')}, "
        f"{options.workers} workers on {platform.machine()}, one instance after the other."
    )
    texts = {name: SECTIONS[name](options) for name in options.only} | {
        "machine": made_with
    }
    for name, text in texts.items():
        page = written(page, name, text)
    if options.write:
        PAGE.write_text(page, encoding="utf-8")
    else:
        print("\n\n".join(texts.values()))


if __name__ == "__main__":
    main()
