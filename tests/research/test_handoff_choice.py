"""What the benchmark of the handoff's margin counts, on pools whose best margin is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from research.handoff import choice
from research.handoff.at_target import TARGET, hold, ladder
from research.handoff.choice import MIXES
from research.handoff.choice_report import write
from research.handoff.pool import HANDOFFS, MARGINS, OFF, TEXTS, Pool
from research.handoff.stepping import RULES, Rule, Stage, stepping

QUERIES = 600
MADE = {"command": "python -m research.handoff.choice", "commit": "0", "machine": "m", "python": "3", "day": "d"}


def pool(harm: float) -> Pool:
    """Return a pool in which each bolder margin saves tokens, and loses ``harm`` of the pairs that a large answer has.

    Below 0 it finds as many of those that the answer lacks.
    """
    rng = np.random.default_rng(3)
    u = rng.uniform(size=QUERIES)
    gold = np.full(QUERIES, 5.0)
    small = np.stack([2.0 * rng.binomial(5, 1.0 - 0.3 * u), 2.0 * gold, np.full(QUERIES, 50.0)], axis=1)
    large = np.empty((len(HANDOFFS), QUERIES, 3))
    hits = rng.binomial(5, 0.97, QUERIES)
    for row, handoff in enumerate(HANDOFFS.values()):
        bold = 0 if handoff is None else MARGINS.index(handoff.margin) + 1
        found = hits - rng.binomial(hits, max(0.0, harm) * bold) + rng.binomial(5 - hits, max(0.0, -harm) * bold)
        large[row] = np.stack([2.0 * found, 2.0 * gold, np.full(QUERIES, 50.0 - 4.0 * bold)], axis=1)
    text = np.arange(QUERIES) % len(TEXTS)
    return Pool(text, u, small, large, np.zeros((len(HANDOFFS), QUERIES), dtype=bool))


def test_the_target_is_held_as_cheaply_as_can_be() -> None:
    """One query less above the threshold would miss it; the cost is that of both models' tokens."""
    some, weights = pool(0.0), np.ones(QUERIES)
    held = hold(some, OFF, weights)

    def micro_f1(above: np.ndarray) -> float:
        sums = np.where(above[:, None], some.large[0, :, :2], some.small[:, :2]).sum(axis=0)
        return float(sums[0] / sums[1])

    assert held.met
    assert micro_f1(held.above) >= TARGET
    least = held.above & (some.u > some.u[held.above].min())
    assert micro_f1(least) < TARGET
    assert held.cost == pytest.approx(50.0 + 3.02 * 50.0 * held.escalated)


def test_bold_margins_are_chosen_only_where_they_pay() -> None:
    """The learned choice is the boldest margin where that gains, and none at all where each costs dear."""
    for harm, best in ((-0.1, f"field@{MARGINS[-1]:g}"), (0.05, OFF)):
        rows = choice.choices(pool(harm), MIXES["clean"], rounds=10, seed=1)
        learned = next(row for row in rows if row["choice"] == "learned" and row["granularity"] == "field")
        assert learned["chosen"][best] >= 0.8
        assert learned["over_fixed"] < 0.0


def test_a_rule_steps_back_from_what_costs_too_much() -> None:
    """Down to no handoff where every margin loses too much, up to the boldest where each gains."""
    for harm, end in ((0.05, OFF), (-0.1, f"token@{MARGINS[-1]:g}")):
        stages = [Stage(pool(harm), MIXES["clean"], "token")]
        walk = stepping(stages, Rule(0.1, by_bounds=False), 200_000, seed=1)
        assert walk.spent[end] > 0
        assert sum(walk.spent.values()) == 200_000


def test_the_page_shows_every_margin_and_rule(tmp_path: Path) -> None:
    """All of one short run."""
    results = choice.run(pool(0.01), rounds=5, seeds=2, queries=8_000)
    write(results, MADE, tmp_path)
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for granularity in ("field", "token") for name in ladder(granularity))
    assert all(rule in page for rule in RULES)


def test_recorded_answers_agree_with_the_packed_traffic() -> None:
    """The committed pool holds the demo's models: its clean micro-F1 is theirs, and handing over saves tokens."""
    some = Pool.load()
    assert [int((some.text == text).sum()) for text in range(len(TEXTS))] == list(TEXTS.values())
    clean = some.text == 0
    hits, size = some.small[clean, :2].sum(axis=0)
    assert hits / size == pytest.approx(0.848, abs=0.01)
    tokens = np.nanmean(some.large[:, :, 2], axis=1)
    assert list(tokens[1:6]) == sorted(tokens[1:6], reverse=True)
    assert tokens[0] == tokens.max()
