"""What a first version promises, in one sentence, and what else could be had, for each form of a target."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console

from schemas import LabelledExample
from tests.support.cascade_stream import START, example, settings, typo_world
from ucci_stream.offline.bootstrap import first_version
from ucci_stream.offline.calibration_report import promise_of, sentence, what_if, what_if_table

WORLD = typo_world(1_200, 1_200, seed=4)
EXAMPLES: list[LabelledExample] = [
    example(WORLD.draw(number), f"q-{number}", "w", START + timedelta(seconds=number))[1] for number in range(1_200)
]


def said(target: dict[str, Any]) -> tuple[str, list[str], dict[str, Any]]:
    """Return the sentence, the targets of the table beside it, and the promise as JSON."""
    workload = settings(target=target)
    made = first_version(workload, EXAMPLES, START, "a test")
    promise, others = promise_of(made, [3.02]), what_if(workload, EXAMPLES, made)
    console = Console(width=200, record=True, quiet=True)
    console.print(what_if_table(others, workload.target))
    return sentence(promise), [str(one.target) for one in others], promise.as_json()


def test_a_cap_says_what_it_costs() -> None:
    text, others, as_json = said({"micro_f1": 0.95, "max_escalation": 0.2})
    assert text.startswith("at target micro-F1 0.95, with at most 20% escalated: escalate ")
    assert 0.19 < as_json["escalation_rate"] <= 0.2
    assert "; the cap of 20% escalated costs 0.0" in text
    assert len(others) == 5
    assert as_json["promised"]["max_escalation"] == 0.2
    assert as_json["remark"] in text


def test_a_budget_is_compared_with_other_budgets() -> None:
    text, others, as_json = said({"cost": 2.0})
    assert text.startswith("at target a cost of 2 a query: escalate ")
    assert others == [f"a cost of {cost:g} a query" for cost in (1.6, 1.8, 2.0, 2.2, 2.4)]
    assert as_json["costs"][0]["sequential"] == pytest.approx(2.0, abs=0.05)
    assert as_json["costs"][0]["sequential"] <= 2.0
