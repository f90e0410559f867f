"""Two inputs of one partition number: neither runs ahead while they catch up, and each end is where it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalibrator.join.home_inputs import HomeInputs, Uncommitted
from recalibrator.join.query_state import NOTHING_KNOWN
from schemas.routed import TrialDecision
from schemas.traffic import TrafficSummary
from tests.support.recalibrator_events import PHOTO, routed
from ucci_runtime.broker.records import EndReached, Input, Record

RESULTS, FEEDBACK = Input("results", 0), Input("feedback", 0)


def record(source: Input, offset: int) -> Record:
    return Record(source, offset, None, None)


def partition(results: int = 3, feedback: int = 2) -> tuple[HomeInputs, list[str]]:
    """One that has stored nothing, of a group that has committed so many records of each; and what it notes."""
    notes = list[str]()
    return HomeInputs({RESULTS: 0, FEEDBACK: 0}, {RESULTS: results, FEEDBACK: feedback}, notes.append), notes


@given(st.lists(st.sampled_from([RESULTS, FEEDBACK]), max_size=20))
def test_no_input_passes_its_limit_before_the_other_is_there(turns: list[Input]) -> None:
    (one, _), following = partition(), {RESULTS: 0, FEEDBACK: 0}
    for source in turns:
        is_taken = one.admits(record(source, following[source]))
        assert is_taken == (following[source] < one.limits[source])
        following[source] += is_taken
    assert one.has_caught_up == (following == one.limits)


def of_other_signals(number: int) -> dict[str, Any]:
    return {"signal": f"signal-{number}"}


def on_trial(number: int) -> dict[str, Any]:
    sides = {"escalated": True, "base_escalated": False, "acted": True}
    trial = TrialDecision(version=number + 1, mode="canary", base_version=1, **sides)
    return {"decision": routed(number).decision.model_copy(update={"trial": trial})}


@pytest.mark.parametrize("changes", [of_other_signals, on_trial])
def test_results_of_any_number_of_versions_are_counted(changes: Callable[[int], dict[str, Any]]) -> None:
    """Versions that do not fit into one summary are split over several, each small enough for a record."""
    uncommitted, results = Uncommitted(), 1_234
    for number in range(results):
        uncommitted.count_traffic(routed(number, **changes(number)), PHOTO)
    summaries = uncommitted.summaries()
    assert sum(part.queries for summary in summaries for part in summary.versions) == results
    assert all(TrafficSummary.from_json(summary.to_json()) == summary for summary in summaries)
    assert uncommitted.summaries() == []


def test_a_log_shorter_than_committed_is_caught_up_at_its_end() -> None:
    one, notes = partition()
    one.reach_end(EndReached(RESULTS, 1))
    one.reach_end(EndReached(FEEDBACK, 2))
    assert (notes, one.has_caught_up) == (["log_shorter_than_committed"], True)


def test_a_log_made_anew_is_read_from_its_first_offset() -> None:
    one, notes = partition()
    one.go_live()
    assert one.admits(record(RESULTS, 0))
    assert (notes, one.positions[RESULTS]) == (["log_went_back"], 1)


def test_a_row_is_as_fresh_as_its_latest_record() -> None:
    uncommitted = Uncommitted()
    uncommitted.change((0, "q"), NOTHING_KNOWN, 9)
    uncommitted.change((0, "q"), NOTHING_KNOWN, 5)
    assert uncommitted.rows()[0, "q"].touched_ms == 9
