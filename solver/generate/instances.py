"""Pipeline instances from a recipe: from options, from a published profile, or at random.

Draw order of random instances, which never changes, so that a seed means the same instance for
ever: from ``numpy.random.default_rng(seed)``, each draw ``integers(low, high, endpoint=True)``,

1. the number of devices, 2. the number of micro-batches, 3. the forward time of every stage, then
4. the backward time of every stage, or 5. the input-gradient and 6. the weight-gradient backward
time of every stage.

Whatever is given as a number or a list instead of a range is not drawn. An odd number of
micro-batches that was drawn for bidirectional pipes is raised by one.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.documents.errors import InputError
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.solver.generate.flags import Capacity, Numbers, Range, Recipe
from ppsolve.solver.generate.profiles import Profile, find_profile

RANDOM = Recipe(
    devices=Range(4, 8),
    microbatches=Range(8, 12),
    forward=Range(50, 150),
    backward_input=Range(50, 150),
    backward_weight=Range(30, 100),
    p2p=Decimal(10),
    capacity=Capacity(Decimal(1), per_device=True),
)
"""The family that ``ppsolve generate --seed N`` draws from."""

NANOSECONDS = 3
"""Decimals of a microsecond that a published time keeps when stages share it."""

TIME_FIELDS = ("forward", "backward", "backward_input", "backward_weight")


def generate(
    recipe: Recipe | None = None, *, seed: int | None = None, profile: str | None = None
) -> PipelineInstance:
    """Build the instance that `recipe` asks for.

    Parameters
    ----------
    recipe : Recipe, optional
        What is asked for; it overrides the profile and the random family.
    seed : int, optional
        Draw ranges (those of `RANDOM` where the recipe gives none) from this seed, >= 0.
    profile : str, optional
        Name of a published profile to start from.

    Raises
    ------
    InputError
        Something needed is missing, contradictory or out of range; names the option or field.
    """
    recipe = recipe or Recipe()
    if seed is not None and profile is not None:
        raise InputError(
            "expected either a seed (random times) or a profile (published times), not both",
            field="--profile",
        )
    if seed is not None:
        return _draw(recipe.over(RANDOM), seed)
    if profile is not None:
        chosen = find_profile(profile)
        return build(_name_after(chosen, recipe.over(_recipe_of(chosen, recipe))))
    return build(recipe)


def build(recipe: Recipe) -> PipelineInstance:
    """Build an instance from a recipe without ranges.

    Raises
    ------
    InputError
        Something needed is missing, a range was given, or the instance is not valid.
    """
    _refuse_ranges(recipe)
    _require(recipe)
    data: dict[str, Any] = {
        **_shape(recipe),
        "times": _given(recipe, *TIME_FIELDS),
        "p2p": _p2p(recipe),
        "memory": _memory(recipe),
        **_given(recipe, "allreduce", "optimizer", "time_unit"),
    }
    data["name"] = recipe.name or f"{_placement_word(recipe)}-{_shape_word(recipe)}"
    data["objective"] = recipe.objective or "makespan"
    return PipelineInstance.parse(data)


def _given(recipe: Recipe, *names: str) -> dict[str, Any]:
    values = {name: getattr(recipe, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def _shape(recipe: Recipe) -> dict[str, Any]:
    placement: Any = recipe.placement or "linear"
    if isinstance(placement, tuple):
        placement = {"stage_to_device": placement}
    return {
        "num_devices": recipe.devices,
        "num_microbatches": recipe.microbatches,
        "placement": placement,
        "stages_per_device": recipe.stages_per_device,
    }


def _placement_word(recipe: Recipe) -> str:
    return "pipeline" if isinstance(recipe.placement, tuple) else recipe.placement or "linear"


def _shape_word(recipe: Recipe) -> str:
    return f"{recipe.devices}x{recipe.microbatches}"


def _p2p(recipe: Recipe) -> dict[str, Any]:
    entries = {
        "mode": recipe.p2p_mode,
        "latency": recipe.p2p,
        "bytes": recipe.p2p_bytes,
        "bandwidth": recipe.bandwidth,
    }
    return {name: value for name, value in entries.items() if value is not None}


def _memory(recipe: Recipe) -> dict[str, Any] | None:
    if recipe.capacity is None or recipe.capacity == "none":
        for option in ("activation", "share", "static"):
            if recipe.capacity is None and getattr(recipe, option) is not None:
                raise InputError("expected --capacity with it", field=f"--{option}")
        return None
    memory = {
        "capacity": _capacity(recipe),
        "activation": Decimal(1) if recipe.activation is None else recipe.activation,
        "released_by_backward_weight": recipe.share,
        "static": recipe.static,
    }
    return {name: value for name, value in memory.items() if value is not None}


def _capacity(recipe: Recipe) -> Numbers:
    capacity = recipe.capacity
    if not isinstance(capacity, Capacity):
        assert isinstance(capacity, tuple)
        return capacity
    if not capacity.per_device:
        return capacity.amount
    activation = Decimal(1) if recipe.activation is None else recipe.activation
    if isinstance(activation, tuple):
        raise InputError(
            f"expected an amount, not {capacity.amount}p, with an activation per stage",
            field="--capacity",
        )
    return capacity.amount * PipelineInstance.parse(_probe(recipe)).num_stages * activation


def _probe(recipe: Recipe) -> dict[str, Any]:
    """Return the smallest instance of the recipe's shape: validates it before it is used."""
    return {**_shape(recipe), "times": {"forward": 1, "backward": 1}}


def _require(recipe: Recipe) -> None:
    hint = "; or start from --seed N (random) or --profile NAME (published)"
    halves = [getattr(recipe, name) is not None for name in ("backward_input", "backward_weight")]
    if recipe.backward is not None and any(halves):
        raise InputError(
            "expected either --backward or --backward-input with --backward-weight, not both",
            field="--backward",
        )
    if any(halves) and not all(halves):
        given, missing = ("input", "weight") if halves[0] else ("weight", "input")
        raise InputError(
            f"expected it together with --backward-{given}", field=f"--backward-{missing}"
        )
    for name in ("devices", "microbatches", "forward"):
        if getattr(recipe, name) is None:
            raise InputError(f"this option is required{hint}", field=_option(name))
    if recipe.backward is None and not any(halves):
        raise InputError(
            f"expected it, or --backward-input with --backward-weight{hint}", field="--backward"
        )


def _refuse_ranges(recipe: Recipe) -> None:
    for name in ("devices", "microbatches", *TIME_FIELDS):
        value = getattr(recipe, name)
        if isinstance(value, Range):
            raise InputError(
                f"the range {value} needs --seed N to draw from; or give a number",
                field=_option(name),
            )


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _draw(recipe: Recipe, seed: int) -> PipelineInstance:
    if seed < 0:
        raise InputError(f"expected a whole number >= 0, got {seed}", field="--seed")
    random = np.random.default_rng(seed)

    def integers(span: Range, size: int) -> IntArray:
        return random.integers(span.low, span.high, size=size, endpoint=True, dtype=np.int64)

    drawn: dict[str, Any] = {}
    if isinstance(recipe.devices, Range):
        drawn["devices"] = int(integers(recipe.devices, 1)[0])
    if isinstance(recipe.microbatches, Range):
        count = int(integers(recipe.microbatches, 1)[0])
        drawn["microbatches"] = count + count % 2 * (recipe.placement == "bidirectional")
    recipe = replace(recipe, **drawn)
    stages = PipelineInstance.parse(_probe(recipe)).num_stages
    times: dict[str, Any] = {
        name: tuple(Decimal(value) for value in integers(span, stages).tolist())
        for name in TIME_FIELDS
        if isinstance(span := getattr(recipe, name), Range)
    }
    name = recipe.name or f"random-{_shape_word(recipe)}-seed{seed}"
    return build(replace(recipe, name=name, **times))


def _recipe_of(profile: Profile, asked: Recipe) -> Recipe:
    """Return the profile as a recipe; its times are shared evenly by the stages of a device."""
    base = Recipe(devices=profile.num_devices, microbatches=profile.num_microbatches)
    _refuse_ranges(asked)
    shape = PipelineInstance.parse(_probe(asked.over(base)))
    chunks = Decimal(shape.num_stages) / Decimal(shape.num_devices)
    return replace(
        base,
        forward=round(profile.forward / chunks, NANOSECONDS),
        backward_input=round(profile.backward_input / chunks, NANOSECONDS),
        backward_weight=round(profile.backward_weight / chunks, NANOSECONDS),
        p2p=Decimal(profile.p2p),
        capacity=Capacity(Decimal(1), per_device=True),
        share=profile.share,
    )


def _name_after(profile: Profile, recipe: Recipe) -> Recipe:
    if recipe.name is not None:
        return recipe
    plain = recipe.devices == profile.num_devices and (
        recipe.microbatches == profile.num_microbatches
    )
    name = profile.name if plain else f"{profile.name}-as-{_shape_word(recipe)}"
    return replace(recipe, name=name)
