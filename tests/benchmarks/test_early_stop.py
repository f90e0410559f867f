"""What the early stop benchmark counts: where calls are stopped, what that saves, and what escalates for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.early_stop import experiment
from benchmarks.early_stop.report import write
from benchmarks.handoff.experiment import LARGE_TOKEN
from stream_router.model_client.request import StopRule
from tests.benchmarks.test_handoff import MADE, Scripted, right, said
from ucci_demo.recorded.traffic import RecordedQuery, load_traffic

QUERIES = [query for query in load_traffic() if query.shift == "none" and "lens" in query.gold][:6]
DOUBTED, PRICE = 5, LARGE_TOKEN


def trial(monkeypatch: pytest.MonkeyPatch, *, wrong: bool = True) -> Any:
    """Both models, a token a character; the small one doubts its sixth token, and is wrong unless it is to be right."""

    def small(query: RecordedQuery, _: str) -> Any:
        return said("{}" + " " * 40 if wrong else right(query), DOUBTED)

    large = Scripted(lambda query, _: said(right(query)))
    monkeypatch.setattr(experiment, "LiveModel", lambda name: Scripted(small) if name == "small" else large)
    return experiment._Trial(QUERIES, threshold=1e-6)


def test_a_call_is_stopped_behind_the_token_that_settles_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokens so far are paid for, and the large answer, which is right."""
    found = trial(monkeypatch).served(StopRule(1e-6, longest=100, stops=True), None)
    tokens = [len(right(query)) for query in QUERIES]
    assert found.cost.tolist() == pytest.approx([DOUBTED + 1 + PRICE * count for count in tokens])
    assert found.hits.tolist() == found.size.tolist()


def test_a_query_in_full_costs_its_whole_small_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = StopRule(1e-6, longest=100, stops=False)
    found = trial(monkeypatch).served(rule, None)
    tokens = [len(right(query)) for query in QUERIES]
    assert found.cost.tolist() == pytest.approx([42 + PRICE * count for count in tokens])
    stopped = trial(monkeypatch).served(rule._replace(stops=True), None)
    mixed = stopped.mixed(found, 0.25)
    assert mixed.cost.tolist() == pytest.approx((0.75 * stopped.cost + 0.25 * found.cost).tolist())


def test_an_answer_longer_than_expected_may_escalate_needlessly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its doubt is settled by the length that was expected, and its u by the one that it has."""
    several = trial(monkeypatch, wrong=False)
    threshold = 1.0 / min(len(right(query)) for query in QUERIES) + 0.01
    several.above[:] = False
    counted = several.stops(StopRule(threshold, longest=10, stops=True))
    assert (counted["stopped"], counted["needless"]) == (1.0, 1.0)
    assert several.stops(StopRule(threshold, longest=200, stops=True))["stopped"] == 0.0


def test_the_report_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every quantile, full share and handoff has its row, with intervals."""
    small = Scripted(lambda query, _: said(right(query), DOUBTED))
    monkeypatch.setattr(experiment, "LiveModel", lambda _: small)
    monkeypatch.setattr(experiment, "ROUNDS", 20)
    results = experiment.run(20, seed=1)
    write(results, dict(MADE), tmp_path)
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    quantiles, shares, handoffs = experiment.QUANTILES, experiment.FULL_SHARES, experiment.HANDOFFS
    assert len(results["rows"]) == len(handoffs) - 1 + len(quantiles) * len(shares) * len(handoffs)
    assert page.count("| quantile ") == len(quantiles) * len(shares) * len(handoffs)
    assert (tmp_path / "results.json").is_file()
