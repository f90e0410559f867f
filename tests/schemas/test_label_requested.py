"""What people are asked: all that a labeler needs, and why."""

from __future__ import annotations

from typing import get_args

import pytest

from schemas.label_requested import LabelRequested
from schemas.routed import LabelReason, LabelRequest, ModelRun
from tests.support.recalibrator_events import routed


@pytest.mark.parametrize(
    ("drawn", "shown"), [("random", "monitoring"), ("exploration", "exploration"), ("audit", "audit")]
)
def test_a_request_says_what_to_label_and_why(drawn: LabelReason, shown: str) -> None:
    result = routed(1, label=LabelRequest(requested=True, probability=0.1, reason=drawn))
    request = LabelRequested.from_result(result)
    assert (request.query_id, request.text, request.entities) == (result.query_id, result.text, result.entities)
    assert (request.reason, request.probability, request.requested_at) == (shown, 0.1, result.routed_at)
    assert set(get_args(LabelReason)) == {"random", "exploration", "audit"}


def test_both_answers_stand_in_a_request_where_they_differ() -> None:
    """Where they are alike, nothing tells whether one model ran or both."""
    both = routed(1)
    small = both.small.model_copy(update={"entities": {"camera": "Leica M6"}}) if both.small else None
    differing = LabelRequested.from_result(both.model_copy(update={"small": small}))
    alike = both.model_copy(update={"small": both.large})
    failed = both.model_copy(update={"small": ModelRun(model="small", valid=False, error="cut off")})
    alone = both.model_copy(update={"answered_by": "small", "large": None})

    assert differing.other_entities == {"camera": "Leica M6"}
    for result in (alike, failed, alone):
        assert b"other_entities" not in LabelRequested.from_result(result).to_json()
