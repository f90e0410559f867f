"""Counts of traffic: what is counted of handoffs, tokens, failures and queries that left a model out."""

from __future__ import annotations

from collections.abc import Iterable

from recalibrator.fit.data.traffic_window import COUNT, MIX, TrafficWindow
from recalibrator.grid import Grid
from recalibrator.join.traffic_counter import TrafficSummarizer
from schemas.costs import QueryCost
from schemas.event import MAX_INTEGER
from schemas.routed import ModelRun, QueryHandoff, RoutedEvent
from schemas.traffic import TrafficSummary
from tests.support.cores import present
from tests.support.recalibrator_events import PHOTO, routed


def summarized(results: Iterable[RoutedEvent]) -> TrafficSummary:
    counter = TrafficSummarizer(PHOTO)
    for result in results:
        counter.add(result)
    return present(counter.take())


def window_of(summary: TrafficSummary) -> TrafficWindow:
    window = TrafficWindow(Grid(summary.grid), 1_000)
    window.add(summary)
    return window


def test_handoffs_are_counted_apart_from_each_other() -> None:
    """Queries under a handoff have counts of their own; a comparison counts where both answers are there."""
    large = routed(1).large
    assert large is not None
    other = large.model_copy(update={"entities": {"camera": "another", "lens": None}})
    failed = large.model_copy(update={"valid": False, "entities": None})
    handoffs = (
        None,
        QueryHandoff(name="field@0.9", characters=9),
        QueryHandoff(name="field@0.9", asked_again=True),
        QueryHandoff(name="field@0.9", guarded=True),
        QueryHandoff(name="field@0.9", characters=9, guarded=True, alone=other),
        QueryHandoff(name="field@0.9", characters=9, guarded=True, alone=failed),
        QueryHandoff(name="token@0.8"),
    )
    summary = summarized(routed(number, handoff=handoff) for number, handoff in enumerate(handoffs))
    found = [
        (one.handoff, one.queries, one.handed_over, one.asked_again, one.guarded, one.guard_agreeing)
        for one in summary.versions
    ]
    assert found == [(None, 1, 0, 0, 0, 0), ("field@0.9", 5, 4, 1, 2, 1), ("token@0.8", 1, 0, 0, 0, 0)]


def test_tokens_are_counted_whatever_a_server_says() -> None:
    """A server that claims more tokens than a count can hold makes one count wrong, and no more."""
    small, large = routed(1).small, routed(1).large
    assert small is not None
    assert large is not None
    few = small.model_copy(update={"completion_tokens": 7, "prompt_tokens": 50})
    many = large.model_copy(update={"completion_tokens": MAX_INTEGER, "prompt_tokens": MAX_INTEGER})
    handed = QueryHandoff(name="field@0.9", characters=9, tokens=3, lost_tokens=MAX_INTEGER)
    (found,) = summarized(routed(number, small=few, large=many, handoff=handed) for number in range(2)).versions
    assert (found.small_tokens, found.small_prompt_tokens, found.handed_over_tokens) == (14, 100, 6)
    assert found.large_tokens == found.large_prompt_tokens == found.lost_tokens == MAX_INTEGER


def test_costs_are_summed_whatever_a_server_says() -> None:
    """A server whose token counts are absurd makes queries dear beyond what an event may hold, and no more."""
    dear = QueryCost(sequential=float(MAX_INTEGER), paper=float(MAX_INTEGER))
    (found,) = summarized(routed(number, cost=dear) for number in range(2)).versions
    assert found.cost_sequential == found.cost_paper == MAX_INTEGER


def test_a_refused_call_takes_no_part_in_the_mean_latency() -> None:
    """Refused within milliseconds, calls of a server that was down made it look fast."""
    good, small = routed(1), ModelRun(model="small", valid=False, error="refused", latency_s=0.002)
    failed = good.decision.model_copy(update={"reason": "small_failed", "uncertainty": None})
    summary = summarized([good, routed(2, small=small, decision=failed)])
    (one,) = summary.versions
    assert (one.small_calls, one.small_failed, one.small_latency_s) == (2, 1, 0.05)
    assert window_of(summary).mean_latency_s() == (0.05, 0.15)


def test_a_query_that_left_the_small_model_out_is_no_failure() -> None:
    """Those asked stand for the others in the mix of u."""
    changes = {"escalated": True, "reason": "large_only", "large_probability": 1.0, "small_probability": 0.25}
    decision = routed(0).decision.model_copy(update=changes)
    without = decision.model_copy(update={"uncertainty": None, "error_probability": None})
    results = [routed(1, decision=decision)] + [routed(n, decision=without, small=None) for n in range(2, 5)]
    summary = summarized(results)
    (one,) = summary.versions
    assert (one.queries, one.small_calls, one.small_skipped, one.small_failed) == (4, 1, 3, 0)
    assert (sum(one.count), sum(one.pairs), sum(one.pairs_explored)) == (1, 1, 0)
    window = window_of(summary)
    assert (window.counts[COUNT].sum(), window.counts[MIX].sum(), window.failed_share) == (1, 4, 0.0)
