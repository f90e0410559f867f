"""The judge of real answers: its shifts, pool, streams and scores, and a quick run of the command."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from research.answers.__main__ import main
from research.answers.listings import FIELDS, listings
from research.answers.pairs import PHOTO
from research.answers.policies import Aci, FixedRate, offline_labels, static_threshold
from research.answers.pool import KINDS, load_pool
from research.answers.queries import with_typos
from research.answers.scoring import row_of, score
from research.answers.shifts import CLEAN, SHIFTS, cut_short, noisy, rounded
from research.answers.streams import Judged, draw_judged
from research.recorded.scoring import BLOCK
from research.recorded.simulate import simulate
from research.recorded.windows import KEEP_NONE, Static


@pytest.fixture(scope="module")
def judged() -> Judged:
    return draw_judged("tuning", 3, scale=0.1, drifts=4)


def test_kinds_are_split_as_drawn_and_none_is_in_both_halves() -> None:
    kinds = tuple(dict.fromkeys(shift.kind for shift in SHIFTS if shift.kind != CLEAN))
    chosen = set(np.random.default_rng(2026).permutation(len(kinds))[: len(kinds) // 2].tolist())
    assert KINDS["tuning"] == tuple(kind for place, kind in enumerate(kinds) if place in chosen)
    assert KINDS["unseen"] == tuple(kind for place, kind in enumerate(kinds) if place not in chosen)


def test_the_pool_holds_every_shift_of_every_pair() -> None:
    for answers in load_pool().values():
        assert set(answers.by_shift) == {shift.name for shift in SHIFTS}
        assert min(map(len, answers.by_shift.values())) >= 400


def test_typos_touch_letters_only_and_as_often_as_asked() -> None:
    text = "portrait at f/2.8 " * 200
    assert with_typos(text, 0.0, random.Random(1)) == text
    typed = with_typos(text, 0.1, random.Random(1))
    assert typed != text
    assert typed.count(" ") == text.count(" ")


def test_new_numbers_stand_in_the_text_and_in_the_gold_entities() -> None:
    known = {query.base: query for query in PHOTO.queries()}
    for query in PHOTO.renamed["numbers"](random.Random(1))[:200]:
        assert query.gold["camera"] is not None
        before = known[query.base]
        assert query.text != before.text or query.gold["camera"] == before.gold["camera"]


def test_rounded_weights_have_few_levels() -> None:
    drawn = np.random.default_rng(1).standard_normal((4, 400)).astype(np.float32)
    weights = {"m": drawn, "norm": np.ones(3, np.float32)}
    assert all(len(np.unique(row)) <= 2 * 5 + 1 for row in rounded(5)(weights)["m"])
    for change in (rounded(5), noisy(0.2)):
        assert np.array_equal(change(weights)["norm"], weights["norm"])
        assert not np.array_equal(change(weights)["m"], weights["m"])


def test_an_answer_cut_short_keeps_what_is_whole() -> None:
    cut = cut_short('{"iso": "100", "lens": null, "camera": "Can', ("camera", "lens", "iso"))
    assert json.loads(cut) == {"camera": None, "lens": None, "iso": "100"}


def test_listings_are_a_function_of_their_seed() -> None:
    drawn = listings(50, 7)
    assert drawn == listings(50, 7) != listings(50, 8)
    assert all(tuple(query.gold) == FIELDS for query in drawn)


def test_the_paper_threshold_is_the_largest_on_target(judged: Judged) -> None:
    offline = judged.offline
    threshold = static_threshold(offline, judged.target)
    candidates = np.unique(offline.uncertainty[~np.isnan(offline.uncertainty)])

    def f1(at: float) -> float:
        above = offline.above(at)
        hits = np.where(above, offline.large_hits, offline.small_hits).sum()
        named = np.where(above, offline.large_named, offline.small_named).sum()
        return float(2 * hits / (named + offline.gold.sum()))

    assert threshold == max(at for at in candidates.tolist() if f1(at) >= judged.target)


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


def test_large_alone_is_always_on_target_at_the_highest_cost(judged: Judged) -> None:
    blocks = score(simulate(Static(KEEP_NONE), judged.stream), judged)
    assert len(blocks.cost) == len(judged.stream) // BLOCK
    in_reach = np.array([oracle.feasible for oracle in judged.oracles])[blocks.phase]
    assert blocks.on_target[in_reach].all()
    assert np.allclose(blocks.cost, blocks.cost.max())


def test_a_fixed_rate_keeps_its_share_and_aci_moves(judged: Judged) -> None:
    threshold = static_threshold(judged.offline, judged.target)
    share = float(judged.offline.above(threshold).mean())
    routed = simulate(FixedRate(judged.offline, threshold), judged.stream)
    assert routed.above.mean() == pytest.approx(share, abs=0.03)
    easy, hard = (Aci(judged.offline, target, threshold, 1.0) for target in (0.5, 0.999))
    for policy in (easy, hard):
        simulate(policy, judged.stream)
    assert easy.threshold > threshold > hard.threshold


def test_offline_labels_say_what_the_pool_does(judged: Judged) -> None:
    first = next(offline_labels(judged.offline))
    assert first.gold_count == judged.offline.gold[0]
    assert first.large is not None
    assert first.large.true_positives == judged.offline.large_hits[0]


def test_a_quick_run_writes_rows_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--out", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert {row["policy"] for row in rows} == {"static", "service", "static_hindsight"}
    assert "best in hindsight" in (tmp_path / "README.md").read_text()
    assert main(["--quick", "--json", "--policies", "static"]) == 0
    assert "on_target" in json.loads(capsys.readouterr().out)["1.0"]["static"]
