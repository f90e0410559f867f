"""Counts of traffic: they add up, however the queries are parted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recalibrator.join.traffic_counter import TrafficSummarizer
from schemas.event import MAX_INTEGER
from schemas.routed import QueryHandoff, RoutedEvent
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


def test_handoffs_are_counted_apart_from_each_other() -> None:
    """Queries under a handoff have counts of their own; a comparison counts where both answers are there."""
    counter = TrafficSummarizer(PHOTO)
    large = routed(1).large
    assert large is not None
    other = large.model_copy(update={"entities": {"camera": "another", "lens": None}})
    failed = large.model_copy(update={"valid": False, "entities": None})
    for number, handoff in enumerate(
        (
            None,
            QueryHandoff(name="field@0.9", characters=9),
            QueryHandoff(name="field@0.9", asked_again=True),
            QueryHandoff(name="field@0.9", guarded=True),
            QueryHandoff(name="field@0.9", characters=9, guarded=True, alone=other),
            QueryHandoff(name="field@0.9", characters=9, guarded=True, alone=failed),
            QueryHandoff(name="token@0.8"),
        )
    ):
        counter.add(routed(number, handoff=handoff))
    summary = counter.take()
    assert summary is not None
    found = [
        (one.handoff, one.queries, one.handed_over, one.asked_again, one.guarded, one.guard_agreeing)
        for one in summary.versions
    ]
    assert found == [(None, 1, 0, 0, 0, 0), ("field@0.9", 5, 4, 1, 2, 1), ("token@0.8", 1, 0, 0, 0, 0)]


def test_tokens_are_counted_whatever_a_server_says() -> None:
    """A server that claims more tokens than a count can hold makes one count wrong, and no more."""
    counter = TrafficSummarizer(PHOTO)
    small, large = routed(1).small, routed(1).large
    assert small is not None
    assert large is not None
    few = small.model_copy(update={"completion_tokens": 7, "prompt_tokens": 50})
    many = large.model_copy(update={"completion_tokens": MAX_INTEGER, "prompt_tokens": MAX_INTEGER})
    handed = QueryHandoff(name="field@0.9", characters=9, tokens=3, lost_tokens=MAX_INTEGER)
    for number in range(2):
        counter.add(routed(number, small=few, large=many, handoff=handed))
    summary = counter.take()
    assert summary is not None
    (found,) = summary.versions
    assert (found.small_tokens, found.small_prompt_tokens, found.handed_over_tokens) == (14, 100, 6)
    assert found.large_tokens == found.large_prompt_tokens == found.lost_tokens == MAX_INTEGER
