"""Parts of documents that are made when first read: nobody can tell but by the time it takes."""

from __future__ import annotations

import copy
import pickle
from typing import Annotated

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from ppsolve.models.core.deferred import Deferred, MayBeDeferred, unfolds

ITEMS = [["0F0", "0B0"], ["1F0"]]


class Plain(BaseModel):
    model_config = ConfigDict(frozen=True)

    orders: list[list[str]] | None = None


@unfolds("orders")
class Large(BaseModel):
    model_config = ConfigDict(frozen=True, title="Plain")

    orders: Annotated[list[list[str]], MayBeDeferred()] | None = None


class Inherited(Large):
    more: int = 1


def once() -> Deferred[list[str]]:
    """Return the items, which can be made a single time."""
    left = [ITEMS]
    return Deferred(left.pop)


def refused() -> list[list[str]]:
    raise AssertionError("the items were made")


def test_it_is_made_once_when_it_is_read() -> None:
    found = once()
    assert found == ITEMS
    assert (len(found), found[1], found[:1], list(found)) == (
        2,
        ["1F0"],
        [["0F0", "0B0"]],
        ITEMS,
    )
    assert repr(found) == repr(ITEMS)


def test_it_differs_from_other_items_and_other_types() -> None:
    assert once() != ITEMS[:1]
    assert once() != tuple(ITEMS)
    assert once() == once()
    assert hash(Deferred(lambda: (1, 2))) == hash((1, 2))


def test_field_is_read_as_the_list_itself() -> None:
    model = Large(orders=once())
    assert type(model.orders) is list
    assert model == Large(orders=ITEMS)
    assert model.model_copy().orders == ITEMS
    assert Large().orders is None
    assert Inherited(orders=once()).orders == ITEMS
    assert Inherited.model_fields["orders"].default is None


def test_field_of_a_frozen_model_stays_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Large(orders=once()).orders = []  # type: ignore[misc]


def test_copies_hold_the_list_itself() -> None:
    for twin in (pickle.loads(pickle.dumps(once())), copy.deepcopy(once())):
        assert type(twin) is list
        assert twin == ITEMS


@pytest.mark.parametrize(
    "how",
    [
        {"mode": "json"},
        {"mode": "python"},
        {"exclude_none": True},
        {"exclude": {"orders": {0}}},
        {"include": {"orders": {1}}},
    ],
)
def test_it_is_written_as_the_list_is(how: dict[str, object]) -> None:
    expected = Plain(orders=ITEMS).model_dump(**how)  # type: ignore[arg-type]
    assert Large(orders=once()).model_dump(**how) == expected  # type: ignore[arg-type]
    assert Large(orders=ITEMS).model_dump(**how) == expected  # type: ignore[arg-type]


def test_json_is_written_without_making_the_items() -> None:
    model = Large(orders=Deferred(refused, lambda: ITEMS))
    assert model.model_dump_json() == Plain(orders=ITEMS).model_dump_json()
    assert model.model_dump_json(indent=2) == Plain(orders=ITEMS).model_dump_json(
        indent=2
    )


def test_given_lists_are_validated_as_before() -> None:
    assert Large.model_validate({"orders": ITEMS}).orders == ITEMS
    with pytest.raises(ValidationError, match="valid string"):
        Large.model_validate({"orders": [[1]]})
    assert Large.model_json_schema() == Plain.model_json_schema()
