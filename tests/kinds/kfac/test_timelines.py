"""Measured timelines as refresh patterns: the last profiled step, exact ticks, repeated work."""

from __future__ import annotations

import pytest

from ppsolve.models.documents.errors import InputError
from tests.kinds.kfac.cases import pattern_of


def test_only_the_last_of_several_profiled_steps_counts() -> None:
    """Two steps of two forwards, a backward and an inversion each; the second begins at 100."""
    pattern = pattern_of(
        {
            "start_end": [(0, 50), (100, 160)],
            "call_forward": [(0, 10), (10, 20), (100, 110), (115, 125)],
            "call_backward": [(30, 40), (140, 155)],
            "inv_kron_A:m": [(40, 44), (125, 132)],
        }
    )
    (device,) = pattern.devices
    assert pattern.period * pattern.scale.tick == 55
    spans = [
        (op.start * pattern.scale.tick, op.end * pattern.scale.tick)
        for op in device.ops
    ]
    assert spans == [(0, 10), (15, 25), (40, 55)]
    assert [work.length * pattern.scale.tick for work in device.work] == [7]


def test_work_of_one_label_is_numbered() -> None:
    (device,) = pattern_of(
        {
            "call_forward": [(0, 10)],
            "call_backward": [(20, 30)],
            "inv_kron_A:m": [(10, 12), (12, 15), (15, 19)],
        }
    ).devices
    assert [(work.number, work.length) for work in device.work] == [
        (0, 2),
        (1, 3),
        (2, 4),
    ]


def test_times_without_a_common_tick_are_refused() -> None:
    with pytest.raises(InputError, match="common tick"):
        pattern_of({"call_forward": [(0, 1e-15)], "call_backward": [(1, 1e6)]})
