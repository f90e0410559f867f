"""Handoff on the recorded streams: what calls cost, what is served, what is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from research.recorded import levers
from research.recorded.answers import ask, load_answers
from research.recorded.levers_report import at_equal_compliance
from research.recorded.scoring import BLOCK, oracles, score
from research.recorded.service import Service
from research.recorded.simulate import Routed, simulate
from research.recorded.stream import PHASES, Stream, draw_stream
from research.recorded.tokens import HANDOFF, Levers, small_call
from research.recorded.windows import Static
from schemas import LabelledExample
from ucci_demo.recorded.traffic import load_traffic

TARGET = 0.91
HANDED = Levers(handoff=True, guard_share=0.05)


@pytest.fixture(scope="module")
def stream() -> Stream:
    return draw_stream(4_000, seed=7, phases=PHASES[:2])


@pytest.fixture(scope="module")
def routed(stream: Stream) -> Routed:
    """A stream under a handoff and a threshold that stays."""
    return simulate(Static(0.03, HANDED), stream)


def test_the_packed_answers_are_what_the_models_say() -> None:
    rows = [4_000, 4_001, 12_000, 12_001, 13_500, 13_501]
    packed, known = ask([load_traffic()[row] for row in rows]), load_answers()
    for name in ("handed", "large_tokens", "large_hits", "large_named", "agree", "differs", "asked_again"):
        assert packed[name].tolist() == getattr(known, name)[rows].tolist(), name


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


def test_tokens_of_a_policy_without_levers_are_the_recorded(stream: Stream) -> None:
    found = simulate(Static(0.03), stream)
    blocks = score(found, stream, oracles(stream, TARGET))
    queries = [load_traffic()[row] for row in found.outcomes.recording[:BLOCK].tolist()]
    up = found.ran[:BLOCK]
    small, large = (np.array([getattr(query, role).tokens for query in queries]) for role in ("small", "large"))
    paid, unit = 3.02 * large[up].sum(), BLOCK * small_call()
    assert blocks.sequential_tokens[0] == pytest.approx((small.sum() + paid) / unit)
    assert blocks.paper_tokens[0] == pytest.approx((small[~up].sum() + paid) / unit)


def test_labels_name_the_handoff_and_what_the_guard_saw(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    service, told = Service(TARGET, 0.5, handoff=True), list[LabelledExample]()
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
    assert status.handoff.labels > 0


def made(levers_: str, safety: float, seed: int, held: float, cost: float) -> dict[str, Any]:
    """A row of the service."""
    found = {"levers": levers_, "safety": safety, "seed": seed, "expected_on_target": held, "sequential_tokens": cost}
    return {"policy": "service", **found}


def test_costs_are_compared_where_as_many_blocks_are_on_target() -> None:
    """A handoff that costs a tenth less, and holds less at the same margin, saves a tenth at equal shares."""
    rows = []
    for seed in range(6):
        for place, safety in enumerate((0.5, 1.0, 1.5)):
            held = 0.80 + 0.02 * place + 0.001 * seed
            rows.append(made("none", safety, seed, held, 2.0 * np.exp(held)))
            rows.append(made("handoff", safety, seed, held - 0.03, 1.8 * np.exp(held - 0.03)))
    ratio, (low, high) = at_equal_compliance(rows, "handoff", "sequential_tokens", 0.5)
    assert (ratio, low) == pytest.approx((0.9, high), abs=1e-3)


def test_the_page_of_levers_adds_the_streams_of_a_former_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("research.recorded.levers_report.ROUNDS", 20)
    monkeypatch.setattr(levers, "GRID", dict.fromkeys(levers.GRID, (0.5,)))
    measured = list(levers.measure(3, BLOCK))
    monkeypatch.setattr(levers, "measure", lambda seed: [row | {"seed": seed} for row in measured])
    for seed in ("3", "4"):
        levers.main(["--seeds", seed, "--add", "--out", str(tmp_path)])
    rows = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["results"]["rows"]
    assert [row["seed"] for row in rows] == [3] * 4 + [4] * 4
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "seeds 3, 4" in page
    assert "nan" not in page
    costs = {row["levers"]: row["sequential_tokens"] for row in rows if "levers" in row}
    assert costs["handoff"] < costs["none"]
