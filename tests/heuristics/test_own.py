"""Heuristics that users write are held to every rule, and never end a run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ppsolve
from ppsolve import HeuristicEntry, InputError, PipelineInstance
from ppsolve.solver.api import registry
from ppsolve.solver.api.registry import (
    chosen_heuristics,
    find_heuristic,
    known_heuristic,
)
from ppsolve.solver.cli.main import build
from ppsolve.solver.heuristics.own import arguments_of, name_of, source_of
from tests.heuristics import own_rules

HERE = "tests/heuristics/own_rules.py"


def pipeline(**fields: Any) -> PipelineInstance:
    """Return 2 devices and 3 micro-batches, F = B = 1, room for two activations."""
    given = {"memory": {"capacity": 2, "activation": 1}, **fields}
    return PipelineInstance(
        num_devices=2, num_microbatches=3, times={"forward": 1, "backward": 1}, **given
    )


def entry_of(function: Any, instance: Any = None) -> HeuristicEntry:
    result = ppsolve.optimize(
        instance or pipeline(), time_limit=20, more_heuristics=[function]
    )
    (found,) = (entry for entry in result.heuristics if ":" in entry.name)
    assert result.status == "OPTIMAL"
    return found


def test_one_micro_batch_alone_takes_four_units() -> None:
    entry = entry_of(own_rules.one_by_one)
    assert (entry.status, entry.value, entry.gap) == ("feasible", 12, 0.5)
    assert entry.orders[1] == ["1F0", "1B0", "1F1", "1B1", "1F2", "1B2"]


def test_a_bug_that_breaks_memory_is_listed_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "rules.py"
    file.write_text(
        "def greedy(instance):\n"
        "    return [[f'{s}{k}{i}' for k in 'FB' for i in range(3)] for s in range(2)]\n"
    )
    entry = entry_of(f"{file}:greedy")
    assert (entry.status, entry.name) == ("infeasible", f"{file}:greedy")
    assert (
        entry.reason
        == "memory: device 0 holds 3 of 2 at 2 us (too much from 2 us to 6 us)"
    )
    assert entry.value == 8
    assert entry.gap is None


def test_starts_count_from_the_first_op() -> None:
    entry = entry_of(own_rules.one_after_the_other, pipeline(memory=None))
    assert (entry.status, entry.value) == ("feasible", 12)


def test_the_best_of_all_may_be_your_own() -> None:
    result = ppsolve.optimize(
        pipeline(memory=None), heuristics=[own_rules.all_forwards_first], time_limit=0
    )
    assert [entry.status for entry in result.heuristics] == ["feasible"]
    assert result.best_by == "tests.heuristics.own_rules:all_forwards_first"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("raises", "ValueError: two lines (own_rules.py:"),
        ("exits", "SystemExit: 3 (own_rules.py:"),
        (
            "shortens_ops",
            "ValueError: assignment destination is read-only (own_rules.py:",
        ),
        (
            "drops_the_capacity",
            "ValueError: assignment destination is read-only (own_rules.py:",
        ),
        (
            "renames_ops",
            "TypeError: 'mappingproxy' object does not support item assignment",
        ),
        ("too_few", "its answer: expected 12 starts, one for each op, got 2"),
        ("halves", "its answer: expected a start in whole ticks, got 0.5 for op 0"),
        (
            "huge",
            "its answer: expected a start in whole ticks, got 1.000000E+30 for op 0",
        ),
        ("nothing", "its answer: expected orders or starts, got null"),
        ("text", 'its answer: expected orders or starts, got the text "0F0"'),
        (
            "unknown_action",
            'its answer: expected an action of this instance, got "0F9"',
        ),
        ("one_order_short", "its answer: expected 2 orders, got 1"),
        (
            "leaves_out",
            "its answer: expected every op once in the orders, F0.0, F1.0 is there not",
        ),
        ("twice", 'its answer: the op "F0.0" appears twice'),
        ("in_a_circle", "deadlock: "),
    ],
)
def test_whatever_it_does_is_its_own_failure(name: str, reason: str) -> None:
    entry = entry_of(f"{HERE}:{name}")
    assert entry.status == "failed"
    assert entry.reason is not None
    assert entry.reason.startswith(reason)
    assert "\n" not in entry.reason


def test_a_schedule_that_breaks_a_rule_is_infeasible() -> None:
    entry = entry_of(own_rules.too_early)
    assert entry.status == "infeasible"
    assert entry.reason is not None
    assert entry.reason.startswith("precedence: ")


def test_it_may_say_itself_that_it_does_not_apply() -> None:
    entry = entry_of(own_rules.refuses)
    assert (entry.status, entry.reason) == ("not_applicable", "needs patience")


@pytest.fixture(autouse=True, scope="module")
def ended() -> Iterator[None]:
    yield
    own_rules.ENDED.set()


@pytest.mark.parametrize("name", ["never_ends", "sleeps"])
def test_one_that_does_not_end_costs_its_share_of_the_time(name: str) -> None:
    result = ppsolve.optimize(
        pipeline(), time_limit=1, more_heuristics=[f"{HERE}:{name}"]
    )
    (entry,) = (entry for entry in result.heuristics if ":" in entry.name)
    assert (entry.status, entry.reason) == (
        "failed",
        "stopped by the time limit",
    )
    assert result.value is not None


@pytest.mark.slow
def test_alone_it_leaves_time_for_the_exact_search() -> None:
    result = ppsolve.optimize(
        pipeline(), time_limit=6, heuristics=[own_rules.never_ends]
    )
    assert (result.status, result.best_by) == ("OPTIMAL", "cp-sat")


class TestArguments:
    def test_annotation_or_name_decides(self) -> None:
        assert arguments_of(own_rules.one_after_the_other) == ("problem",)
        assert arguments_of(own_rules.one_by_one) == ("instance",)
        assert arguments_of(own_rules.by_both) == ("instance", "problem")
        assert arguments_of(partial(own_rules.by_both, scale=2)) == (
            "instance",
            "problem",
        )

    def test_both_may_be_asked_for(self) -> None:
        assert entry_of(own_rules.by_both).value == 12

    @pytest.mark.parametrize("function", [own_rules.wants_more, print, lambda: None])
    def test_others_are_refused_before_anything_runs(self, function: Any) -> None:
        with pytest.raises(InputError, match="to take an instance or a problem"):
            ppsolve.optimize(pipeline(), heuristics=[function])


class TestNames:
    def test_case_does_not_matter(self) -> None:
        assert find_heuristic("ZB-H1") is find_heuristic("zb-h1")

    def test_a_near_miss_is_answered(self) -> None:
        with pytest.raises(
            InputError, match='unknown heuristic "ZBH1"; did you mean "zb-h1"'
        ):
            find_heuristic("ZBH1")

    def test_else_all_names_are_listed(self) -> None:
        with pytest.raises(InputError) as caught:
            find_heuristic("?")
        listed = str(caught.value).partition("; known: ")[2].split(", ")
        assert listed == list(registry.all_heuristics())

    @pytest.mark.parametrize(
        ("spec", "message"),
        [
            (f"{HERE}:al_forwards_first", 'did you mean "all_forwards_first"?'),
            (f"{HERE}:number", '"number" is none'),
            ("no/such.py:f", "there is no file no/such.py"),
            (
                "no.such.module:f",
                "cannot be imported: ModuleNotFoundError: No module named 'no'",
            ),
            (":f", "expected package.module:function or path/to/file.py:function"),
            (
                "tests.small:",
                "expected package.module:function or path/to/file.py:function",
            ),
        ],
    )
    def test_what_cannot_be_found_is_said(self, spec: str, message: str) -> None:
        with pytest.raises(InputError) as caught:
            find_heuristic(spec)
        assert message in str(caught.value)

    def test_a_file_that_cannot_be_imported(self, tmp_path: Path) -> None:
        file = tmp_path / "broken.py"
        file.write_text("1 / 0\n")
        with pytest.raises(InputError, match=r"ZeroDivisionError: .* \(broken.py:1\)"):
            find_heuristic(f"{file}:f")

    def test_a_name_of_a_module_is_the_same_function(self) -> None:
        spec = "tests.heuristics.own_rules:one_by_one"
        assert entry_of(spec).value == entry_of(f"{HERE}:one_by_one").value == 12
        assert name_of(own_rules.one_by_one) == spec

    def test_each_is_run_once_and_functions_of_one_name_are_told_apart(self) -> None:
        twins: list[Any] = [lambda problem: [], lambda problem: []]
        chosen = chosen_heuristics(pipeline(), ["1F1B", "1f1b", *twins, twins[0]])
        own = name_of(twins[0])
        assert [one.name for one in chosen] == ["1f1b", own, f"{own}#2"]


def test_a_plan_runs_no_code_that_its_file_names() -> None:
    with pytest.raises(InputError, match="unknown heuristic"):
        known_heuristic(f"{HERE}:one_by_one")


class TestInstalled:
    @pytest.fixture(autouse=True)
    def points(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        points = [
            EntryPoint(
                "slow", f"{own_rules.__name__}:one_by_one", registry.ENTRY_POINTS
            ),
            EntryPoint(
                "GPipe", f"{own_rules.__name__}:too_early", registry.ENTRY_POINTS
            ),
            EntryPoint("broken", "no.such.module:f", registry.ENTRY_POINTS),
        ]
        monkeypatch.setattr(registry, "entry_points", lambda group: points)
        registry.installed.cache_clear()
        yield
        registry.installed.cache_clear()

    def test_they_run_beside_ours_under_their_names(self) -> None:
        result = ppsolve.optimize(pipeline(), time_limit=20)
        entries = {entry.name: entry for entry in result.heuristics}
        assert entries["slow"].value == 12
        assert entries["gpipe"].reason == entries["looped-bfs"].reason
        assert entries[f"{own_rules.__name__}:too_early"].status == "infeasible"
        assert entries["broken"].status == "failed"
        assert "No module named 'no'" in str(entries["broken"].reason)

    def test_they_can_be_named(self) -> None:
        assert ppsolve.simulate(pipeline(), "Slow").value == 12


class TestKinds:
    def test_a_graph_takes_names_or_numbers_of_ops(self) -> None:
        ops = [{"id": name, "duration": 2, "resources": ["r"]} for name in "abc"]
        graph = ppsolve.GraphInstance(resources=("r",), ops=tuple(ops))
        for order in (["c", "a", "b"], [[2, 0, 1]]):
            entry = ppsolve.simulate(graph, lambda problem, order=order: order)
            starts = {op.id: op.start for op in entry.schedule.ops}
            assert starts == {"c": 0, "a": 2, "b": 4}

    def test_a_program_order_is_one(self) -> None:
        program = ppsolve.OverlapInstance(
            nodes=(
                {"name": "k", "kind": "compute", "duration": 3},
                {"name": "c", "kind": "comm", "duration": 3, "group": "g"},
                {"name": "w", "kind": "wait", "deps": ["c"]},
            ),
        )
        entry = ppsolve.simulate(program, lambda instance: ["c", "k", "w"])
        assert (entry.status, entry.value, entry.order) == (
            "feasible",
            3,
            ["c", "k", "w"],
        )
        wrong = ppsolve.simulate(program, lambda instance: ["w", "k", "c"])
        assert wrong.status == "failed"
        assert "after what it depends on" in str(wrong.reason)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(build(), arguments)


def test_commands_take_them_and_keep_what_they_print_out_of_the_result(
    tmp_path: Path,
) -> None:
    rules, instance = tmp_path / "rules.py", tmp_path / "instance.json"
    rules.write_text("def mine(problem):\n    print('hello')\n    return [[0, 1]]\n")
    instance.write_text(pipeline().model_dump_json())
    spec = f"{rules}:mine"
    done = run("simulate", str(instance), "--heuristic", spec, "--json")
    assert (done.exit_code, done.stdout[:1]) == (0, "{")
    assert "hello" in done.stderr
    done = run("optimize", str(instance), "--heuristic", spec, "--json")
    assert spec in [
        entry.name
        for entry in ppsolve.Result.model_validate_json(done.stdout).heuristics
    ]
    wrong = run("compare", str(instance), "--heuristic", "gpipe")
    assert wrong.exit_code == 2
    assert wrong.stderr == (
        "error: --heuristic: expected package.module:function or path/to/file.py:function, got "
        '"gpipe"; --heuristics runs only those it names\n'
    )


def test_the_file_of_a_module_of_the_working_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "orders_of_mine.py").write_text("raise RuntimeError\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    assert source_of("orders_of_mine:shortest") == tmp_path / "orders_of_mine.py"
    assert source_of("no_orders_of_mine:shortest") is None
