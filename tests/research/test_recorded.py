"""The recorded streams and their policies against independent references."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from research.recorded.clairvoyant import Clairvoyant
from research.recorded.parts import main as parts
from research.recorded.policies import static_threshold
from research.recorded.released import Released, Reselected
from research.recorded.scoring import BLOCK, TOLERANCE, oracles, score
from research.recorded.searched_ids import attacked
from research.recorded.service import Service
from research.recorded.simulate import Policy, Routed, simulate
from research.recorded.stream import (
    EXPLORED,
    LABELLED_ESCALATED,
    LABELLED_KEPT,
    PHASES,
    Outcomes,
    Phase,
    Stream,
    draw_stream,
    offline_outcomes,
)
from research.recorded.windows import (
    KEEP_ALL,
    KEEP_NONE,
    InversePropensity,
    PostStratified,
    Static,
    largest_feasible,
    scores,
)
from research.recorded.wrong_labels import mislabelled

TARGET = 0.91


@pytest.fixture(scope="module")
def stream() -> Stream:
    return draw_stream(4_000, seed=7, phases=PHASES[:2])


def served_f1(outcomes: Outcomes, ran: np.ndarray) -> float:
    """micro-F1, query by query."""
    counted = ((outcomes.small_hits, outcomes.small_named), (outcomes.large_hits, outcomes.large_named))
    served = [[column[place] for column in counted[up]] for place, up in enumerate(ran.astype(int).tolist())]
    hits, named = (sum(column) for column in zip(*served, strict=True))
    return float(2 * hits / (named + sum(outcomes.gold.tolist())))


def with_unseen_answers_changed(stream: Stream, ran: np.ndarray) -> Stream:
    """The same stream, in which large answers that nobody asked for say something else."""
    outcomes = stream.outcomes
    changed = replace(
        outcomes,
        large_hits=np.where(ran, outcomes.large_hits, 0),
        large_named=np.where(ran, outcomes.large_named, 4),
        agree=np.where(ran, outcomes.agree, ~outcomes.agree),
    )
    return replace(stream, outcomes=changed)


def test_stream_mixes_by_phase_without_offline_queries() -> None:
    stream = draw_stream(6_000, seed=2)
    offline = set(offline_outcomes().uncertainty.tolist())
    shown = set(stream.outcomes.uncertainty.tolist())
    assert len(offline & shown) <= 5
    for number, phase in enumerate(stream.phases):
        part = set(stream.pools[number][1].uncertainty.tolist()) - set(stream.pools[0][0].uncertainty.tolist())
        share = np.isin(stream.outcomes.uncertainty[stream.phase == number], list(part)).mean()
        assert share == pytest.approx(phase.share if phase.shift != "none" else 0.0, abs=0.02)


def test_z_sum_is_nonnegative_iff_target_is_met(stream: Stream) -> None:
    small, large = scores(stream.outcomes, TARGET)
    drawn = np.random.default_rng(0).uniform(size=(30, len(stream))) < np.linspace(0.0, 1.0, 30)[:, None]
    meets = [served_f1(stream.outcomes, ran) >= TARGET for ran in drawn]
    assert [np.where(ran, large, small).sum() >= 0.0 for ran in drawn] == meets
    assert set(meets) == {True, False}


def test_largest_feasible_matches_a_full_scan() -> None:
    """The largest feasible threshold is the one that a scan of all thresholds finds."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        u = rng.integers(1, 12, size=15) / 20.0
        small, large = rng.normal(-0.1, 1.0, size=15), rng.normal(0.1, 1.0, size=15)
        values = [KEEP_NONE, *np.unique(u)]
        feasible = [t for t in values if np.where(u > t, large, small).sum() >= 0.0]
        expected = max(feasible) if feasible else KEEP_NONE
        found = largest_feasible(u, small, large)
        assert found == (KEEP_ALL if expected == u.max() else expected)


def test_the_oracle_is_what_a_scan_of_all_thresholds_finds(stream: Stream) -> None:
    for number, oracle in enumerate(oracles(stream, TARGET)):
        part = stream.outcomes.take(np.flatnonzero(stream.phase == number)[:])
        assert served_f1(part, part.above(oracle.threshold)) >= oracle.goal - 1e-12
        larger = np.unique(part.uncertainty[part.uncertainty > oracle.threshold])
        assert all(served_f1(part, part.above(u)) < oracle.goal for u in larger[::40])
        assert oracle.escalated == pytest.approx(part.above(oracle.threshold).mean())


def test_blocks_are_scored_as_counting_query_by_query_does(stream: Stream) -> None:
    known = oracles(stream, TARGET)
    routed = simulate(InversePropensity(offline_outcomes(), TARGET, static_threshold(TARGET)), stream)
    blocks = score(routed, stream, known)
    ran = routed.above | routed.explored
    for number in range(len(blocks.realised)):
        rows = np.arange(number * BLOCK, (number + 1) * BLOCK)
        assert blocks.realised[number] == pytest.approx(served_f1(stream.outcomes.take(rows), ran[rows]))
        assert blocks.sequential[number] == pytest.approx(1.0 + 3.02 * ran[rows].mean())
        assert blocks.paper[number] == pytest.approx(1.0 + 2.02 * ran[rows].mean())
        assert blocks.on_target[number] == (blocks.realised[number] >= blocks.goal[number] - TOLERANCE)


def test_expected_micro_f1_is_the_mean_over_many_draws() -> None:
    stream = draw_stream(100_000, seed=5, phases=(Phase("typos", "typos", 0.25),))
    blocks = score(simulate(Static(0.03), stream), stream, oracles(stream, TARGET))
    assert np.ptp(blocks.expected) < 1e-12
    assert blocks.realised.mean() == pytest.approx(blocks.expected[0], abs=0.002)
    assert blocks.realised.std() > 0.002


def _clairvoyant(stream: Stream) -> Policy:
    policy = Clairvoyant(TARGET, safety=0.5)
    policy.foresee(stream)
    return policy


@pytest.mark.parametrize(
    "make",
    [
        lambda _: PostStratified(offline_outcomes(), TARGET, static_threshold(TARGET)),
        lambda _: Reselected(offline_outcomes(), TARGET),
        lambda _: Service(TARGET, safety=0.5, handoff=True),
        _clairvoyant,
    ],
    ids=["stratified", "reselected", "handoff", "clairvoyant"],
)
def test_no_policy_knows_a_large_answer_that_did_not_run(make: Callable[[Stream], Policy], stream: Stream) -> None:
    routed = simulate(make(stream), stream)
    changed = with_unseen_answers_changed(stream, routed.above | routed.explored)
    again = simulate(make(changed), changed)
    assert np.array_equal(routed.threshold, again.threshold)


def test_labels_are_asked_for_as_often_as_said_and_come_late(stream: Stream) -> None:
    seen: list[int] = []

    class Recorder(Static):
        exploration = EXPLORED
        now = 0

        def see(self, routed: Routed) -> None:
            self.now = int(routed.rows[-1])

        def learn(self, labelled: Routed) -> None:
            assert labelled.labelled.all()
            assert (stream.label_at[labelled.rows] <= self.now + 1).all()
            assert (np.diff(stream.label_at[labelled.rows]) >= 0).all()
            seen.extend(labelled.rows.tolist())

    routed = simulate(Recorder(0.03), stream)
    assert len(seen) == len(set(seen))
    assert set(seen) == set(np.flatnonzero(routed.labelled & (stream.label_at <= len(stream))).tolist())
    kept = ~routed.above
    assert routed.labelled[kept].mean() == pytest.approx(LABELLED_KEPT, abs=0.01)
    assert routed.labelled[~kept].mean() == pytest.approx(LABELLED_ESCALATED, abs=0.02)
    assert routed.explored[kept].mean() == pytest.approx(EXPLORED, abs=0.01)
    assert routed.labelled[routed.explored].all()


@pytest.mark.parametrize("kind", [InversePropensity, PostStratified])
def test_weighted_windows_find_the_oracles_threshold(kind: type) -> None:
    """Weighted windows come close to the threshold that full knowledge would choose."""
    stream = draw_stream(80_000, seed=9, phases=(Phase("typos", "typos", 0.25),))
    (oracle,) = oracles(stream, TARGET)
    start = static_threshold(TARGET)
    routed = simulate(kind(offline_outcomes(), TARGET, start), stream)
    escalated = stream.outcomes.above(float(np.median(routed.threshold[-20_000:]))).mean()
    before = stream.outcomes.above(start).mean()
    assert abs(escalated - oracle.escalated) < 0.5 * abs(before - oracle.escalated)


def test_released_theta_matches_its_threshold_on_u() -> None:
    """The released package's theta is kept, and the threshold on u escalates the same queries."""
    offline = offline_outcomes()
    policy = Released(offline, TARGET)
    known = offline.uncertainty[~np.isnan(offline.uncertainty)]
    assert np.array_equal(known > policy.threshold, policy._router.escalate(known))
    assert served_f1(offline, offline.above(policy.threshold)) >= TARGET


def test_a_wrong_label_reports_one_error_more_of_either_model() -> None:
    some = offline_outcomes().take(slice(0, 200))
    wrong = np.arange(200) % 2 == 0
    told = mislabelled(some, wrong)
    for name in ("small_hits", "large_hits"):
        lost = getattr(some, name) - getattr(told, name)
        assert np.array_equal(lost, wrong & (getattr(some, name) > 0))
    assert np.array_equal(told.exact, some.exact & ~wrong)


def test_the_service_without_a_part_is_compared_stream_by_stream(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("research.recorded.parts.QUERIES", BLOCK)
    parts(["--seeds", "3", "4", "--", "mix detectors"])
    row = capsys.readouterr().out.splitlines()[-1]
    assert row.startswith("| mix detectors | ")
    assert row.count("±") == 2


def test_searched_ids_are_explored_unless_a_key_draws() -> None:
    """Honest queries are as they were; his texts are ones that the small model gets wrong."""
    stream = draw_stream(4_000, 11, PHASES[:1])
    his = np.arange(len(stream)) % 20 == 0
    told = {key: attacked(stream, his, "searched", key, 11) for key in (None, b"secret")}
    assert (told[None].draw[his] < EXPLORED).all()
    assert (told[b"secret"].draw[his] < EXPLORED).mean() < 0.1
    assert (told[None].draw[~his] == stream.draw[~his]).all()
    for one in told.values():
        assert not one.outcomes.exact[his].any()
        assert (one.outcomes.recording[~his] == stream.outcomes.recording[~his]).all()
