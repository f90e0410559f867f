"""Messy streams: servers fail by the load they get, labels change as the service's join has it, scores are right."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from recalibrator.core import TrafficSummarizer, WorkloadSettings
from recalibrator.decoding import Observation
from recalibrator.grid import Grid
from recalibrator.join.query_state import NOTHING_KNOWN, take_feedback, take_result
from research.drift.__main__ import main
from research.drift.desk import NAMES, TRUSTED, Desk, Join, Said, Standing
from research.drift.families import BY_NAME, MESSY, Family
from research.drift.mess import BLOCK, Habits, Mess, Spell
from research.drift.mess_score import mess_score
from research.drift.oracle import oracle
from research.drift.paired import paired
from research.drift.policies.clairvoyant import Clairvoyant, changes
from research.drift.policies.ours import Ours
from research.drift.run import Task, work
from research.drift.score import score
from research.drift.servers import settle
from research.drift.simulate import Alarm, Journal, Policy, Routed, walk
from research.drift.streams import Stream, offline, stream
from research.routed_batch import RoutedBatch, summarise
from schemas import (
    Decision,
    FeedbackEvent,
    GridSpec,
    LabelledExample,
    LabelRequest,
    ModelRun,
    QueryCost,
    RoutedEvent,
    TrafficSummary,
)
from tests.support.fixed_policy import FixedPolicy
from tests.support.recalibrator_events import routed, workload

pytestmark = pytest.mark.usefixtures("short_start")

START = datetime(2026, 1, 1, tzinfo=UTC)
Walking = TypeVar("Walking", bound=Policy)


class Recorded(Ours):
    """Ours, noting every event that its core is handed."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Observation] = []

    def _observe(self, event: Observation) -> None:
        self.events.append(event)
        super()._observe(event)

    def examples(self) -> list[LabelledExample]:
        return [one for one in self.events if isinstance(one, LabelledExample) and one.reason != "cold_start"]

    def parts(self) -> list[Any]:
        return [one.versions[0] for one in self.events if isinstance(one, TrafficSummary)]


def mess_of(family: Family) -> Mess:
    assert family.mess is not None
    return family.mess


def span_of(spell: Spell | None, drawn: Stream) -> tuple[int, int]:
    assert spell is not None
    return spell.span(len(drawn))


def trouble_of(drawn: Stream) -> slice:
    """Return the queries during which a server is in trouble."""
    return slice(*span_of(mess_of(drawn.family).trouble, drawn))


def walked(family: str, seed: int, blocks: int, policy: Walking) -> tuple[Stream, Walking, Routed]:
    """Walk a policy through a stream of so many blocks."""
    drawn = stream(family, seed, blocks * BLOCK)
    return drawn, policy, walk(drawn, offline(seed), policy)


def test_a_retry_storm_goes_on_where_it_would_not_have_begun() -> None:
    storm = mess_of(BY_NAME["retry_storm"]).large
    assert storm is not None
    assert settle(storm, 0.9 * storm.capacity).failing == 0.0
    assert settle(storm, 0.9 * storm.capacity, failing=0.9).failing > 0.3


@pytest.mark.parametrize("family", ["brown_out", "retry_storm"])
def test_escalating_more_into_a_failure_gains_nothing(family: str) -> None:
    """A policy that escalates more while the server fails gets no more answers, or fewer."""
    drawn = stream(family, 3, 10 * BLOCK)
    modest, greedy = (walk(drawn, offline(3), FixedPolicy(threshold)) for threshold in (0.05, 0.005))
    inside = trouble_of(drawn)
    assert greedy.large_ran[inside].mean() > 1.3 * modest.large_ran[inside].mean()
    assert greedy.large_failed[inside].sum() > modest.large_failed[inside].sum()
    served = [routed.served_by_large[inside].mean() for routed in (modest, greedy)]
    assert served[1] < 1.1 * served[0]
    if family == "retry_storm":
        assert served[1] < 0.7 * served[0]
        assert greedy.attempts[inside].sum() > greedy.large_ran[inside].sum()
    outside = np.ones(len(drawn), dtype=bool)
    outside[inside] = False
    assert not greedy.large_failed[outside].any()


def test_large_outage_yields_degraded_and_no_pairs() -> None:
    """During an outage of the large server, the core sees degraded answers and no pairs."""
    drawn, policy, _ = walked("outage_large", 4, 10, Recorded())
    inside = trouble_of(drawn)
    failed = [one for one in policy.examples() if one.reason == "degraded"]
    assert failed
    assert all(inside.start <= int(one.query_id[1:]) < inside.stop for one in failed)
    assert all(one.agree is None and one.large is not None and one.large.predicted == 0 for one in failed)
    assert {one.label_reason for one in failed} >= {"random", "exploration"}
    parts, first = policy.parts(), inside.start // 250
    during = parts[first : inside.stop // 250]
    assert all(part.degraded == part.large_calls == part.escalated > 0 for part in during)
    assert not any(sum(part.pairs) or part.explored for part in during)
    assert all(part.degraded == 0 for part in parts[:first])


def test_outage_is_no_miss_and_no_oracle_cost() -> None:
    """An outage is no policy's miss, and the oracle's cost excludes calls to the absent server."""
    drawn = stream("outage_large", 5, 10 * BLOCK)
    inside = trouble_of(drawn)
    best, healthy = oracle(drawn), oracle(replace(drawn, family=BY_NAME["stationary"]))
    first, end = inside.start // BLOCK, inside.stop // BLOCK
    assert (best.reach[first:end] < 0.9).all()
    assert (best.escalation_rate[first:end] == 0.0).all()
    np.testing.assert_array_equal(best.reach[:first], healthy.reach[:first])
    held = Routed.blank(len(drawn))
    held.escalated[:] = held.large_ran[:] = held.large_failed[inside] = True
    assert score(drawn, held, best).pol == 1.0


def routed_event(number: int, *, small_valid: bool = True, large: bool = True, large_valid: bool = True) -> RoutedEvent:
    """One result of a workload with one field; odd ones are explored, and in every fifth both models disagree."""
    chosen = "small_failed" if not small_valid else "exploration" if number % 2 else "threshold"
    reason = "kept" if not large else chosen if large_valid else "degraded"
    run, other = {"a": "x"}, {"a": "x" if number % 5 else "y"}
    decision = Decision(
        escalated=large,
        reason=reason,
        uncertainty=0.01 * number if small_valid else None,
        calibration_version=1,
        large_probability=1.0,
    )
    answer = ModelRun(model="l", entities=other if large_valid else None, valid=large_valid, latency_s=1.0)
    return routed(
        number,
        workload="w",
        query_id=f"q{number}",
        entities=other if large and large_valid else run,
        answered_by="large" if large and large_valid else "small",
        decision=decision,
        small=ModelRun(model="s", entities=run if small_valid else None, valid=small_valid, latency_s=0.5),
        large=answer if large else None,
        cost=QueryCost(sequential=1.0 + 3.0 * large, paper=3.0 if large else 1.0),
        label=LabelRequest(requested=number % 3 == 0, probability=0.1),
    )


def test_batch_summary_matches_the_join_stage() -> None:
    """A batch with failed calls has the summary that the join stage would make of it, but for what is said of texts."""
    kinds = [(True, False, True), (True, True, True), (True, True, False), (False, True, True)]
    rows = [(n, *kinds[n % 4]) for n in range(1, 60)]
    # What failed is not explored: a small answer that failed escalates, and the odd ones of the others are explored.
    settings = WorkloadSettings(name="w", fields=("a",), target={"micro_f1": 0.9})
    summarizer = TrafficSummarizer(settings)
    for number, small_ok, escalated, large_ok in rows:
        summarizer.add(routed_event(number, small_valid=small_ok, large=escalated, large_valid=large_ok))
    numbers, small_valid, large, large_valid = (np.array(column) for column in zip(*rows, strict=True))
    batch = RoutedBatch(
        u=np.where(small_valid, 0.01 * numbers, np.nan),
        large_ran=large,
        explored=large & small_valid & (numbers % 2 == 1),
        agree=numbers % 5 > 0,
        label_requested=numbers % 3 == 0,
        first_at=START + timedelta(seconds=1),
        last_at=START + timedelta(seconds=59),
        degraded=large & ~large_valid,
        small_latency_s=0.5 * float(small_valid.sum()),
        large_latency_s=float((large & large_valid).sum()),
    )
    counted = summarizer.take()
    assert counted is not None
    assert summarise(batch, Grid(GridSpec()), "w", 1, 3.0) == counted


def test_the_desks_join_hands_over_what_the_services_join_does() -> None:
    rng = np.random.default_rng(7)
    said = {"x": Said(1, 1, 1), "y": Said(1, 0, 0), "z": Said(1, 0, 1)}
    rules = {"w": workload("w", ("a",))}
    for _ in range(60):
        join, state = Join(), take_result(NOTHING_KNOWN, routed_event(2), rules).state
        last: LabelledExample | None = None
        for step in range(8):
            labeler = int(rng.integers(0, 3))
            answer = rng.choice([*said, ""])
            at_s = float(step + rng.integers(-2, 3))
            feedback = FeedbackEvent(
                query_id="q2",
                entities={"a": str(answer)} if answer else None,
                labeler=NAMES[labeler],
                labelled_at=START + timedelta(seconds=at_s),
                feedback_id=f"f{step}",
                retracted=not answer,
            )
            joined = take_feedback(state, feedback, START, rules)
            state = joined.state
            mine = join.take(2, labeler, at_s, said[answer] if answer else None)
            if mine is None and joined.example is not None:
                # The service says so when the number of those who disagree changes, and nothing else does.
                assert last is not None
                again = {"revision": last.revision, "disputed": last.disputed}
                assert joined.example.model_copy(update=again) == last
                assert joined.example.disputed != last.disputed
            last = joined.example or last
            assert mine is None or joined.example is not None
            if mine is not None and joined.example is not None:
                assert mine.revision == joined.example.revision
                assert (mine.said is None) == joined.example.retracted
                assert START + timedelta(seconds=mine.labelled_at_s) == joined.example.labelled_at
                assert mine.said is None or NAMES[mine.labeler] == joined.example.labeler


def worked_off(habits: Habits, queries: int = 10 * BLOCK, every: int = 2) -> tuple[Desk, Stream, list[Standing]]:
    """Let a desk label every so many queries, and wait until nothing more comes."""
    drawn = stream("withdrawals", 6, queries)
    desk = Desk(habits, drawn.truth, drawn.at_s, drawn.label_at_s, [6])
    asked = np.arange(0, queries, every)
    desk.ask(asked, *np.zeros((2, len(asked)), dtype=bool))
    return desk, drawn, desk.deliver(np.inf)


def is_true(drawn: Stream, one: Standing) -> bool:
    truth, number = drawn.truth, one.number
    return one.said == (truth.gold[number], truth.small[number], truth.large[number])


def test_wrong_labels_are_corrected_in_a_revision() -> None:
    """The same labeler corrects each wrong label later, under a higher revision."""
    desk, drawn, come = worked_off(Habits(wrong=0.2))
    first = [one for one in come if one.revision == 1]
    wrong = [one for one in first if not is_true(drawn, one)]
    some = drawn.truth.gold > 0
    # Flattery of a small answer that is right says nothing wrong.
    assert 0.08 < len(wrong) / some[::2].sum() < 0.2
    later = {one.number: one for one in come if one.revision == 2}
    assert all(is_true(drawn, later[one.number]) and later[one.number].labeler == one.labeler for one in wrong)
    delays = [later[one.number].labelled_at_s - one.labelled_at_s for one in wrong]
    assert np.mean(delays) == pytest.approx(100.0, rel=0.1)
    assert not desk.lying


def test_attacker_relabels_a_share_of_the_latest() -> None:
    """An attacker relabels a share of everyone's latest labels and leaves older ones."""
    for name, share in (("relabel_wrong", 0.33), ("relabel_right", 1.0)):
        habits = mess_of(BY_NAME[name]).habits
        queries = 30 * BLOCK
        _, drawn, come = worked_off(habits, queries, every=10)
        touched = np.zeros(queries, dtype=bool)
        touched[[one.number for one in come if one.revision > 1]] = True
        begin = queries // 2
        assert not touched[: begin - 20_000].any()
        assert touched[begin - 20_000 :: 10].mean() == pytest.approx(share, abs=0.03)
        lies = [one for one in come if one.revision > 1]
        assert {NAMES[one.labeler] for one in lies} == {"l5"}
        assert min(one.labelled_at_s for one in lies) > drawn.at_s[begin]
        exact = np.array([one.said is not None and one.said.small == one.said.gold for one in lies])
        some = np.array([drawn.truth.gold[one.number] > 0 for one in lies])
        assert exact[some].all() if name == "relabel_right" else not exact[some].any()


def test_liar_falsifies_only_its_own_labels() -> None:
    _, drawn, come = worked_off(Habits(lies="small_wrong"))
    wrong = [one for one in come if not is_true(drawn, one)]
    assert {NAMES[one.labeler] for one in wrong} == {"l5"}
    assert 0.1 < len(wrong) / len(come) < 0.2
    desk = Desk(Habits(lies="small_wrong"), drawn.truth, drawn.at_s, drawn.label_at_s, [6])
    desk.ask(np.arange(1_000), *np.ones((2, 1_000), dtype=bool))
    assert {one.labeler for one in desk.deliver(np.inf)} == {TRUSTED}
    assert not desk.lying


def test_clock_skew_reaches_the_core_up_to_a_bound() -> None:
    """A clock four minutes ahead reaches the core; one that is a year ahead does not."""
    for name, most in (("clock_jump", 1.0), ("clock_ahead", 241.0)):
        drawn, policy, _ = walked(name, 8, 5, Recorded())
        clock = mess_of(drawn.family).clock
        assert clock is not None
        first, end = span_of(clock.spell, drawn)
        assert np.count_nonzero(drawn.clock_s) == -(-(end - first) // 3)
        moments = ((one.routed_at - START, int(one.query_id[1:])) for one in policy.examples())
        ahead = [since.total_seconds() - drawn.at_s[number] for since, number in moments]
        assert -0.001 < min(ahead) <= max(ahead) < most
        assert max(ahead) > 0.5 * (most - 1.0)
        lasts = [one.last_routed_at for one in policy.events if isinstance(one, TrafficSummary)]
        assert (lasts == sorted(lasts)) == (name == "clock_jump")


def test_messy_labels_are_named_and_experts_trusted() -> None:
    _, policy, _ = walked("liar", 9, 20, Recorded())
    examples = policy.examples()
    assert {one.labeler for one in examples} >= {"l1", "l2", "l3", "l4", "l5"}
    assert all(one.trusted == (one.labeler == "expert") for one in examples)
    assert policy.core.settings.trusted_labelers == ("expert",)
    assert policy.journal.audits > 0
    assert {one.labeler for one in examples if one.label_reason == "audit"} == {"expert"}


def test_the_scores_of_a_hand_made_walk_through_an_outage() -> None:
    drawn = stream("outage_large", 2, 10 * BLOCK)
    first, end = span_of(mess_of(drawn.family).trouble, drawn)
    routed = Routed.blank(len(drawn))
    routed.attempts[:first], routed.attempts[first:end] = 0.2, 0.6
    usual = np.sort(drawn.u[:first])
    at = [float(usual[-int(rate * len(usual)) - 1]) for rate in (0.2, 0.3, 0.1, 0.4)]
    routed.journal = Journal(published=[(0, at[0]), (first + 10, at[1]), (end + 500, at[2]), (len(drawn) + 1, at[3])])
    routed.journal.set_aside = [(500, 0), (1_000, 40), (1_500, 20), (2_000, 0)]
    routed.journal.audits = 2
    routed.lying = [(250 * number, 30 if number == 4 else 0) for number in range(1, 81)]
    routed.alarms = [Alarm(5, "agreement", False)]
    calm = Routed.blank(len(drawn))
    calm.journal = Journal(published=[(0, at[0]), (first + 10, at[2])])
    found = mess_score(drawn, routed, calm)
    assert found.load == pytest.approx(3.0)
    assert found.highest_rate_calm == 1.0
    assert found.highest_rate == pytest.approx(2.0)  # the last one comes within 10,000 queries of the end
    routed.journal.published.pop()
    assert mess_score(drawn, routed, calm).highest_rate == pytest.approx(1.5)
    assert (found.wrong_quarantined, found.wrong_quarantined_mean) == (20.0, 7.5)
    assert (found.audits, found.all_alarms, found.missed_lies) == (2, 1, None)
    assert (found.micro_f1_moved, found.cost_moved) == (None, None)


def test_an_attack_is_scored_against_the_honest_twin() -> None:
    drawn = stream("liar", 2, 2 * BLOCK)
    routed, honest = Routed.blank(len(drawn)), Routed.blank(len(drawn))
    routed.large_ran[:] = True
    for one in (routed, honest):
        one.journal = Journal(set_aside=[(500, 30)])
        one.lying = [(4_000, 70)]
    found = mess_score(drawn, routed, honest)
    assert found.missed_lies == 40
    assert found.cost_moved == pytest.approx(3.02)
    gold, small, large = drawn.expected[:3].reshape(3, 2, BLOCK).sum(axis=2)
    assert found.micro_f1_moved == pytest.approx(((large - small) / gold).mean())
    assert found.micro_f1_moved_most == pytest.approx(((large - small) / gold).max())
    with pytest.raises(ValueError, match="calm twin"):
        mess_score(drawn, routed, None)


def test_clairvoyant_resets_at_each_change() -> None:
    """A clairvoyant sees an abrupt change once and a gradual one in steps, and until then routes as our policy does."""
    assert changes(stream("small_abrupt", 1, 10 * BLOCK)) == [8_000]
    assert len(changes(stream("small_gradual", 1, 10 * BLOCK))) > 3
    routed = {}
    for drawn in (stream("stationary", 1, 2 * BLOCK), stream("small_abrupt", 1, 10 * BLOCK)):
        seer = Clairvoyant()
        seer.foresee(drawn)
        routed[drawn.family.name] = walk(drawn, offline(1), seer).escalated
    ours = walked("stationary", 1, 2, Ours())[2]
    np.testing.assert_array_equal(routed["stationary"], ours.escalated)
    after, before = routed["small_abrupt"][8_000 + BLOCK :], routed["small_abrupt"][:8_000]
    assert after.mean() > before.mean() + 0.05


def test_differences_are_paired_by_stream() -> None:
    rows = [
        {"policy": policy, "family": "prior", "seed": seed, "pol": pol, "regret": regret}
        for policy, seed, pol, regret in (
            ("ours", 1, 0.9, 0.05),
            ("ours", 2, 0.7, 0.01),
            ("ours-no-tilt", 1, 0.8, 0.05),
            ("ours-no-tilt", 2, 0.6, 0.02),
            ("ours-no-tilt", 3, 0.1, 0.02),
            ("naive", 1, 0.1, 0.2),
        )
    ]
    (found,) = paired(rows)
    assert (found.policy, found.pairs) == ("ours-no-tilt", 2)
    assert (found.pol.mean, found.pol.half) == pytest.approx((-0.1, 0.0), abs=1e-9)
    assert (found.regret.mean, found.regret.half) == pytest.approx((0.005, 12.706 * 0.005), rel=1e-3)
    assert (found.pol.verdict, found.regret.verdict) == ("worse", "inside the noise")
    assert found.score.mean == pytest.approx(-0.1055)
    assert paired(rows[:3])[0].score.verdict == "one pair"


@pytest.mark.parametrize("family", [family.name for family in MESSY])
def test_every_messy_family_is_walked_and_scored(family: str) -> None:
    (row,) = work(Task(family, 12, 2 * BLOCK, ("ours",)))
    assert 0.0 <= row["pol"] <= 1.0
    assert row["wrong_quarantined"] >= 0.0
    attacked = BY_NAME[family].adversary
    assert (row["missed_lies"] is not None) == (row["cost_moved"] is not None) == attacked


@pytest.mark.slow
def test_the_report_shows_messy_families_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--quick", "--jobs", "1", "--queries", "4000", "--families", "prior", "outage_large", "liar"]
    assert main([*argv, "--policies", "ours", "static", "ours-no-tilt", "--out", str(tmp_path)]) == 0
    document = json.loads((tmp_path / "rows.json").read_text())
    assert "--quick" in document["made"]["command"]
    assert all(0.0 <= row["pol"] <= 1.0 for row in document["rows"])
    assert (tmp_path / "families.svg").stat().st_size > 1_000
    walked = {(row["family"], row["policy"]) for row in document["rows"]}
    assert ("prior", "static") in walked
    assert ("liar", "static") not in walked
    assert [one["pairs"] for one in document["paired"]["messy"]] == [2]
    text = capsys.readouterr().out
    assert (tmp_path / "README.md").read_text().strip() in text
    parts = ["## Ours by family", "stream by stream: clean", "## Messy families: ours", "stream by stream: messy"]
    assert sorted(parts, key=text.index) == parts
    assert "| outage_large |" not in text[: text.index("## Messy families")]
