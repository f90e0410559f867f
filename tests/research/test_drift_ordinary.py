"""The ordinary suite: each condition does what its words say, the halves stand, the command writes what it promises."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from research.drift.__main__ import main
from research.drift.halves import half
from research.drift.harm import Harm, harm
from research.drift.judge_report import markdown
from research.drift.judge_score import judge_score
from research.drift.oracle import oracle
from research.drift.ordinary import HARMS
from research.drift.policies.ordinary import JUDGED, Rival
from research.drift.policies.ours import Ours
from research.drift.policies.windowed import AdaptiveConformal
from research.drift.simulate import Alarm, Journal, Labels, Routed, walk
from research.drift.streams import BLOCK, Stream, offline, stream
from research.drift.world import Conditions, chances, difficulty, draw
from tests.support.fixed_policy import FixedPolicy

pytestmark = pytest.mark.usefixtures("short_start")

QUERIES = 40_000
THRESHOLD = 0.04


def walked(family: str, policy: FixedPolicy | None = None) -> tuple[Stream, Labels, np.ndarray]:
    """Return a stream, the labels that a fixed policy is given of it, and which of these are wrong."""
    drawn, policy = stream(family, 5, QUERIES), policy or FixedPolicy(THRESHOLD, 0.0)
    walk(drawn, offline(5), policy)
    told, truth = policy.told, drawn.truth
    wrong = (told.small != truth.small[told.number]) | (told.large != truth.large[told.number])
    return drawn, told, wrong & ~told.retracted


def changed(**conditions: float) -> tuple[Conditions, np.random.Generator]:
    made = {name: np.full(200_000, value) for name, value in conditions.items()}
    return Conditions.of(200_000, **made), np.random.default_rng(1)


@pytest.mark.parametrize("name", ["blunder", "cut", "novel", "misled"])
def test_expectations_of_new_conditions_are_those_of_the_draws(name: str) -> None:
    """Within 5 standard errors, together with what else may be changed."""
    conditions, rng = changed(**{name: 0.3, "alike": 0.5, "small": 0.4})
    behind = chances(difficulty(rng, conditions), conditions)
    drawn = draw(rng, behind)
    counts = np.stack((drawn.gold, drawn.small, drawn.large, drawn.small < drawn.gold)).astype(np.float64)
    apart = counts - behind.expected()
    assert np.all(np.abs(apart.mean(axis=1)) < 5.0 * apart.std(axis=1) / np.sqrt(apart.shape[1]) + 1e-9)


@pytest.mark.parametrize(
    ("family", "real"),
    [
        ("harm_typos", Harm(-0.48, -0.42, -0.38, -0.68)),
        ("harm_names_8", Harm(-0.11, -0.22, -0.44, -1.43)),
        ("harm_names_25", Harm(-0.35, -0.70, -1.39, -4.46)),
    ],
)
def test_harm_lies_where_that_of_real_drift_does(family: str, real: Harm) -> None:
    found = harm(HARMS[family], 200_000, seed=3)
    assert 100.0 * np.array(found) == pytest.approx(np.array(real), abs=0.12)
    assert found.by_agreement == pytest.approx(real.by_agreement, abs=0.05)


def test_agreement_does_not_tell_of_silent_harm() -> None:
    assert abs(harm(HARMS["harm_silent"], 200_000).by_agreement) < 0.05
    assert harm({"small": 0.98}, 200_000).by_agreement > 0.44


@pytest.mark.parametrize(("says", "share"), [("wrong", None), ("right", None), ("some", 0.3)])
def test_a_labeler_turns_after_30k_of_120k_queries(says: str, share: float | None) -> None:
    drawn, told, wrong = walked(f"turn_{says}")
    assert wrong.any()
    assert set(told.labeler[wrong]) == {4}
    assert told.number[wrong].min() >= QUERIES // 4
    since = (told.number >= QUERIES // 4) & (told.labeler == 4) & (drawn.truth.gold[told.number] > 0)
    if share is not None:
        assert wrong[since].mean() == pytest.approx(share, abs=0.08)
    elif says == "wrong":
        assert (told.small < told.gold)[since].all()
    else:
        assert (told.small == told.gold)[since].all()


def test_mute_servers_say_0_and_the_oracle_draws_lots() -> None:
    everywhere, third = (stream(name, 5, QUERIES) for name in ("mute_all", "mute_third"))
    begin = int(0.4 * QUERIES)
    assert (everywhere.u[:begin] > 0.0).all()
    assert (everywhere.u[begin:] == 0.0).all()
    assert (third.u[begin:] == 0.0).mean() == pytest.approx(0.33, abs=0.02)
    of_all, of_third = (oracle(one).escalation_rate[begin // BLOCK :] for one in (everywhere, third))
    assert ((of_all > 0.0) & (of_all < 1.0)).all()
    assert of_third.mean() < of_all.mean()
    small = third.truth.small[begin:][third.u[begin:] == 0.0].mean()
    assert third.expected[1, begin:][third.u[begin:] == 0.0].mean() == pytest.approx(small, rel=0.02)


def test_a_cold_start_is_judged_from_its_first_threshold() -> None:
    drawn = stream("cold_8", 5, 8 * BLOCK)
    for policy in (Ours(watch=True), Rival(AdaptiveConformal())):
        routed = walk(drawn, offline(5), policy)
        found = judge_score(drawn, routed, oracle(drawn))
        assert (found.first_threshold or 0) >= 250
        assert routed.escalated[: found.first_threshold].all()
        assert not routed.escalated[found.first_threshold :].all()
    never = Routed.blank(8 * BLOCK)
    never.journal = Journal()
    assert judge_score(drawn, never, oracle(drawn)).pol is None


def test_scores_are_those_from_the_change_on() -> None:
    drawn = stream("blind_loss", 5, 5 * BLOCK)
    routed = Routed.blank(5 * BLOCK)
    routed.escalated[4 * BLOCK :] = routed.large_ran[4 * BLOCK :] = True
    routed.journal = Journal(set_aside=[(500, 30), (1_000, 10)], audits=2, drifted=[True, False])
    routed.lying = [(500, 10), (1_000, 10)]
    routed.alarms = [Alarm(100, "tail", False), Alarm(9_000, "tail", False)]
    found = judge_score(drawn, routed, oracle(drawn))
    assert found.pol == pytest.approx(1 / 3)
    assert (found.recovery, found.set_aside, found.audits, found.drifted) == (2 * BLOCK, 20.0, 2, 0.5)
    assert (found.alarms, found.false_alarms) == (20.0, 25.0)


def test_the_unseen_half_is_refused_unless_it_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    seed = str(half("bursts", unseen=True)[0])
    asked = ["--suite", "ordinary", "--families", "bursts", "--seeds", seed, "--queries", str(BLOCK), "--jobs", "1"]
    assert main(asked) == 2
    assert f"bursts {seed}; say --unseen" in capsys.readouterr().err
    assert main([*asked, "--unseen", "--policies", "static"]) == 0
    assert main([*asked, "--queries", "7"]) == 2


def test_the_command_writes_tables_and_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--suite", "ordinary", "--families", "harm_silent", "--seeds", "5", "--queries", str(2 * BLOCK)]
    told, folder = tmp_path / "rows.json", tmp_path / "out"
    assert main([*asked, "--jobs", "1", "--json", str(told), "--out", str(folder)]) == 0
    printed, document = json.loads(capsys.readouterr().out), json.loads((folder / "rows.json").read_text())
    assert printed == json.loads(told.read_text()) == document
    assert {row["policy"] for row in document["rows"]} == set(JUDGED)
    page = (folder / "README.md").read_text()
    assert page == markdown(document["rows"], document["made"])
    assert "static, best margin" in page
    with pytest.raises(SystemExit):
        main(["--suite", "ordinary", "--help"])
    assert "--suite ordinary --quick" in capsys.readouterr().out
