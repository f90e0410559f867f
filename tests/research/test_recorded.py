"""The recorded streams and their policies against independent references."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from recalibrator.core import TrafficSummarizer
from research.recorded.clairvoyant import Clairvoyant
from research.recorded.parts import main as parts
from research.recorded.policies import ByPhase, static_threshold
from research.recorded.released import Released, Reselected
from research.recorded.scoring import BLOCK, TOLERANCE, oracles, score
from research.recorded.searched_ids import attacked
from research.recorded.service import START, Service
from research.recorded.simulate import BATCH, Policy, Routed, simulate
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
from research.recorded.tokens import HANDOFF
from research.recorded.windows import (
    KEEP_ALL,
    KEEP_NONE,
    InversePropensity,
    NaiveRefit,
    PostStratified,
    Static,
    largest_feasible,
    scores,
)
from research.recorded.wrong_labels import mislabelled
from schemas import CalibrationVersion, Decision, RoutedEvent
from schemas.costs import ModelCosts, TokenUse, query_cost
from schemas.routed import LabelRequest, ModelRun, QueryHandoff
from tests.support import recalibrator_events

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


def test_stream_is_set_by_its_seed() -> None:
    """The same seed gives the same stream, and another seed gives another."""
    first, again, other = (draw_stream(2_000, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal([first.outcomes.gold, first.draw], [again.outcomes.gold, again.draw])
    assert not np.array_equal(first.draw, other.draw)


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


def test_static_threshold_is_the_largest_feasible() -> None:
    """The static threshold meets the target on the offline labels, and the next larger one does not."""
    offline, threshold = offline_outcomes(), static_threshold(TARGET)
    assert served_f1(offline, offline.above(threshold)) >= TARGET
    larger = np.sort(offline.uncertainty[offline.uncertainty > threshold])
    assert all(served_f1(offline, offline.above(u)) < TARGET for u in larger[:: max(1, len(larger) // 50)])


def test_the_oracle_is_what_a_scan_of_all_thresholds_finds(stream: Stream) -> None:
    for number, oracle in enumerate(oracles(stream, TARGET)):
        part = stream.outcomes.take(np.flatnonzero(stream.phase == number)[:])
        assert served_f1(part, part.above(oracle.threshold)) >= oracle.goal - 1e-12
        larger = np.unique(part.uncertainty[part.uncertainty > oracle.threshold])
        assert all(served_f1(part, part.above(u)) < oracle.goal for u in larger[::40])
        assert oracle.escalated == pytest.approx(part.above(oracle.threshold).mean())


def test_the_oracle_knows_a_target_out_of_reach() -> None:
    stream = draw_stream(4_000, seed=1, phases=(Phase("hopeless", "new_names", 0.6),))
    (oracle,) = oracles(stream, TARGET)
    assert not oracle.feasible
    assert oracle.goal < TARGET
    assert oracle.goal >= served_f1(stream.outcomes, np.ones(len(stream), dtype=bool)) - 1e-12


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
        lambda _: NaiveRefit(offline_outcomes(), TARGET, static_threshold(TARGET)),
        lambda _: InversePropensity(offline_outcomes(), TARGET, static_threshold(TARGET), 1_000, 0.2 * EXPLORED),
        lambda _: PostStratified(offline_outcomes(), TARGET, static_threshold(TARGET)),
        lambda _: Reselected(offline_outcomes(), TARGET),
        lambda _: Service(TARGET, safety=0.5),
        lambda _: Service(TARGET, safety=0.5, handoff=True),
        _clairvoyant,
    ],
    ids=["naive", "propensity", "stratified", "reselected", "service", "handoff", "clairvoyant"],
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


def test_a_policy_that_does_not_explore_pays_for_no_exploration(stream: Stream) -> None:
    routed = simulate(Static(0.03), stream)
    assert not routed.explored.any()
    assert routed.labelled[~routed.above].any()


@pytest.mark.parametrize("handoff", [False, True])
def test_our_summary_of_a_batch_is_the_one_of_the_join_stage(stream: Stream, *, handoff: bool) -> None:
    service = Service(TARGET, safety=0.5, handoff=handoff)
    routed = simulate(service, stream).take(slice(2_000, 4_000))
    fresh = Service(TARGET, safety=0.5, handoff=handoff)
    version = fresh.core.current
    assert version is not None
    summarizer = TrafficSummarizer(fresh.core.settings)
    for place, row in enumerate(routed.rows.tolist()):
        summarizer.add(routed_event(routed, place, row, version))
    expected = summarizer.take()
    assert expected is not None
    (ours,), (theirs,) = fresh._summary(routed).versions, expected.versions
    names = {"cell", "count", "pairs", "agreeing", "pairs_explored", "queries", "escalated", "explored", "handoff"}
    names |= {"small_failed", "labels_requested", "small_calls", "large_calls"}
    assert ours.model_dump(include=names) == theirs.model_dump(include=names)
    assert (ours.cost_sequential, ours.cost_paper) == pytest.approx((theirs.cost_sequential, theirs.cost_paper))
    assert sum(ours.pairs_explored) > 0
    assert 0 < sum(ours.agreeing) < sum(ours.pairs) < sum(ours.count)


def routed_event(routed: Routed, place: int, row: int, version: CalibrationVersion) -> RoutedEvent:
    """The event of one query; both answers name one entity, equal where the recorded answers agree."""
    u = float(routed.outcomes.uncertainty[place])
    above, explored = bool(routed.above[place]), bool(routed.explored[place])
    failed, ran = bool(np.isnan(u)), above or explored
    answer = "1" if routed.outcomes.agree[place] else "2"
    large = ModelRun(model="large", entities={"iso": answer}, valid=True, latency_s=0.0) if ran else None
    decision = Decision(
        escalated=ran,
        reason="small_failed" if failed else "threshold" if above else "exploration" if explored else "kept",
        uncertainty=None if failed else u,
        calibration_version=version.version,
        large_probability=1.0 if above else EXPLORED,
    )
    return recalibrator_events.routed(
        row,
        workload=version.workload,
        answered_by="large" if ran else "small",
        decision=decision,
        small=ModelRun(model="small", entities={"iso": "1"}, valid=not failed, latency_s=0.0),
        large=large,
        cost=query_cost(ModelCosts(small=1.0, large=3.02), escalated=ran, small=TokenUse(), large=[TokenUse()] * ran),
        label=LabelRequest(requested=bool(routed.labelled[place]), probability=0.1),
        routed_at=START,
        handoff=QueryHandoff(name=HANDOFF, characters=0) if routed.handed[place] else None,
    )


def test_a_policy_changes_its_threshold_between_batches_only(stream: Stream) -> None:
    routed = simulate(PostStratified(offline_outcomes(), TARGET, static_threshold(TARGET)), stream)
    assert len(np.unique(routed.threshold)) > 2
    assert (np.ptp(routed.threshold.reshape(-1, BATCH), axis=1) == 0.0).all()


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


def test_service_starts_static_and_counts_labels(stream: Stream) -> None:
    service = Service(TARGET, safety=0.5)
    offline = offline_outcomes()
    difference = offline.above(service.threshold).mean() - offline.above(static_threshold(TARGET)).mean()
    assert abs(difference) < 0.05
    routed = simulate(service, stream)
    status = service.core.status()
    arrived = int((routed.labelled & (stream.label_at <= len(stream))).sum())
    assert status.labels.requested == int(routed.labelled.sum())
    assert status.labels.received == arrived + len(offline)
    assert service.versions > 1


def test_clairvoyant_routes_alike_until_a_phase_ends(stream: Stream) -> None:
    """Until the first change a clairvoyant is our service; then it explores and forgets."""
    ours = simulate(Service(TARGET, safety=0.5), stream)
    seer = Clairvoyant(TARGET, safety=0.5)
    seer.foresee(stream)
    told = simulate(seer, stream)
    change = int(np.argmax(stream.phase))
    np.testing.assert_array_equal(told.threshold[:change], ours.threshold[:change])
    assert (told.exploration[change : change + BLOCK] == EXPLORED).all()
    assert not np.array_equal(told.threshold[change:], ours.threshold[change:])
    assert seer.core.status().labels.received < int(told.labelled[change:].sum()) + 450


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


def test_phase_oracle_switches_threshold_by_phase(stream: Stream) -> None:
    """An oracle that knows the phases ahead routes each by its own threshold."""
    routed = simulate(ByPhase([0.01, 0.05], 4_000), stream)
    assert np.array_equal(routed.threshold, np.where(stream.phase == 0, 0.01, 0.05))


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
