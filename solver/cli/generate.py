"""``ppsolve generate``: instances from options, profiles or a seed, and from recipes of options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Annotated, Any

from typer import Option

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.files import read_text, source_name, write_text
from ppsolve.models.documents.text import instance_text
from ppsolve.models.instances import Instance
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.guard import about_options, say
from ppsolve.solver.cli.main import load
from ppsolve.solver.cli.options import flag, value
from ppsolve.solver.studies.generate.flags import option_of, read_options
from ppsolve.solver.studies.generate.instances import DrawnBy, generate

Text = str | None


_text = partial(value, "TEXT")


def generate_command(
    output: opt.TextOutput = "-",
    seed: Annotated[int | None, Option(help="Draw from this seed.", min=0)] = None,
    random: Annotated[
        bool, flag("Draw times; the seed is 0 by default.", "--random")
    ] = False,
    profile: Annotated[
        Text, _text("Published times: 1.5b, 6.2b, zb-16x48-a ...")
    ] = None,
    name: Annotated[Text, _text("Name of the instance.")] = None,
    objective: Annotated[Text, _text("makespan or device_span.")] = None,
    time_unit: Annotated[Text, _text("Unit of all times.")] = None,
    devices: Annotated[
        Text, _text("Devices, or a range 4..8.", "--devices", "--num-devices", "-p")
    ] = None,
    microbatches: Annotated[
        Text,
        _text(
            "Micro-batches, or a range.", "--microbatches", "--num-microbatches", "-m"
        ),
    ] = None,
    unequal: Annotated[
        Text,
        _text(
            "Draw lengths of micro-batches, log-normal with this sigma; 0.6:normal for normal."
        ),
    ] = None,
    placement: Annotated[
        Text, _text("linear, interleaved, ..., or devices 0,1,1,0.")
    ] = None,
    stages_per_device: Annotated[
        int | None, Option(help="Stages of each device.")
    ] = None,
    forward: Annotated[Text, _text("Time of a forward.")] = None,
    backward: Annotated[Text, _text("Time of a whole backward.")] = None,
    backward_input: Annotated[
        Text, _text("Time of an input-gradient backward.")
    ] = None,
    backward_weight: Annotated[
        Text, _text("Time of a weight-gradient backward.")
    ] = None,
    allreduce: Annotated[Text, _text("Time of a gradient all-reduce.")] = None,
    optimizer: Annotated[Text, _text("Time of an optimizer step.")] = None,
    p2p: Annotated[
        Text, _text("Latency of a transfer.", "--p2p", "--p2p-latency")
    ] = None,
    p2p_mode: Annotated[
        Text, _text("delay, link, nic, send_queue, buffered or rendezvous.")
    ] = None,
    p2p_bytes: Annotated[Text, _text("Bytes of a transfer.")] = None,
    bandwidth: Annotated[Text, _text("Bytes per time unit.")] = None,
    capacity: Annotated[
        Text, _text("Amount, list, 1.5p (activations), or none.")
    ] = None,
    activation: Annotated[Text, _text("Amount that one micro-batch holds.")] = None,
    share: Annotated[
        Text,
        _text(
            "Share of the activation held until W ends.",
            "--share",
            "--released-by-backward-weight",
        ),
    ] = None,
    static: Annotated[Text, _text("Amount always in use, per stage.")] = None,
) -> None:
    """Write a pipeline instance: by options, a profile, or at random.

    `ppsolve generate --seed 7 -o FILE` draws an instance with uneven stages: 4-8 devices,
    8-12 micro-batches, F and I of 50-150 and W of 30-100 per stage, p2p 10, memory for p
    activations on each device. Any option overrides what the seed or the profile would give.
    """
    texts = {
        name: value
        for name, value in locals().items()
        if value is not None and name not in {"output", "seed", "random", "profile"}
    }
    chosen_seed = 0 if random and seed is None else seed
    options = read_options(texts)
    with about_options({name: option_of(name) for name in texts}):
        instance = generate(seed=chosen_seed, profile=profile, **options)
    write_text(output, instance_text(instance))
    if output != "-":
        say(f"wrote {output} ({instance.name})")


def instances_of(
    recipes: Iterable[str], files: Iterable[str], count: int
) -> Iterator[tuple[str, Instance, DrawnBy]]:
    """Yield the instances of recipes: words that one would type behind ``ppsolve generate``.

    Each comes with the name of its recipe, which may stand before the options, and what it was
    drawn by. A file has a recipe in each line; empty lines and comments after ``#`` do not
    count. A recipe without a ``--count`` of its own gives `count` instances, from successive seeds.
    An `InputError` names a recipe that cannot be used, or its file and line.
    """
    for text in recipes:
        yield from _instances(text, count, "--recipe")
    for path in files:
        source = source_name(path)
        for number, line in enumerate(read_text(path).splitlines(), 1):
            recipe = re.sub(r"(^|\s)#.*", "", line)
            if recipe.strip():
                yield from _instances(recipe, count, f"{source}: line {number}")


def drawn_again(recipe: str, seed: int) -> Instance:
    """Return the instance that a recipe gives for a seed, whatever its own seed or count."""
    return next(_instances(recipe, 1, "recipe", seed))[1]


def _instances(
    text: str, count: int, source: str, only: int | None = None
) -> Iterator[tuple[str, Instance, DrawnBy]]:
    """Yield the instances of a recipe, or the one of the seed `only`."""
    try:
        name, own_count, params = _parsed(text)
        count = count if own_count is None else own_count
        seed, profile = params.pop("seed"), params.pop("profile")
        if only is not None:
            seed, count = only, 1
        options = read_options(params)
        if profile is not None and count > 1:
            raise InputError(
                "expected one instance, as a profile has no random draws",
                code=ErrorCode.CONFLICT,
            )
        if profile is not None:
            drawn = DrawnBy(text, 0, {"profile": profile, **params})
            yield name, generate(profile=profile, **options), drawn
            return
        first = 0 if seed is None else seed
        for number in range(first, first + count):
            drawn = DrawnBy(text, number, params)
            yield name, generate(seed=number, **options), drawn
    except InputError as error:
        raise error.moved(source, error.field) from None


def _parsed(text: str) -> tuple[str, int | None, dict[str, Any]]:
    """Return the name of a recipe, its own count, and the options of ``ppsolve generate``."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(
            f'not readable: {error}, got "{text}"', code=ErrorCode.SYNTAX
        ) from None
    if not words:
        raise InputError("expected options of `ppsolve generate`, got none")
    name = words.pop(0) if not words[0].startswith("-") else "recipe"
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
        raise InputError(
            f'expected a name of letters, digits, dots and dashes, got "{name}"',
            code=ErrorCode.SYNTAX,
        )
    own_count, words = _own_count(words)
    return name, own_count, _options(words)


def _own_count(words: list[str]) -> tuple[int | None, list[str]]:
    if "--count" not in words:
        return None, words
    index = words.index("--count")
    value = words[index + 1] if index + 1 < len(words) else ""
    if not re.fullmatch(r"[1-9]\d{0,6}", value):
        raise InputError(
            f'expected a whole number >= 1, got "{value}"',
            field="--count",
            code=ErrorCode.RANGE,
        )
    return int(value), words[:index] + words[index + 2 :]


def _options(words: list[str]) -> dict[str, Any]:
    """Return the options that words give to ``ppsolve generate``, always `seed` and `profile`."""
    command = load("generate")
    try:
        params: dict[str, Any] = command.make_context("generate", list(words)).params
    except Exception as error:
        # Errors of usage are known by their method only: whose class it is depends on typer.
        if not hasattr(error, "format_message"):
            raise
        raise InputError(str(error.format_message())) from None
    for name in ("output", "random"):
        params.pop(name)
    always = {name: params.pop(name) for name in ("seed", "profile")}
    return always | {name: value for name, value in params.items() if value is not None}
