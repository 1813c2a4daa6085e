"""Colours of kinds: told apart by everybody, with text that can be read on them."""

from itertools import combinations

import numpy as np
import pytest

from ppsolve.solver.views.colours import (
    KFAC,
    LOOKS,
    PIPELINE,
    Look,
    linear,
    luminance,
    rgb,
    text_colour,
)

SIGHTS = {
    "normal": np.eye(3),
    "no red cones": [
        [0.11238, 0.88762, 0],
        [0.11238, 0.88762, 0],
        [0.00401, -0.00401, 1],
    ],
    "no green cones": [
        [0.29275, 0.70725, 0],
        [0.29275, 0.70725, 0],
        [-0.02234, 0.02234, 1],
    ],
}
"""How linear RGB is seen: Brettel, Vienot and Mollon 1999."""

TO_XYZ = np.array(
    [
        [0.41246, 0.35758, 0.18044],
        [0.21267, 0.71515, 0.07218],
        [0.01933, 0.11919, 0.95030],
    ]
)
WHITE_POINT = np.array([0.95047, 1.0, 1.08883])


def lab(colour, sight):
    light = np.clip(
        np.array(SIGHTS[sight]) @ [linear(part) for part in rgb(colour)], 0, 1
    )
    xyz = TO_XYZ @ light / WHITE_POINT
    x, y, z = np.where(xyz > 216 / 24389, np.cbrt(xyz), 841 / 108 * xyz + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_the_terminals_colours():
    assert [rgb(c) for c in (16, 75, 231, 232, 255)] == [
        (0, 0, 0), (95, 175, 255), (255, 255, 255), (8, 8, 8), (238, 238, 238),
    ]  # fmt: skip
    assert luminance(rgb(231)) == pytest.approx(1)
    assert lab(231, "normal") == pytest.approx([100, 0, 0], abs=0.1)


@pytest.mark.parametrize("sight", SIGHTS)
def test_no_two_kinds_of_a_chart_share_a_colour(sight):
    looks = PIPELINE | KFAC
    for (one, a), (other, b) in combinations(looks.items(), 2):
        for first in a.shades:
            for second in b.shades:
                apart = np.linalg.norm(lab(first, sight) - lab(second, sight))
                assert apart >= 21, (one, first, other, second)


def test_text_is_read_on_every_colour():
    for kind, look in LOOKS.items():
        for colour in look.shades:
            lights = sorted(
                (luminance(rgb(colour)), luminance(rgb(text_colour(colour))))
            )
            assert (lights[1] + 0.05) / (lights[0] + 0.05) >= 4.5, kind


def test_shades_take_turns():
    look = Look("X", (21, 227))
    assert [str(look.style(shade)) for shade in range(3)] == [
        "color(231) on color(21)", "color(16) on color(227)", "color(231) on color(21)",
    ]  # fmt: skip
