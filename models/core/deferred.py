"""Parts of large documents that are made when they are first read, and written without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, GetCoreSchemaHandler, SerializationInfo
from pydantic_core import CoreSchema, core_schema

Item = TypeVar("Item")
Model = TypeVar("Model", bound=BaseModel)


class Deferred(Sequence[Item], Generic[Item]):
    """A sequence or dict that is made when it is first read; equal to one of the same items.

    Parameters
    ----------
    make : callable
        Makes the list, tuple or dict.
    written : callable, optional
        Makes plain JSON data of the items; needed where they are none themselves.
    """

    def __init__(
        self, make: Callable[[], Any], written: Callable[[], list[Any]] | None = None
    ) -> None:
        self._make = make
        self._written = written

    @cached_property
    def value(self) -> Any:
        """The sequence or dict itself."""
        return self._make()

    def written(self) -> Any:
        """Return the items as plain JSON data."""
        return self._make() if self._written is None else self._written()

    def __getitem__(self, index: Any) -> Any:
        """Return an item, or a list or tuple of them."""
        return self.value[index]

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.value)

    def __eq__(self, other: object) -> bool:
        """Whether a sequence of the same type has the same items."""
        return bool(
            self.value == (other.value if isinstance(other, Deferred) else other)
        )

    def __hash__(self) -> int:
        """Return the hash of the sequence itself."""
        return hash(self.value)

    def __repr__(self) -> str:
        """Return the text of the sequence itself."""
        return repr(self.value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy as the sequence itself."""
        return copy, (self.value,)


class MayBeDeferred:
    """Annotation of a field whose value may be `Deferred`; its JSON Schema stays the same."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Take a deferred sequence as valid, and write it without making its items."""
        inner = handler(source)
        return core_schema.no_info_wrap_validator_function(
            lambda value, valid: value if isinstance(value, Deferred) else valid(value),
            inner,
            serialization=core_schema.wrap_serializer_function_ser_schema(
                _serialise, schema=inner, info_arg=True
            ),
        )


def _serialise(
    value: Any, handler: Callable[[Any], Any], info: SerializationInfo
) -> Any:
    if not isinstance(value, Deferred):
        return handler(value)
    is_partial = (
        info.include or info.exclude or info.exclude_none or info.exclude_defaults
    )
    return (
        handler(value.value)
        if is_partial or not info.mode_is_json()
        else value.written()
    )


class _Unfolded:
    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, model: BaseModel | None, owner: type[BaseModel]) -> Any:
        # The class itself has no such attribute: pydantic would take it for the field's default.
        if model is None or self.name not in model.__dict__:
            raise AttributeError(self.name)
        value = model.__dict__[self.name]
        return value.value if isinstance(value, Deferred) else value

    def __set__(self, model: BaseModel, value: Any) -> None:
        # With a setter the attribute comes before the field that pydantic keeps in the instance.
        raise AttributeError(f"{self.name} is read-only")


def unfolds(*names: str) -> Callable[[type[Model]], type[Model]]:
    """Return a decorator of models that reads these `MayBeDeferred` fields as what they defer."""

    def decorate(model: type[Model]) -> type[Model]:
        for name in names:
            setattr(model, name, _Unfolded(name))
        return model

    return decorate
