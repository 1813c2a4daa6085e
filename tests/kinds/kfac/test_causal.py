"""The repaired greedy: every schedule is judged again from the rules of the exact task."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.kfac.pattern import DevicePattern, RefreshPattern
from ppsolve.solver.kinds.kfac.causal import pipefisher_causal
from ppsolve.solver.kinds.kfac.placement import (
    DevicePlan,
    absolute_starts,
    common_interval,
)
from ppsolve.solver.kinds.kfac.requirements import MOST_ITERATIONS
from tests.kinds.kfac.cases import NAMES, Timeline, measured, pattern_of
from tests.marks import first

FORWARD, BACKWARD, UP = "call_forward", "call_backward", ":up_pipe"

IMPOSSIBLE = {"hand_B3_unplaced", "hand_B5_margin"}

Spans = dict[tuple[int, int], tuple[int, int]]


def holes_by_cells(
    device: DevicePattern, period: int, iterations: int
) -> list[tuple[int, int]]:
    """Maximal gaps, cut at each period, put together from the cells between all event times."""
    last = iterations * period
    ops = [
        (op.start + k * period, op.end + k * period)
        for op in device.ops
        for k in range(iterations)
    ]
    cuts = {k * period for k in range(iterations + 1)}
    points = sorted({p for span in ops for p in span if 0 <= p <= last} | cuts)
    holes: list[tuple[int, int]] = []
    for low, high in pairwise(points):
        if any(start < high and low < end for start, end in ops):
            continue
        if holes and holes[-1][1] == low and low not in cuts:
            holes[-1] = (holes[-1][0], high)
        else:
            holes.append((low, high))
    return holes


def lies_in_a_hole(
    pattern: RefreshPattern, span: tuple[int, int], holes: list[tuple[int, int]]
) -> bool:
    above, below = pattern.margin.numerator, pattern.margin.denominator
    start, length = span[0], span[1] - span[0]
    for low, high in holes:
        needed = below * start + (above + below) * length
        if low <= start and (needed < below * high or (above == 0 and needed <= high)):
            return True
    return False


def spans_of(pattern: RefreshPattern, plan: DevicePlan) -> Spans:
    """Absolute start and end of each part, after checking that each was placed once."""
    starts = absolute_starts(plan, pattern)
    lengths = defaultdict(list)
    for entry in plan.placed:
        if entry.work is not None:
            lengths[entry.work, entry.part].append(entry.length)
    work = pattern.devices[plan.device].work
    parts = {
        (index, part) for index, entry in enumerate(work) for part in range(entry.parts)
    }
    assert set(starts) == set(lengths) == parts
    assert all(len(found) == 1 for found in lengths.values())
    return {key: (start, start + lengths[key][0]) for key, start in starts.items()}


def check_device(pattern: RefreshPattern, plan: DevicePlan, spans: Spans) -> None:
    device = pattern.devices[plan.device]
    holes = holes_by_cells(device, pattern.period, plan.iterations)
    streams: dict[bool, list[tuple[int, int]]] = {False: [], True: []}
    for (index, _), span in spans.items():
        on_stream = (
            device.work[index].label.kind == "sync" and not pattern.syncs_in_holes
        )
        assert on_stream or lies_in_a_hole(pattern, span, holes)
        assert span[0] >= 0
        assert span[1] <= plan.iterations * pattern.period
        if span[0] < span[1]:  # Work without length may be anywhere in the holes.
            streams[on_stream].append(span)
    for taken in streams.values():
        taken.sort()
        for before, after in pairwise(taken):
            assert before[1] <= after[0]


def check_order(pattern: RefreshPattern, plan: DevicePlan, spans: Spans) -> None:
    device = pattern.devices[plan.device]
    for index, work in enumerate(device.work):
        label = work.label
        first = spans[index, 0][0]
        if label.kind == "cov":
            kind = "forward" if label.factor == "A" else "backward"
            data = sorted(
                (op.start, op.end)
                for op in device.ops
                if (op.kind, op.pipe) == (kind, label.pipe)
            )
            for part in range(work.parts):
                assert spans[index, part][0] >= data[part][1]
                assert part == 0 or spans[index, part][0] >= spans[index, part - 1][1]
            continue
        for other, earlier in enumerate(device.work):
            same = (earlier.label.factor, earlier.label.module) == (
                label.factor,
                label.module,
            )
            is_needed = earlier.label.kind == "cov" and (
                label.kind == "sync" or earlier.label.pipe == label.pipe
            )
            is_needed |= label.kind == "inv" and earlier.label.kind == "sync"
            if same and is_needed:
                assert spans[other, earlier.parts - 1][1] <= first


def check_rendezvous(pattern: RefreshPattern, all_spans: dict[int, Spans]) -> None:
    """Syncs of one factor and module meet pairwise, in the order of each device's instance."""
    found: dict[Any, list[set[tuple[int, int]]]] = defaultdict(list)
    lengths: dict[Any, list[int]] = defaultdict(list)
    for device in pattern.devices:
        nth: dict[Any, int] = defaultdict(int)
        for index, work in enumerate(device.work):
            if work.label.kind != "sync":
                assert spans_length(all_spans[device.device], index) == work.length
                continue
            key = (work.participants, work.label.factor, work.label.module)
            if len(work.participants) == 1:
                key = (device.device, index, "")
            found[(*key, nth[key])].append({all_spans[device.device][index, 0]})
            lengths[(*key, nth[key])].append(work.length)
            nth[key] += 1
    for key, spans in found.items():
        (span,) = set.union(*spans)
        assert span[1] - span[0] == max(lengths[key])


def spans_length(spans: Spans, index: int) -> int:
    (length,) = {
        end - start for (work, _), (start, end) in spans.items() if work == index
    }
    return length


def check_list(pattern: RefreshPattern, plan: DevicePlan) -> None:
    """The list names what runs in the order of time, between the markers of the format."""
    labels = [label for group in plan.labels() for label in group]
    assert labels[-1] == "turn_on_save_inputs_outgrads"
    assert labels.count("turn_off_save_inputs_outgrads") == 1
    assert labels.count("-- end --") == labels.count("-- start --") == plan.iterations
    per_iteration = len(pattern.devices[plan.device].ops)
    ops = [e for e in plan.placed if e.work is None and e.label.startswith("call")]
    assert len(ops) == per_iteration * plan.iterations
    shown = [
        (entry.start + entry.copy * pattern.period, entry.work is None)
        for entry in plan.placed
        if entry.work is not None or entry.label.startswith("call")
    ]
    pinned = [time for time, is_op in shown if is_op]
    # Where the device's own ops span more than a period, no list is in the order of time.
    if pinned == sorted(pinned):
        times = [time for time, _ in shown]
        assert times == sorted(times)


def check(pattern: RefreshPattern) -> list[DevicePlan]:
    plans = pipefisher_causal(pattern)
    assert [plan.device for plan in plans] == [
        device.device for device in pattern.devices
    ]
    all_spans = {plan.device: spans_of(pattern, plan) for plan in plans}
    for plan in plans:
        check_device(pattern, plan, all_spans[plan.device])
        check_order(pattern, plan, all_spans[plan.device])
        check_list(pattern, plan)
    check_rendezvous(pattern, all_spans)
    return plans


class TestMeasured:
    @pytest.mark.parametrize("margin", first(1, [0.05, 0]))
    @pytest.mark.parametrize("name", [name for name in NAMES if name not in IMPOSSIBLE])
    def test_schedules_keep_the_rules(self, name: str, margin: float) -> None:
        check(replace(measured(name), margin=Fraction(str(margin))))

    @pytest.mark.parametrize(
        ("name", "iterations"),
        [
            ("c01_gpipe_base_p4_m4", [2, 2, 2, 3]),
            ("c02_1f1b_base_p4_m4", [2, 2, 3, 3]),
            ("c03_chimera_base_p4_m4", [9, 7, 8, 9]),
            ("c05_1f1b_base_p4_m8_dp2", [3, 3, 3, 4]),
            ("c09_gpipe_large_p8_m4", [2] * 8),
            ("hand_B1_refill_causality", [1, 2]),
            ("hand_B2_chimera_gate", [2]),
            ("hand_B4_skip_order", [1]),
            ("hand_B6_floor", [2]),
            ("hand_B7_clock_skew", [1, 1]),
            ("hand_P1_packing", [1]),
            ("hand_P2_barrier", [1, 1]),
        ],
    )
    def test_iterations(self, name: str, iterations: list[int]) -> None:
        plans = pipefisher_causal(measured(name))
        assert [plan.iterations for plan in plans] == iterations
        assert common_interval(plans) == max(iterations)

    def test_at_most_the_proven_optimum_is_not_undercut(self) -> None:
        c01 = pipefisher_causal(measured("c01_gpipe_base_p4_m4"))
        c03 = pipefisher_causal(measured("c03_chimera_base_p4_m4"))
        assert c01[1].iterations >= 2
        assert c03[0].iterations >= 8
        assert c03[1].iterations >= 6

    @pytest.mark.parametrize(
        ("name", "label", "length"),
        [
            ("hand_B3_unplaced", "inv_kron_A:m", 600000),
            ("hand_B5_margin", "inv_kron_A:m", 96000),
        ],
    )
    def test_work_that_fits_nowhere_is_named(
        self, name: str, label: str, length: int
    ) -> None:
        with pytest.raises(
            InputError, match=f"{label}: an op of {length} ns fits no hole"
        ) as info:
            pipefisher_causal(measured(name))
        assert info.value.field == label
        assert "device 0, even alone (margin 0.05)" in info.value.message

    def test_groups_of_replicas_keep_the_rules(self) -> None:
        pattern = measured("c05_1f1b_base_p4_m8_dp2")
        for group, on_stream in (((0, 1), False), ((0, 1), True), ((0, 1, 2, 3), True)):
            meeting = replace(
                pattern,
                devices=tuple(
                    replace(
                        device,
                        work=tuple(
                            replace(work, participants=group)
                            if work.label.kind == "sync" and device.device in group
                            else work
                            for work in device.work
                        ),
                    )
                    for device in pattern.devices
                ),
            )
            check(replace(meeting, syncs_in_holes=not on_stream))


def one_hole(*, hole: int = 100, **work: list[tuple[Any, Any]]) -> Timeline:
    ops: Timeline = {FORWARD: [(0, 100)], BACKWARD: [(100 + hole, 200 + hole)]}
    return {**ops, **{name.replace("__", ":"): pairs for name, pairs in work.items()}}


def absolute(pattern: RefreshPattern, device: int = 0) -> dict[tuple[str, int], int]:
    plan = check(pattern)[device]
    work = pattern.devices[device].work
    starts = absolute_starts(plan, pattern)
    return {
        (work[index].label.text, part): start for (index, part), start in starts.items()
    }


class TestRule:
    def test_nothing_is_skipped_and_modules_do_not_wait_for_each_other(self) -> None:
        pattern = pattern_of(
            one_hole(
                cov_kron_A__a=[(300, 310)],
                cov_kron_A__b=[(310, 390)],
                sync_kron_A__a=[(400, 405)],
                inv_kron_A__a=[(405, 410)],
            ),
        )
        # The sync needs 5.25 before 200, and the inversion of 5 no longer has that.
        assert absolute(pattern) == {
            ("cov_kron_A:a", 0): 100,
            ("cov_kron_A:b", 0): 110,
            ("sync_kron_A:a", 0): 190,
            ("inv_kron_A:a", 0): 400,
        }

    def test_curvature_waits_for_its_own_pipe(self) -> None:
        pattern = pattern_of(
            {
                FORWARD: [(0, 10)],
                f"{FORWARD}{UP}": [(40, 50)],
                f"{BACKWARD}{UP}": [(80, 90)],
                BACKWARD: [(120, 130)],
                f"cov_kron_A:m{UP}": [(200, 210)],
                "cov_kron_A:m": [(210, 220)],
                f"inv_kron_A:m{UP}": [(230, 231)],
                "inv_kron_A:m": [(240, 241)],
                "sync_kron_A:m": [(250, 255)],
            }
        )
        assert absolute(pattern) == {
            ("cov_kron_A:m", 0): 10,
            (f"cov_kron_A:m{UP}", 0): 50,
            ("sync_kron_A:m", 0): 60,
            (f"inv_kron_A:m{UP}", 0): 65,
            ("inv_kron_A:m", 0): 66,
        }

    def test_the_cursor_moves_to_data_that_arrives_inside_a_hole(self) -> None:
        pattern = pattern_of(
            {
                FORWARD: [(0, 10), (40, 40)],
                BACKWARD: [(100, 110), (110, 120)],
                "cov_kron_A:m": [(200, 220)],
            }
        )
        assert absolute(pattern) == {("cov_kron_A:m", 0): 10, ("cov_kron_A:m", 1): 40}

    @pytest.mark.parametrize(("margin", "fits"), [(0, 100), (0.05, 95), (0.25, 79)])
    def test_the_margin_is_exact(self, margin: float, fits: int) -> None:
        timeline = one_hole(inv_kron_A__m=[(0, fits)])
        assert absolute(pattern_of(timeline, margin_ratio=margin)) == {
            ("inv_kron_A:m", 0): 100
        }
        longer = one_hole(inv_kron_A__m=[(0, fits + 1)])
        with pytest.raises(InputError, match="fits no hole"):
            pipefisher_causal(pattern_of(longer, margin_ratio=margin))

    def test_the_last_tail_is_longer_where_a_clock_runs_ahead(self) -> None:
        # The next iteration's forward leaves 20 before the end; after the last one 40 are free.
        pattern = pattern_of(
            {FORWARD: [(0, 40)], BACKWARD: [(60, 100)]},
            {FORWARD: [(-20, 30)], BACKWARD: [(30, 60)], "inv_kron_A:m": [(0, 35)]},
        )
        assert absolute(pattern, 1) == {("inv_kron_A:m", 0): 60}

    def test_data_that_is_missing_is_named(self) -> None:
        pattern = pattern_of(
            {
                FORWARD: [(0, 10), (10, 20)],
                BACKWARD: [(50, 60)],
                "cov_kron_B:m": [(70, 80)],
            }
        )
        with pytest.raises(
            InputError, match="a backward of the same pipe for each of the 2"
        ) as e:
            pipefisher_causal(pattern)
        assert e.value.field == "cov_kron_B:m"
        assert e.value.message.endswith("got 1 on device 0")

    def test_room_that_is_there_once_only_is_given_once(self) -> None:
        # 40 are free after the last iteration, and 20 everywhere else: room for one of the two.
        pattern = pattern_of(
            {FORWARD: [(0, 40)], BACKWARD: [(60, 100)]},
            {
                FORWARD: [(-20, 30)],
                BACKWARD: [(30, 60)],
                "inv_kron_A:m": [(0, 35)],
                "inv_kron_A:n": [(0, 35)],
            },
        )
        with pytest.raises(
            InputError, match="found no room on device 1 within 7 iterations"
        ):
            pipefisher_causal(pattern)

    def test_clocks_that_are_days_apart_are_refused(self) -> None:
        pattern = pattern_of(
            one_hole(),
            {
                FORWARD: [(10**7, 10**7 + 1)],
                BACKWARD: [(5, 6)],
                "inv_kron_A:m": [(0, 1)],
            },
        )
        with pytest.raises(
            InputError, match=f"within {MOST_ITERATIONS} pipeline times"
        ):
            pipefisher_causal(pattern)

    def test_devices_without_work_take_one_iteration(self) -> None:
        (plan,) = check(pattern_of({FORWARD: [(0, 10)], BACKWARD: [(10, 20)]}))
        assert plan.iterations == 1
        assert plan.usage(pattern_of({FORWARD: [(0, 10)], BACKWARD: [(10, 20)]})) == 100


class TestRendezvous:
    FIRST = one_hole(cov_kron_A__m=[(300, 310)], sync_kron_A__m=[(320, 330)])
    SECOND: Timeline = {  # noqa: RUF012
        FORWARD: [(0, 10)],
        BACKWARD: [(20, 30)],
        "cov_kron_A:m": [(30, 80)],
        "sync_kron_A:m": [(80, 100)],
        "inv_kron_A:m": [(100, 110)],
    }

    def test_syncs_meet_in_a_hole_of_each_and_take_the_longest(self) -> None:
        pattern = pattern_of(self.FIRST, self.SECOND, sync_groups=[[0, 1]])
        assert absolute(pattern, 0) == {
            ("cov_kron_A:m", 0): 100,
            ("sync_kron_A:m", 0): 110,
        }
        assert absolute(pattern, 1) == {
            ("cov_kron_A:m", 0): 30,
            ("sync_kron_A:m", 0): 110,
            ("inv_kron_A:m", 0): 130,
        }

    def test_syncs_on_a_stream_need_no_hole_and_do_not_count_as_usage(self) -> None:
        pattern = pattern_of(
            self.FIRST, self.SECOND, sync_groups=[[0, 1]], margin_ratio=0
        )
        pattern = replace(pattern, syncs_in_holes=False)
        busy = replace(
            pattern,
            devices=tuple(
                replace(
                    device,
                    work=tuple(
                        replace(work, length=150) if work.label.kind == "sync" else work
                        for work in device.work
                    ),
                )
                for device in pattern.devices
            ),
        )
        assert absolute(busy, 0)["sync_kron_A:m", 0] == 110
        assert absolute(busy, 1)["inv_kron_A:m", 0] == 260
        assert check(busy)[0].usage(busy) == pytest.approx(100 * 210 / 300)

    def test_holes_that_never_coincide_are_named(self) -> None:
        first = one_hole(sync_kron_A__m=[(320, 330)])
        second: Timeline = {
            FORWARD: [(100, 200)],
            BACKWARD: [(200, 201)],
            "sync_kron_A:m": [(0, 10)],
        }
        with pytest.raises(
            InputError, match="fits no hole of device 0 and device 1, even alone"
        ):
            pipefisher_causal(pattern_of(first, second, sync_groups=[[0, 1]]))


@st.composite
def timelines(draw: st.DrawFn, clock: int) -> Timeline:
    """Ops of one or two pipes one after the other, and work of up to three modules."""
    parts = draw(st.integers(1, 3))
    pipes = draw(st.sampled_from([("",), ("", UP)]))
    found: Timeline = {name + tag: [] for name in (FORWARD, BACKWARD) for tag in pipes}
    labels = draw(st.permutations([label for label in found for _ in range(parts)]))
    now = clock
    for label in labels:
        now += draw(st.integers(0, 30))
        found[label].append((now, now + draw(st.integers(0, 10))))
        now = found[label][-1][1]
    for module in draw(st.sampled_from(["", "m", "mn", "mno"])):
        for kind in ("cov", "sync", "inv"):
            for factor in "AB":
                for tag in pipes:
                    if draw(st.integers(0, 3)):
                        pair = draw(
                            st.just((None, None)) | pairs(parts if kind == "cov" else 1)
                        )
                        found[f"{kind}_kron_{factor}:{module}{tag}"] = [pair]
    return found


def pairs(parts: int) -> st.SearchStrategy[tuple[int, int]]:
    starts, lengths = st.integers(0, 50), st.integers(0, 8)
    return st.builds(
        lambda start, length: (start, start + length * parts), starts, lengths
    )


@st.composite
def patterns(draw: st.DrawFn) -> RefreshPattern:
    """Patterns of up to three devices whose clocks may differ, with or without meetings."""
    first = draw(timelines(0))
    others = [
        draw(timelines(draw(st.integers(-20, 20))))
        for _ in range(draw(st.integers(0, 2)))
    ]
    # Node 0's last backward ends the iteration: no other node may need longer.
    last = max(
        end
        - min(
            start
            for label in node
            if label.startswith("call")
            for start, _ in node[label]
        )
        for node in (first, *others)
        for label in node
        if label.startswith("call")
        for _, end in node[label]
    )
    origin = min(
        start
        for label in first
        if label.startswith(FORWARD)
        for start, _ in first[label]
    )
    first[BACKWARD].append((origin + last, origin + last + 1))
    first[BACKWARD].sort()
    first[FORWARD].append((origin, origin))
    first[FORWARD].sort()
    if UP in "".join(first):
        first[f"{FORWARD}{UP}"].append((origin, origin))
        first[f"{BACKWARD}{UP}"].append((origin + last + 1, origin + last + 1))
    group = draw(st.sampled_from([[], [[0, 1]], [list(range(1 + len(others)))]]))
    pattern = pattern_of(
        first,
        *others,
        margin_ratio=draw(st.sampled_from([0, 0.05, 0.3])),
        sync_groups=group if others else [],
    )
    return replace(pattern, syncs_in_holes=draw(st.booleans()))


class TestRandom:
    @given(patterns())
    def test_schedules_keep_the_rules_or_a_reason_is_given(
        self, pattern: RefreshPattern
    ) -> None:
        try:
            check(pattern)
        except InputError as error:
            assert error.field in {
                work.label.text for device in pattern.devices for work in device.work
            }
            assert "fits no hole" in error.message or "found no room" in error.message
