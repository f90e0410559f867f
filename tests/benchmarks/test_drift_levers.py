"""Both levers in the drift benchmark: calls cost what was measured, and costs are compared at equal compliance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.drift.__main__ import main
from benchmarks.drift.levers import (
    CLEAN_TOKENS_SAVED,
    as_on_clean_texts,
    cost_ratios,
    handoff_saves,
    large_rate,
    section,
)
from benchmarks.drift.mess import LABELLED_ESCALATED
from benchmarks.drift.oracle import LARGE_COST, oracle
from benchmarks.drift.policies.early_stop import FULL_SHARE, SHORTEST
from benchmarks.drift.policies.levers import (
    GUARD_SHARE,
    LARGE_TOKENS_SAVED,
    OF_EVEN,
    StaticLevers,
    call_shares,
    small_tokens_saved,
)
from benchmarks.drift.policies.ucci_router import Static
from benchmarks.drift.run import Task, work
from benchmarks.drift.score import score
from benchmarks.drift.simulate import CallShares, Traffic, walk
from benchmarks.drift.streams import BLOCK, offline, stream
from schemas.settings import HandoffSettings

RESULTS = Path(__file__).parents[2] / "docs" / "results"
SMALL, LARGE = 0.5, 0.25


class Cheap(Static):
    """The paper's calibration, whose calls cost shares of whole ones."""

    def call_shares(self, traffic: Traffic) -> CallShares:
        return CallShares(np.full(len(traffic.u), SMALL), np.full(len(traffic.u), LARGE))


def live(name: str) -> dict[str, Any]:
    document = json.loads((RESULTS / name / "results.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = document["results"]
    return found


def traffic(u: np.ndarray, *, escalated: bool, labelled: bool = False) -> Traffic:
    yes, no = np.ones(len(u), dtype=bool), np.zeros(len(u), dtype=bool)
    above = yes if escalated else no
    return Traffic(u, u, above, yes, yes, yes if labelled else no, no)


def test_a_stopped_call_saves_the_tokens_behind_its_end() -> None:
    """The expectation over lengths is that of draws."""
    u, threshold = np.array([0.02, 0.031, 0.035, 0.05, 0.5]), 0.03
    of_longest = np.random.default_rng(3).uniform(SHORTEST, 1.0, (400_000, 1))
    doubt = u * of_longest
    saved = np.where(doubt > threshold, 1.0 - OF_EVEN * threshold / doubt, 0.0).mean(axis=0)
    assert small_tokens_saved(u, threshold) == pytest.approx(saved, abs=2e-3)
    assert small_tokens_saved(u, threshold)[0] == 0.0


def test_kept_and_labelled_queries_cost_a_whole_small_call() -> None:
    u = np.array([0.1, 0.2, np.nan])
    for whole in (traffic(u, escalated=False), traffic(u, escalated=True, labelled=True)):
        assert call_shares(whole, 0.03).small.tolist() == [1.0, 1.0, 1.0]
    some = call_shares(traffic(u, escalated=True), 0.03).small
    full_share = (
        LABELLED_ESCALATED
        + (1.0 - LABELLED_ESCALATED)
        * (some[0] - 1.0 + small_tokens_saved(u, 0.03)[0])
        / (small_tokens_saved(u, 0.03)[0])
    )
    assert full_share == pytest.approx(FULL_SHARE)
    assert some[2] == 1.0


def test_the_guard_pays_for_a_second_large_call() -> None:
    u = np.array([0.1])
    assert call_shares(traffic(u, escalated=False), 0.03).large == pytest.approx(1.0 - LARGE_TOKENS_SAVED)
    assert call_shares(traffic(u, escalated=True), 0.03).large == pytest.approx(1.0 - LARGE_TOKENS_SAVED + GUARD_SHARE)


def test_shares_of_calls_are_those_that_were_measured_live() -> None:
    clean, typos = (
        next(row for row in part["rows"] if (row["granularity"], row["margin"]) == ("token", 0.9))["tokens_saved"]
        for part in live("handoff")["parts"]
    )
    stops = next(row for row in live("early_stop")["rows"] if row.get("quantile") == 0.9)
    assert pytest.approx(typos, abs=5e-4) == LARGE_TOKENS_SAVED
    assert pytest.approx(clean, abs=5e-4) == CLEAN_TOKENS_SAVED
    assert pytest.approx(stops["of_even"], abs=5e-4) == OF_EVEN
    assert HandoffSettings(granularity="token").guard_share == GUARD_SHARE


def test_streams_stop_no_more_calls_than_live_models_do() -> None:
    """Where as many queries escalate, about as much of a stopped call is spared, and less of all calls."""
    measured = live("early_stop")
    stops = next(row for row in measured["rows"] if row.get("quantile") == 0.9)
    u = stream("stationary", 4, 20 * BLOCK).u
    threshold = float(np.quantile(u, 1.0 - measured["escalated"]))
    spared = small_tokens_saved(u, threshold).mean()
    stopped = np.clip((1.0 - np.maximum(SHORTEST, threshold / u)) / (1.0 - SHORTEST), 0.0, 1.0).mean()
    assert stopped < stops["stopped"]
    assert spared / stopped == pytest.approx(stops["tokens_spared"], abs=0.04)
    assert spared < stops["stopped"] * stops["tokens_spared"]


def test_shares_of_calls_are_in_cost_and_regret() -> None:
    drawn = stream("prior", 12, 2 * BLOCK)
    whole, cheap = (walk(drawn, offline(12), policy) for policy in (Static(), Cheap()))
    rate, best = float(whole.large_ran.mean()), oracle(drawn)
    found, dear = score(drawn, cheap, best), score(drawn, whole, best)
    assert (dear.cost, dear.cost_paper) == pytest.approx((1.0 + LARGE_COST * rate, 1.0 + (LARGE_COST - 1.0) * rate))
    assert found.cost == pytest.approx(SMALL + LARGE_COST * LARGE * rate)
    assert found.cost_paper == pytest.approx(SMALL * (1.0 - rate) + LARGE_COST * LARGE * rate)
    assert found.regret == pytest.approx(found.cost / best.cost.mean() - 1.0)
    assert found.pol == dear.pol


def test_levers_change_nothing_but_the_cost_of_static() -> None:
    static, levers = work(Task("prior", 12, 4 * BLOCK, ("static", "static-levers")))
    assert {key for key, value in static.items() if levers[key] != value} <= {
        *("policy", "regret", "regret_kept", "cost", "cost_paper", "seconds")
    }
    assert large_rate(levers) == pytest.approx(large_rate(static))
    assert static["cost_paper"] - levers["cost_paper"] == pytest.approx(handoff_saves(static))
    assert static["cost"] - levers["cost"] > handoff_saves(static) + 0.01


def test_static_stops_above_the_u_where_it_escalates() -> None:
    drawn, policy = stream("stationary", 5, BLOCK), StaticLevers()
    walk(drawn, offline(5), policy)
    kept = drawn.u[~policy.escalates(drawn.u)]
    assert policy.threshold == pytest.approx(kept.max(), rel=0.02)


def rows(seeds: dict[int, float]) -> list[dict[str, Any]]:
    """Two lines through the same compliances; with levers the second costs a share of the first, by seed."""
    found = []
    for seed, share in seeds.items():
        for policy, pol, cost in (("ours@0.25", 0.90, 1.6), ("ours", 0.94, 1.7), ("ours@1", 0.98, 1.8)):
            every = {"family": "prior", "seed": seed, "excess": pol / 100.0, "escalation_rate": 0.25}
            found.append({**every, "policy": policy, "pol": pol, "cost": cost, "cost_paper": cost - 0.25})
            # With levers the same margin complies less.
            less = {"policy": policy.replace("ours", "ours-levers"), "pol": pol - 0.02}
            dearer = cost + 0.05
            found.append({**every, **less, "cost": share * dearer, "cost_paper": share * (dearer - 0.25)})
    return found


def test_costs_are_compared_where_both_comply_as_much() -> None:
    """At equal margins the ratio would flatter what complies less."""
    found = rows({1: 0.9, 2: 0.8})
    at_margin = [one["cost"] for one in found if one["policy"] in ("ours", "ours-levers") and one["seed"] == 1]
    assert cost_ratios(found, 0.94) == pytest.approx([0.9 * 1.8 / 1.7, 0.8 * 1.8 / 1.7])
    assert cost_ratios(found, None) == pytest.approx(cost_ratios(found, 0.94))
    assert cost_ratios(found, 0.94)[0] > at_margin[1] / at_margin[0]
    assert cost_ratios(found, 0.97) == []


def test_what_is_saved_on_clean_texts_is_more() -> None:
    found = rows({1: 0.9})
    pairs = [(one, two) for one, two in zip(found, as_on_clean_texts(found), strict=True) if "levers" in one["policy"]]
    assert all(clean["cost"] < typos["cost"] for typos, clean in pairs)
    assert [one for one in as_on_clean_texts(found) if "levers" not in one["policy"]] == [
        one for one in found if "levers" not in one["policy"]
    ]


def test_the_report_says_what_levers_are_worth(tmp_path: Path) -> None:
    asked = ["--families", "stationary", "--seeds", "5", "--queries", "4000", "--jobs", "1", "--out", str(tmp_path)]
    assert main(["--policies", "levers", *asked]) == 0
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "### Cost at equal compliance" in text
    assert all(f"| {name} |" in text for name in ("static-levers", "ours, handoff alone", "ours-levers@0.75"))
    assert not section(
        [row for row in json.loads((tmp_path / "rows.json").read_text())["rows"] if row["policy"] == "ours"]
    )
