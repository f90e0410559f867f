"""Handoff and early stop on the recorded streams: where calls end, what they cost, what is served, what is known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.handoff.experiment import FIELDS, LARGE_TOKEN, entities_of
from benchmarks.handoff.models import LiveModel
from benchmarks.recorded import levers
from benchmarks.recorded.answers import ask, load_answers, part_of
from benchmarks.recorded.levers_report import at_equal_compliance
from benchmarks.recorded.scoring import BLOCK, oracles, score
from benchmarks.recorded.service import Service
from benchmarks.recorded.simulate import Routed, simulate
from benchmarks.recorded.stream import LABELLED_ESCALATED, PHASES, Phase, Stream, all_outcomes, draw_stream
from benchmarks.recorded.tokens import (
    FULL_SHARE,
    HANDOFF,
    Levers,
    generated,
    offline_early_stop,
    small_call,
    stop_places,
)
from benchmarks.recorded.windows import Static
from schemas import LabelledExample
from schemas.early_stop import EarlyStop
from schemas.entities import count_pairs
from schemas.settings import EarlyStopSettings
from stream_router.model_client.request import StopRule
from ucci_demo.model_server import PROMPT
from ucci_demo.recorded.traffic import load_traffic

TARGET = 0.91
BOTH = Levers(handoff=True, early_stop=EarlyStop(longest=60, full_share=FULL_SHARE), guard_share=0.05)


@pytest.fixture(scope="module")
def stream() -> Stream:
    return draw_stream(4_000, seed=7, phases=PHASES[:2])


@pytest.fixture(scope="module")
def routed(stream: Stream) -> Routed:
    """A stream under both levers and a threshold that stays."""
    return simulate(Static(0.03, BOTH), stream)


def test_the_packed_answers_are_what_the_models_say() -> None:
    rows = [4_000, 4_001, 12_000, 12_001, 13_500, 13_501]
    packed, known = ask([load_traffic()[row] for row in rows]), load_answers()
    for name in ("unsure", "handed", "large_tokens", "large_hits", "large_named", "agree", "differs", "asked_again"):
        assert packed[name].tolist() == getattr(known, name)[rows].tolist(), name
    ends = np.cumsum(known.small_tokens[rows])
    for row, doubt in zip(rows, np.split(packed["doubt"], ends[:-1]), strict=True):
        assert doubt / 65_535 == pytest.approx(known.doubt[row, : len(doubt)])


def test_recorded_u_is_the_mean_of_the_packed_doubts() -> None:
    known, u = load_answers(), all_outcomes().uncertainty
    valid = ~np.isnan(u)
    assert (known.doubt.sum(axis=1) / known.small_tokens)[valid] == pytest.approx(u[valid], abs=1e-5)


@pytest.mark.parametrize("threshold", [-1.0, 0.002, 0.03, 1.0])
def test_calls_stop_where_the_routers_rule_is_met_first(threshold: float) -> None:
    rows, known = np.arange(0, 15_000, 101), load_answers()
    rule = StopRule(threshold, longest=55, stops=True)
    found = stop_places(rows, threshold, EarlyStop(longest=55, full_share=0.2))
    for row, place in zip(rows.tolist(), found.tolist(), strict=True):
        doubt = np.cumsum(known.doubt[row])[: known.small_tokens[row] - 1].tolist()
        assert place == next((at for at, sum_ in enumerate(doubt, start=1) if rule.is_met(at, sum_)), 0)


def test_what_a_stopped_query_costs_ends_at_the_stop(routed: Routed) -> None:
    known, rows, cost = load_answers(), routed.outcomes.recording, routed.generated
    assert routed.stopped.mean() > 0.05
    assert routed.ran[routed.stopped].all()
    assert (cost.small[routed.stopped] == routed.place[routed.stopped]).all()
    assert (cost.small[~routed.stopped] == known.small_tokens[rows][~routed.stopped]).all()
    expected = cost.small + LARGE_TOKEN * (cost.large + cost.guard)
    assert cost.sequential == pytest.approx(expected)
    assert cost.paper == pytest.approx(np.where(routed.ran, LARGE_TOKEN * cost.large, cost.small))


def test_a_share_runs_in_full_whose_labels_know_their_u(routed: Routed) -> None:
    cause = routed.place > 0
    assert routed.in_full[cause].mean() == pytest.approx(FULL_SHARE, abs=0.03)
    assert not (routed.labelled & routed.stopped).any()
    assert (routed.in_full | ~routed.labelled).all()
    assert routed.labelled[routed.above].mean() == pytest.approx(LABELLED_ESCALATED, abs=0.02)


def test_a_handoff_saves_what_the_large_model_goes_on_from(routed: Routed) -> None:
    known, rows = load_answers(), routed.outcomes.recording
    again = known.asked_again[rows] & routed.ran
    plain = routed.ran & ~again
    assert (routed.generated.large[plain] <= known.alone_tokens[rows][plain] + 60).all()
    saved = 1.0 - routed.generated.large[plain].sum() / known.alone_tokens[rows][plain].sum()
    assert 0.1 < saved < 0.3
    compared = routed.compared
    assert compared[routed.above].mean() == pytest.approx(0.05, abs=0.02)
    assert not compared[~routed.above].any()
    assert (routed.generated.guard[compared] == known.alone_tokens[rows][compared]).all()
    assert (routed.generated.large_calls == routed.ran.astype(int) + compared + again).all()


def test_an_answer_asked_again_is_that_of_the_large_model_alone() -> None:
    known, alone = load_answers(), all_outcomes()
    again = known.asked_again
    assert again.any()
    assert (known.large_tokens > known.alone_tokens)[again].all()
    assert (known.large_hits == alone.large_hits)[again].all()
    assert not (known.differs & again).any()
    told = (known.large_hits != alone.large_hits) | (known.large_named != alone.large_named)
    assert (known.differs | ~told).all()


def test_a_call_stopped_before_it_is_unsure_hands_over_less() -> None:
    known = load_answers()
    rows = np.flatnonzero(known.handed > 10)[:50]
    ran = np.ones(50, dtype=bool)
    stop = {"stopped": ran, "ran": ran, "handed": ran, "compared": ~ran}
    early = generated(rows, np.full(50, 3), **stop)
    late = generated(rows, np.zeros(50, dtype=np.int64), **(stop | {"stopped": ~ran}))
    assert (early.large - late.large == known.handed[rows] - 3).all()
    assert (late.large == known.large_tokens[rows]).all()


def test_calls_stopped_early_cost_what_is_counted() -> None:
    """Asked live with the shorter part, the large model mostly says the same, and generates as many tokens."""
    known, rows = load_answers(), np.arange(4_000, 15_000, 7)
    places = stop_places(rows, 0.003, EarlyStop(longest=64, full_share=FULL_SHARE))
    early = np.flatnonzero((places > 0) & ((known.unsure[rows] == 0) | (places < known.unsure[rows])))[:20]
    rows, places = rows[early], places[early]
    queries = [load_traffic()[row] for row in rows.tolist()]
    prompts = [PROMPT.replace("{text}", query.text) for query in queries]
    small = LiveModel("small").answers(prompts)
    parts = [part_of(answer, stopped_at=place) for answer, place in zip(small, places.tolist(), strict=True)]
    live = LiveModel("large").answers([prompt + part for prompt, part in zip(prompts, parts, strict=True)])
    said = [entities_of(part + answer.text) for part, answer in zip(parts, live, strict=True)]
    counts = [count_pairs(one, query.gold, FIELDS) for one, query in zip(said, queries, strict=True)]
    same = [one.true_positives == hits for one, hits in zip(counts, known.large_hits[rows].tolist(), strict=True)]
    assert np.mean(same) >= 0.9
    ran = np.ones(len(rows), dtype=bool)
    counted = generated(rows, places, stopped=ran, ran=ran, handed=ran, compared=~ran)
    assert np.mean([answer.tokens for answer in live]) == pytest.approx(counted.large.mean(), rel=0.03)


def test_a_part_ends_where_its_call_was_stopped() -> None:
    (answer,) = LiveModel("small").answers([PROMPT.replace("{text}", load_traffic()[4_000].text)])
    whole, stopped = part_of(answer), part_of(answer, stopped_at=5)
    assert whole.startswith(stopped)
    assert 0 < len(stopped) <= answer.marks[5].start < len(whole)


def test_tokens_of_a_policy_without_levers_are_the_recorded(stream: Stream) -> None:
    found = simulate(Static(0.03), stream)
    blocks = score(found, stream, oracles(stream, TARGET))
    queries = [load_traffic()[row] for row in found.outcomes.recording[:BLOCK].tolist()]
    up = found.ran[:BLOCK].tolist()
    small = sum(query.small.tokens for query in queries)
    large = sum(query.large.tokens for query, ran in zip(queries, up, strict=True) if ran)
    assert blocks.sequential_tokens[0] == pytest.approx((small + 3.02 * large) / BLOCK / small_call())
    kept = sum(query.small.tokens for query, ran in zip(queries, up, strict=True) if not ran)
    assert blocks.paper_tokens[0] == pytest.approx((kept + 3.02 * large) / BLOCK / small_call())


def test_expected_micro_f1_counts_what_escalates_needlessly() -> None:
    """Short lengths are expected, so that many calls are stopped whose answers would have been kept."""
    stream = draw_stream(100_000, seed=5, phases=(Phase("typos", "typos", 0.25),))
    eager = Levers(handoff=True, early_stop=EarlyStop(longest=30, full_share=FULL_SHARE))
    found = simulate(Static(0.03, eager), stream)
    blocks = score(found, stream, oracles(stream, TARGET))
    needless = found.stopped & (found.outcomes.uncertainty <= 0.03)
    assert needless.mean() > 0.01
    assert np.ptp(blocks.expected) < 1e-12
    assert blocks.realised.mean() == pytest.approx(blocks.expected[0], abs=0.0015)


def test_the_service_knows_nothing_of_what_was_stopped(stream: Stream) -> None:
    """Neither u of stopped queries nor large answers that did not run change what it does."""
    found = simulate(Service(TARGET, 0.5, handoff=True, early_stop=True), stream)
    hidden = np.where(found.stopped, 0.999, stream.outcomes.uncertainty)
    outcomes = replace(stream.outcomes, uncertainty=hidden)
    again = simulate(Service(TARGET, 0.5, handoff=True, early_stop=True), replace(stream, outcomes=outcomes))
    assert found.stopped.any()
    assert np.array_equal(found.threshold, again.threshold)


def test_labels_name_the_handoff_and_what_the_guard_saw(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    service, told = Service(TARGET, 0.5, handoff=True, early_stop=True), list[LabelledExample]()
    observe = service.core.observe

    def noted(event: Any) -> Any:
        if isinstance(event, LabelledExample):
            told.append(event)
        return observe(event)

    monkeypatch.setattr(service.core, "observe", noted)
    found = simulate(service, stream)
    assert {example.handoff for example in told} == {HANDOFF}
    assert all(example.reason == "threshold" for example in told if example.large_alone is not None)
    assert 0 < sum(example.large_alone is not None for example in told) <= int(found.compared.sum())
    status = service.core.status()
    assert status.handoff is not None
    assert status.early_stop is not None
    assert status.handoff.labels > 0
    assert status.early_stop.stopped_share == pytest.approx(found.stopped[-4_000:].mean(), abs=0.03)


def test_offline_lengths_are_the_settings_quantile() -> None:
    defaults, rule = EarlyStopSettings(), offline_early_stop()
    tokens = load_answers().small_tokens[:4_000]
    assert rule.full_share == defaults.full_share
    assert (tokens <= rule.longest).mean() == pytest.approx(defaults.length_quantile, abs=0.05)


def made(levers_: str, safety: float, seed: int, held: float, cost: float) -> dict[str, Any]:
    """A row of the service."""
    return {
        "policy": "service",
        "levers": levers_,
        "safety": safety,
        "seed": seed,
        "expected_on_target": held,
        "sequential_tokens": cost,
    }


def test_costs_are_compared_where_as_many_blocks_are_on_target() -> None:
    """Levers that cost a tenth less, and hold less at the same margin, save a tenth at equal shares."""
    rows = []
    for seed in range(6):
        for place, safety in enumerate((0.5, 1.0, 1.5)):
            held = 0.80 + 0.02 * place + 0.001 * seed
            rows.append(made("none", safety, seed, held, 2.0 * np.exp(held)))
            rows += [
                made(name, safety, seed, held - 0.03, 1.8 * np.exp(held - 0.03))
                for name in ("both", "handoff", "both_seen")
            ]
            rows.append(made("early_stop", safety, seed, held, 2.0 * np.exp(held)))
    ratio, (low, high) = at_equal_compliance(rows, "both", "sequential_tokens", 0.5)
    assert ratio == pytest.approx(0.9, abs=1e-3)
    assert low == pytest.approx(high, abs=1e-3)
    assert at_equal_compliance(rows, "early_stop", "sequential_tokens", 1.0)[0] == pytest.approx(1.0)


def test_the_page_of_levers_adds_the_streams_of_a_former_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.recorded.levers_report.ROUNDS", 20)
    measured = levers.measure
    monkeypatch.setattr(levers, "GRID", dict.fromkeys(levers.WITH, (0.5, 1.0)))
    monkeypatch.setattr(levers, "measure", lambda seed: measured(seed, BLOCK))
    for seed in ("3", "4"):
        levers.main(["--seeds", seed, "--add", "--out", str(tmp_path)])
    rows = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["results"]["rows"]
    assert [row["seed"] for row in rows] == [3] * 14 + [4] * 14
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "seeds 3, 4" in page
    assert "nan" not in page
    costs = {row["levers"]: row["sequential_tokens"] for row in rows if row.get("safety") == 0.5 and "levers" in row}
    assert costs["both"] < costs["none"]
