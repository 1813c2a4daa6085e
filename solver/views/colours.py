"""How ops of each kind look on terminals, pages and pictures: letter, words, colours."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rich.color import Color
from rich.style import Style

from ppsolve.models.core.result import SHOWN_TRANSFER
from ppsolve.models.kinds.kfac.labels import KIND_OF, PRECONDITION_KIND
from ppsolve.models.kinds.pipeline.labels import (
    ALL_GATHER_KIND,
    ALLREDUCE_KIND,
    ALLREDUCE_KINDS,
    ALLTOALL_KINDS,
    FILLER_KIND,
    OFFLOAD_KIND,
    OPTIMIZER_KIND,
    RECOMPUTE_KIND,
    REDUCE_SCATTER_KIND,
    RELOAD_KIND,
)

# The colours of Okabe and Ito, which colour-blind people tell apart.
ORANGE, SKY, GREEN, YELLOW = "#e69f00", "#56b4e9", "#009e73", "#f0e442"
BLUE, VERMILION, PURPLE, GREY = "#0072b2", "#d55e00", "#cc79a7", "#999999"
SERIES = (
    BLUE,
    VERMILION,
    GREEN,
    PURPLE,
    ORANGE,
    SKY,
)  # of lines, the first ones farthest apart

GENERIC_KIND, WAIT_KIND = "op", "wait"
KERNEL_KIND, COLLECTIVE_KIND = "kernel", "collective"


@dataclass(frozen=True)
class Look:
    """How ops of one kind look; a letter tells kinds apart without any colour."""

    words: str  # what the legend says, the letter first; empty: no entry
    shades: tuple[
        int, ...
    ]  # of the terminal's 256 colours, one per shade; none: the op is dim
    colour: str = GREY  # on pages and pictures
    is_hatched: bool = False  # there, so that a second kind of the same colour differs

    def style(self, shade: int) -> Style:
        """Return the style of an op of this kind on a terminal."""
        if not self.shades:
            return Style(dim=True)
        colour = self.shades[shade % len(self.shades)]
        return Style(color=f"color({text_colour(colour)})", bgcolor=f"color({colour})")

    def fill(self, shade: int) -> str:
        """Return the colour of an op of this kind on pages and pictures."""
        return darker(self.colour) if shade % 2 else self.colour


PIPELINE = {
    "F": Look("F forward", (75, 33), SKY),
    "B": Look("B backward", (172, 130), VERMILION),
    "I": Look("I input gradient", (230, 187), ORANGE),
    "W": Look("W weight gradient", (35, 29), GREEN),
    OPTIMIZER_KIND: Look("O optimizer", (250,), YELLOW),
}
# No letter is that of a pipeline op, whose small letters mean other stages. On terminals any two
# colours of two kinds of these and of `PIPELINE` are 21 or more apart (CIE 1976 difference) in
# normal sight and without red or green cones (Brettel, Vienot and Mollon 1999).
KFAC = {
    KIND_OF["cov", "A"]: Look("C curvature A", (227, 220), BLUE),
    KIND_OF["cov", "B"]: Look("D curvature B", (120, 113), PURPLE),
    KIND_OF["sync", "A"]: Look("S sync A", (53, 17), YELLOW, is_hatched=True),
    KIND_OF["sync", "B"]: Look("T sync B", (88, 52), GREEN, is_hatched=True),
    KIND_OF["inv", "A"]: Look("X inversion A", (21, 20), BLUE, is_hatched=True),
    KIND_OF["inv", "B"]: Look("Y inversion B", (96, 61), PURPLE, is_hatched=True),
    PRECONDITION_KIND: Look("P preconditioning", (117, 74), ORANGE, is_hatched=True),
}
MODES = {
    RECOMPUTE_KIND: Look("R recompute", (167, 131), VERMILION, is_hatched=True),
    OFFLOAD_KIND: Look("O offload", (141,), PURPLE),
    RELOAD_KIND: Look("L reload", (69,), BLUE),
}
FUSED = dict.fromkeys(
    ("F+B", "F+I", "F+I+W"), Look("M merged forward and backward", (183, 140), PURPLE)
)
_ALLREDUCE = Look("A all-reduce", (176,), PURPLE)
COLLECTIVES = {
    ALLREDUCE_KIND: _ALLREDUCE,
    **dict.fromkeys(ALLREDUCE_KINDS.values(), replace(_ALLREDUCE, shades=(176, 133))),
    **dict.fromkeys(
        ALLTOALL_KINDS.values(), Look("X all-to-all", (216, 209), VERMILION)
    ),
    ALL_GATHER_KIND: Look("G all-gather", (114,), GREEN, is_hatched=True),
    REDUCE_SCATTER_KIND: Look("S reduce-scatter", (222,), ORANGE, is_hatched=True),
}
PROGRAMS = {
    KERNEL_KIND: Look("kernel, by its first letter", (75, 33), SKY),
    WAIT_KIND: Look("w wait holds the compute stream", (), GREY, is_hatched=True),
    "reduce-scatter": Look("S reduce-scatter", (222, 178), ORANGE),
    "all-gather": Look("G all-gather", (114, 71), GREEN),
    "all-reduce": Look("R all-reduce", (176, 133), PURPLE),
    "all-to-all": Look("X all-to-all", (216, 209), VERMILION),
    COLLECTIVE_KIND: Look("C collective", (152, 109), YELLOW),
}
LOOKS = {
    **PIPELINE,
    **KFAC,
    **MODES,
    **FUSED,
    **COLLECTIVES,
    **PROGRAMS,
    FILLER_KIND: Look("J filler job", (226, 220), YELLOW, is_hatched=True),
    SHOWN_TRANSFER: Look("> < transfers", (152,)),
    GENERIC_KIND: Look("", (75, 216, 114, 176, 222), SKY),
}


def look_of(kind: str) -> Look:
    """Return the look of ops of a kind; unknown kinds are grey, with their first letter."""
    return LOOKS.get(kind, Look("", (252,), GREY, is_hatched=True))


def letter_of(kind: str) -> str:
    """Return the letter of a kind."""
    return (look_of(kind).words or kind)[0]


def rgb(colour: int) -> tuple[int, int, int]:
    """Return red, green and blue, 0 to 255, of one of the terminal's 256 colours."""
    return Color.from_ansi(colour).get_truecolor()


def text_colour(colour: int) -> int:
    """Return black or white (16 or 231), whichever is read better on a terminal's colour."""
    return 16 if _suits_black(rgb(colour)) else 231


def luminance(channels: tuple[int, int, int]) -> float:
    """Return the relative luminance of red, green and blue, 0 to 255 each (WCAG 2, sRGB)."""
    weights = (0.2126, 0.7152, 0.0722)
    return sum(
        w * linear(channel) for w, channel in zip(weights, channels, strict=True)
    )


def linear(channel: int) -> float:
    """Return the light of an sRGB part, 0 to 255, as a share of its most."""
    share = channel / 255
    return (
        share / 12.92 if share <= 0.04045 else float(((share + 0.055) / 1.055) ** 2.4)
    )


def _suits_black(channels: tuple[int, int, int]) -> bool:
    # There black and white text have one contrast, 4.58 (WCAG 2: (L + .05) / .05).
    return luminance(channels) > 0.179


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def darker(colour: str) -> str:
    """Return the second shade of a colour: 0.72 of each part, as `marks.js` has it."""
    return "#" + "".join(
        f"{round(channel * 0.72):02x}" for channel in _channels(colour)
    )


def lightened(colour: str, share: float) -> str:
    """Mix a colour with white, which is a share of 0 to 1 of the mixture."""
    mixed = (round(channel + (255 - channel) * share) for channel in _channels(colour))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def ink_on(colour: str) -> str:
    """Return black or white, whichever is read better on a colour such as ``#e69f00``."""
    return "#000000" if _suits_black(_channels(colour)) else "#ffffff"
