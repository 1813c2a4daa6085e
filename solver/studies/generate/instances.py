"""Pipeline instances from options over a template: none, a published profile, or a random family.

Draw order of random instances, which never changes, so that a seed means the same instance for
ever: from ``numpy.random.default_rng(seed)``, each draw ``integers(low, high, endpoint=True)``,

1. the number of devices, 2. the number of micro-batches, 3. the forward time of every stage, then
4. the backward time of every stage, or 5. the input-gradient and 6. the weight-gradient backward
time of every stage, and where micro-batches are unequal 7. the length of every micro-batch, m draws
of ``normal(0, sigma)`` or ``normal(1, sigma)``.

Whatever is given as a number or a list instead of a range is not drawn. An odd number of
micro-batches that was drawn for bidirectional pipes is raised by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any

import numpy as np

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.pipeline.entries import EXACT
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.studies.generate.flags import (
    TIMES,
    IntegerRange,
    PerDevice,
    Unequal,
    option_of,
)

Options = Mapping[str, Any]

RANDOM: Options = {
    "devices": IntegerRange(4, 8),
    "microbatches": IntegerRange(8, 12),
    "forward": IntegerRange(50, 150),
    "backward_input": IntegerRange(50, 150),
    "backward_weight": IntegerRange(30, 100),
    "p2p": Decimal(10),
    "capacity": PerDevice(Decimal(1)),
}
"""The family that ``ppsolve generate --seed N`` draws from; at most 8 x 12 x 3 = 288 ops."""

COUNTS = ("devices", "microbatches")
HALVES = ("backward_input", "backward_weight")
WITH_CAPACITY = ("activation", "share", "static")

PATHS: Mapping[str, str] = {
    **{name: f"num_{name}" for name in COUNTS},
    **{name: f"times.{name}" for name in TIMES},
    "p2p": "p2p.latency",
    "p2p_mode": "p2p.mode",
    "p2p_bytes": "p2p.bytes",
    "bandwidth": "p2p.bandwidth",
    "capacity": "memory.capacity",
    "activation": "memory.activation",
    "share": "memory.released_by_backward_weight",
    "static": "memory.static",
}
"""Field of an instance for each option that has another name."""


@dataclass(frozen=True)
class LengthParams:
    """Lengths of drawn micro-batches, as DynaPipe's generator cuts them."""

    mean: int = 1000  # so that times differ by whole thousandths
    shortest: float = 0.1  # times the drawn mean, before lengths are scaled
    longest: float = 10


LENGTHS = LengthParams()


@dataclass(frozen=True)
class DrawnBy:
    """The recipe that an instance was drawn by."""

    recipe: str
    seed: int
    options: Mapping[str, Any]  # of the recipe, by name


def generate(
    *, seed: int | None = None, profile: str | None = None, **options: Any
) -> PipelineInstance:
    """Build the instance that the options ask for, validated.

    Raises `InputError` where something needed is missing, contradictory or out of range; names the
    option or field.

    `seed`: draw ranges (those of `RANDOM` where no option gives any) from this seed, >= 0.
    `profile`: name of a published profile to start from.
    `options`: those of ``ppsolve generate``, `stages_per_device` for example, with numbers as
        `Decimal`; they override the profile and the random family. Times per stage are one number,
        a tuple of numbers, or an `IntegerRange` to be drawn from.
    """
    if seed is not None and profile is not None:
        text = "expected either a seed (random times) or a profile (published times), not both"
        raise InputError(text, field="--profile", code=ErrorCode.CONFLICT)
    if seed is not None:
        return build(_drawn(override(RANDOM, options), seed))
    if profile is not None:
        return build(_from_profile(find_profile(profile), options))
    return build(options)


def override(template: Options, options: Options) -> dict[str, Any]:
    """Return the template with every option put in its place, in the template's order.

    Options that ask for one form of backward take the other form out of the template.
    """
    dropped: tuple[str, ...] = ()
    if "backward" in options:
        dropped = HALVES
    elif any(name in options for name in HALVES):
        dropped = ("backward",)
    return {
        **{name: template[name] for name in template if name not in dropped},
        **options,
    }


def build(options: Options) -> PipelineInstance:
    """Build an instance from options without ranges.

    Raises `InputError` where something needed is missing, a range was given, or the instance is not
    valid.
    """
    _refuse_ranges(options)
    _require(options)
    placement = options.get("placement", "linear")
    word = placement if isinstance(placement, str) else "pipeline"
    named = {"name": f"{word}-{_shape_word(options)}", **options}
    return PipelineInstance.parse(_document(_with_memory(named)))


def _document(options: Options) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for name, value in options.items():
        *groups, field = PATHS.get(name, name).split(".")
        owner = data
        for group in groups:
            owner = owner.setdefault(group, {})
        owner[field] = value
    return data


def _with_memory(options: Options) -> dict[str, Any]:
    """Return the options with the capacity as an amount, or without any of memory."""
    capacity = options.get("capacity")
    if capacity is None:
        for name in WITH_CAPACITY:
            if name in options:
                raise InputError(
                    "expected --capacity with it",
                    field=option_of(name),
                    code=ErrorCode.MISSING,
                )
    if capacity is None or capacity == "none":
        without = ("capacity", *WITH_CAPACITY)
        return {name: value for name, value in options.items() if name not in without}
    limited = {"activation": Decimal(1), **options}
    if isinstance(capacity, PerDevice):
        if isinstance(limited["activation"], tuple):
            text = f"expected an amount, not {capacity.factor}p, with an activation per stage"
            raise InputError(text, field="--capacity", code=ErrorCode.CONFLICT)
        limited["capacity"] = (
            capacity.factor * _num_stages(options) * limited["activation"]
        )
    return limited


def _num_stages(options: Options) -> int:
    """Return the stages of the shape asked for, which is validated before anything uses it."""
    names = (*COUNTS, "placement", "stages_per_device")
    shape = {name: options[name] for name in names if name in options}
    return PipelineInstance.parse(
        _document({**shape, "forward": 1, "backward": 1})
    ).num_stages


def _require(options: Options) -> None:
    hint = "; or start from --seed N (random) or --profile NAME (published)"
    missing = [name for name in HALVES if name not in options]
    if "backward" in options and len(missing) < len(HALVES):
        text = "expected either --backward or --backward-input with --backward-weight, not both"
        raise InputError(text, field="--backward", code=ErrorCode.CONFLICT)
    if len(missing) == 1:
        (half,) = set(HALVES).difference(missing)
        text = f"expected it together with {option_of(half)}"
        raise InputError(text, field=option_of(missing[0]), code=ErrorCode.CONFLICT)
    for name in (*COUNTS, "forward"):
        if name not in options:
            raise InputError(
                f"this option is required{hint}",
                field=option_of(name),
                code=ErrorCode.MISSING,
            )
    if missing and "backward" not in options:
        text = f"expected it, or --backward-input with --backward-weight{hint}"
        raise InputError(text, field="--backward", code=ErrorCode.MISSING)


def _refuse_ranges(options: Options) -> None:
    for name, value in options.items():
        if isinstance(value, IntegerRange):
            text = f"the range {value} needs --seed N to draw from; or give a number"
            raise InputError(text, field=option_of(name), code=ErrorCode.MISSING)
        if isinstance(value, Unequal):
            text = "expected --seed N with it, to draw the lengths from"
            raise InputError(text, field=option_of(name), code=ErrorCode.MISSING)


def _shape_word(options: Options) -> str:
    return f"{options['devices']}x{options['microbatches']}"


def _drawn(options: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return the options with a draw in place of every range, and a name that has the seed."""
    if seed < 0:
        raise InputError(
            f"expected a whole number >= 0, got {seed}",
            field="--seed",
            code=ErrorCode.RANGE,
        )
    random = np.random.default_rng(seed)

    def draw(span: IntegerRange, size: int) -> list[int]:
        numbers = random.integers(
            span.low, span.high, size=size, endpoint=True, dtype=np.int64
        )
        return [int(number) for number in numbers]

    drawn = dict(options)
    for name in COUNTS:
        if isinstance(span := options[name], IntegerRange):
            (drawn[name],) = draw(span, 1)
    if (
        isinstance(options["microbatches"], IntegerRange)
        and options.get("placement") == "bidirectional"
    ):
        drawn["microbatches"] += drawn["microbatches"] % 2
    stages = _num_stages(drawn)
    for name in TIMES:
        if isinstance(span := options.get(name), IntegerRange):
            drawn[name] = tuple(map(Decimal, draw(span, stages)))
    name = f"random-{_shape_word(drawn)}-seed{seed}"
    unequal = drawn.pop("unequal", None)
    if unequal is not None:
        name += f"-{unequal}"
        drawn |= _over_lengths(drawn, _lengths(unequal, drawn["microbatches"], random))
    return {"name": name, **drawn}


def _lengths(
    unequal: Unequal, count: int, random: np.random.Generator
) -> tuple[int, ...]:
    sigma = float(unequal.sigma)
    if unequal.law == "lognormal":
        drawn = np.exp(random.normal(0, sigma, count))
    else:
        drawn = random.normal(1, sigma, count)
    cut = np.clip(drawn, LENGTHS.shortest, LENGTHS.longest)
    rounded = np.rint(cut * (LENGTHS.mean / cut.mean())).astype(np.int64)
    return tuple(np.maximum(rounded, 1).tolist())


def _over_lengths(options: Options, lengths: tuple[int, ...]) -> dict[str, Any]:
    """Return lengths, and times as costs that a micro-batch of mean length has exactly."""
    entries: dict[str, Any] = {"lengths": lengths}
    with localcontext(EXACT):
        token = Decimal("0.001")  # 1 / LENGTHS.mean
        for name in TIMES:
            value = options.get(name)
            if isinstance(value, tuple):
                entries[name] = tuple({"per_token": time * token} for time in value)
            elif value is not None:
                entries[name] = {"per_token": value * token}
    return entries


def _from_profile(profile: PublishedProfile, options: Options) -> dict[str, Any]:
    _refuse_ranges(options)
    shape = {"devices": profile.num_devices, "microbatches": profile.num_microbatches}
    asked = {**shape, **options}
    chunks = Decimal(_num_stages(asked)) / Decimal(asked["devices"])
    # To the nanosecond.
    times = {
        name: round(getattr(profile, name) / chunks, 3) for name in ("forward", *HALVES)
    }
    is_plain = all(asked[name] == shape[name] for name in COUNTS)
    template = {
        "name": profile.name if is_plain else f"{profile.name}-as-{_shape_word(asked)}",
        **shape,
        **times,
        "p2p": Decimal(profile.p2p),
        "capacity": PerDevice(Decimal(1)),
        "share": profile.share,
    }
    return override(template, options)


SMALL_MODEL_SHARE = Decimal("0.366412213740458")
LARGE_MODEL_SHARE = Decimal("0.43243243243243246")
"""Share of the activation that the weight gradient gives back: 32 h of 34 h + 5 a s, for a heads
and sequences of s tokens, as a double. The model of 1.5B has 24 heads, a hidden size of 2,304 and
sequences of 1,024; the larger ones have a s = 8 h."""


@dataclass(frozen=True)
class PublishedProfile:
    """Measured times of one model on one number of devices, by the zero-bubble pipeline papers.

    Qi et al., "Zero Bubble Pipeline Parallelism", 2023, and "Pipeline Parallelism with Controllable
    Memory", 2024: microseconds of one micro-batch on one whole device, and of one transfer; the
    share of the activation that is held until the weight-gradient backward ends.
    """

    name: str
    num_devices: int
    num_microbatches: int
    forward: int
    backward_input: int
    backward_weight: int
    p2p: int
    share: Decimal = LARGE_MODEL_SHARE


PROFILES: Mapping[str, PublishedProfile] = {
    profile.name: profile
    for profile in (
        PublishedProfile(
            "zb-1.5b-8x24", 8, 24, 18522, 18086, 9337, 601, SMALL_MODEL_SHARE
        ),
        PublishedProfile("zb-8x64", 8, 64, 18546, 18097, 9321, 762, SMALL_MODEL_SHARE),
        PublishedProfile("zb-6.2b-8x24", 8, 24, 29718, 29444, 19927, 527),
        PublishedProfile("zb-16x48-a", 16, 48, 11347, 11248, 8132, 377),
        PublishedProfile("zb-16x48-b", 16, 48, 28814, 28760, 19352, 1610),
        PublishedProfile("zb-32x96-a", 32, 96, 10419, 10207, 7715, 408),
        PublishedProfile("zb-32x96-b", 32, 96, 18916, 19496, 14576, 879),
        PublishedProfile("zb-32x256", 32, 256, 10402, 10248, 7698, 460),
    )
}

ALIASES = {"1.5b": "zb-1.5b-8x24", "6.2b": "zb-6.2b-8x24"}


def find_profile(name: str) -> PublishedProfile:
    """Return the profile of that name or alias, whatever its case.

    Raises `InputError` where there is none; suggests the nearest name.
    """
    key = ALIASES.get(name.lower(), name.lower())
    if key not in PROFILES:
        names = [*ALIASES, *PROFILES]
        raise InputError.unknown("unknown profile", key, names, field="--profile")
    return PROFILES[key]
