"""The paper benchmark against independent references, and its quick run from end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ucci
from ucci.baselines import SplitConformalRouter, TemperatureScalingCalibrator

from research.paper import experiment, published
from research.paper.__main__ import main
from research.paper.claims import judge
from research.paper.inconsistencies import inconsistencies
from research.paper.intervals import routings
from research.paper.measures import calibration_error, field_f1, micro_f1, paper_cost, sequential_cost
from research.paper.policies import conformal_thresholds, fit_policies, fit_temperature
from research.paper.synthetic import synthetic_workload
from research.paper.thresholds import Sweep
from research.paper.workloads import FIELDS, Answers, Floats, Workload, addresses_workload, recorded_workload
from ucci_demo.recorded.traffic import load_traffic


@pytest.fixture(scope="module")
def recorded() -> Workload:
    return recorded_workload(0.9175, queries=3_000)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("paper")
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(experiment, "QUICK", experiment.Effort(rounds=30, matched_rounds=8, splits=2))
        assert main(["--quick", "--seed", "3", "--out", str(out)]) == 0
    return out, json.loads((out / "results.json").read_text(encoding="utf-8"))


def tiny(score: list[float], small: list[int], large: list[int]) -> tuple[Floats, Workload]:
    """Queries with one field of two pairs, all predicted; how many of them each model got right."""
    n = len(score)
    named = np.full((n, 1), 2)
    of_small, of_large = (Answers(np.array(hits)[:, None], named) for hits in (small, large))
    error, signals = np.array(small) < 2, {"margin": np.array(score)}
    return np.array(score), Workload("tiny", of_small, of_large, named, error, signals, target=0.8)


def test_micro_f1_is_what_counting_query_by_query_gives(recorded: Workload) -> None:
    escalated = np.random.default_rng(0).uniform(size=len(recorded)) < 0.4
    queries = [query for query in load_traffic() if query.shift == "none"][: len(recorded)]
    served = [query.large if up else query.small for query, up in zip(queries, escalated, strict=True)]
    size = sum(answer.predicted for answer in served) + sum(query.gold_count for query in queries)
    hits = sum(answer.true_positives for answer in served)
    assert micro_f1(recorded, escalated) == pytest.approx(2 * hits / size, abs=1e-12)


@pytest.mark.parametrize("signal", ["margin", "entropy", "minimum_margin"])
def test_sweep_threshold_matches_a_full_scan(recorded: Workload, signal: str) -> None:
    """The sweep chooses the threshold that a scan of all thresholds finds."""
    part = recorded.take(np.arange(400))
    score = part.signals[signal].round(3)
    curve = Sweep(score, part).curve()
    chosen = curve.threshold[curve.cheapest(part.target)]
    feasible = [t for t in [-1.0, *np.unique(score)] if micro_f1(part, score > t) >= part.target]
    assert chosen == max(feasible)
    for threshold, f1, rate in zip(curve.threshold, curve.micro_f1, curve.escalated, strict=True):
        assert f1 == pytest.approx(micro_f1(part, score > threshold))
        assert rate == pytest.approx(np.mean(score > threshold))


def test_sweep_crosses_a_dip_below_the_target() -> None:
    """A dip below the target does not hide a larger feasible threshold."""
    score, workload = tiny([0.1, 0.2, 0.3, 0.4], small=[0, 2, 2, 2], large=[2, 1, 1, 2])
    curve = Sweep(score, workload).curve()
    assert curve.micro_f1.tolist() == pytest.approx([6 / 8, 4 / 8, 5 / 8, 6 / 8, 6 / 8])
    assert curve.threshold[curve.cheapest(0.75)] == 0.4


def test_a_budget_is_spent_but_not_overdrawn(recorded: Workload) -> None:
    curve = Sweep(recorded.signals["margin"], recorded).curve()
    place = curve.within(0.3003)
    assert curve.escalated[place] <= 0.3003 < curve.escalated[place - 1]


def test_weights_count_queries_as_often_as_copies_would(recorded: Workload) -> None:
    part = recorded.take(np.arange(300))
    weights = np.random.default_rng(1).integers(0, 4, size=300).astype(float)
    copies = part.take(np.repeat(np.arange(300), weights.astype(int)))
    curve = Sweep(part.signals["margin"], part).curve(weights)
    for threshold in (-np.inf, *np.quantile(part.signals["margin"], (0.2, 0.5, 0.9), method="lower")):
        at = int(np.flatnonzero(curve.threshold == threshold)[0])
        assert curve.micro_f1[at] == pytest.approx(micro_f1(copies, copies.signals["margin"] > threshold))


def test_ece_is_what_the_released_package_computes() -> None:
    rng = np.random.default_rng(2)
    forecast = rng.beta(1, 3, size=2_000)
    event = rng.uniform(size=2_000) < forecast**0.7
    for ours, theirs in (("width", "uniform"), ("count", "quantile")):
        expected = ucci.ece(forecast, event.astype(float), n_bins=10, strategy=theirs)
        assert calibration_error(forecast, event, by=ours) == pytest.approx(expected, abs=1e-3)


def test_temperature_is_the_one_that_the_released_package_finds(recorded: Workload) -> None:
    theirs = TemperatureScalingCalibrator().fit(recorded.signals["margin"], recorded.error.astype(float))
    at = np.array([0.001, 0.01, 0.1, 0.4])
    assert fit_temperature(recorded)(at) == pytest.approx(theirs.predict(at), rel=1e-3)


def test_conformal_matches_the_released_package(recorded: Workload) -> None:
    theirs = SplitConformalRouter()
    theirs.calibrate(recorded.signals["margin"], recorded.error.astype(float))
    candidates = conformal_thresholds(recorded)
    for delta in (0.05, 0.1, 0.3):
        rank = int(np.ceil((len(candidates) + 1) * (1.0 - delta)))
        assert candidates[rank - 1] == pytest.approx(theirs.quantile(delta))


def test_both_costs_at_the_papers_operating_point() -> None:
    rate = published.escalation_rate(2.08)
    assert paper_cost(rate) == pytest.approx(2.08)
    assert sequential_cost(rate) == pytest.approx(2.08 + rate)
    assert [round(float(paper_cost(rate, ratio)), 2) for ratio in (5.0, 10.0)] == [3.14, 5.81]


def test_bootstrap_scatter_matches_theory(recorded: Workload) -> None:
    """Bootstrap replicates centre on the estimate, with the standard deviation that theory gives."""
    mask = recorded.signals["margin"] > 0.01
    replicates = routings(recorded, {"one": mask}, 400, 5)["one"]
    assert replicates[:, 0].mean() == pytest.approx(micro_f1(recorded, mask), abs=0.002)
    deviation = np.sqrt(mask.mean() * (1 - mask.mean()) / len(recorded))
    assert replicates[:, 1].std() == pytest.approx(deviation, rel=0.15)


def test_the_synthetic_workload_has_the_papers_statistics() -> None:
    workload, knobs = synthetic_workload(60_000, seed=4)
    count = workload.gold.sum(axis=1)
    nothing = np.zeros(len(workload), dtype=bool)
    assert (count > 0).mean() == pytest.approx(0.89, abs=0.01)
    assert count.mean() == pytest.approx(2.1, abs=0.02)
    assert (np.median(count), count.max()) == (2, 4)
    for level, mask in enumerate((nothing, ~nothing)):
        assert micro_f1(workload, mask) == pytest.approx((published.SMALL_F1, published.LARGE_F1)[level], abs=0.005)
        for field, score in zip(FIELDS, field_f1(workload, mask), strict=True):
            assert score == pytest.approx(published.FIELD_F1[field][level], abs=0.012)
    curve = Sweep(workload.signals["margin"], workload).curve()
    place = curve.cheapest(published.TARGET)
    assert curve.escalated[place] == pytest.approx(published.escalation_rate(2.08), abs=0.05)
    escalated = workload.take(np.flatnonzero(workload.signals["margin"] > curve.threshold[place]))
    assert micro_f1(escalated, np.ones(len(escalated), dtype=bool)) == pytest.approx(0.928, abs=0.006)
    assert calibration_error(workload.signals["margin"], workload.error) == pytest.approx(0.12, abs=0.002)
    assert knobs.entropy_noise > knobs.margin_noise


def test_the_split_is_30_20_50_and_disjoint(recorded: Workload) -> None:
    parts = recorded.split(7)
    assert [len(part) for part in parts] == [900, 600, 1_500]
    together = np.concatenate([part.signals["margin"] for part in parts])
    assert np.array_equal(np.sort(together), np.sort(recorded.signals["margin"]))


def test_ucci_escalates_as_the_released_package_does(recorded: Workload) -> None:
    calibration, _, test = recorded.split(1)
    router = ucci.UCCIRouter()
    router.calibrate(calibration.signals["margin"], calibration.error.astype(float))
    router.theta = 0.4
    policy = fit_policies(calibration, 0)[0]
    assert np.array_equal(policy.escalate(test, 0.4), router.escalate(test.signals["margin"]))


def test_the_quick_run_writes_every_row_of_the_papers_tables(quick: tuple[Path, dict[str, Any]]) -> None:
    out, document = quick
    pictures = {"reliability.png", "pareto.png", "cost_at_target.png"}
    assert {path.name for path in out.iterdir()} == {"README.md", "results.json"} | pictures
    fields = {"recorded": FIELDS, "addresses": addresses_workload(0.9).fields, "synthetic": FIELDS}
    for name, result in document["results"].items():
        assert set(published.AT_TARGET) <= {row["name"] for row in result["at_target"]}
        assert {"ucci", "entropy"} <= {row["name"] for row in result["at_budget"]}
        assert [row["ratio"] for row in result["ratios"]] == [3.02, 5.0, 10.0]
        assert [row["field"] for row in result["fields"]] == [*fields[name], "overall"]
        assert {"isotonic", "temperature", "none"} <= {row["name"] for row in result["calibration"]}
        assert {"margin", "entropy", "max_probability"} <= {row["name"] for row in result["signals"]}
        for row in result["at_target"]:
            low, high = row["micro_f1_interval"]
            assert low <= row["micro_f1"] <= high
            assert row["sequential_cost"] >= row["paper_cost"]
    page = (out / "README.md").read_text(encoding="utf-8")
    assert all(document["made"][key] in page for key in ("command", "day", "machine", "commit"))
    assert "--quick --seed 3" in page
    assert "nan" not in page.lower().replace("finance", "")


def test_every_claim_gets_a_verdict_that_its_numbers_bear_out(quick: tuple[Path, dict[str, Any]]) -> None:
    results = quick[1]["results"]
    verdicts = {claim.text: claim.verdict for claim in judge(results)}
    row = next(row for row in results["recorded"]["matched"] if row["name"] == "margin")
    low, high = row["over_ucci_interval"]
    expected = "holds" if low > 0 else "does not hold" if high < 0 else "no difference"
    assert verdicts["calibration makes routing by u cheaper"]["recorded"] == expected
    found = results["recorded"]["assumption"]
    assert found["large_escalated"] < found["large_all"] - 0.02
    assert next(v for text, v in verdicts.items() if "assumption ii" in text)["recorded"] == "does not hold"
    assert len(inconsistencies(results)) >= 9
