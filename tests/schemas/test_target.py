"""What a target may promise: contradictions are one line each, and a micro-F1 alone is written as it ever was."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from schemas import WorkloadSettings
from schemas.calibration import Interval, Target, TargetStanding
from schemas.target_words import is_held, of_fields
from tests.support import recalibrator_events

COST = {"small": 1.0, "large": 3.0}
FAULTS = {
    "nothing": ({}, "target promises nothing: give micro_f1, fields or cost"),
    "cost and quality": ({"micro_f1": 0.9, "cost": 1.7}, "target.cost and target.micro_f1 exclude each other"),
    "cost and field": ({"fields": {"iso": 0.9}, "cost": 1.7}, "target.cost and target.fields exclude each other"),
    "unknown field": (
        {"fields": {"isso": 0.9}},
        "target.fields: isso is not a field of the workload; give one of",
    ),
    "cap below exploration": ({"micro_f1": 0.9, "max_escalation": 0.03}, "does not exceed sampling.exploration_prob"),
    "budget spent at once": ({"cost": 1.09}, "target.cost 1.09 is spent before anything escalates"),
    "cap above all": ({"micro_f1": 0.9, "max_escalation": 1.0}, "less than 1"),
    "no share": ({"fields": {"iso": 0.0}}, "greater than 0"),
}


def workload(target: dict[str, Any], **changed: Any) -> WorkloadSettings:
    return recalibrator_events.workload("w", ("iso", "f"), **{"target": target, "cost": COST} | changed)


@pytest.mark.parametrize(("target", "says"), FAULTS.values(), ids=FAULTS)
def test_what_cannot_be_promised_is_one_clear_line(target: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as raised:
        workload(target)
    (fault,) = raised.value.errors()
    assert says in fault["msg"]
    assert "\n" not in fault["msg"]


def test_a_budget_needs_a_unit_that_stands_still() -> None:
    """Measured from latency, the unit of a budget would change with the load; by the token, its least is not known."""
    with pytest.raises(ValidationError, match=r"target\.cost needs the workload's cost"):
        workload({"cost": 1.7}, cost=None)
    assert workload({"cost": 0.2}, cost=COST | {"unit": "token"}).target.cost == 0.2


def test_a_micro_f1_alone_is_written_as_ever() -> None:
    """Versions that others make keep their digests, since nothing is added to what they say."""
    assert Target(micro_f1=0.9).model_dump(mode="json") == {"micro_f1": 0.9, "safety": 0.65}
    assert Target(micro_f1=0.9).is_plain
    assert not Target(micro_f1=0.9, max_escalation=0.4).is_plain


def test_every_estimate_must_lie_at_its_target() -> None:
    """A tolerance of .005 is granted to each; what is not known yet counts as held."""
    low, high = (Interval(estimate=one, lower=one - 0.01, upper=one + 0.01) for one in (0.894, 0.896))
    target = Target(micro_f1=0.9, fields={"iso": 0.9})
    assert is_held(target, None, None)
    assert is_held(target, high, TargetStanding(fields={"iso": high}))
    assert not is_held(target, low, TargetStanding(fields={"iso": high}))
    assert not is_held(target, high, TargetStanding(fields={"iso": low}))
    assert of_fields(target, TargetStanding(fields={"gone": low})) == ""
