"""The drift benchmark: streams repeat by seed, the oracle is right by brute force, scores are right by hand."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from research.drift.__main__ import main
from research.drift.families import BY_NAME
from research.drift.oracle import TARGET, oracle
from research.drift.policies.windowed import InversePropensity
from research.drift.score import before_change, calibration_error, delays, longest_run, score
from research.drift.simulate import Alarm, Routed, walk
from research.drift.streams import BLOCK, Stream, offline, stream
from research.drift.summary import by_seed
from tests.support.fixed_policy import FixedPolicy


def columns(drawn: Stream) -> list[np.ndarray]:
    arrays = [drawn.at_s, drawn.label_at_s, drawn.u, drawn.draw, drawn.expected]
    return arrays + [getattr(told, one.name) for told in (drawn.truth, drawn.told) for one in fields(told)]


@pytest.mark.parametrize("family", list(BY_NAME))
def test_a_stream_repeats_by_seed_and_differs_by_seed(family: str) -> None:
    first, again, other = (stream(family, seed, 2 * BLOCK) for seed in (5, 5, 6))
    assert all(np.array_equal(a, b) for a, b in zip(columns(first), columns(again), strict=True))
    assert not np.array_equal(first.u, other.u)


@pytest.mark.parametrize("family", ["stationary", "both_abrupt", "prior", "signal_lost", "new_model", "infeasible"])
def test_expectations_are_those_of_the_draws(family: str) -> None:
    """Within 5 standard errors, on either side of the median of u and over all."""
    drawn = stream(family, 3, 40_000)
    answers: NDArray[np.int64] = np.stack(
        (drawn.truth.gold, drawn.truth.small, drawn.truth.large, drawn.truth.small < drawn.truth.gold)
    )
    low = drawn.u <= np.median(drawn.u)
    for part in (low, ~low, low | ~low):
        gap = (answers - drawn.expected)[:, part]
        assert (np.abs(gap.mean(axis=1)) < 5.0 * gap.std(axis=1) / np.sqrt(part.sum())).all()


def brute_force(drawn: Stream, block: slice) -> tuple[float, float]:
    """Try every threshold of one block; return the least escalation rate that reaches the target, and the best F1."""
    u, (gold, small, large) = drawn.u[block], drawn.expected[:3, block]
    tried = []
    for threshold in (-1.0, *u):
        kept = u <= threshold
        tried.append((1.0 - kept.mean(), (small[kept].sum() + large[~kept].sum()) / gold.sum()))
    reached = [rate for rate, micro_f1 in tried if micro_f1 >= TARGET - 1e-12]
    return (min(reached) if reached else np.nan), max(micro_f1 for _, micro_f1 in tried)


@pytest.mark.parametrize("family", ["small_abrupt", "signal_lost", "infeasible"])
def test_oracle_matches_brute_force(family: str) -> None:
    """The oracle is the cheapest feasible threshold that a brute-force search finds."""
    drawn = stream(family, 2, 5 * BLOCK)
    best = oracle(drawn)
    seen = [brute_force(drawn, slice(first, first + BLOCK)) for first in range(0, len(drawn), BLOCK)]
    for number, (rate, most) in enumerate(seen):
        if np.isnan(rate):
            assert best.reach[number] == pytest.approx(most - 0.002)
        else:
            assert best.reach[number] == TARGET
            assert best.escalation_rate[number] == pytest.approx(rate)
    assert any(np.isnan(rate) for rate, _ in seen) == (family == "infeasible")
    assert np.array_equal(best.cost, 1.0 + 3.02 * best.escalation_rate)


def test_oracle_routing_complies_without_regret() -> None:
    """A router that follows the oracle complies in every block and has no regret."""
    drawn = stream("small_gradual", 4, 5 * BLOCK)
    best = oracle(drawn)
    u = drawn.u.reshape(-1, BLOCK)
    rank = np.argsort(np.argsort(u, axis=1), axis=1)
    routed = Routed.blank(len(drawn))
    routed.escalated[:] = (rank >= np.round(BLOCK * (1.0 - best.escalation_rate))[:, None]).reshape(-1)
    routed.large_ran[:] = routed.escalated
    found = score(drawn, routed, best)
    assert (found.pol, found.worst_run) == (1.0, 0)
    assert found.regret == pytest.approx(0.0, abs=1e-9)
    assert 0.0 <= found.excess < 0.001


def test_calibration_error_of_hand_made_forecasts() -> None:
    chance = np.repeat(np.linspace(0.05, 0.95, 10), 10)
    assert calibration_error(chance, chance, 100) == pytest.approx(0.0)
    assert calibration_error(chance + 0.03, chance, 100) == pytest.approx(0.03)
    opposite = np.concatenate((chance + 0.03, chance - 0.03))
    assert calibration_error(opposite, np.tile(chance, 2), 100) == pytest.approx(0.03)
    assert calibration_error(np.full(100, np.nan), chance, 100) is None


def test_runs_alarms_and_delays_of_hand_made_histories() -> None:
    assert [longest_run(np.array(one)) for one in ([False, True, True, False, True], [False] * 3)] == [2, 0]
    drawn = stream("infeasible", 0, 5 * BLOCK)  # changes at .35 and .6: queries 3,500 and 6,000
    alarms = [Alarm(1_000, "u", False), Alarm(4_000, "errors", True), Alarm(5_500, "u", False)]
    assert before_change(drawn, alarms) == (3_500, {"u": 1})
    assert delays(drawn, alarms) == {
        "any label-free": [2_000, None],
        "any": [500, None],
        "u": [2_000, None],
        "errors": [500, None],
    }


def test_walk_delivers_each_label_once_on_arrival() -> None:
    drawn, policy = stream("label_drought", 7, 10 * BLOCK), FixedPolicy(0.02)
    routed = walk(drawn, offline(7), policy)
    explored = routed.large_ran & ~routed.escalated
    assert policy.started is not None
    assert len(policy.started.u) == 2 * BLOCK
    assert explored.mean() == pytest.approx(0.03 * (~routed.escalated).mean(), rel=0.2)
    assert (routed.label_requested | ~explored).all()
    assert routed.label_requested[routed.escalated].mean() == pytest.approx(0.10, rel=0.15)
    numbers = np.concatenate([labels.number for labels in policy.labels])
    come = routed.label_requested & (drawn.label_at_s <= drawn.at_s[-1])
    assert sorted(numbers.tolist()) == np.flatnonzero(come).tolist()
    assert all((np.diff(labels.label_at_s) >= 0.0).all() for labels in policy.labels)


def test_inverse_propensity_finds_the_oracles_rate() -> None:
    """On a stationary stream, inverse propensity weighting escalates at the oracle's rate."""
    drawn = stream("stationary", 8, 30 * BLOCK)
    routed = walk(drawn, offline(8), InversePropensity(window=4_000))
    later = slice(15 * BLOCK, None)
    assert routed.escalated[later].mean() == pytest.approx(oracle(drawn).escalation_rate[15:].mean(), abs=0.05)


def test_audits_are_true_at_their_propensity() -> None:
    """Trusted labelers report the truth about audited queries, and the propensity states how often they are asked."""
    drawn = stream("label_noise", 5, 20 * BLOCK)
    plain, audited = FixedPolicy(0.02), FixedPolicy(0.02, audit=0.3)
    without, routed = walk(drawn, offline(5), plain), walk(drawn, offline(5), audited)
    np.testing.assert_array_equal(routed.escalated, without.escalated)
    np.testing.assert_array_equal(routed.large_ran, without.large_ran)
    assert (routed.label_requested >= without.label_requested).all()
    assert not (routed.audited & ~routed.large_ran).any()
    assert routed.audited[routed.large_ran & ~routed.escalated].all()
    share = routed.label_requested[routed.escalated].mean()
    wanted = 1.0 - 0.9 * 0.7
    assert abs(share - wanted) < 5.0 * np.sqrt(wanted * (1.0 - wanted) / routed.escalated.sum())
    for labels in audited.labels:
        trusted = labels.audited
        np.testing.assert_array_equal(labels.small[trusted], drawn.truth.small[labels.number[trusted]])
        np.testing.assert_array_equal(labels.small[~trusted], drawn.told.small[labels.number[~trusted]])
        np.testing.assert_allclose(labels.probability[labels.escalated], wanted)
    assert any((labels.small != drawn.told.small[labels.number]).any() for labels in audited.labels)


def test_means_are_over_families_and_intervals_over_seeds() -> None:
    rows = [{"seed": seed, "pol": pol} for seed, pol in ((1, 0.8), (1, 1.0), (2, 1.0), (2, 1.0))]
    found = by_seed(rows, lambda row: row["pol"])
    assert found is not None
    assert (found.mean, found.half) == pytest.approx((0.95, 12.706 * 0.05), rel=1e-3)


def test_a_report_is_made_again_from_its_rows_without_a_walk(tmp_path: Path) -> None:
    assert main(["--again", "--out", str(tmp_path)]) == 2
    assert main(["--quick", "--jobs", "1", "--families", "prior", "--policies", "static", "--out", str(tmp_path)]) == 0
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    (tmp_path / "README.md").unlink()
    assert main(["--again", "--out", str(tmp_path)]) == 0
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("--policies magic", "unknown magic"),
        ("--queries 2500", "multiple of 2000"),
        ("--families liar --policies static", "takes the mess of liar; add ours"),
    ],
)
def test_what_cannot_be_walked_is_refused_by_name(asked: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", *asked.split()]) == 2
    assert words in capsys.readouterr().err
