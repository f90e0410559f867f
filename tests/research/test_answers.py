"""The judge of real answers: its shifts, pool, streams and scores, and a quick run of the command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from research.answers.__main__ import main
from research.answers.listings import FIELDS, listings
from research.answers.policies import Aci, FixedRate, static_threshold
from research.answers.pool import KINDS, load_pool
from research.answers.scoring import row_of, score
from research.answers.shifts import CLEAN
from research.answers.streams import Judged, draw_judged
from research.recorded.simulate import simulate
from research.recorded.windows import Static


@pytest.fixture(scope="module")
def judged() -> Judged:
    return draw_judged("tuning", 3, scale=0.1, drifts=4)


def test_listings_are_a_function_of_their_seed() -> None:
    drawn = listings(50, 7)
    assert drawn == listings(50, 7) != listings(50, 8)
    assert all(tuple(query.gold) == FIELDS for query in drawn)


def test_streams_are_a_function_of_half_and_seed(judged: Judged) -> None:
    again = draw_judged("tuning", 3, scale=0.1, drifts=4)
    assert np.array_equal(again.stream.outcomes.recording, judged.stream.outcomes.recording)
    assert np.array_equal(again.offline.recording, judged.offline.recording)
    fewer = draw_judged("tuning", 3, scale=0.1, drifts=4, labels=0.25)
    assert np.array_equal(fewer.stream.outcomes.recording, judged.stream.outcomes.recording)


def test_offline_queries_never_come_in_the_stream(judged: Judged) -> None:
    base = load_pool()[judged.pair].base
    offline = base[judged.offline.recording]
    assert len(judged.offline) in (1_000, 2_000, 4_000)
    assert not np.isin(base[judged.stream.outcomes.recording], offline).any()


@pytest.mark.parametrize("half", KINDS)
def test_streams_return_to_clean_and_leave_reach_once(half: str) -> None:
    drawn = draw_judged(half, 5, scale=0.1)
    assert drawn.kinds[::2] == [CLEAN] * (len(drawn.kinds) // 2 + 1)
    assert set(drawn.kinds[1::2]) <= set(KINDS[half])
    assert [oracle.feasible for oracle in drawn.oracles[1::2]] == [True] * 3 + [False, True]
    assert drawn.kinds[-2] in drawn.kinds[1:-4:2]


def test_the_oracle_is_on_target_and_costs_nothing_over_itself(judged: Judged) -> None:
    class Told(Static):
        def see(self, routed: object) -> None:
            following = min(int(routed.rows[-1]) + 1, len(judged.stream) - 1)  # type: ignore[attr-defined]
            self.threshold = judged.oracles[int(judged.stream.phase[following])].threshold

    row = row_of(score(simulate(Told(judged.oracles[0].threshold), judged.stream), judged), judged)
    assert row["on_target"] == 1.0
    assert row["regret"] == pytest.approx(0.0, abs=1e-12)


def test_a_fixed_rate_keeps_its_share_and_aci_moves(judged: Judged) -> None:
    threshold = static_threshold(judged.offline, judged.target)
    share = float(judged.offline.above(threshold).mean())
    routed = simulate(FixedRate(judged.offline, threshold), judged.stream)
    assert routed.above.mean() == pytest.approx(share, abs=0.03)
    easy, hard = (Aci(judged.offline, target, threshold, 1.0) for target in (0.5, 0.999))
    for policy in (easy, hard):
        simulate(policy, judged.stream)
    assert easy.threshold > threshold > hard.threshold


def test_a_quick_run_writes_rows_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--out", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert {row["policy"] for row in rows} == {"static", "service", "static_hindsight"}
    assert "best in hindsight" in (tmp_path / "README.md").read_text()
    assert main(["--quick", "--json", "--policies", "static"]) == 0
    assert "on_target" in json.loads(capsys.readouterr().out)["1.0"]["static"]
