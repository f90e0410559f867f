"""Counts of traffic: they add up, however the queries are parted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recalibrator.join.traffic_counter import TrafficSummarizer
from schemas.routed import RoutedEvent
from schemas.settings import WorkloadSettings
from schemas.traffic import TrafficSummary
from tests.support.recalibrator_events import FIELDS, routed

PHOTO = WorkloadSettings.model_validate({"name": "photo", "fields": FIELDS, "target": {"micro_f1": 0.9}})


def summarized(results: list[RoutedEvent]) -> TrafficSummary | None:
    counter = TrafficSummarizer(PHOTO)
    for result in results:
        counter.add(result)
    return counter.take()


def totals(summaries: list[TrafficSummary | None]) -> tuple[int, int, int, int]:
    versions = [version for summary in summaries if summary is not None for version in summary.versions]
    return (
        sum(version.queries for version in versions),
        sum(sum(version.count) for version in versions),
        sum(sum(version.agreeing) for version in versions),
        sum(version.labels_requested for version in versions),
    )


@given(st.lists(st.integers(0, 10_000), max_size=20), st.data())
def test_parts_add_up_to_the_whole(numbers: list[int], data: st.DataObject) -> None:
    results = [routed(number) for number in numbers]
    cut = data.draw(st.integers(0, len(results)))
    whole = summarized(results)
    assert totals([summarized(results[:cut]), summarized(results[cut:])]) == totals([whole])
    assert (whole is None) == (not results)


def test_a_summary_spans_its_queries_by_version_and_begins_anew() -> None:
    counter = TrafficSummarizer(PHOTO)
    decision = routed(2).decision.model_copy(update={"calibration_version": 4})
    for result in (routed(3), routed(1), routed(2, decision=decision)):
        counter.add(result)
    summary = counter.take()
    assert summary is not None
    assert (summary.first_routed_at, summary.last_routed_at) == (routed(1).routed_at, routed(3).routed_at)
    assert [(one.calibration_version, one.queries) for one in summary.versions] == [(None, 2), (4, 1)]
    assert counter.take() is None
