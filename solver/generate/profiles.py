"""Published per-stage times, by name.

The figures are those of the zero-bubble pipeline papers (Qi et al., "Zero Bubble Pipeline
Parallelism", 2023, and "Pipeline Parallelism with Controllable Memory", 2024): times in
microseconds of one micro-batch on one device, and the share of its activation that the
input-gradient backward leaves to the weight-gradient backward.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType

from ppsolve.models.documents.base import did_you_mean
from ppsolve.models.documents.errors import InputError

SMALL_MODEL_SHARE = Decimal("0.366412213740458")
LARGE_MODEL_SHARE = Decimal("0.43243243243243246")
"""Share of the activation that the weight gradient gives back: 32 h of 34 h + 5 a s (Qi et al.,
Zero Bubble Pipeline Parallelism), for a heads and sequences of s tokens, as a double. The model of
1.5B has 24 heads, a hidden size of 2,304 and sequences of 1,024; the larger ones have a s = 8 h.
"""


@dataclass(frozen=True)
class PublishedProfile:
    """Measured times of one model on one number of devices.

    Parameters
    ----------
    name : str
        Name of the profile.
    num_devices, num_microbatches : int
        Shape that the figures were published for.
    forward, backward_input, backward_weight, p2p : int
        Microseconds of one micro-batch on one whole device, and of one transfer.
    share : Decimal
        Share of the activation that is held until the weight-gradient backward ends.
    """

    name: str
    num_devices: int
    num_microbatches: int
    forward: int
    backward_input: int
    backward_weight: int
    p2p: int
    share: Decimal = LARGE_MODEL_SHARE


PROFILES: Mapping[str, PublishedProfile] = MappingProxyType(
    {
        profile.name: profile
        for profile in (
            PublishedProfile("zb-1.5b-8x24", 8, 24, 18522, 18086, 9337, 601, SMALL_MODEL_SHARE),
            PublishedProfile("zb-8x64", 8, 64, 18546, 18097, 9321, 762, SMALL_MODEL_SHARE),
            PublishedProfile("zb-6.2b-8x24", 8, 24, 29718, 29444, 19927, 527),
            PublishedProfile("zb-16x48-a", 16, 48, 11347, 11248, 8132, 377),
            PublishedProfile("zb-16x48-b", 16, 48, 28814, 28760, 19352, 1610),
            PublishedProfile("zb-32x96-a", 32, 96, 10419, 10207, 7715, 408),
            PublishedProfile("zb-32x96-b", 32, 96, 18916, 19496, 14576, 879),
            PublishedProfile("zb-32x256", 32, 256, 10402, 10248, 7698, 460),
        )
    }
)

ALIASES: Mapping[str, str] = MappingProxyType({"1.5b": "zb-1.5b-8x24", "6.2b": "zb-6.2b-8x24"})


def find_profile(name: str) -> PublishedProfile:
    """Return the profile of that name or alias, whatever its case.

    Raises
    ------
    InputError
        There is none; suggests the nearest name.
    """
    wanted = ALIASES.get(name.lower(), name.lower())
    if wanted not in PROFILES:
        known = [*ALIASES, *PROFILES]
        raise InputError(
            f'unknown profile "{name}"' + did_you_mean(wanted, known), field="--profile"
        )
    return PROFILES[wanted]
