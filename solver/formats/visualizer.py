"""Configs of the pipeline-parallelism visualizer: JSON or YAML to a pipeline instance."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from ppsolve.models.documents.base import Number, StrictModel, Whole, describe
from ppsolve.models.documents.errors import ErrorCode, InputError, errors_in
from ppsolve.models.documents.files import (
    STANDARD_STREAM,
    parse_json,
    read_text,
    source_name,
)
from ppsolve.models.kinds.pipeline.instance import PipelineInstance


def _list_of_times(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise ValueError(
            f"expected a list with one time per stage, got {describe(value)}"
        )
    if not value:
        raise ValueError("expected at least one time, the list is empty")
    return tuple(value)


StageTimes = Annotated[tuple[Number, ...], BeforeValidator(_list_of_times)]


class VisualizerConfig(StrictModel):
    """The visualizer's config file. `output_file`, where its picture goes, is not used."""

    num_stages: Annotated[Whole, Field(ge=1, le=4096)]
    num_batches: Annotated[Whole, Field(ge=1, le=1_000_000)]
    forward_times: StageTimes
    backward_times: StageTimes
    p2p_time: Number = Field(default=0, validate_default=True)
    output_file: Any = None


def convert_visualizer(path: str | Path) -> tuple[PipelineInstance, list[str]]:
    """Read a visualizer config; ``.yml`` and ``.yaml`` are YAML, all else and ``-`` JSON.

    The instance has fused backwards and no memory limit. The rule for lists of another length than
    `num_stages` is the visualizer's: a shorter one is continued with its last value, a longer one
    is cut; a warning names each. Raises `InputError` where the file cannot be read, is no JSON or
    YAML, needs the ``yaml`` extra, or a field is missing, unknown or wrong.
    """
    source = source_name(path)
    with errors_in(source):
        text = read_text(path)
        is_yaml = Path(path).suffix.lower() in {".yml", ".yaml"}
        data = parse_yaml(text) if is_yaml else parse_json(text, source)
        if not isinstance(data, dict):
            raise InputError(
                f"expected an object, got {describe(data)}", code=ErrorCode.TYPE
            )
    config = VisualizerConfig.parse(data, source)
    warnings, times = [], {}
    for kind in ("forward", "backward"):
        values: tuple[Decimal, ...] = getattr(config, f"{kind}_times")
        lacking = config.num_stages - len(values)
        times[kind] = (values + values[-1:] * lacking)[: config.num_stages]
        field, count = f"{source}: {kind}_times", len(values)
        if lacking > 0:
            text = f"{count} of {config.num_stages} stages given"
            warnings.append(
                f"{field}: {text}, the others take the last value, {values[-1]}"
            )
        elif lacking < 0:
            text = f"{count} entries for {config.num_stages} stages"
            warnings.append(f"{field}: {text}, the last {-lacking} cut")
    instance = PipelineInstance.parse(
        {
            "name": "visualizer" if str(path) == STANDARD_STREAM else Path(path).stem,
            "num_devices": config.num_stages,
            "num_microbatches": config.num_batches,
            "times": times,
            "p2p": {"latency": config.p2p_time},
        },
        source,
    )
    return instance, warnings


def parse_yaml(text: str) -> Any:
    """Read YAML; an `InputError` says that it is none, too large, or that PyYAML is missing."""
    try:
        import yaml
    except ImportError:
        raise InputError(
            "reading YAML needs PyYAML: pip install 'ppsolve[yaml]', or convert the file to JSON",
            code=ErrorCode.NOT_INSTALLED,
        ) from None
    # Both lists of 4,096 stages with 40 characters a time have a third of that.
    limit = 1_000_000
    if len(text) > limit:
        raise InputError(
            f"expected at most {limit} characters of YAML, got {len(text)}",
            code=ErrorCode.SYNTAX,
        )
    loader: Any = _loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    try:
        _refuse_depth(yaml.parse(text, Loader=loader))
        return yaml.load(text, Loader=loader)
    except yaml.YAMLError as error:
        raise InputError(
            f"not valid YAML: {_yaml_problem(error)}", code=ErrorCode.SYNTAX
        ) from None
    except (RecursionError, ValueError, TypeError) as error:
        raise InputError(f"not usable YAML: {error}", code=ErrorCode.SYNTAX) from None


def _refuse_depth(events: Iterable[Any]) -> None:
    # A config has 2 levels. libyaml's recursion takes the process down at 100,000.
    depth, deepest = 0, 50
    for event in events:
        name = type(event).__name__
        depth += name.endswith("StartEvent") - name.endswith("EndEvent")
        if depth > deepest:
            raise InputError(
                f"not usable YAML: nested deeper than {deepest} levels",
                code=ErrorCode.SYNTAX,
            )


def _yaml_problem(error: Any) -> str:
    mark = getattr(error, "problem_mark", None)
    position = (
        f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    )
    return position + str(getattr(error, "problem", None) or error).replace("\n", " ")


def _loader(safe_loader: Any) -> Any:
    # It has the types of `safe_loader` only, and also refuses what JSON refuses.
    class Loader(safe_loader):  # type: ignore[misc]
        def flatten_mapping(self, node: Any) -> None:
            # Nested merges grow exponentially; no config needs them.
            if any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value):
                raise InputError(
                    'merge keys ("<<") are not supported, write the fields out',
                    code=ErrorCode.SYNTAX,
                )

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            names = [key.value for key, _ in node.value if isinstance(key.value, str)]
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise InputError(
                    f'the field "{twice}" appears twice in one object',
                    code=ErrorCode.CONFLICT,
                )
            return super().construct_mapping(node, deep)

    # YAML 1.1 takes 1e3 for text, everybody else for a number.
    exponent = re.compile(r"[-+]?\d+(?:\.\d*)?[eE][-+]?\d+$")
    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", exponent, list("-+0123456789")
    )
    return Loader
