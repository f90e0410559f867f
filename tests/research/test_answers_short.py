"""The judge of short streams: its streams, scores and looks at the estimate, and a quick run of the command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from research.answers.policies import ours
from research.answers.pool import KINDS, load_pool
from research.answers.scoring import expected_by_block
from research.answers.shifts import CLEAN
from research.answers.short.__main__ import OUT, main
from research.answers.short.coverage import SEGMENTS, Error, Look, Watched, by_segment, errors_of
from research.answers.short.experiment import SAFETY, Plan, entry_of, run
from research.answers.short.scoring import BLOCK, EVERY, blocks_of, row_of
from research.answers.short.streams import NAMED, STREAMS, draw_short
from research.answers.streams import Judged
from research.recorded.scoring import Curve
from research.recorded.simulate import BATCH, Routed, simulate
from research.recorded.windows import KEEP_ALL, Static
from research.seeds import check
from schemas.calibration import Target

QUERIES = 1_000
EVERY_STREAM = pytest.mark.parametrize("name", STREAMS)


class Foresighted(Static):
    """Has the cheapest threshold of each phase in force from its first query on."""

    def __init__(self, judged: Judged) -> None:
        super().__init__(judged.oracles[0].threshold)
        self._judged = judged

    def see(self, routed: Routed) -> None:
        phases = self._judged.stream.phase
        following = min(int(routed.rows[-1]) + 1, len(phases) - 1)
        self.threshold = self._judged.oracles[int(phases[following])].threshold


def row_with(policy: Static, judged: Judged) -> dict[str, float]:
    return row_of(blocks_of(simulate(policy, judged.stream), judged))


@EVERY_STREAM
def test_the_cheapest_threshold_is_on_target_at_no_more_cost(name: str) -> None:
    judged = draw_short(name, 4, queries=QUERIES)
    row = row_with(Foresighted(judged), judged)
    stretches = ("clean", "drifted") if name in NAMED else ("clean", "drifted", "back")
    for stretch in stretches:
        assert row[f"{stretch}_on_target"] == 1.0
        assert row[f"{stretch}_cost"] == pytest.approx(0.0, abs=1e-12)
    assert row["never"] == 0.0
    assert len(row) == 2 * len(stretches) + 1


def test_a_policy_that_escalates_nothing_is_never_on_target() -> None:
    judged = draw_short("typos", 4, queries=QUERIES)
    row = row_with(Static(KEEP_ALL), judged)
    assert (row["never"], row["drifted_on_target"]) == (1.0, 0.0)
    assert row["drifted_cost"] < 0.0


def test_a_block_is_scored_by_all_that_was_in_force_in_it() -> None:
    judged = draw_short("typos", 4, queries=QUERIES)

    class Moves(Static):
        def see(self, routed: Routed) -> None:
            self.threshold = 0.02 if routed.rows[-1] >= 2 * BATCH - 1 else self.threshold

    routed = simulate(Moves(0.0), judged.stream)
    clean = Curve(judged.stream.pools[0][0])
    before, after = (clean.parts(np.array([threshold]), 0.0)[0] for threshold in (0.0, 0.02))
    hits, size = (4.0 * before + after) / 5.0
    assert expected_by_block(routed, judged, block=BLOCK, every=EVERY)[0] == pytest.approx(hits / size)


@EVERY_STREAM
def test_a_short_stream_never_repeats_an_offline_query(name: str) -> None:
    judged = draw_short(name, 2)
    met, offline = judged.stream.outcomes.recording, judged.offline.recording
    if name not in NAMED:
        base = load_pool()[judged.pair].base
        met, offline = base[met], base[offline]
    assert len(np.unique(offline)) == len(judged.offline) >= 1_000
    assert not np.isin(met, offline).any()


@EVERY_STREAM
def test_the_share_of_labels_changes_no_query(name: str) -> None:
    many, few = (draw_short(name, 3, labels=share, queries=QUERIES) for share in (0.24, 0.02))
    for column in ("draw", "label_at", "phase"):
        assert np.array_equal(getattr(many.stream, column), getattr(few.stream, column))
    assert np.array_equal(many.stream.outcomes.recording, few.stream.outcomes.recording)
    assert np.array_equal(many.offline.recording, few.offline.recording)
    assert many.stream.labels == pytest.approx(12.0 * few.stream.labels)


@pytest.mark.parametrize("half", KINDS)
def test_drawn_kinds_take_turns_with_the_target_in_reach(half: str) -> None:
    drawn = [draw_short("drawn_listings", seed, half=half, queries=BLOCK) for seed in range(1, 7)]
    assert {judged.kinds[1] for judged in drawn} <= set(KINDS[half])
    assert len({judged.kinds[1] for judged in drawn}) >= 4
    assert all(judged.kinds[0] == judged.kinds[2] == CLEAN for judged in drawn)
    assert all(oracle.feasible for judged in drawn for oracle in judged.oracles)


def test_looks_at_the_service_change_no_decision() -> None:
    judged = draw_short("typos", 1, labels=0.24, queries=QUERIES)
    watched = entry_of("service", SAFETY).make(judged)
    assert isinstance(watched, Watched)
    unwatched = ours(judged, Target(micro_f1=judged.target).safety)
    assert np.array_equal(simulate(watched, judged.stream).threshold, simulate(unwatched, judged.stream).threshold)
    assert [look.queries for look in watched.looks] == [1_000, 2_000]
    assert all(look.standard_error > 0.0 for look in watched.looks)


def test_an_estimate_is_off_by_what_it_says_beyond_the_truth() -> None:
    judged = draw_short("drawn_photo", 1, queries=QUERIES)
    threshold = judged.oracles[0].threshold
    true = expected_by_block(simulate(Static(threshold), judged.stream), judged, block=QUERIES, every=EVERY)
    looks = [Look(QUERIES * (phase + 1), threshold, 0.0, true[phase] + 0.01 * phase, 0.5) for phase in range(3)]
    errors = errors_of(looks, judged)
    assert [(one.phase, one.since, one.claimed) for one in errors] == [(phase, QUERIES, 0.5) for phase in range(3)]
    assert [one.off for one in errors] == pytest.approx([0.0, 0.01, 0.02])


def test_errors_are_taken_together_by_segment() -> None:
    first = [Error(1, 1_000, 0.03, 0.004), Error(1, 2_000, 0.01, 0.006)]
    second = [Error(1, 1_000, 0.01, 0.002), Error(1, 2_000, 0.01, 0.006)]
    soon, later = by_segment([first, second])
    assert (soon["looks"], later["looks"]) == (2, 2)
    assert soon["error"] == pytest.approx(0.02)
    assert soon["claimed"] == pytest.approx(0.003)
    assert soon["deviation"] == pytest.approx(0.02 / 2**0.5)
    assert later["deviation"] == 0.0
    assert by_segment([first])[0]["deviation"] is None


def test_each_look_lies_in_one_segment() -> None:
    for phase in range(3):
        for since in range(1_000, 7_000, 1_000):
            assert sum(segment.holds(Error(phase, since, 0.0, 0.0)) for segment in SEGMENTS) == 1


def test_equal_seeds_give_equal_rows() -> None:
    plan = Plan("tuning", [2], ["typos"], ("service",), (0.24,), queries=QUERIES)
    told: list[str] = []
    found = run(plan, told.append)
    assert found == run(plan, lambda _: None)
    assert len(told) == plan.steps
    assert found["rows"] != run(plan._replace(seeds=[3]), lambda _: None)["rows"]


def test_a_quick_run_writes_rows_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--quick", "--streams", "typos", "drawn_listings", "--out", str(tmp_path)]
    assert main(arguments) == 0
    found = json.loads((tmp_path / "rows.json").read_text())
    assert {row["policy"] for row in found["rows"]} == {"static", "service", "static_hindsight"}
    assert {row["segment"] for row in found["coverage"]} >= {"clean", "way back, to 1,000 queries"}
    page = (tmp_path / "README.md").read_text()
    assert "best in hindsight" in page
    kind = next(one["kind"] for one in found["streams"] if one["stream"] == "drawn_listings")
    assert f"| policy | labels | {kind} (1) |" in page
    assert f"`target.safety` is {SAFETY:g}" in page
    assert main(["--quick", "--json", "--streams", "typos", "--policies", "static"]) == 0
    assert json.loads(capsys.readouterr().out)["0.24"]["typos"]["static"]["never"] == [1.0, None]


def test_the_stored_page_is_of_seeds_to_tune_on() -> None:
    stored = json.loads((OUT / "rows.json").read_text(encoding="utf-8"))
    assert stored["half"] == "tuning"
    check("answers", {row["seed"] for row in stored["rows"]}, "tuning")


def test_a_short_stream_of_the_other_half_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["--quick", "--seeds", "1001", "--json"])
    assert refused.value.code == 2
    assert "seed 1001 is not for tuning" in capsys.readouterr().err
