"""The bytes of a row: they give back the state, and a torn row gives none."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given

from recalibrator.join.query_state import (
    NOTHING_KNOWN,
    LabelRules,
    QueryState,
    decoded,
    encoded,
    take_feedback,
    take_result,
)
from schemas.routed import RoutedEvent
from tests.support import strategies
from tests.support.recalibrator_events import FIELDS, START, feedback, routed


def state() -> QueryState:
    rules = {"photo": LabelRules(FIELDS)}
    return take_feedback(take_result(NOTHING_KNOWN, routed(1), rules).state, feedback(1), START, rules).state


@given(strategies.routed_events(query_id="q"))
def test_a_row_gives_back_its_state(result: RoutedEvent) -> None:
    kept = take_result(NOTHING_KNOWN, result, {result.workload: LabelRules(FIELDS)}).state
    assert decoded(encoded(kept)) == kept


def test_a_row_takes_less_than_half_of_its_json() -> None:
    assert len(encoded(state())) < len(state().model_dump_json(exclude_defaults=True)) / 2


@pytest.mark.parametrize("torn", [b"", b"x", b"\xff" * 40, encoded(state())[:-7], b"{}x"])
def test_a_torn_row_is_an_error(torn: bytes) -> None:
    with pytest.raises((ValueError, zlib.error)):
        decoded(torn)


def test_a_row_that_unpacks_without_end_fills_the_memory() -> None:
    """A damaged row of some kilobytes may hold gigabytes of zeros."""
    packer = zlib.compressobj(9)
    bomb = packer.compress(b" " * 20_000_000) + packer.flush()
    with pytest.raises(zlib.error, match="more than 16000000 bytes"):
        decoded(bomb)
