"""What is found in a mapping of faulty members does not grow with what is sent: to describe them took seconds."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from recalibrator.join.query_state import QueryState
from schemas.event import Event
from tests.support.mapping_places import FAULTY, MappingPlace, mapping_places
from ucci_stream.offline.gold_lines import GoldLine

MEMBERS = 2_000

#: Every event, every line of a file, and the join's rows.
MODELS: set[type[BaseModel]] = {*Event.__subclasses__(), GoldLine, QueryState}

PLACES = [
    (model, place) for model in sorted(MODELS, key=lambda model: model.__name__) for place in mapping_places(model)
]
CHECKED = [pytest.param(*found, id=f"{found[0].__name__}.{found[1]}") for found in PLACES if not found[1].is_free_form]


def _found_at(model: type[BaseModel], place: MappingPlace, members: Mapping[str, object]) -> list[ErrorDetails]:
    """Return the findings in the mapping; those of other fields, which are missing, are few."""
    with pytest.raises(ValidationError) as caught:
        model.model_validate_json(json.dumps(place.document(members)))
    assert caught.value.error_count() < 50
    return [one for one in caught.value.errors() if one["loc"][: len(place.path)] == place.path]


@pytest.mark.parametrize(("model", "place"), CHECKED)
def test_a_mapping_of_faults_took_seconds_a_megabyte(model: type[BaseModel], place: MappingPlace) -> None:
    """The first faulty member ends it, in every mapping of every model that is decoded from outside."""
    members = {f"{place.key}{number}": FAULTY for number in range(MEMBERS)}
    blamed = {one["loc"][len(place.path)] for one in _found_at(model, place, members)}
    assert blamed == {f"{place.key}0"}


def test_the_mappings_of_every_model_are_looked_at() -> None:
    """The tests above know those of nested models, within lists, and within other mappings."""
    found = {str(place) for _, place in PLACES}
    assert found >= {"entities", "opinions.0.entities", "models.k.small.latency_s", "metadata"}
